"""Ranks that part in a loop of collectives: who left it early, who left a call of it out, and who
makes another call once all have left it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch

from .logs import Call, rank
from .made_up import look

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


@pytest.mark.parametrize(("culprit", "world"), [(1, 3), (4, 8)])
def test_a_call_in_a_callback_of_a_thread_without_a_module_is_beside_the_loop(
    culprit: int, world: int
) -> None:
    """C++ calls what a future was given (Work.get_future().then), in a thread of its own."""
    way = ("train.py:47 <module>",)
    sums = Call("all_reduce", "train.py:19 start", path=("train.py:38 main", *way))
    meets = Call("barrier", "train.py:42 main", path=way)
    beside = Call("all_reduce", "train.py:26 arrived")
    common = [sums, sums, meets, sums, sums]
    found = find_mismatch(with_one_at(culprit, world, common, beside, meets))
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (culprit,))
    after = Call("all_reduce", "train.py:50 main", path=way)
    left = find_mismatch(with_one_at(culprit, world, common, after, meets))
    assert left is not None
    assert (left.kind, left.ranks) == ("uneven", (culprit,))


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


def test_one_helper_below_a_condition_and_by_another_way_is_not_one_call() -> None:
    """Rank 1 alone reads a property that sums, with a barrier first; it meets the barrier that the
    others made behind it, and stands where these are next.
    """
    helper = "SP/utilities/distributed.py:213 _sync"
    barrier, total = (
        Call("barrier", helper),
        Call("all_reduce", "SP/utilities/distributed.py:214 _s"),
    )
    only = "if trainer.global_rank == self.writer"
    hook, fit = ("SP/trainer/call.py:228 hook",), ("SP/loops/fit_loop.py:486 on_advance_end",)
    reads = [
        replace(one, origin="train.py:33 _row", condition=only, path=hook)
        for one in (barrier, total)
    ]
    fits = replace(barrier, origin="train.py:56 main", path=fit)
    common = [WRAP, *ROUND]
    rest = [Call("barrier", "train.py:41 on_train_epoch_end"), fits]
    ranks = [
        rank(n, [*common, *(reads if n == 1 else rest)], len(common) + 1, world=4) for n in range(4)
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (1,))
    assert "train.py:33 _row" in found.sentence
    assert only in found.sentence


def in_the_trainer(line: int, *inside: str, loop: tuple[int, ...]) -> Look:
    """A rank below one line of its own, in a library's loop over the steps of a training."""
    one = look(
        *inside,
        f"Trainer._run_epoch SP/transformers/trainer.py:{line}",
        "Trainer.train SP/transformers/trainer.py:1576",
        "main train.py:62",
    )
    (main,) = one.threads
    frames = [replace(f, loop=loop) if "_run_epoch" in f.name else f for f in main.frames]
    return replace(one, threads=(replace(main, frames=tuple(frames)),))


GATHERS = (
    "all_gather SP/torch/distributed/distributed_c10d.py:4287",
    "evaluate SP/transformers/trainer.py:2863",
)
REDUCES = (
    "_engine_run_backward SP/torch/autograd/graph.py:979",
    "Trainer.training_step SP/transformers/trainer.py:2118",
)


@pytest.mark.parametrize(("evaluates_at", "kind"), [(1924, "different"), (1960, "uneven")])
def test_who_is_in_a_hook_of_a_librarys_loop_has_not_left_it(evaluates_at: int, kind: str) -> None:
    """Rank 2 evaluates within the loop over the steps, or behind it."""
    main = "train.py:62 main"
    backward = Call("backward", "accelerate/accelerator.py:2861 backward", group="", origin=main)
    gather = Call("all_gather", "accelerate/utils/operations.py:355 gather", origin=main)
    common = [Call("ddp", "train.py:62 main"), *[backward] * 6]
    around = (1880, 1950) if evaluates_at < 1950 else ()
    ranks = [
        replace(
            rank(n, [*common, gather if n == 2 else backward], len(common), world=4),
            looks=(
                in_the_trainer(evaluates_at, *GATHERS, loop=around)
                if n == 2
                else in_the_trainer(1909, *REDUCES, loop=(1880, 1950)),
            ),
        )
        for n in range(4)
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == (kind, (2,))
    if kind == "different":
        assert "in evaluate (trainer.py:2863)" in found.sentence
        assert "in Trainer.training_step (trainer.py:2118)" in found.sentence
