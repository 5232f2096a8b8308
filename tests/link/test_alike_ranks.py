"""A verdict on many ranks of which most are told of by who stands for them is the one on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hangbisect.base.json_codec import to_json
from hangbisect.base.node_record import NodeClock, make_node_record
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.collect.nodes import JointNodes, RecordedNode, judge_nodes
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.link.messages import Judged, Report
from hangbisect.link.peers import NodeAnswer, Unseen
from hangbisect.link.reports import MOST_ALIKE
from hangbisect.monitor.reported_nodes import judge_reported_nodes

from ..diagnosis.made_up import ALL_REDUCE, SLEEP, job, rank
from .test_star import run, star, until

NODES, RANKS = 12, 8
WORLD = NODES * RANKS
WALL = 1_800_000_000.0


def logs(last: int, kind: str = "all_reduce") -> tuple[CollectiveLog, ...]:
    """The log of a rank whose last operation, of so many, has not ended."""
    operations = [
        Collective("0", kind, number, "train.py:8 main", done=number < last, at=float(number))
        for number in range(max(1, last - 3), last + 1)
    ]
    return (
        CollectiveLog("ring", tuple(operations), {"0": tuple(range(WORLD))}, sequence={"0": last}),
    )


def sleeps(number: int) -> RankFacts:
    return rank(number, *([SLEEP] if number == 41 else [ALL_REDUCE]) * 2)


def is_behind(number: int) -> RankFacts:
    log = logs(6 if number == 41 else 7)
    return replace(rank(number, ALL_REDUCE, ALL_REDUCE), collectives=log)


def is_stopped(number: int) -> RankFacts:
    facts = rank(number, ALL_REDUCE, ALL_REDUCE)
    if number != 41:
        return facts
    return replace(facts, looks=tuple(replace(one, state="T") for one in facts.looks))


def all_in_one_place(number: int) -> RankFacts:
    return rank(number, ALL_REDUCE, ALL_REDUCE)


def make_node(number: int, ranks: Sequence[RankFacts]) -> RecordedNode:
    """What a node knows; its monotonic clock is its own."""
    ahead = 1000.0 * number
    told = replace(
        job("still", WORLD, now=120.0 + ahead, started=20.0 + ahead, still=22.0),
        local_ranks=tuple(one.rank for one in ranks),
        pipeline="",
    )
    clock = NodeClock(120.0 + ahead, WALL + 120.0)
    record = make_node_record(f"n{number + 1}", told, ranks, clock)
    return RecordedNode(record, tuple(ranks), judge_job(told, ranks))


def report_on(node: RecordedNode) -> Report:
    return Report(0, node.record, node.verdict, "still", looks=0)


def judge_over_the_link(nodes: Sequence[RecordedNode]) -> tuple[Verdict, list[NodeAnswer]]:
    """Have all nodes report to a real lead."""
    answered: list[NodeAnswer] = []
    found: list[Judged] = []

    async def judge(
        answers: Sequence[NodeAnswer], unseen: Sequence[Unseen], asker: NodeAnswer
    ) -> Judged:
        answered.extend(answers)
        judged, _ = await judge_reported_nodes("0", answers, unseen, asker)
        found.append(judged)
        return judged

    async def test() -> None:
        async with star() as made:
            made.lead._judge = judge
            links = []
            for number, one in enumerate(nodes):
                ranks = [each.rank for each in one.ranks if isinstance(each.rank, int)]
                tells = report_on(one), one.ranks
                links.append(made.node(number, ranks, tells, world_size=WORLD))
            await until(lambda: all(link.is_led for link in links))
            links[0].report(replace(report_on(nodes[0]), asks=True), nodes[0].ranks)
            await until(lambda: bool(found))

    run(test())
    assert found[0].verdict is not None
    return found[0].verdict, answered


@pytest.mark.parametrize("made", [sleeps, is_behind, is_stopped, all_in_one_place])
def test_the_verdict_is_that_on_all_looks(made: Callable[[int], RankFacts]) -> None:
    nodes = [
        make_node(number, [made(RANKS * number + one) for one in range(RANKS)])
        for number in range(NODES)
    ]
    whole = judge_nodes(JointNodes(nodes), "still").verdict
    found, answers = judge_over_the_link(nodes)
    assert (found.ranks, found.outcome) == (whole.ranks, whole.outcome)
    assert to_json(found.waits_for) == to_json(whole.waits_for)
    assert (found.cause and found.cause.id) == (whole.cause and whole.cause.id)
    facts = {one.rank: one for answer in answers for one in answer.facts}
    assert len(facts) == WORLD
    # And, of the node that cannot tell whom to blame, all.
    assert MOST_ALIKE <= sum(bool(one.looks) for one in facts.values()) <= MOST_ALIKE + RANKS
    stand_in = {one.same_looks_as for one in facts.values() if not one.looks}
    assert stand_in <= {one.rank for one in facts.values() if one.looks}
