"""What the meetings of canary_rank.py have in common: their register, and what many of them pass.

A meeting is a generator: what stands before its `yield` prepares it, together with the other rank;
what stands after it enters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Meeting = Callable[[], Iterator[None]]
MEETINGS: dict[str, Meeting] = {}
RANK = int(os.environ["RANK"])
PEER = 1 - RANK
FOLDER = Path(os.environ["CANARY_FOLDER"])
LIMIT = timedelta(minutes=10)
KEPT: dict[str, Any] = {}  # what several meetings use: by name


def named(name: str) -> Callable[[Meeting], Meeting]:
    """Add a meeting by its name."""

    def add(meeting: Meeting) -> Meeting:
        MEETINGS[name] = meeting
        return meeting

    return add


def add_calls(library: str, calls: dict[str, Callable[[], Any]]) -> None:
    """Add meetings that are one call, with nothing to prepare."""
    for name, call in calls.items():

        def enter(call: Callable[[], Any] = call) -> Iterator[None]:
            yield
            call()

        MEETINGS[f"{library}.{name}"] = enter


def add_waits(calls: dict[str, Callable[[], Any]]) -> None:
    """Add what rank 0 waits for by itself: the other one is in a barrier, for it."""
    for name, call in calls.items():

        def enter(call: Callable[[], Any] = call) -> Iterator[None]:
            yield
            try:
                if RANK == 0:
                    call()
            finally:
                dist.barrier()

        MEETINGS[name] = enter


def make_ones() -> torch.Tensor:
    """Return what most operations transfer."""
    return torch.ones(4)


def make_two() -> list[torch.Tensor]:
    """Return the room for one of each rank."""
    return [torch.zeros(4), torch.zeros(4)]


def make_model() -> torch.nn.Module:
    """Return a small one, with buffers."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


def stand_still() -> None:
    """Wait in code of the job's own, which no library knows, until the FIFO has a writer."""
    with open(FOLDER / "fifo"):
        pass
