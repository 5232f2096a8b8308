"""The weights come from a disk that gives a megabyte a second.

350 KiB/s from a cold Lustre looked like a silent hang (Garden-AI/rootstock#167;
NVIDIA/TensorRT-LLM PR 14655: 28 MiB/s). A control: one read() that has not ended yet is slow,
for bytes come in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

SIZE = 24 << 20
SPEED = 1 << 20  # bytes a second


@contextlib.contextmanager
def slow_disk(place: CasePlace) -> Iterator[Stage]:
    """Weights that are on a disk and in no cache, and a control group that reads slowly."""
    from hangbisect.zoo.parts import system

    with system.mount_ext4(place.tmp / "disk", mebibytes=64) as disk:
        weights = disk / "weights.bin"
        with open(weights, "wb") as file:
            file.write(os.urandom(SIZE))
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with system.slow_reading_cgroup(disk, SPEED) as group:
            yield Stage(environment={"WEIGHTS": str(weights), "DISK_GROUP": str(group)})


def load_model(given: Any) -> Any:
    """Return the model; rank 0 reads its weights."""
    from pathlib import Path

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 0:
        Path(os.environ["DISK_GROUP"], "cgroup.procs").write_text(str(os.getpid()))
        Path(os.environ["WEIGHTS"]).read_bytes()
    return model


CASE = Case(
    id="I49",
    title="weights from a disk with 1 MiB/s: slow, not hung",
    cluster="C16",
    reports=("Garden-AI/rootstock#167", "NVIDIA/TensorRT-LLM PR 14655"),
    truth=Truth(outcome="ok", slow="model"),
    stage=slow_disk,
    uses={"model": "load_model"},
    options=("--timeout", "model=8"),
    needs=("loop mount", "slow disk"),
    limit=120.0,
)
