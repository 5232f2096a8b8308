"""Ranks that part in a loop of collectives: who left it early, who left a call of it out, and who
makes another call once all have left it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch

from .logs import Call, rank

WRAP = Call("fsdp", "train.py:20 main")
GATHER = Call("all_gather", "train.py:35 main")
BACKWARD = Call("backward", "train.py:36 main", group="")
SCATTER = Call("reduce_scatter", "train.py:36 main")
COUNT = Call("all_reduce", "train.py:40 main")
METRIC = Call("all_reduce", "train.py:50 main")
STOP = Call("barrier", "stopping.py:8 check")

ROUND = [GATHER, GATHER, BACKWARD, SCATTER, SCATTER, COUNT]


def with_one_at(
    culprit: int, world: int, common: list[Call], its: Call, usual: Call
) -> list[RankFacts]:
    """Ranks that did the same, and then one of them another call than all others."""
    return [
        rank(n, [*common, its if n == culprit else usual], len(common), world=world)
        for n in range(world)
    ]


@pytest.mark.parametrize(("culprit", "world"), [(0, 2), (1, 2), (0, 3), (2, 3), (4, 8)])
def test_who_goes_on_to_the_rounds_last_call_has_left_the_others_out(
    culprit: int, world: int
) -> None:
    """Its batch was empty: no forward, no backward, but the statistics of the round."""
    found = find_mismatch(with_one_at(culprit, world, [WRAP, *ROUND, *ROUND], COUNT, GATHER))
    assert found is not None
    assert (found.kind, found.ranks) == ("skipped", (culprit,))
    assert found.operation.site == GATHER.site


@pytest.mark.parametrize(("culprit", "world"), [(0, 2), (1, 2), (0, 3), (2, 3), (4, 8)])
def test_who_is_through_with_its_batches_in_a_later_epoch_has_left_the_loop(
    culprit: int, world: int
) -> None:
    epoch = [*ROUND, *ROUND, *ROUND, METRIC]
    common = [WRAP, *epoch, *ROUND, *ROUND]
    found = find_mismatch(with_one_at(culprit, world, common, METRIC, GATHER))
    assert found is not None
    assert (found.kind, found.ranks) == ("uneven", (culprit,))
    assert (found.operation.site, found.paired and found.paired.site) == (METRIC.site, GATHER.site)


@pytest.mark.parametrize(("culprit", "world"), [(0, 3), (2, 3), (4, 8)])
def test_who_makes_another_call_once_all_have_left_the_loop_has_not_left_it_early(
    culprit: int, world: int
) -> None:
    """An epoch and its evaluation are over on all; one asks the others whether they would stop."""
    common = [WRAP, *ROUND, *ROUND, *ROUND, METRIC, METRIC]
    found = find_mismatch(with_one_at(culprit, world, common, STOP, GATHER))
    assert found is not None
    assert (found.kind, found.ranks) == ("different", (culprit,))
    assert found.operation.site == STOP.site


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_call_of_a_helper_thread_is_not_where_a_loop_has_ended(culprit: int) -> None:
    """A checkpoint is written beside the training: the threads of all but one wait in its group."""
    started = ("thread.py:58 _WorkItem.run", "threading.py:1002 Thread._bootstrap")
    wrap = Call("ddp", "train.py:20 main")
    ranks: list[RankFacts] = []
    for number in range(3):
        rounds = 8 if number == culprit else 7
        facts = rank(number, [wrap, *[BACKWARD] * rounds], rounds if rounds == 8 else 99, world=3)
        (log,) = facts.collectives
        gathers = Collective(
            group="1",
            kind="gather_object",
            number=1,
            site="torch/distributed/checkpoint/utils.py:135 gather_object",
            at=103.5,
            done=False,
            path=started,
        )
        own = log.operations if number == culprit else (*log.operations, gathers)
        groups = {"0": (0, 1, 2), "1": (0, 1, 2)}
        ranks.append(replace(facts, collectives=(CollectiveLog("ring", own, groups),)))
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("skipped", (culprit,))
    assert found.operation.kind == "gather_object"


LOSS = Call("all_reduce", "train.py:38 main", condition="if finite(loss)")
MEET = Call("barrier", "train.py:40 main")


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("condition", ["", "if rank == 0"])
def test_of_two_ranks_the_one_that_leaves_out_what_all_did_in_each_round_is_to_blame(
    culprit: int, condition: str
) -> None:
    """In the rounds before all came by the call, whatever its condition looks like."""
    loss = replace(LOSS, condition=condition)
    found = find_mismatch(with_one_at(culprit, 2, [loss, MEET] * 3, MEET, loss))
    assert found is not None
    assert (found.kind, found.ranks) == ("skipped", (culprit,))
    assert found.operation.site == LOSS.site


def test_of_two_ranks_that_part_in_their_first_round_the_condition_tells() -> None:
    found = find_mismatch(with_one_at(0, 2, [SCATTER], LOSS, MEET))
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (0,))
