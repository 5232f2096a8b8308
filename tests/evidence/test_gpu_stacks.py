"""Which kernel a rank's GPU runs, asked over the pipe that CUDA makes for core dumps on demand.

There is no GPU here: a process makes the pipe and writes a file as CUDA does, and a script answers
as cuda-gdb. Both have the form of NVIDIA's CUDA-GDB manual ("GPU Core Dump Support", "info cuda
kernels") and of public notes on hung ranks (vllm.ai/blog/2025-12-03-improved-cuda-debugging);
names, grids and places are made up. benchmarks/gpu_checks.py asks a real one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.library_facts import add_gpu_kernels
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence.gpus import gpu_stacks
from hangbisect.evidence.gpus.gpu_stacks import parse_kernels, why_no_dump
from hypothesis import given
from hypothesis import strategies as st

from ..diagnosis.causes.scenes import causes_of
from ..diagnosis.made_up import job, rank
from ..diagnosis.test_pending_operations import ITEM
from .printing_processes import wait_for

NCCL = """\
Opening GPU coredump: /tmp/core
[Current focus set to CUDA kernel 0, grid 812, cluster (4,0,0), block (16,0,0), thread (64,0,0), \
device 0, sm 0, warp 0, lane 0]
#0  0x00007fc3a8a2f100 in ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)\
<<<(24,1,1),(512,1,1)>>> ()
  Kernel Parent Dev Grid Status                   SMs Mask  GridDim  BlockDim Invocation
*      0      -   0  812 Active 0x00000000000000000ffffff (24,1,1) (512,1,1) \
ncclDevKernel_AllGather_RING_LL()
"""
OWN = """\
[Current focus set to CUDA kernel 0, grid 9, block (0,0,0), thread (0,0,0), device 0, sm 0, warp 0]
#0  0x00007f3b4ba16e30 in at::cuda::(anonymous namespace)::spin_kernel(long)<<<(1,1,1),(1,1,1)>>> ()
  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation
*      0      -   0    9 Active 0x00000001 (1,1,1)  (1,1,1) at::cuda::spin_kernel()
"""
# Without a kernel in focus there is no frame, and of several one is in focus alone.
TABLE = """\
  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation
       0      -   0    9 Active 0x00000001 (1,1,1)  (1,1,1) at::cuda::spin_kernel()
       1      -   1   12 Active 0x00ffffff (24,1,1) (512,1,1) ncclDevKernel_AllGather_RING_LL()
"""
NOTHING = "Opening GPU coredump: /tmp/core\nNo CUDA kernels.\n"

# CUDA's side: the pipe, opened for both so that nobody's end closes it, and a file at each byte.
CUDA = """
import os, sys, time
pipe, core, how = sys.argv[1:4]
os.mkfifo(pipe)
reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
open("ready", "w").close()
while True:
    time.sleep(0.05)
    try:
        asked = os.read(reader, 1 << 20)
    except BlockingIOError:
        continue
    if asked and how == "answers":
        with open(core, "wb") as file:
            for _ in range(5):
                file.write(b"x" * 100_000)
                file.flush()
                time.sleep(0.05)
"""
Start = Callable[..., RankFacts]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(how: str = "answers", flags: str = "skip_global_memory,skip_abort") -> RankFacts:
        host = socket.gethostname()
        process = subprocess.Popen(
            [sys.executable, "-c", CUDA, f"pipe.{host}.0", f"core.{host}.0", how], cwd=tmp_path
        )
        started.append(process)
        wait_for(tmp_path / "ready")
        environment = {
            "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
            "CUDA_COREDUMP_PIPE": f"{tmp_path}/pipe.%h.%p",
            "CUDA_COREDUMP_FILE": f"{tmp_path}/core.%h.%p",
            "CUDA_COREDUMP_GENERATION_FLAGS": flags,
        }
        return RankFacts(3, pid=process.pid, environment=environment)

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def debugger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have cuda-gdb answer, or run, so."""

    def answers(text: str, script: str = "") -> None:
        path = tmp_path / "bin" / "cuda-gdb"
        path.parent.mkdir(exist_ok=True)
        (tmp_path / "said").write_text(text)
        path.write_text(f"#!/bin/sh\n{script or f'cat {tmp_path}/said'}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(gpu_stacks, "_DEBUGGER", str(path))

    return answers


def asked(*ranks: RankFacts, limit: float = 30.0) -> tuple[list[RankFacts], tuple[str, ...]]:
    return asyncio.run(add_gpu_kernels(ranks, limit))


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (NCCL, ("ncclDevKernel_AllGather_RING_LL <<<(24,1,1),(512,1,1)>>>",)),
        (OWN, ("at::cuda::(anonymous namespace)::spin_kernel <<<(1,1,1),(1,1,1)>>>",)),
        (NOTHING, ()),
        ("", ()),
    ],
    ids=["nccl", "own", "none", "nothing"],
)
def test_the_kernel_is_read_off_what_the_debugger_says(text: str, kernels: tuple[str, ...]) -> None:
    assert parse_kernels(text) == kernels


