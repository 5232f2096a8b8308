"""What a look shows is worked out once: a snapshot is taken over as long as no look is new."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job_with_graph, judge_snapshot

from .made_up import ALL_REDUCE, RECV, SLEEP, gone, job, rank

RANKS = [rank(0, ALL_REDUCE), rank(1, RECV)]


def settled(*ranks: RankFacts) -> Snapshot:
    """A snapshot of which is known already what each rank waits for."""
    made = Snapshot(ranks)
    assert made.waits.keys() == {one.rank for one in ranks}
    return made


@pytest.mark.parametrize(
    "later",
    [
        RANKS,
        [replace(one, moved="reads 3 MiB/s", last_line="Loading", reached=9) for one in RANKS],
        [*RANKS, rank(2, pid=None, alive=False, never_started=True)],
    ],
    ids=["the same", "told more", "one that was never started"],
)
def test_what_ranks_tell_later_leaves_what_their_looks_show(later: list[RankFacts]) -> None:
    before = settled(*RANKS)
    after = before.update(later)
    assert after.single_ranks.processes is before.single_ranks.processes
    assert [one.facts for one in after.single_ranks.ranks] == later
    assert after.waits == Snapshot(later).waits


@pytest.mark.parametrize(
    "later",
    [
        [RANKS[0], rank(1, SLEEP)],
        [RANKS[0], replace(RANKS[1], looks=(*RANKS[1].looks, *RANKS[1].looks))],
        [RANKS[0], gone(1, -9)],
        [RANKS[0], replace(RANKS[1], environment={"MASTER_PORT": "443"})],
        [RANKS[0], replace(RANKS[1], children=((replace(SLEEP, pid=300),),))],
        [*RANKS, rank(2, SLEEP)],
        RANKS[:1],
    ],
    ids=["another", "one look more", "left", "told a port", "a child", "a new rank", "one less"],
)
def test_any_new_look_has_all_ranks_compared_anew(later: list[RankFacts]) -> None:
    after = settled(*RANKS).update(later)
    assert after.waits == Snapshot(later).waits
    assert [one.facts for one in after.single_ranks.ranks] == later


def with_source(one: RankFacts) -> RankFacts:
    """The same rank with what the source of its innermost line shows, which is read at the end."""
    last = one.looks[-1]
    main = last.threads[0]
    told = replace(main.frames[0], handler="except OSError", condition="if rank == 1")
    thread = replace(main, frames=(told, *main.frames[1:]))
    looks = (*one.looks[:-1], replace(last, threads=(thread, *last.threads[1:])))
    return replace(one, looks=looks)


def test_what_the_source_shows_of_a_look_that_was_known_before_is_taken_over() -> None:
    """It is no part of what a frame is: such a look is equal to the one before."""
    later = [RANKS[0], with_source(RANKS[1])]
    assert later == RANKS
    view = settled(*RANKS).update(later).single_ranks.ranks[1].view
    assert view is not None
    assert (view.frames[0].handler, view.frames[0].condition) == ("except OSError", "if rank == 1")


def test_a_verdict_is_the_same_whether_the_ranks_were_settled_before_or_not() -> None:
    facts = job("still", world=2)
    assert judge_snapshot(facts, settled(*RANKS))[0] == judge_job_with_graph(facts, RANKS)[0]
