"""Ranks that a program of the user's own has started by multiprocessing, and that never spoke.

They call nothing that the watch knows: no process group, none of the libraries. So the program
itself passes for the only rank, and what it has started for its children. Their stacks tell which
numbers they have (dumps/facts_in_stack.py), as they do to `attach`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.process_facts import Look
from ..base.rank_facts import JobFacts, RankFacts
from ..diagnosis.process_snapshot import find_descendants
from ..diagnosis.snapshot import Snapshot
from ..dumps.facts_in_stack import RankLocals, read_rank_locals

_FEWEST = 2  # ranks: one helper alone that has a number is none
# What a program that has started its ranks waits in: for their end, or from one look to the next.
_ONLY_WAITS = ("process", "sleep")
_STARTS = "/multiprocessing/"  # a part of the paths of what starts them


def take_spawned_ranks(job: JobFacts, seen: Snapshot) -> tuple[JobFacts, Snapshot]:
    """Return the job and its ranks, where the only one of a script of the user's own does nothing
    but wait for ranks that it has started: with these in its place. Else what was given.
    """
    if job.pipeline or job.world_size != 1 or len(seen.ranks) != 1:
        return job, seen
    (program,) = seen.ranks
    (alone,) = seen.single_ranks.ranks or (None,)
    if alone is None or alone.wait is None or alone.wait.kind not in _ONLY_WAITS:
        return job, seen
    ranks = _find_ranks(program)
    if not ranks:
        return job, seen
    numbers = tuple(facts.rank for facts in ranks if isinstance(facts.rank, int))
    return replace(job, world_size=len(ranks), local_ranks=numbers), Snapshot(ranks)


def _find_ranks(program: RankFacts) -> list[RankFacts]:
    """Return the ranks among what a program has started: those that one process has started, and
    whose numbers are those of all of them, one after the other.
    """
    families: dict[int, list[tuple[Sequence[Look], RankLocals]]] = {}
    for looks in program.children:
        if looks and _is_started_by_multiprocessing(looks[-1]):
            told = _read_locals(looks)
            if not told.worker:
                families.setdefault(looks[-1].ppid, []).append((looks, told))
    for members in families.values():
        numbers = _number(members)
        if numbers is not None:
            made = (
                _make_rank(program, looks, number)
                for (looks, _), number in zip(members, numbers, strict=True)
            )
            return sorted(made, key=lambda facts: facts.rank)
    return []


def _is_started_by_multiprocessing(one: Look) -> bool:
    frames = one.main.frames if one.main else ()
    return any(_STARTS in frame.file for frame in frames)


def _read_locals(looks: Sequence[Look]) -> RankLocals:
    """Return what the last of these looks tells that shows a stack."""
    return read_rank_locals(next((one for one in reversed(looks) if one.threads), looks[-1]))


def _number(members: Sequence[tuple[Sequence[Look], RankLocals]]) -> list[int] | None:
    """Return the numbers of these processes, None if they are no ranks. Where all but one tell,
    that one has the number that is left.
    """
    told = [one.any_number for _, one in members]
    left = set(range(len(members))) - set(told)
    if len(members) < _FEWEST or told.count(None) > 1 or len(left) != told.count(None):
        return None
    return [number if number is not None else min(left) for number in told]


def _make_rank(program: RankFacts, looks: Sequence[Look], number: int) -> RankFacts:
    pid = looks[-1].pid
    return replace(
        program,
        rank=number,
        local_rank=number,
        pid=pid,
        looks=tuple(looks),
        children=find_descendants(program, pid),
        announced="",
        last_line="",
        last_line_at=None,
        collectives=(),
        environment={},
    )
