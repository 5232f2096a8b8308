"""The timer that writes stacks, and that it is nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 60.0  # seconds for a process
BEGIN = """
import os, sys, time
from hangbisect.rank.ptrace_permission import StackTimer
timer = StackTimer({path!r}, shared=True)
timer.arm({seconds})
"""
# The script's own watchdog: it ends the process, whatever steps of ours come and go.
WATCHDOG = """
import faulthandler
faulthandler.dump_traceback_later(0.5, exit=True)
for _ in range(600):
    timer.arm(100); timer.disarm(); time.sleep(0.1)
"""
FORK = """
for _ in range(3):
    child = os.fork()
    if child == 0:
        sys.exit(7)  # as a program ends: the interpreter is taken down
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
time.sleep(0.5)
"""
IN_CHILD = """
child = os.fork()
if child == 0:
    import faulthandler
    faulthandler.dump_traceback_later(100)
    faulthandler.cancel_dump_traceback_later()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def ended(source: str, path: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    text = BEGIN.format(path=str(path), seconds=seconds) + source
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=LIMIT
    )


def test_stacks_are_written_when_a_step_lasts(tmp_path: Path) -> None:
    done = ended("time.sleep(1)", tmp_path / "stacks", 0.2)
    assert done.returncode == 0, done.stderr
    assert "most recent call first" in (tmp_path / "stacks").read_text()


@pytest.mark.parametrize("before", ["", "import faulthandler\n"])
def test_the_watchdog_of_the_job_bites(before: str, tmp_path: Path) -> None:
    text = before + BEGIN.format(path=str(tmp_path / "stacks"), seconds=100) + WATCHDOG
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.500000)!")


def test_the_job_imports_the_module_as_without_us(tmp_path: Path) -> None:
    done = ended(
        "import faulthandler\n"
        "print(sys.modules['faulthandler'] is faulthandler, faulthandler.__spec__.name)\n"
        "print([type(one).__name__ for one in sys.meta_path if isinstance(one, StackTimer)])",
        tmp_path / "stacks",
        100,
    )
    assert done.stdout == "True faulthandler\n[]\n"


@pytest.mark.parametrize(("source", "said"), [(FORK, "7\n7\n7\n"), (IN_CHILD, "7\n")])
def test_forked_children_end(source: str, said: str, tmp_path: Path) -> None:
    done = ended(source, tmp_path / "stacks", 0.2)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    if source == FORK:  # it goes on in the parent
        assert "most recent call first" in (tmp_path / "stacks").read_text()


def test_the_module_of_another_is_not_taken_out_of_sys_modules(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    text = BEGIN.format(path=str(tmp_path / "stacks"), seconds=0.1)
    done = subprocess.run(
        [sys.executable, "-c", f"{text}time.sleep(0.5); print('faulthandler' in sys.modules)"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout == "True\n"
    assert not (tmp_path / "stacks").exists()
