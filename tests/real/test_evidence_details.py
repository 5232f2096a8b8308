"""Real processes: locals, futex owners, lock files, logs, memory, other rungs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base import cgroups
from hangbisect.base.native_code import CODE_OF_PYTHON
from hangbisect.base.process_facts import Look, Syscall
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.collect.looks import may_pause
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence import external_tools, machine, stacks
from hangbisect.evidence import look as looking
from hangbisect.evidence import process as sample
from hangbisect.evidence.look import Target, take_looks
from hangbisect.zoo.case_files import find_missing
from hangbisect.zoo.parts.processes import compile_library

DEADLINE = 60.0
Start = Callable[..., "subprocess.Popen[str]"]


def python(start: Start, *args: object, **options: Any) -> int:
    """Start Python; it says when it is about to block."""
    process = start(sys.executable, *args, **options)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    return int(process.pid)


def look_until(pid: int, good: Callable[[Look], Any], **about: Any) -> Look:
    end = time.monotonic() + DEADLINE
    while True:
        (seen,) = asyncio.run(take_looks([Target(pid, **about)]))
        if good(seen) or time.monotonic() > end:
            return seen
        time.sleep(0.05)


def blocked(seen: Look) -> bool:
    return seen.state == "S" and bool(seen.threads)


def is_caller_known(seen: Look) -> bool:
    call = seen.kernel[0].syscall
    return call is not None and bool(call.caller)


def call_of(seen: Look) -> Syscall:
    call = seen.kernel[0].syscall
    assert call is not None
    return call


SLEEP = "import time\nprint('now', flush=True)\ntime.sleep(1000)"
BATON = """
import time

class FileBaton:
    def __init__(self, path):
        self.lock_file_path = path

    def wait(self):
        time.sleep(1000)
"""
EXTENSION = """
from .file_baton import FileBaton

def _jit_compile(name, build_directory, secret="hf_abcdefghijklmnopqrstuvwx"):
    baton = FileBaton(build_directory + "/lock")
    print("now", flush=True)
    baton.wait()
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A script that waits as a build of a torch extension does, for DIRECTORY/lock."""
    package = tmp_path / "torch" / "utils"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "file_baton.py").write_text(BATON)
    (package / "cpp_extension.py").write_text(EXTENSION)
    script = tmp_path / "build.py"
    script.write_text(
        "import sys\nfrom torch.utils.cpp_extension import _jit_compile\n"
        "_jit_compile('kernels', sys.argv[1])\n"
    )
    return script


def test_a_build_that_waits_names_its_folder_and_the_lock_that_nobody_has(
    start: Start, build: Path, tmp_path: Path
) -> None:
    (tmp_path / "lock").touch()
    os.utime(tmp_path / "lock", (time.time() - 5000, time.time() - 5000))
    pid = python(start, build, tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    seen = look_until(pid, blocked)
    assert seen.main is not None
    _, frame, _ = seen.main.frames
    assert frame.locals == (("name", '"kernels"'), ("build_directory", f'"{tmp_path}"'))
    (stale,) = seen.stale_locks
    assert (stale.path, stale.holder) == (str(tmp_path / "lock"), None)
    assert stale.inode == (tmp_path / "lock").stat().st_ino
    assert stale.age == pytest.approx(5000, abs=DEADLINE)
    assert f'        build_directory = "{tmp_path}"\n' in seen.dump
    assert "hf_abc" not in repr(seen)


def test_a_lock_file_that_its_maker_has_open_is_held_not_stale(
    start: Start, build: Path, tmp_path: Path
) -> None:
    maker = "import os, sys, time\nos.open(sys.argv[1], os.O_CREAT | os.O_EXCL)\n"
    holder = python(
        start, "-c", maker + "print('now', flush=True)\ntime.sleep(1000)", tmp_path / "lock"
    )
    pid = python(start, build, tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    seen = look_until(pid, blocked)
    assert seen.stale_locks == ()
    (lock,) = seen.locks
    assert (lock.path, lock.holder, lock.waiting) == (str(tmp_path / "lock"), holder, False)
    assert lock.age is not None


def test_without_the_lock_file_there_is_none_to_wait_for(
    start: Start, build: Path, tmp_path: Path
) -> None:
    pid = python(start, build, tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    seen = look_until(pid, blocked)
    assert (seen.locks, seen.stale_locks) == ((), ())


def test_locals_that_cannot_be_had_cost_nothing_but_themselves(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = external_tools.find_program()
    assert real is not None
    picky = tmp_path / "py-spy"
    picky.write_text(f'#!/bin/sh\ncase "$*" in *--locals*) exit 1;; esac\nexec {real} "$@"\n')
    picky.chmod(0o755)
    monkeypatch.setattr(stacks, "find_program", lambda name="py-spy": str(picky))
    pid = python(start, "-c", SLEEP)
    seen = look_until(pid, blocked)
    assert seen.rung == "py-spy"
    assert any("Without locals it did" in sentence for sentence in seen.missing)


MUTEX = """
import ctypes, os, threading, time
c = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
had = threading.Event()

