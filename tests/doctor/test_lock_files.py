"""Which lock files matter: who has them, which are locks by being there, which are harmless."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from hangbisect.doctor import leftovers
from hangbisect.doctor.examination import CheckedProcess
from hangbisect.doctor.leftovers import LockFile, Locks, Marker, parse_marker
from hypothesis import given
from hypothesis import strategies as st

from ..conftest import Start
from .made_up import levels, said, setting

HOLDER = CheckedProcess(4711, "python", ("python", "train.py"), 9000.0)
HOLDS = """
import fcntl, os, sys
flock = open(sys.argv[1], "w")
fcntl.flock(flock, fcntl.LOCK_EX)
baton = os.open(sys.argv[2], os.O_CREAT | os.O_EXCL)
print(flush=True)
sys.stdin.read()
"""


@given(st.integers(1, 10**8), st.text("abc-.0123", min_size=1))
def test_who_made_a_soft_lock_is_its_first_two_lines(pid: int, host: str) -> None:
    assert parse_marker(f"{pid}\n{host}\n".encode()) == Marker(pid, host)
    assert parse_marker(f"{pid}\n{host}\n123456\n".encode()) == Marker(pid, host)
    assert parse_marker(str(pid).encode()) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_taken_for_a_soft_lock(data: bytes) -> None:
    parse_marker(data)


def test_a_lock_that_somebody_has_is_a_warning_of_a_stopped_one_a_problem() -> None:
    lock = LockFile("hub cache", "/h/x.lock", 7200.0, False, HOLDER)
    ((level, value),) = said(leftovers.held, Locks(held=(lock,)))
    assert (level, "held by python (4711" in value) == ("warning", True)
    brief = LockFile("hub cache", "/h/x.lock", 5.0, False, HOLDER)
    assert levels(leftovers.held, Locks(held=(brief,))) == ["ok"]
    frozen = LockFile("hub cache", "/h/x.lock", 5.0, False, HOLDER, stopped=True)
    assert levels(leftovers.held, Locks(held=(frozen,))) == ["problem"]


def test_files_that_nobody_has_are_harmless_unless_they_are_the_lock() -> None:
    assert levels(leftovers.held, Locks(idle=12)) == ["ok"]
    assert levels(leftovers.stale, Locks(idle=12)) == ["ok"]
    left = LockFile("torch extensions", "/e/x/lock", 7200.0, True)
    ((level, value),) = said(leftovers.stale, Locks(left=(left,)))
    assert (level, "no process has it open" in value) == ("problem", True)


def test_another_machine_may_have_it() -> None:
    on_network = LockFile("torch extensions", "/e/x/lock", 7200.0, True, network=True)
    assert levels(leftovers.stale, Locks(left=(on_network,))) == ["warning"]
    foreign = LockFile("hub cache", "/h/x.lock", 1.0, True, marker=Marker(7, "n02"))
    assert levels(leftovers.stale, Locks(left=(foreign,), host="n01")) == ["warning"]
    assert levels(leftovers.stale, Locks(left=(foreign,), host="n02")) == ["problem"]


def test_a_cache_that_does_not_answer_is_not_known() -> None:
    assert levels(leftovers.held, Locks(late=("hub cache",))) == ["unknown"]


def test_the_caches_are_walked_for_real(tmp_path: Path, start: Start) -> None:
    hub, built = tmp_path / "hub" / ".locks" / "models--x", tmp_path / "ext" / "py311" / "ops"
    other = built.with_name("other")
    for folder in (hub, built, other):
        folder.mkdir(parents=True)
    (hub / "idle.lock").touch()
    (hub / "soft.lock").write_text(f"{2**22 + 1}\nn01\n")  # above every pid
    (built / "lock").touch()
    blobs = tmp_path / "hub" / "models--x" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "lock").touch()
    process = start(
        *(sys.executable, "-c", HOLDS, hub / "held.lock", other / "lock"), stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    given = setting(HF_HUB_CACHE=str(tmp_path / "hub"), TORCH_EXTENSIONS_DIR=str(tmp_path / "ext"))
    found = leftovers.read_locks(given)
    assert {os.path.basename(lock.path) for lock in found.held} == {"held.lock", "lock"}
    assert {lock.holder.pid for lock in found.held if lock.holder} == {process.pid}
    assert {lock.path for lock in found.left} == {str(hub / "soft.lock"), str(built / "lock")}
    assert found.late == ()


def test_our_own_locks_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "mine.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = leftovers.read_locks(setting(HF_HUB_CACHE=str(tmp_path)))
    assert str(path) not in {lock.path for lock in found.held}
