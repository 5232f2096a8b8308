"""The process that has spawned ranks and feeds them by queues: where it waits for room in one of
them, another rank may wait for what comes after that. Pure.

Most parents only wait for the ends of their ranks, and have an end of each pipe all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from .helper_processes import waits_for_room
from .process_snapshot import merge_looks


def keep_feeding_parents(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks; of those whose parent is looked at as a process beside them, without it
    unless it waits for room in a queue.
    """
    return [_drop_parent(one) if _has_other_parent(one) else one for one in ranks]


def _read_parent(facts: RankFacts) -> int:
    return facts.looks[-1].ppid if facts.looks else 0


def _has_other_parent(facts: RankFacts) -> bool:
    parent = _read_parent(facts)
    looks = next((one for one in facts.children if one and one[-1].pid == parent), ())
    return parent in facts.beside and not _waits_for_room(looks)


def _waits_for_room(looks: Sequence[Look]) -> bool:
    view = merge_looks(looks)
    return view is not None and not view.running and waits_for_room(view)


def _drop_parent(facts: RankFacts) -> RankFacts:
    parent = _read_parent(facts)
    children = tuple(one for one in facts.children if not one or one[-1].pid != parent)
    return replace(facts, children=children, beside=tuple(p for p in facts.beside if p != parent))
