"""Who has not come, by what NCCL's RAS service counts: all main threads stand in `.item()`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence.gpus.nccl_ras import make_ras_logs
from hangbisect.evidence.gpus.ras_answers import parse_ras_status
from hypothesis import given
from hypothesis import strategies as st

from ..evidence.test_nccl_ras import json_status
from .made_up import job, rank
from .test_pending_operations import ITEM, RECV, SPIN

WORLD = 8


def judged(counts: Sequence[dict[str, int] | None], looks: Sequence[Look]) -> Verdict:
    seen = [rank(n, one, replace(one, at=103.0)) for n, one in enumerate(looks)]
    answer = parse_ras_status(json.dumps(json_status(counts)).encode())
    assert answer is not None
    logs = make_ras_logs(answer, seen)
    ranks: list[RankFacts] = [
        replace(r, collectives=(logs[r.rank],) if r.rank in logs else (), busy=True) for r in seen
    ]
    return judge_job(job("late", len(looks)), ranks)


@pytest.mark.parametrize("one", [ITEM, SPIN])
@pytest.mark.parametrize("world", [2, 8])
def test_who_has_begun_fewer_is_named(one: Look, world: int) -> None:
    """D: a job that was attached to, of which nothing is logged."""
    counts = [{"AllReduce": 41 - (n == 1)} for n in range(world)]
    verdict = judged(counts, [one] * world)
    assert verdict.ranks.culprit == (1,)


def test_who_has_begun_another_function_is_named() -> None:
    """Rank 5 made a broadcast where the others made an all_reduce: equally many."""
    counts = [{"Broadcast": 3, "AllReduce": 41} for _ in range(WORLD)]
    counts[5] = {"Broadcast": 4, "AllReduce": 40}
    verdict = judged(counts, [ITEM] * WORLD)
    assert verdict.ranks.culprit == (5,)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"


def test_who_waits_for_a_server_is_named_whatever_is_counted() -> None:
    counts = [{"AllReduce": 41 - (n == 1)} for n in range(WORLD)]
    assert judged(counts, [RECV if n == 1 else ITEM for n in range(WORLD)]).ranks.culprit == (1,)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.data())
def test_with_a_part_of_the_answers_never_another_rank(
    counts: list[int], data: st.DataObject
) -> None:
    """Of those that answer the least advanced are named, or all of which none can be told apart."""
    lost = data.draw(st.sets(st.integers(0, len(counts) - 1)))
    told = [None if n in lost else {"AllReduce": count} for n, count in enumerate(counts)]
    named = set(judged(told, [ITEM] * len(counts)).ranks.culprit)
    known = [count for n, count in enumerate(counts) if n not in lost]
    if known and len(set(known)) > 1:
        ahead = {n for n, count in enumerate(counts) if n not in lost and count > min(known)}
        assert not named & ahead
