"""Stacks as text."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import (
    AsyncTask,
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
from hangbisect.base.verdict_facts import Wait
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.report.run_reader.run_files import read_stack_file, read_stack_files
from hangbisect.report.stacks import format_syscall, stack_text

from ..diagnosis import made_up

SOCKET = Socket(7, "tcp", "10.0.0.2:5", "10.0.0.1:443", "ESTABLISHED", peer_pids=(9,))
CALL = Syscall(
    45, "recvfrom", (3,), descriptors=(Descriptor(3, "socket", "socket:[7]", socket=SOCKET),)
)
WAIT = Wait("unknown", "")
GRAPH = WaitGraph((), (), ())


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
    wait = Wait("socket", "10.0.0.1:443 ESTABLISHED", 9)
    text = stack_text(look("inner", "outer"), 3, "rank", wait, "n01")
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


def test_threads_of_libraries_are_told_as_the_kernel_sees_them() -> None:
    """NCCL's proxy, torch's watchdog, autograd's of each device have no frame of Python's."""
    waits = Syscall(202, "futex", ())
    native = (
        Kernel(101, "NCCL Progress 8", "R", "", None),
        *(Kernel(n, "pt_autograd_0", "S", "futex_do_wait", waits) for n in (102, 103)),
        Kernel(104, "pt_nccl_watchdg", "D", "nv_ioctl", None),
    )
    one = look("inner")
    text = stack_text(replace(one, kernel=(*one.kernel, *native)), 3, "rank", WAIT)
    assert text.splitlines()[-5:] == [
        "",
        "Threads without Python, as the kernel sees them:",
        '  "NCCL Progress 8": R (101)',
        '  "pt_autograd_0": S, futex_do_wait, futex (2 threads, the first 102)',
        '  "pt_nccl_watchdg": D, nv_ioctl (104)',
    ]
    (found,) = read_stack_files({"rank-3.txt": text})
    assert found.kind == read_stack_file("rank-3.txt", stack_text(one, 3, "rank", WAIT)).kind


def test_a_dump_is_attached_as_it_is() -> None:
    text = stack_text(replace(look("f"), dump="Thread 1\n  f (x.py:1)"), 0, "child", WAIT)
    assert text.startswith("child of rank 0 pid 100 python")
    assert text.endswith("Thread 1\n  f (x.py:1)\n")


def test_a_process_without_a_stack_says_what_is_missing() -> None:
    text = stack_text(replace(look(), missing=("py-spy may not look at it",)), 0, "rank", WAIT)
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
    lines = stack_text(seen, 0, "rank", GRAPH.find_wait(0, seen)).splitlines()
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


def test_a_stack_says_the_reason_that_the_verdict_has_found() -> None:
    meets = made_up.look("all_reduce SP/torch/distributed/distributed_c10d.py:5", "main train.py:9")
    works = made_up.look("prepare train.py:7", "main train.py:9", pid=101, call="recvfrom")
    ranks = [made_up.rank(0, meets, meets), made_up.rank(1, works, works)]
    verdict, graph = judge_job_with_graph(made_up.job("still", 2), ranks)
    assert verdict.ranks.culprit == (1,)
    waiting, culprit = (graph.find_wait(one.rank, one.looks[-1]) for one in ranks)
    assert culprit == verdict.waits_for
    assert (waiting.kind, waiting.rank) == ("rank", 1)
    text = stack_text(ranks[0].looks[-1], 0, "rank", waiting)
    assert "waits for: rank 1: all_reduce: rank 1" in text.splitlines()


def test_what_no_stack_shows_is_told_above_it() -> None:
    fetch = AsyncTask("load", (Frame("fetch", "/home/ada/serve.py", 3),))
    first = AsyncTask("Task-1", (Frame("main", "/home/ada/serve.py", 9),), awaits=("load",))
    one = replace(
        look("f"), tasks=(first, fetch), unserved=("ipc:///q",), preloaded=("/x/libx.so",)
    )
    lines = stack_text(one, 0, "rank", WAIT, "").splitlines()
    assert "nobody serves: ipc:///q" in lines
    assert "preloaded: /x/libx.so" in lines
    assert "task 'Task-1': main (serve.py:9), for 'load'" in lines
    assert "task 'load': fetch (serve.py:3)" in lines
    ring = replace(look("f"), task_ring=("a", "b", "a"))
    assert "tasks that await one another: a -> b -> a" in stack_text(ring, 0, "rank", WAIT, "")
