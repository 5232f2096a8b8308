"""Who of several candidates is to blame."""

from __future__ import annotations

from hangbisect.base.identity import RankId
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis import case as cases
from hangbisect.diagnosis.blame import drop_innocent_ranks
from hangbisect.diagnosis.case import Case, find_least_advanced
from hangbisect.diagnosis.graph_builder import build_wait_graph
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.diagnosis.wait_graph import WaitGraph

from .made_up import ALL_REDUCE, SLEEP, job, look, rank, silent_peer


def test_the_least_advanced_are_all_that_came_equally_far() -> None:
    progress: dict[RankId, tuple[int, int]] = {0: (8, 1), 1: (8, 0), 2: (8, 0), 3: (9, 0)}
    assert find_least_advanced([0, 1, 2, 3], progress) == (1, 2)
    assert find_least_advanced([], progress) == ()


def make_case(*ranks: RankFacts) -> tuple[Case, WaitGraph]:
    case = cases.make_case(job("late", len(ranks)), Snapshot(ranks))
    return case, build_wait_graph(case)


def test_a_rank_that_moves_is_dropped_from_those_to_blame_and_that_is_said() -> None:
    """Nothing names one today. If something did, the verdict would be smaller, and no exception."""
    case, graph = make_case(rank(0, SLEEP), rank(1, SLEEP, moved="a file grew"))
    culprit, note = drop_innocent_ranks(case, graph, (0, 1))
    assert culprit == (0,)
    assert "rank 1" in note


def test_of_all_ranks_those_that_only_wait_for_the_rest_are_dropped() -> None:
    case, graph = make_case(rank(0, ALL_REDUCE), rank(1, SLEEP), rank(2, ALL_REDUCE))
    culprit, note = drop_innocent_ranks(case, graph, (0, 1, 2))
    assert culprit == (1,)
    assert "ranks 0,2" in note


def test_nothing_is_dropped_or_said_of_those_that_may_be_blamed() -> None:
    case, graph = make_case(rank(0, ALL_REDUCE), rank(1, ALL_REDUCE))
    assert drop_innocent_ranks(case, graph, (0, 1)) == ((0, 1), "")
    assert drop_innocent_ranks(case, graph, ()) == ((), "")


# Nothing reads a stack in time on a machine that has too much to do: the kernel tells its part.
UNREAD = look(rung="proc", missing=("py-spy gave no answer on 100 within 3.0 s and was killed.",))


def test_of_ranks_whose_stacks_nobody_could_read_none_is_blamed_for_the_rest() -> None:
    for ranks in (
        [rank(n, UNREAD, UNREAD) for n in range(3)],
        [rank(0, ALL_REDUCE, ALL_REDUCE), rank(1, UNREAD, UNREAD)],
    ):
        found = judge_job(job("still", len(ranks), still=30.0), ranks)
        assert found.ranks.culprit == ()
        assert any("no stack could be read" in note for note in found.notes)


def test_what_the_kernel_names_is_blamed_whether_stacks_could_be_read_or_not() -> None:
    peer = silent_peer()
    asks = look(
        *(),
        rung="proc",
        call="recvfrom",
        descriptors=(peer,),
        sockets=tuple(filter(None, (peer.socket,))),
        missing=UNREAD.missing,
    )
    ranks = [rank(0, UNREAD, UNREAD), rank(1, asks, asks), rank(2, UNREAD, UNREAD)]
    found = judge_job(job("still", 3, still=30.0), ranks)
    assert 1 in found.ranks.culprit