def test_the_table_tells_of_kernels_that_have_no_frame() -> None:
    both = (
        "at::cuda::spin_kernel <<<(1,1,1),(1,1,1)>>>",
        "ncclDevKernel_AllGather_RING_LL <<<(24,1,1),(512,1,1)>>>",
    )
    assert parse_kernels(TABLE) == both
    assert len(parse_kernels(OWN + TABLE)) == 2


@given(st.text(max_size=80), st.integers(0, len(NCCL)), st.integers(0, len(NCCL)))
def test_garbage_is_no_harm(text: str, start: int, end: int) -> None:
    parse_kernels(NCCL[:start] + text + NCCL[end:])


def test_a_rank_is_asked_and_goes_on(
    start: Start, debugger: Callable[[str], None], tmp_path: Path
) -> None:
    debugger(NCCL)
    facts = start()
    (one,), notes = asked(facts)
    assert one.gpu_kernels == ("ncclDevKernel_AllGather_RING_LL <<<(24,1,1),(512,1,1)>>>",)
    assert notes == (
        "the GPU of rank 3 runs ncclDevKernel_AllGather_RING_LL <<<(24,1,1),(512,1,1)>>>",
    )
    os.kill(facts.pid or 0, 0)
    assert not list(tmp_path.glob("core.*"))  # what we had made is removed


def test_without_leave_of_the_job_nothing_is_asked(start: Start) -> None:
    """Without skip_abort CUDA may end the process after a dump."""
    facts = start(flags="skip_global_memory")
    (one,), (note,) = asked(facts)
    assert one.gpu_kernels == ()
    assert "skip_abort" in note
    none = RankFacts(0, pid=facts.pid, environment={})
    assert "CUDA_ENABLE_USER_TRIGGERED_COREDUMP" in why_no_dump(none)


def test_a_pipe_that_the_rank_has_not_open_is_left_alone(start: Start, tmp_path: Path) -> None:
    facts = start()
    other = replace(facts, pid=os.getpid())
    (one,), (note,) = asked(other)
    assert (one.gpu_kernels, "has no pipe" in note) == ((), True)


def test_a_driver_that_does_not_answer_costs_the_limit(start: Start) -> None:
    began = time.monotonic()
    (one,), (note,) = asked(start("silent"), limit=1.0)
    assert one.gpu_kernels == ()
    assert "no core dump in 1 s" in note
    assert time.monotonic() - began < 20.0


def test_a_debugger_that_hangs_costs_the_limit_and_leaves_the_file(
    start: Start, debugger: Callable[..., None], tmp_path: Path
) -> None:
    debugger("", script="sleep 60")
    (one,), (note,) = asked(start(), limit=2.0)
    assert one.gpu_kernels == ()
    assert "cuda-gdb did not come to an end" in note
    assert list(tmp_path.glob("core.*"))


def test_without_a_debugger_it_is_said_how_to_read_the_file(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_stacks, "_DEBUGGER", "no-such-debugger")
    _, (note,) = asked(start())
    (core,) = tmp_path.glob("core.*")
    assert note == (
        f"the GPU core dump of rank 3 is {core}; there is no cuda-gdb here to read it: cuda-gdb "
        f"--batch -ex 'target cudacore {core}'"
    )


# ---- what it means -------------------------------------------------------------------------------

KERNELS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL <<<(24,1,1),(512,1,1)>>>": False,
    "ncclKernel_AllReduce_RING_LL_Sum_float <<<(24,1,1),(512,1,1)>>>": False,
    "at::cuda::(anonymous namespace)::spin_kernel <<<(1,1,1),(1,1,1)>>>": True,
}


@pytest.mark.parametrize(("kernel", "own"), KERNELS.items())
def test_a_kernel_of_ones_own_that_never_ends_is_no_collective_that_waits(
    kernel: str, own: bool
) -> None:
    one = replace(rank(0, ITEM, replace(ITEM, at=103.0)), gpu_kernels=(kernel,), busy=True)
    cause = causes_of((job("late", 1), [one])).get("gpu-busy")
    assert (cause is not None and cause.level == "seen") == own


def test_of_ranks_that_stand_alike_the_one_whose_own_kernel_runs_is_named() -> None:
    kernels = [*KERNELS]
    ranks = [
        replace(rank(n, ITEM, replace(ITEM, at=103.0)), gpu_kernels=(kernels[2 * (n == 5)],))
        for n in range(8)
    ]
    assert judge_job(job("late", 8), ranks).ranks.culprit == (5,)
    half = [replace(one, gpu_kernels=()) if one.rank in (0, 1, 2, 3) else one for one in ranks]
    assert judge_job(job("late", 8), half).ranks.culprit == (5,)
    without = [replace(one, gpu_kernels=()) if one.rank in (4, 5, 6, 7) else one for one in ranks]
    named = judge_job(job("late", 8), without).ranks.culprit
    assert named != (5,)
    assert 5 in named or len(named) != 1
