"""Stacks as text."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.facts import (
    Descriptor,
    FileLock,
    Frame,
    Futex,
    Kernel,
    LogTail,
    Look,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.report.stacks import format_syscall, stack_text

SOCKET = Socket(7, "tcp", "10.0.0.2:5", "10.0.0.1:443", "ESTABLISHED", peer_pids=(9,))
CALL = Syscall(
    45, "recvfrom", (3,), descriptors=(Descriptor(3, "socket", "socket:[7]", socket=SOCKET),)
)


def look(*names: str, pid: int = 100) -> Look:
    frames = tuple(Frame(name, "/home/ada/train.py", n) for n, name in enumerate(names))
    return Look(
        at=10.0,
        pid=pid,
        ppid=1,
        name="python",
        command=("python", "train.py"),
        age=50.0,
        state="S",
        rung="py-spy",
        threads=(Thread(pid, "MainThread", False, True, frames),) if names else (),
        kernel=(Kernel(pid, "python", "S", "wait_woken", CALL),),
    )


def test_a_stack_file_says_whose_it_is_what_it_does_and_waits_for() -> None:
    text = stack_text(look("inner", "outer"), 3, "rank", "n01")
    assert text.splitlines() == [
        "rank 3 on n01 pid 100 python",
        "command: python train.py",
        "time: 50.0 s after the process started (10.000 on the monotonic clock)",
        "seen by: py-spy",
        "state: S, in wait_woken",
        "system call: recvfrom(3: socket socket:[7] 10.0.0.2:5 -> 10.0.0.1:443 ESTABLISHED to (9))",
        "waits for: a peer that does not answer, pid 9: 10.0.0.1:443 ESTABLISHED",
        "",
        "Thread 100 (idle, has the GIL): MainThread",
        "    inner (train.py:0)",
        "    outer (train.py:1)",
    ]


def test_a_dump_is_attached_as_it_is() -> None:
    text = stack_text(replace(look("f"), dump="Thread 1\n  f (x.py:1)"), 0, "child")
    assert text.startswith("child of rank 0 pid 100 python")
    assert text.endswith("Thread 1\n  f (x.py:1)\n")


def test_a_process_without_a_stack_says_what_is_missing() -> None:
    text = stack_text(replace(look(), missing=("py-spy may not look at it",)), 0, "rank")
    assert "missing: py-spy may not look at it" in text
    assert "no stack could be read" in text


def test_locals_stand_below_their_frame_and_lock_files_and_logs_around_the_stack() -> None:
    frame = Frame("acquire", "/lib/filelock.py", 7, locals=(("poll_interval", "0.05"),))
    seen = replace(
        look(),
        threads=(Thread(100, None, False, False, (frame,)),),
        stale_locks=(FileLock("/c/x.lock", 5, None, age=86400.4),),
        logs=(LogTail("/w/wandb/debug.log", ("one", "two")),),
        frozen="/sys/fs/cgroup/job",
    )
    lines = stack_text(seen, 0, "rank").splitlines()
    assert "state: S, in wait_woken, frozen with its control group /sys/fs/cgroup/job" in lines
    assert "waits for: whoever stopped it: its control group is frozen: /sys/fs/cgroup/job" in lines
    assert "lock file: /c/x.lock, 86400 s old, no process here has it open" in lines
    at = lines.index("    acquire (filelock.py:7)")
    assert lines[at + 1 :] == [
        "        poll_interval = 0.05",
        "",
        "The last lines of /w/wandb/debug.log:",
        "    one",
        "    two",
    ]


def test_a_mutex_says_who_has_it_and_whether_that_thread_exists() -> None:
    call = Syscall(202, "futex", (1,) * 6, futex=Futex(1, 2, 4711, True))
    assert format_syscall(call) == "futex(a mutex of thread 4711)"
    forked = replace(call, futex=Futex(1, 2, 4711, False))
    assert format_syscall(forked) == "futex(a mutex of thread 4711, which does not exist here)"
