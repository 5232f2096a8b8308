"""Memory that ran out: of the GPU, of the machine, of /dev/shm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import MachineFacts, RankFacts

from ..made_up import look
from .scenes import Facts, Shows, causes_of, ended

# pytorch/pytorch#99699
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 138.00 MiB. GPU 0 has a total "
    "capacity of 15.90 GiB of which 8.44 MiB is free. Process 101 has 577.00 MiB memory in use. "
    "Including non-PyTorch memory, this process has 15.32 GiB memory in use. Of the allocated "
    "memory 14.12 GiB is allocated by PyTorch, and 410.41 MiB is reserved by PyTorch but "
    "unallocated."
)
OLD_OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 6.00 GiB total "
    "capacity; 693.78 MiB already allocated; 3.91 GiB free; 18.22 MiB cached)"
)
BUS = (
    "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible "
    "that dataloader's workers are out of shared memory. Please try to raise your shared memory "
    "limit."
)


def killed() -> Facts:
    scarce = MachineFacts(memory_available=200 << 20, memory_total=64 << 30)
    return ended("", -9, machine=scarce)


SHOWS: Shows = {
    "cuda-out-of-memory": lambda: ended(OOM),
    "shm-too-small": lambda: ended(BUS, machine=MachineFacts(shm_free=0, shm_total=64 << 20)),
    "worker-killed": lambda: ended(
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "
    ),
    "killed-from-outside": killed,
}


def test_out_of_memory_says_who_has_it() -> None:
    why = causes_of(ended(OOM))["cuda-out-of-memory"].why
    for part in ("138.00 MiB", "8.44 MiB of 15.90 GiB free", "15.32 GiB", "rank 1 (101) has 577"):
        assert part in why, why


@pytest.mark.parametrize(
    ("free", "ours", "words"),
    [
        ("1.50 GiB", "20.00 GiB", "others, who are not named, have 58 GiB"),
        ("1.50 GiB", "77.00 GiB", ""),
    ],
)
def test_memory_of_others_who_are_not_named_is_worked_out(free: str, ours: str, words: str) -> None:
    """In a container the driver names no process of another one."""
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        f"capacity of 79.10 GiB of which {free} is free. Including non-PyTorch memory, this "
        f"process has {ours} memory in use."
    )
    why = causes_of(ended(text))["cuda-out-of-memory"].why
    assert (words in why) if words else ("not named" not in why)


def test_the_older_message_is_read_too() -> None:
    why = causes_of(ended(OLD_OOM))["cuda-out-of-memory"].why
    assert "3.91 GiB of 6.00 GiB free" in why
    assert "693.78 MiB" in why


def test_a_message_in_the_traceback_alone_is_found() -> None:
    found = causes_of(ended("RuntimeError: error in a child", traceback=f"...\n{OOM}\n"))
    assert "cuda-out-of-memory" in found


def test_semaphores_of_workers_need_shared_memory_too() -> None:
    told = "sl = self._semlock = _multiprocessing.SemLock(\n kind, value, maxvalue)\n^^^\nOSError: "
    told += "[Errno 28] No space left on device\n\nDuring handling of the above exception"
    found = causes_of(ended("RuntimeError: Please call iter() first", traceback=told))
    assert "shm-too-small" in found
    full = ended("OSError: [Errno 28] No space left on device: '/data/x'")
    assert "shm-too-small" not in causes_of(full)


def test_a_rank_that_its_launcher_ended_was_not_killed_from_outside() -> None:
    facts, ranks = ended("ValueError: x")
    followed = replace(ranks[1], alive=False, left=True, status=-15, looks=(), left_at=91.0)
    assert "killed-from-outside" not in causes_of((facts, [ranks[0], followed]))


def test_without_a_fact_of_memory_a_kill_stays_a_suspicion() -> None:
    found = causes_of(ended("", -9))["killed-from-outside"]
    assert found.agreement < 0.7


def test_the_count_of_its_control_group_says_that_the_kernel_killed_it() -> None:
    """Of a zombie that of its own group; else that of the group that looks."""
    ours = causes_of(ended("", -9, machine=MachineFacts(oom_kills=1)))["killed-from-outside"]
    assert ours.agreement > 0.7
    assert "for want of memory" in str(ours.matched)
    facts, ranks = ended("", -9, machine=MachineFacts(oom_kills=0))
    zombie = replace(look(pid=100, call="", state="Z"), oom_kills=2)
    dead = replace(ranks[0], looks=(zombie,))
    assert "2 processes" in str(causes_of((facts, [dead, ranks[1]]))["killed-from-outside"])
    none = causes_of(ended("", -9, machine=MachineFacts(oom_kills=0)))["killed-from-outside"]
    assert none.agreement < 0.7


def test_what_was_logged_before_is_not_what_an_error_says() -> None:
    assert "cuda-out-of-memory" not in causes_of(ended("ValueError: x", output=(OOM,)))
    assert "cuda-out-of-memory" in causes_of(ended("", -6, output=(OOM,)))


def test_what_a_healthy_rank_logs_is_not_why_another_failed() -> None:
    facts, ranks = ended("ValueError: x")
    noisy: list[RankFacts] = [ranks[0], replace(ranks[1], output=(OOM,))]
    assert "cuda-out-of-memory" not in causes_of((facts, noisy))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cuda-out-of-memory", "MemoryError: out of memory"),
        ("worker-killed", "RuntimeError: DataLoader timed out after 60 seconds"),
        ("shm-too-small", "RuntimeError: DataLoader worker (pid 1) is killed by signal: Killed."),
    ],
)
def test_another_error_is_another_cause(name: str, error: str) -> None:
    assert name not in causes_of(ended(error))