def hold():
    c.pthread_mutex_lock(mutex)
    had.set()
    time.sleep(1000)

threading.Thread(target=hold, daemon=True).start()
had.wait()
"""


def test_a_mutex_names_the_thread_that_has_it(start: Start) -> None:
    wait = "print('now', flush=True)\nc.pthread_mutex_lock(mutex)"
    pid = python(start, "-c", MUTEX + wait)
    seen = look_until(pid, lambda one: one.kernel[0].syscall and call_of(one).futex)
    futex = call_of(seen).futex
    assert futex is not None
    holder = next(thread.os_id for thread in seen.threads if thread.os_id != pid)
    assert (futex.value, futex.owner, futex.owner_exists) == (2, holder, True)


def test_a_mutex_that_was_copied_by_a_fork_has_an_owner_who_does_not_exist(start: Start) -> None:
    wait = "print('now', flush=True)\nif os.fork() == 0:\n    c.pthread_mutex_lock(mutex)\n"
    pid = python(start, "-c", MUTEX + wait + "time.sleep(1000)")
    end = time.monotonic() + DEADLINE
    while not (children := sample.family([pid])) and time.monotonic() < end:
        time.sleep(0.05)
    (child,) = children
    seen = look_until(child, lambda one: one.kernel[0].syscall and call_of(one).futex)
    futex = call_of(seen).futex
    assert futex is not None
    assert futex.owner in {int(name) for name in os.listdir(f"/proc/{pid}/task")} - {pid}
    assert futex.owner_exists is False


def test_a_lock_of_python_has_no_owner(start: Start) -> None:
    code = "import threading\nlock = threading.Lock()\nlock.acquire()\nprint('now', flush=True)\n"
    pid = python(start, "-c", code + "lock.acquire()")
    seen = look_until(pid, lambda one: one.kernel[0].syscall and call_of(one).name == "futex")
    futex = call_of(seen).futex
    assert futex is not None
    assert (futex.value, futex.owner, futex.owner_exists) == (0, None, None)


def test_memory_and_network_of_a_process(start: Start) -> None:
    pid = python(
        start,
        "-c",
        "import time\nx = bytearray(1 << 26)\nprint('now', flush=True)\ntime.sleep(1000)",
    )
    seen = look_until(pid, blocked)
    assert seen.memory is not None
    assert 1 << 26 < seen.memory < 1 << 29
    assert seen.swapped == 0
    assert seen.network == os.readlink("/proc/self/ns/net")


def test_the_age_of_a_lock_that_is_waited_for(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    os.utime(path, (0, 0))
    take = "import fcntl, sys, time\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    python(start, "-c", take + "print('now', flush=True)\ntime.sleep(1000)", path)
    pid = python(start, "-c", "print('now', flush=True)\n" + take, path)
    (lock,) = look_until(pid, lambda one: one.locks).locks
    assert lock.age == pytest.approx(time.time(), abs=DEADLINE)


def test_the_tails_of_wandbs_own_logs_are_shown_and_of_others_not(
    start: Start, tmp_path: Path
) -> None:
    logs = tmp_path / "wandb" / "run-20260101_000000-abc" / "logs"
    logs.mkdir(parents=True)
    log, other = logs / "debug.log", tmp_path / "train.log"
    secret = "a" * 40
    log.write_text("".join(f"line {n}\n" for n in range(20000)) + f"api_key={secret}\n")
    other.write_text("mine\n")
    code = "import sys, time\nfiles = [open(path, 'a') for path in sys.argv[1:]]\n"
    pid = python(start, "-c", code + "print('now', flush=True)\ntime.sleep(1000)", log, other)
    (tail,) = look_until(pid, blocked).logs
    assert tail.path == str(log)
    assert tail.lines == (*(f"line {n}" for n in range(19993, 20000)), "api_key=***")
    assert look_until(pid, blocked, role="child").logs == ()


def test_a_disk_that_does_not_answer_costs_the_files_and_not_the_look(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "read_files", lambda *_: time.sleep(5))
    pid = python(start, "-c", SLEEP)
    (seen,) = asyncio.run(take_looks([Target(pid)]))
    assert seen.threads
    assert any("did not answer in time" in sentence for sentence in seen.missing)


def test_a_part_that_fails_costs_that_part_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(looking, "read_safe", broken)
    pid = python(start, "-c", SLEEP)
    seen = look_until(pid, lambda one: one.threads)
    assert seen.threads
    assert any("what nobody thought of" in sentence for sentence in seen.missing)


def test_a_pid_that_was_used_again_is_said_to_be_gone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = python(start, "-c", SLEEP)
    monkeypatch.setattr(looking, "started", lambda _: 1)
    (seen,) = asyncio.run(take_looks([Target(pid)]))
    assert (seen.state, seen.threads, seen.kernel) == ("", (), ())
    assert seen.missing == (f"{pid} ended while it was looked at.",)


def test_a_process_that_ends_in_the_middle_of_a_look(start: Start) -> None:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        processes = [
            start(sys.executable, "-c", f"import time; time.sleep({n / 50})") for n in range(6)
        ]
        for one in asyncio.run(take_looks([Target(process.pid) for process in processes])):
            assert one.state or one.missing
        for process in processes:
            process.communicate()


UNIFIED = Path(
    "/sys/fs/cgroup/unified" if Path("/sys/fs/cgroup/unified").is_dir() else "/sys/fs/cgroup"
)


@pytest.mark.parametrize(
    ("groups", "file", "freeze", "thaw"),
    [
        (UNIFIED, "cgroup.freeze", "1", "0"),
        (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    ],
)
def test_a_frozen_container_is_told_from_a_sleep(
    start: Start, tmp_path: Path, groups: Path, file: str, freeze: str, thaw: str
) -> None:
    group = groups / f"test-{tmp_path.name}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip(f"no control group can be made in {groups}")
    pid = python(start, "-c", SLEEP)
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(freeze)
        seen = look_until(pid, lambda one: one.frozen)
        assert (seen.frozen, bool(seen.threads)) == (str(group), True)
        assert not may_pause([seen])
        (group / file).write_text(thaw)
        assert look_until(pid, lambda one: not one.frozen).frozen == ""
    finally:
        (group / file).write_text(thaw)
        (groups / "cgroup.procs").write_text(str(pid))
        group.rmdir()


FILLS = "input(); bytearray(1 << 29)"


@pytest.mark.parametrize(
    ("groups", "limit", "kind"),
    [
        (UNIFIED, "memory.max", ""),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory"),
    ],
)
def test_a_control_group_tells_that_it_had_no_memory_left(
    tmp_path: Path, groups: Path, limit: str, kind: str
) -> None:
    """Of a zombie the first version has no group any more."""
    group = groups / f"test-{tmp_path.name}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip(f"no control group can be made in {groups}")
    try:
        if not (group / limit).exists():
            pytest.skip(f"{groups} does not limit memory")
        (group / limit).write_text(str(64 << 20))
        with subprocess.Popen([sys.executable, "-c", FILLS], stdin=subprocess.PIPE) as killed:
            (group / "cgroup.procs").write_text(str(killed.pid))
            assert killed.stdin is not None
            killed.stdin.write(b"\n")
            killed.stdin.flush()
            os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
            (seen,) = asyncio.run(take_looks([Target(killed.pid)]))
        assert (seen.state, seen.status, seen.oom_kills) == ("Z", -9, 0 if kind else 1)
        assert cgroups.count_oom_kills(f"4:{kind}:/{group.name}") == 1
    finally:
        group.rmdir()


PRINTED = """Traceback for thread {thread} (pt_autograd_0) [] (most recent call last):
    (Python) File "/lib/python3.11/threading.py", line 982, in run
        self._target(*self._args, **self._kwargs)

