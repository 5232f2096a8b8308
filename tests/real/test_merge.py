"""What the tools print of real processes, merged."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hangbisect.commands.results import merge
from hangbisect.evidence.external_tools import find_program

from ..conftest import Start

DEADLINE = 120.0  # seconds
JOB = """\
import faulthandler, sys, time

def prepare(rank):
    faulthandler.dump_traceback_later(0.2, file=open(sys.argv[1], "w"))
    time.sleep(600)

def train(rank):
    prepare(rank)

train(rank=int(sys.argv[2]))
"""


@pytest.fixture
def stuck(start: Start, tmp_path: Path) -> int:
    """A rank 3 that sleeps; it has written `rank3.log` itself."""
    (tmp_path / "train.py").write_text(JOB)
    log = tmp_path / "rank3.log"
    pid: int = start(sys.executable, tmp_path / "train.py", log, "3").pid
    end = time.monotonic() + DEADLINE
    while not (log.exists() and "<module>" in log.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return pid


def merged(capsys: pytest.CaptureFixture[str], file: Path) -> dict[str, Any]:
    capsys.readouterr()
    assert merge(["--json", str(file)]) == 3
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_each_tool_prints_of_a_process_is_understood(
    stuck: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = {
        "plain": ("py-spy", "dump", "--nonblocking"),
        "native": ("py-spy", "dump", "--native"),
        "locals": ("py-spy", "dump", "--locals"),
        "pystack": ("pystack", "remote", "--native"),
    }
    calls = {}
    for name, (tool, *words) in ways.items():
        program = find_program(tool)
        if program is None:
            continue
        pid = ("--pid", str(stuck)) if tool == "py-spy" else (str(stuck),)
        done = subprocess.run(
            [program, *words, *pid], capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stderr
        file = tmp_path / f"{name}.txt"
        file.write_text(done.stdout)
        found = merged(capsys, file)
        (rank,) = found["ranks"]
        assert rank["pid"] == stuck
        assert "<module> (train.py:10)" in rank["stack"]
        assert rank["rank"] == (3 if name == "locals" else None)
        calls[name] = found["verdict"]["call"]
    assert calls["plain"] == calls["locals"] == "train.prepare"
    assert calls["native"] == calls.get("pystack", "time.sleep") == "time.sleep"


def test_what_faulthandler_wrote_is_understood(
    stuck: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rank,) = merged(capsys, tmp_path / "rank3.log")["ranks"]
    assert (rank["rank"], rank["pid"]) == (3, None)
    assert rank["stack"] == ["prepare (train.py:5)", "train (train.py:8)", "<module> (train.py:10)"]
