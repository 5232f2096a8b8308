"""Processes that are forked: their end and what they say have a deadline, and what a job is sent
does not reach them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from hangbisect.base import forks

Start = Callable[..., subprocess.Popen[str]]
DEADLINE = 60.0  # seconds


def test_what_a_pipe_says_is_read_to_its_end_or_until_the_deadline() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"half")
    began = time.monotonic()
    assert forks.read_pipe(reader, began + 0.05) == "half"  # it stays open: nobody waits for more
    assert time.monotonic() - began >= 0.05
    os.write(writer, b" and half")
    os.close(writer)
    assert forks.read_pipe(reader, time.monotonic() + DEADLINE) == " and half"
    os.close(reader)


def test_a_child_that_does_not_end_is_ended_at_the_deadline(start: Start) -> None:
    process = start("sleep", "3600")
    forks.await_child(process.pid, time.monotonic() + 0.05)
    process.returncode = -signal.SIGKILL  # it was waited for: nobody has this pid any more
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_child_that_ends_or_is_none_is_waited_for_no_longer(start: Start) -> None:
    process = start("true")
    began = time.monotonic()
    forks.await_child(process.pid, began + DEADLINE)
    process.returncode = 0
    forks.await_child(process.pid, began + DEADLINE)  # as where the job ignores SIGCHLD
    assert time.monotonic() < began + DEADLINE


IGNORES = """
import subprocess
from hangbisect.base.forks import withstand_signals
withstand_signals()
status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
print(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")))
"""


def test_what_a_job_is_sent_is_ignored_and_in_what_is_started_too(start: Start) -> None:
    """SigIgn of /proc/PID/status (proc_pid_status(5)) is a mask in hexadecimal, bit 0 for 1."""
    process = start(sys.executable, "-c", IGNORES)
    said, told = process.communicate(timeout=DEADLINE)
    assert told == ""
    ignored = {bit + 1 for bit in range(64) if int(said, 16) >> bit & 1}
    sent = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP}
    assert sent | {signal.SIGRTMIN, signal.SIGRTMAX} <= ignored
    # What says that we have failed ourselves, and what nobody can ignore (signal(7)).
    assert not {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL} & ignored
    assert signal.SIGCHLD not in ignored  # or wait() would have no status


def test_there_is_room_for_a_process_where_there_is_no_limit() -> None:
    assert forks.why_no_room() == ""


FEW = """
import os, resource, sys
from hangbisect.base.forks import why_no_room
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[1]),) * 2)
if os.geteuid() == 0:
    os.setuid(60000 + os.getpid() % 5000)  # nobody else's, nor that of a test beside this one
print(why_no_room())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user of whom nothing runs")
@pytest.mark.parametrize(
    ("limit", "sentence"),
    [(33, ""), (20, "this user may have 20 processes, and has 1"), (1000, "")],
)
def test_where_a_user_may_have_few_processes_they_are_the_jobs(
    start: Start, limit: int, sentence: str
) -> None:
    said, _ = start(sys.executable, "-c", FEW, limit).communicate(timeout=DEADLINE)
    assert said == f"{sentence}\n"