Traceback for thread {pid} (python) [Has the GIL] (most recent call last):
    (Python) File "/train.py", line 8, in <module>
        main()
    (Python) File "/train.py", line 4, in main
        time.sleep(1000)
"""


def test_where_py_spy_is_missing_pystack_is_asked(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = python(start, "-c", SLEEP)
    printed = tmp_path / "printed"
    printed.write_text(PRINTED.format(pid=pid, thread=pid + 1))
    fake = tmp_path / "pystack"
    fake.write_text(f"#!/bin/sh\n[ $3 = --no-block ] && cat {printed}\n")
    fake.chmod(0o755)
    by_name = {"pystack": str(fake)}.get
    monkeypatch.setattr(stacks, "find_program", lambda name="py-spy": by_name(name))
    (seen,) = asyncio.run(take_looks([Target(pid)]))
    assert seen.rung == "pystack"
    assert seen.main is not None
    assert [(f.name, f.line) for f in seen.main.frames] == [("main", 4), ("<module>", 8)]
    assert seen.main.owns_gil
    assert "py-spy is not installed: no Python stacks." in seen.missing
    assert seen.dump.startswith(f"Process {pid}: ")


@pytest.mark.skipif(shutil.which("pystack") is None, reason="pystack is not installed")
def test_pystack_sees_what_py_spy_sees(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time\ndef f():\n    time.sleep(1000)\nprint('now', flush=True)\nf()"
    pid = python(start, "-c", code)
    by_py_spy = look_until(pid, blocked)
    by_name = {"pystack": shutil.which("pystack")}.get
    monkeypatch.setattr(stacks, "find_program", lambda name="py-spy": by_name(name))
    by_pystack = look_until(pid, blocked)
    assert by_pystack.rung == "pystack"
    assert by_pystack.threads == by_py_spy.threads


IN_A_CONTAINER = """
import threading, time
def other():
    time.sleep(1000)
