"""A process as /proc has it; whether it has ended, with pidfds and without: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.evidence.process import open_life, parse_preloaded, started

DEADLINE = 60.0
SLEEP = "import time; time.sleep(3600)"
Start = Callable[..., subprocess.Popen[str]]
WITHOUT = Path(__file__).parents[1] / "real" / "without_syscalls.py"

# What each of these prints is compared between a kernel with pidfds and one without.
LIVES = f"""
import importlib, os, runpy, signal, subprocess, sys, time
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
from hangbisect.evidence.process import open_life
from hangbisect.base.proc import read_stat
from hangbisect.evidence.process import started
from hangbisect.monitor.ending import is_alive, signal_process
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {SLEEP!r}])
life = open_life(child.pid)
ticks = started(child.pid)
print("pidfd" if life.descriptor is not None else "no pidfd")
print("runs", not life.has_ended(), is_alive(child.pid))
print("an earlier one of its pid has ended", open_life(child.pid, ticks - 1).has_ended())
print("sent to an earlier one", signal_process(child.pid, ticks - 1, signal.SIGKILL))
print("sent", signal_process(child.pid, ticks, signal.SIGKILL))
while read_stat(child.pid).state not in "ZX":
    time.sleep(0.02)
print("zombie has ended", life.has_ended(), not is_alive(child.pid))
child.wait()
print("nobody has ended", life.has_ended(), not is_alive(child.pid),
    open_life(child.pid).has_ended())
print("sent to nobody", signal_process(child.pid, ticks, signal.SIGKILL))
life.close(); life.close()
"""
SAID = """\
runs True True
an earlier one of its pid has ended True
sent to an earlier one False
sent True
zombie has ended True True
nobody has ended True True True
sent to nobody False
"""


def python(start: Start, program: str) -> subprocess.Popen[str]:
    return start(sys.executable, "-I", "-S", "-c", program)


@pytest.mark.parametrize(
    ("refusal", "first"),
    [
        ([], "pidfd"),
        (["pidfd_open"], "no pidfd"),
        (["--errno", "EPERM", "pidfd_open"], "no pidfd"),
        (["--errno", "EMFILE", "pidfd_open"], "no pidfd"),
        (["--errno", "EPERM", "pidfd_send_signal"], "pidfd"),
    ],
)
def test_it_is_told_alike_with_pidfds_and_without(
    start: Start, checkout: Path, refusal: list[str], first: str
) -> None:
    before = [sys.executable, str(WITHOUT), *refusal] if refusal else []
    said, complaint = start(*before, sys.executable, "-c", LIVES, str(checkout)).communicate(
        timeout=DEADLINE
    )
    assert (said, complaint) == (f"{first}\n{SAID}", "")


def test_the_descriptor_is_readable_once_it_has_ended(start: Start) -> None:
    process = python(start, SLEEP)
    life = open_life(process.pid)
    assert life.started == started(process.pid)
    assert not life.has_ended()
    process.kill()
    end = time.monotonic() + DEADLINE
    while not life.has_ended():
        assert time.monotonic() < end
        time.sleep(0.02)
    life.close()
    assert life.has_ended()


def test_after_close_it_is_still_told(start: Start) -> None:
    process = python(start, SLEEP)
    life = open_life(process.pid)
    life.close()
    assert life.descriptor is None
    assert not life.has_ended()
    process.kill()
    process.wait(DEADLINE)
    assert life.has_ended()


def test_a_process_whose_main_thread_has_ended_goes_on(start: Start) -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "print(flush=True)\n"
        "ctypes.CDLL(None).syscall(60 if __import__('os').uname().machine == 'x86_64' else 93, 0)\n"
    )
    process = python(start, program)
    assert process.stdout is not None
    process.stdout.readline()
    end = time.monotonic() + DEADLINE
    while " Z (zombie)" not in Path(f"/proc/{process.pid}/status").read_text().replace("\t", " "):
        assert time.monotonic() < end
        time.sleep(0.02)
    life = open_life(process.pid)
    assert not life.has_ended()
    life.close()
    assert not life.has_ended()
    os.kill(process.pid, signal.SIGKILL)


def test_a_pid_that_cannot_be_is_a_life_that_has_ended() -> None:
    assert open_life(1 << 40).has_ended()
    assert open_life(2**22 + 1).has_ended()
    assert open_life(0).has_ended()
    assert open_life(-1).has_ended()


def test_preloaded_libraries_are_split_as_the_loader_does() -> None:
    assert parse_preloaded("/a/libx.so:libjemalloc.so.2 /b/y.so", "/etc/z.so\n# not this\n") == (
        *("/a/libx.so", "libjemalloc.so.2", "/b/y.so"),
        "/etc/z.so",
    )
    assert parse_preloaded("", "") == ()
