"""The scenes of causes that GPUs and NCCL tell, with the evidence of half of the ranks missing:
what was not seen before is not seen now, and who is named alone was named before, or is unknown.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import NcclFacts, RankFacts

from . import test_gpu, test_gpu_errors, test_memory, test_nccl, test_nccl_messages
from .scenes import Facts, Shows, scene_of
from .scenes import causes_of as find_causes

SCENES: Shows = {
    **test_gpu.SHOWS,
    **test_gpu_errors.SHOWS,
    **test_nccl.SHOWS,
    **test_nccl_messages.SHOWS,
    **test_memory.SHOWS,
}


def without_evidence(facts: RankFacts) -> RankFacts:
    """A rank that was found, and of which nothing else could be read."""
    looks = tuple(replace(one, threads=(), kernel=(), sockets=()) for one in facts.looks)
    return replace(
        facts,
        looks=looks,
        children=(),
        environment={},
        collectives=(),
        output=(),
        nccl=NcclFacts(),
        unheard="",
        gpu_kernels=(),
    )


def with_half(facts: Facts, lost: frozenset[int]) -> Facts:
    about, ranks = facts
    return about, [without_evidence(r) if n in lost else r for n, r in enumerate(ranks)]


def halves(world: int) -> list[frozenset[int]]:
    many = max(1, world // 2)
    return [frozenset(some) for some in itertools.combinations(range(world), many)][:40]


@pytest.mark.parametrize("name", SCENES)
def test_with_half_of_it_nothing_else_is_seen_and_nobody_else_named_alone(name: str) -> None:
    whole = SCENES[name]()
    before = {c.id for c in find_causes(whole).values() if c.level == "seen"}
    named = set(scene_of(whole).verdict.ranks.culprit)
    for lost in halves(len(whole[1])):
        half = with_half(whole, lost)
        after = {c.id for c in find_causes(half).values() if c.level == "seen"}
        assert after <= before, (lost, after - before)
        culprit = set(scene_of(half).verdict.ranks.culprit)
        unknown = {half[1][n].rank for n in lost}
        assert len(culprit) != 1 or culprit <= named | unknown, (lost, culprit, named)
