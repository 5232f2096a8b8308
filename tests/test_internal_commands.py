"""The commands that no person starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.cli import main
from hangbisect.commands import INTERNAL


def test_a_monitor_that_cannot_be_loaded_leaves_a_sentence_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "hangbisect-1"
    folder.mkdir()
    (folder / "socket").touch()
    program = (
        "import sys; sys.modules['asyncio'] = None\n"  # as without memory: it cannot be imported
        "from hangbisect.commands import internal\n"
        "sys.exit(internal.monitor(sys.argv[1:]))\n"
    )
    argument = json.dumps({"folder": str(folder)})
    done = subprocess.run(
        [sys.executable, "-c", program, argument], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, folder.exists()) == (70, "", False)
    assert done.stderr.startswith("hangbisect: the monitor could not begin (")
    assert done.stderr.endswith("the job is not affected\n")
    assert done.stderr.count("\n") == 1


def test_a_monitor_without_descriptors_leaves_a_sentence_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "hangbisect-1"
    folder.mkdir()
    (folder / "socket").touch()
    program = (
        "import json, os, resource, sys\n"
        "from hangbisect.commands import internal\n"
        "import hangbisect.monitor.main\n"
        "reader, writer = os.pipe()\n"
        "os.write(writer, b'{}'); os.close(writer)\n"
        "start = {'folder': sys.argv[1], 'path': [], 'settings': reader}\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (reader + 1, reader + 1))\n"
        "sys.exit(internal.monitor([json.dumps(start)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, folder.exists()) == (70, "", False)
    assert "Too many open files" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["-h"], [], ["seven"], ["list", "all"]])
@pytest.mark.parametrize("name", sorted(INTERNAL - {"walk"}))
def test_a_person_who_starts_one_gets_a_sentence(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == (
        f"hangbisect: {name} is a command that hangbisect starts itself, and no person does"
    )
