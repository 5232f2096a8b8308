"""Whether a program that starts ranks is done with it: real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hangbisect.evidence.rank_parents import describe_busy_parent, describe_hearing_parent

FORKS = """import os, subprocess, sys, time
ranks = [os.fork() or time.sleep(1000) for _ in range(2)]
print(*ranks, flush=True)
"""
# What it does once it has started two ranks.
AT_WORK = {
    "sleeps": "time.sleep(1000)",
    "sleeps again and again": "while True: time.sleep(0.01)",
    "polls them until a time": """
while os.waitpid(ranks[0], os.WNOHANG) == (0, 0) and time.time() < 1e12:
    time.sleep(1)""",
    "polls a helper that prepares something for the next rank": """
helper = subprocess.Popen(["sleep", "1000"])
while helper.poll() is None:
    time.sleep(1)""",
    "polls them beside a thread": """
import threading
threading.Thread(target=time.sleep, args=(1000,)).start()
while os.waitpid(ranks[0], os.WNOHANG) == (0, 0):
    time.sleep(1)""",
    "computes": "while True: pass",
}
DONE = {
    "waits for one": "os.waitpid(ranks[0], 0)",
    "waits for any": "os.wait()",
    "hears whether one of them has ended": """
import select
select.select([os.pidfd_open(ranks[0])], [], [])""",
    "reads what they write": "r, w = os.pipe(); os.read(r, 1)",
    "polls them, beside a tracker of multiprocessing's": """
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
while any(os.waitpid(rank, os.WNOHANG) == (0, 0) for rank in ranks):
    time.sleep(1)""",
    "polls them": """
while os.waitpid(ranks[0], os.WNOHANG) == (0, 0):
    time.sleep(1)""",
}


@contextmanager
def started(does: str) -> Iterator[tuple[int, list[int]]]:
    """Start such a program; give its pid and its ranks."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "starts_ranks.py"
        script.write_text(FORKS + does)
        with start(script) as found:
            yield found


@contextmanager
def start(script: Path) -> Iterator[tuple[int, list[int]]]:
    words = [sys.executable, str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        try:
            assert one.stdout is not None
            ranks = [int(word) for word in one.stdout.readline().split()]
            time.sleep(0.3)
            yield one.pid, ranks
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(one.pid)], check=False)


def describe(ranks: list[int]) -> str:
    return asyncio.run(describe_busy_parent(ranks, limit=30.0))


@pytest.mark.parametrize("does", AT_WORK)
def test_who_sleeps_or_computes_may_start_more(does: str) -> None:
    with started(AT_WORK[does]) as (pid, ranks):
        told = describe(ranks)
    assert str(pid) in told
    if does in ("sleeps", "computes"):  # the others may be met between two sleeps
        assert told.endswith(does)


@pytest.mark.parametrize("does", DONE)
def test_who_waits_for_its_ranks_starts_no_more(does: str) -> None:
    with started(DONE[does]) as (_, ranks):
        assert describe(ranks) == ""


HEARS = """
import os, socket, time
ready, says = os.pipe()
one, other = socket.socketpair()
rank = os.fork()
if rank == 0:
    os.close(ready)
    one.close()
    time.sleep(1000)
os.close(says)
other.close()
print(rank, flush=True)
"""


@pytest.mark.parametrize("does", ["os.read(ready, 1)", "one.recv(1)"])
def test_who_waits_for_what_a_rank_is_to_tell_it_is_said(does: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "serve.py"
        script.write_text(HEARS + does)
        with start(script) as (pid, ranks):
            told = asyncio.run(describe_hearing_parent(ranks))
    assert told.startswith(f"process {pid} (")
    assert told.endswith(f"waits for what process {ranks[0]} is to tell it")


@pytest.mark.parametrize("does", DONE)
def test_who_waits_for_the_end_of_ranks_or_for_others_hears_none(does: str) -> None:
    with started(DONE[does]) as (_, ranks):
        assert asyncio.run(describe_hearing_parent(ranks)) == ""


def test_a_launcher_is_known_by_its_command_and_starts_all_at_once() -> None:
    """Also one that sets the variables of torchrun is none: any program may set them."""
    for name, does in (("torchrun", ""), ("launch_all.py", "sleeps")):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / name
            script.write_text(FORKS + AT_WORK["sleeps"])
            with start(script) as (_, ranks):
                assert describe(ranks).endswith(does)
                assert bool(describe(ranks)) is bool(does)


def test_one_of_the_ranks_is_no_such_parent() -> None:
    """Lightning's rank 0 starts the others and goes on as a rank."""
    with started("time.sleep(1000)") as (pid, ranks):
        assert f"process {pid} " not in describe([pid, *ranks])


def test_ranks_that_are_gone_have_no_parent() -> None:
    assert describe([]) == ""
    assert describe([1 << 22]) == ""
