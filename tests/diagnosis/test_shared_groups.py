"""Which ranks are in groups of some together, by the connections that gloo keeps for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangbisect.base.process_facts import Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.rank_connections import find_group_partners, find_only_group
from hangbisect.diagnosis.verdict import judge_job

from .made_up import job, look
from .test_transfers import SERVER, call, still

Groups = Sequence[tuple[int, ...]]


def connected(looks: Sequence[Look], groups: Groups, *, store: bool = False) -> list[RankFacts]:
    """Ranks with a connection to each other member of each group, and of the group of all; if
    `store`, rank 0 serves it, and each of the others has one to that as well.
    """
    world = tuple(range(len(looks)))
    ranks = []
    for number, one in enumerate(looks):
        peers = [b for group in (world, *groups) if number in group for b in group if b != number]
        peers += (world[1:] if number == 0 else (0,)) if store else ()
        sockets = tuple(
            Socket(10 * number + n, "tcp", "h:1", "h:2", "ESTABLISHED", peer_pids=(100 + peer,))
            for n, peer in enumerate(peers)
        )
        ranks.append(still(number, replace(one, sockets=sockets)))
    return ranks


def test_ranks_with_more_connections_than_others_are_in_a_group_together() -> None:
    found = find_group_partners(connected([SERVER] * 4, [(1, 2, 3)]))
    assert found == {0: frozenset(), 1: {2, 3}, 2: {1, 3}, 3: {1, 2}}
    assert find_only_group(found) == {1, 2, 3}


def test_those_to_the_store_of_a_rank_are_not_taken_for_a_group() -> None:
    found = find_group_partners(connected([SERVER] * 5, [(1, 2, 3)], store=True))
    assert found == {0: frozenset(), 1: {2, 3}, 2: {1, 3}, 3: {1, 2}, 4: frozenset()}
    alike = find_group_partners(connected([SERVER] * 4, [(1, 2, 3)], store=True))
    assert not any(alike.values())  # each has two to each: that may be two groups of all


def test_a_mesh_has_several_groups() -> None:
    ranks = connected([SERVER] * 4, [(0, 1), (2, 3), (0, 2), (1, 3)])
    found = find_group_partners(ranks)
    assert found == {0: {1, 2}, 1: {0, 3}, 2: {0, 3}, 3: {1, 2}}
    assert find_only_group(found) == frozenset()


def test_where_two_ranks_have_no_connection_it_is_not_known() -> None:
    ranks = connected([SERVER] * 4, [])
    first = replace(ranks[0].looks[-1], sockets=ranks[0].looks[-1].sockets[:1])
    ranks[0] = replace(ranks[0], looks=(first,))
    ranks[3] = replace(ranks[3], looks=(replace(ranks[3].looks[-1], sockets=()),))
    assert find_group_partners(ranks) == {}


def judged(looks: Sequence[Look], groups: Groups) -> Verdict:
    return judge_job(job("late", len(looks), pipeline=""), connected(looks, groups))


def routes(src: int) -> Look:
    return call("broadcast", 24, "given", src=src)


BARRIER = call("barrier", 37, "None")


def test_roots_within_the_only_group_of_some_are_compared() -> None:
    """Rank 2 waits for the table from rank 3, and rank 1 hands it out."""
    verdict = judged([BARRIER, routes(1), routes(3), BARRIER], [(1, 2, 3)])
    assert verdict.ranks.culprit == (1, 2)
    assert verdict.ranks.waiting == (0, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "rank 2 takes rank 3 for the source" in verdict.cause.why.lower()


def test_roots_of_several_groups_are_not() -> None:
    verdict = judged([routes(0), BARRIER, routes(2), BARRIER], [(0, 1), (2, 3)])
    assert set(verdict.ranks.culprit) != {0, 2}


def summed(line: int = 20) -> Look:
    return call("all_reduce", line, "given")


def test_the_only_member_that_has_not_come_is_named() -> None:
    """Ranks 1 and 2 sum in a group of three; its third is in the barrier with the rest."""
    verdict = judged([BARRIER, summed(), summed(), BARRIER, BARRIER], [(1, 2, 3)])
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((3,), (0, 1, 2, 4))
    assert verdict.guessed


def test_of_several_members_that_have_not_come_none_is() -> None:
    verdict = judged([BARRIER, summed(), summed(), BARRIER, BARRIER], [(1, 2, 3, 4)])
    assert verdict.ranks.culprit == ()
    assert any("one of ranks 3-4 has not entered" in note for note in verdict.notes)


def functional() -> Look:
    return look(
        "OpOverloadPacket.__call__ SP/torch/_ops.py:1279",
        "wait_tensor SP/torch/distributed/_functional_collectives.py:142",
        "train train.py:20",
        "<module> train.py:90",
    )


def test_who_is_alone_in_a_collective_of_a_mesh_waits_for_a_member_of_its_row() -> None:
    """Which of its two groups it waits in is not seen, nor whether it made a call more."""
    mesh = [(0, 1), (2, 3), (0, 2), (1, 3)]
    verdict = judged([BARRIER, BARRIER, BARRIER, functional()], mesh)
    assert verdict.ranks.culprit == ()
    assert any("one of ranks 1-2 has not entered" in note for note in verdict.notes)


def test_where_there_are_no_groups_of_some_it_made_a_call_more() -> None:
    verdict = judged([BARRIER, BARRIER, BARRIER, functional()], [])
    assert verdict.ranks.culprit == (3,)
