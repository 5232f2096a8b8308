"""How much a rank may still write. Pure, but for the look into the folder."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .places import INPUTS, OUTPUTS, rank_of
from .switch import Limits

GIGABYTE = 10**9
# A job whose checkpoints find no room any more is worse than a capture less.
KEPT_FREE = GIGABYTE


@dataclass(frozen=True)
class Amount:
    """What a rank has in the folder."""

    captures: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.captures + other.captures, self.bytes + other.bytes)


def of_rank(folder: str, rank: int) -> Amount:
    """Return what lies in `folder` of one rank, from whichever job. Raises OSError."""
    found = Amount()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((INPUTS, OUTPUTS)) and rank_of(entry.name) == rank:
                found += Amount(int(entry.name.endswith(INPUTS)), entry.stat().st_size)
    return found


def why_full(has: Amount, size: int, limits: Limits, world_size: int, free: int) -> str:
    """Return why a rank may not write `size` bytes more, "" if it may; `free` is what the disk has.

    The bytes are shared out equally: ranks ask nobody how much the others have.
    """
    if has.captures >= limits.captures:
        return f"it has the {limits.captures:,} captures that --max-captures allows"
    share = limits.gigabytes * GIGABYTE / max(world_size, 1)
    if has.bytes + size > share:
        whole = f"--max-gb {limits.gigabytes:g} allows {share / 1e6:,.1f} MB for each rank"
        return f"{whole}; it has {has.bytes / 1e6:,.1f} MB, and the next one {size / 1e6:,.1f} MB"
    if free - size < KEPT_FREE:
        return f"the disk has {free / 1e6:,.0f} MB left; {KEPT_FREE / 1e9:g} GB is kept free"
    return ""
