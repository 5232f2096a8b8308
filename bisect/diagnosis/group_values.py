"""Rank and world size as torch's own frames have them where a process group is made: Lightning and
others pass them on without any variable of the environment. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base.launchers import DIALECTS
from ..base.process_facts import Frame
from ..base.rank_facts import RankFacts
from .frames import unqualified_name

RENDEZVOUS_FILES = ("torch/distributed/rendezvous.py", "torch/distributed/distributed_c10d.py")
GROUP_HELPER = "_new_process_group_helper"  # its numbers are those in the group that is made
_MAKES_PARTS = frozenset(["new_group", "split_group", "_new_group_with_tag", "new_subgroups"])
LARGEST_WORLD = 1 << 16  # a WORLD_SIZE beyond this is a typing error
_STEP_SIZES = {words.step_size for words in DIALECTS.values() if words.step_size}


def number(text: str) -> int | None:
    """Return a sane whole number, None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


def read_group_values(frames: Sequence[Frame]) -> dict[str, int]:
    """Return `rank` and `world_size` with which the group of all ranks is made, by name; what is
    not told is not there.
    """
    found: dict[str, int] = {}
    # In the group of all ranks these are the job's; in another one its own members'.
    is_part = any(unqualified_name(frame.name) in _MAKES_PARTS for frame in frames)
    renamed = {} if is_part else {"group_rank": "rank", "group_size": "world_size"}
    for frame in frames:
        if not frame.file.endswith(RENDEZVOUS_FILES):
            continue
        helper = unqualified_name(frame.name) == GROUP_HELPER
        for name, value in frame.locals:
            if not helper or name in renamed:
                name, size = renamed.get(name, name), number(value)
                if name in ("rank", "world_size") and size is not None:
                    found.setdefault(name, size)
    return found


def find_world_size(stacks: Iterable[Sequence[Frame]]) -> int:
    """Return the largest world for which one of these stacks makes the group of all, 0 if none."""
    sizes = (read_group_values(frames).get("world_size", 0) for frames in stacks)
    return max((size for size in sizes if size <= LARGEST_WORLD), default=0)


def claimed_world_size(ranks: Sequence[RankFacts]) -> int:
    """Return the largest WORLD_SIZE that a rank has in its environment, 0 if none.

    One that was exported by hand, where srun or mpirun started the ranks, is not theirs.
    """
    sizes = [
        facts.environment.get("WORLD_SIZE", "")
        for facts in ranks
        if "TORCHELASTIC_RUN_ID" in facts.environment or not _STEP_SIZES & facts.environment.keys()
    ]
    numbers = [int(s) for s in sizes if s.isascii() and s.isdecimal() and len(s) < 7]
    return max((n for n in numbers if n <= LARGEST_WORLD), default=0)
