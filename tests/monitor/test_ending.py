"""A job's family is ended, all of it and nobody else: with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

import psutil
import pytest
from hangbisect.base.place import JOB_VARIABLE
from hangbisect.evidence.process import started
from hangbisect.monitor.ending import ProcessFamily, has_ended, resume_process, signal_process

DEADLINE = 60.0
SLEEP = "import time; time.sleep(3600)"
Start = Callable[..., subprocess.Popen[str]]
# A rank with a child in the same session, one in its own, and a grandchild whose parent is gone.
TREE = f"""
import subprocess, sys
python = [sys.executable, "-I", "-S", "-c"]
child = subprocess.Popen([*python, {SLEEP!r}])
away = subprocess.Popen([*python, {SLEEP!r}], start_new_session=True)
orphan = (
    "import subprocess, sys; null = subprocess.DEVNULL;"
    "print(subprocess.Popen(sys.argv[1:], stdout=null, stderr=null).pid)"
)
found = subprocess.run([*python, orphan, *python, {SLEEP!r}], stdout=subprocess.PIPE, text=True)
print(child.pid, away.pid, found.stdout, flush=True)
child.wait()
"""


def python(start: Start, program: str, **options: object) -> subprocess.Popen[str]:
    return start(sys.executable, "-I", "-S", "-c", program, **options)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def job() -> str:
    """The name of a job that is nowhere else on this machine."""
    return uuid.uuid4().hex


@pytest.fixture
def rank(start: Start, job: str) -> subprocess.Popen[str]:
    """A rank of the job, with its descendants; in a session of its own, as torchrun's are."""
    environ = {**os.environ, JOB_VARIABLE: job}
    return python(start, TREE, env=environ, start_new_session=True)


@pytest.fixture
def tree(rank: subprocess.Popen[str]) -> list[int]:
    """The pids of that rank, of its two children, and of the orphan."""
    assert rank.stdout is not None
    return [rank.pid, *map(int, rank.stdout.readline().split())]


def test_children_are_found_in_whatever_session_they_are(tree: list[int]) -> None:
    family = ProcessFamily("another job")
    family.add_rank(tree[0])
    family.refresh()
    assert family.children(tree[0]) == sorted(tree[1:3])
    assert family.living() == sorted(tree[:3])


def test_an_orphan_is_found_by_the_mark_in_its_environment(tree: list[int], job: str) -> None:
    family = ProcessFamily(job)
    family.search()
    assert set(family.living()) == set(tree)


def test_an_orphan_without_the_mark_is_found_by_the_session_of_its_rank(tree: list[int]) -> None:
    family = ProcessFamily("another job")
    family.add_rank(tree[0])
    family.search()
    assert tree[3] in family.living()
    assert os.getpid() not in family.living()


def test_children_seen_once_are_known_after_their_parent_is_gone(
    rank: subprocess.Popen[str], tree: list[int]
) -> None:
    family = ProcessFamily("another job")
    family.add_rank(tree[0])
    family.refresh()
    rank.kill()
    rank.wait(DEADLINE)
    family.refresh()
    assert set(family.living()) == set(tree[1:3])


def test_all_of_it_is_ended_a_stopped_one_too_and_nobody_else(
    tree: list[int], start: Start, job: str
) -> None:
    stranger = python(start, SLEEP, env={**os.environ, JOB_VARIABLE: f"{job} too"})
    os.kill(tree[1], signal.SIGSTOP)
    family = ProcessFamily(job)
    family.add_rank(tree[0])
    assert family.end_for_good(DEADLINE) == []
    wait_until(lambda: not any(is_running(pid) for pid in tree))
    assert stranger.poll() is None


def test_one_that_forks_without_end_is_ended_too(start: Start, job: str) -> None:
    program = (
        "import os, time\n"
        "print(flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end:\n"
        "    time.sleep(0.01)\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    os.setsid()\n"
    )
    runner = python(start, program, env={**os.environ, JOB_VARIABLE: job})
    assert runner.stdout is not None
    runner.stdout.readline()
    family = ProcessFamily(job)
    assert family.end_for_good(DEADLINE) == []
    wait_until(lambda: not marked_processes(job))


def marked_processes(job: str) -> list[int]:
    family = ProcessFamily(job)
    family.search()
    return family.living()


def test_a_signal_goes_only_to_the_process_that_was_meant(start: Start) -> None:
    process = python(start, SLEEP)
    ticks = started(process.pid)
    assert ticks is not None
    assert not signal_process(
        process.pid, ticks - 1, signal.SIGKILL
    )  # a later one with the same pid
    assert process.poll() is None
    assert signal_process(process.pid, ticks, signal.SIGKILL)
    assert process.wait(DEADLINE) == -signal.SIGKILL
    assert not signal_process(process.pid, ticks, signal.SIGKILL)


def test_a_pid_used_again_is_another_process(start: Start) -> None:
    process = python(start, SLEEP)
    family = ProcessFamily("another job")
    family.add_rank(process.pid)
    ticks, rank = family._seen[process.pid]
    family._seen[process.pid] = (ticks - 1, rank)
    assert family.living() == []
    family.end()
    assert process.poll() is None


def test_the_children_and_the_session_of_a_pid_used_again_are_let_alone(
    rank: subprocess.Popen[str], tree: list[int]
) -> None:
    # As if the rank had ended, and this process, with its children and its session, came later.
    family = ProcessFamily("another job")
    ticks = started(rank.pid)
    assert ticks is not None
    family.add_rank(rank.pid, ticks - 1)
    family.refresh()
    family.search()
    assert family.living() == []
    family.add_rank(rank.pid, ticks)
    family._ranks[rank.pid], family._seen = ticks - 1, {}
    family.refresh()
    family.search()
    assert family.living() == []
    assert family.end_for_good(DEADLINE) == []
    assert all(is_running(pid) for pid in tree)


def test_an_orphan_is_found_by_its_session_after_its_rank_is_gone(
    rank: subprocess.Popen[str], tree: list[int]
) -> None:
    family = ProcessFamily("another job")
    family.add_rank(rank.pid)
    family.refresh()
    family._seen = {}
    rank.kill()
    rank.wait(DEADLINE)
    family.search()
    assert tree[3] in family.living()


def test_what_a_look_stopped_goes_on(start: Start) -> None:
    process = psutil.Process(python(start, SLEEP).pid)
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    resume_process(process.pid)
    wait_until(lambda: process.status() != psutil.STATUS_STOPPED)


def test_an_end_is_seen_by_whoever_is_no_parent(start: Start) -> None:
    process = python(start, SLEEP)
    descriptor = os.pidfd_open(process.pid)
    assert not has_ended(descriptor)
    process.kill()
    wait_until(lambda: has_ended(descriptor))
    os.close(descriptor)
