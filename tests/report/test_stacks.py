"""Stacks as text."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.facts import Descriptor, Frame, Kernel, Look, RankFacts, Socket, Syscall, Thread
from hangbisect.report.stacks import merged, stack_text

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


def rank(number: int, one: Look) -> RankFacts:
    return RankFacts(number, number, one.pid, host="n01", reached=8, looks=(one,))


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


def test_equal_stacks_share_a_branch_and_differing_ones_split() -> None:
    same = [rank(r, look("wait", "fit", "main", pid=100 + r)) for r in range(3)]
    other = rank(3, look("read", "load", "main", pid=103))
    assert merged([*same, other, rank(4, look())]).splitlines() == [
        "[0-3]",
        "  main (train.py:2)",
        "  [0-2]",
        "    fit (train.py:1)",
        "    wait (train.py:0)",
        "  [3]",
        "    load (train.py:1)",
        "    read (train.py:0)",
        "[4] no stack",
    ]


def test_a_rank_that_goes_less_deep_is_shown_where_it_is() -> None:
    text = merged([rank(0, look("main")), rank(1, replace(look("f", "main"), at=1.0))])
    assert "[0]" in text
    assert "[1]" in text


def test_a_very_deep_recursion_can_be_merged() -> None:
    deep = look(*["f"] * 5000)
    assert merged([rank(0, deep)]).count("\n") == 5001
