"""/dev/shm, through which DataLoader workers and NCCL hand over what they have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ..base.words import GIB, MIB, format_bytes
from .checks import Check, Family, Finding, Setting, ok, problem, warning


@dataclass(frozen=True)
class Space:
    """A file system's size and what is free of it, in bytes."""

    total: int
    free: int


def read_shm(setting: Setting) -> Space | None:
    """Return the size of /dev/shm, None if there is none."""
    try:
        found = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return None
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def shm(setting: Setting, facts: Space | None) -> Iterator[Finding]:
    """Judge whether DataLoader workers and NCCL find room in /dev/shm."""
    larger = "docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory"
    if facts is None:
        yield problem("there is no /dev/shm: DataLoader workers and NCCL need it", larger)
        return
    said = f"{format_bytes(facts.total)}, {format_bytes(facts.free)} free"
    if facts.free < 64 * MIB or facts.total <= 64 * MIB:
        left = "what is left there: ls -l /dev/shm" if facts.total > GIB else larger
        yield problem(
            f"{said}: a DataLoader's first batch or NCCL's first collective fills it", left
        )
    elif facts.total < GIB or facts.free < 256 * MIB:
        yield warning(f"{said}: little for DataLoader workers", larger)
    else:
        yield ok(said)


FAMILY = Family(
    "Shared memory",
    (
        Check(
            id="shm",
            title="/dev/shm is large enough",
            why="DataLoader workers hand batches over through it, and NCCL connects the GPUs of a "
            "node by it; containers get 64 MiB unless told otherwise.",
            read=read_shm,
            judge=shm,
        ),
    ),
)
