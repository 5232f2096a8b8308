"""Hangs that only a GPU shows, and that looks do not disturb its kernels. Skipped without one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hangbisect.evidence.look import Target, take_looks
from hangbisect.zoo.case_files import find_missing

from .test_zoo_sample import check, run

if TYPE_CHECKING:
    import subprocess

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.skipif(bool(find_missing(["gpu"])), reason=find_missing(["gpu"]))

# A kernel of some seconds, timed by the GPU itself, and the sum that comes behind it.
KERNEL = """
import torch
cycles = 5 * 10**9
torch.cuda._sleep(1000)
torch.cuda.synchronize()
begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
print("now", flush=True)
begun.record()
torch.cuda._sleep(cycles)
total = torch.ones(1000, device="cuda").sum()
ended.record()
torch.cuda.synchronize()
print(begun.elapsed_time(ended) / 1000, float(total), flush=True)
"""


@pytest.mark.parametrize("case", ["K01", "K02", "K03"])
def test_the_answer_is_right(case: str, package: Path, tmp_path: Path) -> None:
    check(*run(package, tmp_path, case))


def test_looks_do_not_disturb_a_kernel(start: Start) -> None:
    looked_at, names = start(sys.executable, "-c", KERNEL), set()
    assert looked_at.stdout is not None
    assert looked_at.stdout.readline() == "now\n"
    while looked_at.poll() is None:
        (one,) = asyncio.run(take_looks([Target(looked_at.pid)], native=True))
        names |= {f.name for thread in one.threads[:1] for f in thread.frames if f.native}
    left_alone = start(sys.executable, "-c", KERNEL)
    assert left_alone.stdout is not None
    assert left_alone.stdout.readline() == "now\n"
    (with_looks, sum_with), (without, sum_without) = (
        map(float, process.stdout.read().split())
        for process in (looked_at, left_alone)
        if process.stdout is not None
    )
    assert sum_with == sum_without == 1000
    assert with_looks < 2 * without, "the GPU goes on while its process is looked at"
    assert any("ynchronize" in name for name in names), names