threading.Thread(target=other, name="helper").start()
def own():
    print("now", flush=True)
    time.sleep(1000)
own()
"""


@pytest.mark.skipif(
    bool(find_missing(["root", "unshare"])), reason=find_missing(["root", "unshare"])
)
def test_threads_in_a_container_have_the_ids_that_are_seen_from_outside(start: Start) -> None:
    """In a pid namespace of its own a process knows its threads by other ids, from 1 on."""
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    started = start(*container, sys.executable, "-c", IN_A_CONTAINER)
    assert started.stdout is not None
    assert started.stdout.readline() == "now\n"
    (inside,) = sample.family([started.pid])
    seen = look_until(inside, blocked)
    assert seen.main is not None
    assert (seen.main.os_id, seen.main.frames[0].name) == (inside, "own")
    assert {thread.os_id for thread in seen.threads} == {one.tid for one in seen.kernel}


def test_the_machine_has_cores_memory_and_interfaces() -> None:
    found = asyncio.run(machine.read_machine())
    assert found.cores is not None
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.memory_total is not None
    assert found.memory_available is not None
    assert 0 < found.memory_available <= found.memory_total
    assert "lo" in found.interfaces


DEAD_OWNER = """
import multiprocessing, os
lock = multiprocessing.Lock()
if os.fork() == 0:
    lock.acquire()
    os._exit(0)
os.wait()
print("now", flush=True)
lock.acquire()
"""


def test_a_lock_of_multiprocessing_that_is_taken_without_with_is_a_semaphore_of_processes(
    start: Start,
) -> None:
    pid = python(start, "-c", DEAD_OWNER)
    seen = look_until(pid, lambda one: blocked(one) and call_of(one).futex)
    futex = call_of(seen).futex
    assert futex is not None
    assert futex.is_shared_semaphore, futex
    facts = RankFacts(0, pid=pid, looks=(seen, seen))
    verdict = judge_job(JobFacts(ended="still", world_size=1, local_ranks=(0,)), [facts])
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("dead-owner", "fits")


ASKS = """
import ctypes, socket, sys

server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print("now", flush=True)
if sys.argv[1:]:
    ctypes.CDLL(sys.argv[1]).ask(client.fileno())
else:
    client.recv(1)
"""
ASKING_LIBRARY = """
#include <sys/socket.h>

int ask(int server) {
    char answer[64];
    return recv(server, answer, sizeof answer, 0) > 0 ? 0 : 1;
}
"""
WITHOUT_GCC = pytest.mark.skipif(bool(find_missing(("gcc",))), reason="needs gcc")
OTHER_MACHINE = pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 alone is read")


@WITHOUT_GCC
@OTHER_MACHINE
def test_a_call_of_a_library_is_told_from_one_of_python(start: Start, tmp_path: Path) -> None:
    """A pause would end recv(): whose call it is, is read off the stack, and nothing is paused."""
    library = compile_library(tmp_path, "place", ASKING_LIBRARY)
    asks = look_until(python(start, "-c", ASKS, library), is_caller_known)
    assert call_of(asks).name == "recvfrom"
    assert call_of(asks).caller == str(library)
    plain = look_until(python(start, "-c", ASKS), is_caller_known)
    assert call_of(plain).name == "recvfrom"
    assert CODE_OF_PYTHON.search(call_of(plain).caller)
