"""Storage that does not answer, or hardly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import MachineFacts

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import LOADER, first, sampled, worker

FROZEN = look(
    "makedirs STD/os.py:225",
    "logs_directory OURS/pipelines/start.py:30",
    call="openat",
    state="D",
    wchan="percpu_rwsem_wait",
    path="/scratch/runs/log",
)
NFS = look(
    "read cache.py:7",
    "<module> train.py:3",
    call="newfstatat",
    state="D",
    wchan="rpc_wait_bit_killable",
    path="/home/ada/.triton/cache/x.so",
)
TORCH = look(
    "create_module <frozen importlib._bootstrap_external>:1233",
    "_find_and_load <frozen importlib._bootstrap>:1176",
    "<module> SP/torch/__init__.py:400",
    "_find_and_load <frozen importlib._bootstrap>:1176",
    "<module> train.py:1",
    call="",
    state="D",
    wchan="folio_wait_bit_common",
)


def crawl(faults: int, read: int) -> Facts:
    looks = (sampled(TORCH, 100.0), sampled(TORCH, 110.0, faults=faults, disk_read=read))
    return job("limit"), [rank(0, *looks, moved="reads 350 KiB/s"), held(1)]


def filesystem_stuck() -> Facts:
    return job(), [rank(0, FROZEN, FROZEN, reached=2), held(1, reached=2)]


def network_filesystem_silent() -> Facts:
    return job(), [rank(0, NFS, NFS), held(1)]


def page_fault_crawl() -> Facts:
    return crawl(900, 3 << 20)


def swapping() -> Facts:
    swaps = replace(TORCH, swapped=4 << 30)
    looks = (sampled(swaps, 100.0), sampled(swaps, 110.0, faults=300, disk_read=90 << 20))
    full = MachineFacts(memory_available=1 << 28, memory_total=64 << 30)
    return job("limit", machine=full), [rank(0, *looks, moved="reads 9 MiB/s"), held(1)]


SHOWS: Shows = {
    "filesystem-stuck": filesystem_stuck,
    "network-filesystem-silent": network_filesystem_silent,
    "page-fault-crawl": page_fault_crawl,
    "swapping": swapping,
}


@pytest.mark.parametrize(
    ("wchan", "service"),
    [
        ("nfs4_handle_exception", "NFS"),
        ("cl_sync_io_wait", "Lustre"),
        ("request_wait_answer", "FUSE"),
        ("ceph_mdsc_wait_request", "Ceph"),
        ("p9_client_rpc", "9p"),
        ("autofs_wait", "automounter"),
    ],
)
def test_the_kernel_says_who_is_to_answer(wchan: str, service: str) -> None:
    one = replace(NFS, kernel=(replace(NFS.kernel[0], wchan=wchan),))
    assert service in causes_of((job(), [rank(0, one), held(1)]))["network-filesystem-silent"].why


def test_a_program_behind_a_file_system_is_waited_for_in_state_s_too() -> None:
    one = replace(NFS, state="S", kernel=(replace(NFS.kernel[0], wchan="request_wait_answer"),))
    found = causes_of((job(), [rank(0, replace(one, kernel=one.kernel)), held(1)]))
    assert "network-filesystem-silent" in found


def test_a_worker_in_state_d_is_found_behind_the_rank_that_waits_for_it() -> None:
    stuck = worker(
        "Shards.__getitem__ data.py:9",
        call="openat",
        state="D",
        wchan="percpu_rwsem_wait",
        path="/scratch/shards/7",
    )
    found = causes_of((job(), [first(LOADER, stuck), held(1)]))["filesystem-stuck"]
    assert "/scratch/shards/7" in found.why


def test_state_d_alone_is_never_sure() -> None:
    one: Look = look("<module> train.py:3", call="exit_group", state="D", wchan="exit_mm")
    found = causes_of((job(), [rank(0, one), held(1)]))
    assert found["filesystem-stuck"].agreement <= 0.8


def test_a_rank_that_sleeps_waits_for_no_file_system() -> None:
    sleeps = look("<module> train.py:3", call="clock_nanosleep", wchan="hrtimer_nanosleep")
    found = causes_of((job(), [rank(0, sleeps), held(1)]))
    assert not {"filesystem-stuck", "network-filesystem-silent"} & set(found)


def test_pages_that_come_fast_do_not_crawl() -> None:
    assert "page-fault-crawl" not in causes_of(crawl(900, 900 << 20))
    assert "page-fault-crawl" not in causes_of(crawl(3, 1 << 20))


def test_what_lies_in_swap_with_memory_to_spare_is_no_hurry() -> None:
    facts, ranks = swapping()
    roomy = MachineFacts(memory_available=32 << 30, memory_total=64 << 30)
    assert "swapping" not in causes_of((replace(facts, machine=roomy), ranks))
