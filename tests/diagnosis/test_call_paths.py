"""Collectives are compared by the whole way to them: two calls of one helper are not a loop."""

from __future__ import annotations

import pytest
from hangbisect.base.rank_facts import CollectiveLog
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch
from hangbisect.evidence.rank_conditions import add_conditions

from .logs import Call, ran


def shapes(line: int) -> Call:
    """A call of a helper that reduces, from that line."""
    return Call("all_reduce", "sync.py:4 sync_shapes", path=(f"/home/ada/train.py:{line} warm_up",))


def saves(condition: str = "") -> Call:
    path = ("/home/ada/train.py:31 warm_up",)
    return Call("barrier", "save.py:9 save_config", condition=condition, path=path)


USUAL = [shapes(30), shapes(33)]


@pytest.mark.parametrize("world", [2, 3, 8])
def test_a_barrier_more_between_two_calls_of_one_helper_is_not_a_loop_that_was_left(
    world: int,
) -> None:
    extra = [USUAL[0], saves("if rank == 0"), USUAL[1]]
    found = find_mismatch(ran([extra, *[USUAL] * (world - 1)]))
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (0,))


def test_of_two_without_a_condition_both_are_named() -> None:
    found = find_mismatch(ran([[USUAL[0], saves(), USUAL[1]], USUAL]))
    assert found is not None
    assert (found.kind, found.ranks) == ("different", (0, 1))


@pytest.mark.parametrize("place", [0, 2])
def test_of_several_the_one_that_left_the_common_path_is_named(place: int) -> None:
    programs = [USUAL] * 4
    programs[place] = [USUAL[0], saves(), USUAL[1]]
    found = find_mismatch(ran(programs))
    assert found is not None
    assert found.ranks == (place,)


def test_a_loop_is_the_same_path_again() -> None:
    rounds = [shapes(30)] * 5
    found = find_mismatch(ran([[*rounds[:3], saves()], [*rounds, saves()]]))
    assert found is not None
    assert (found.kind, found.ranks) == ("uneven", (0,))


def gathers(line: int, condition: str = "") -> Call:
    """What a library calls, for that line of the job's own."""
    site, origin = "torch/distributed/fsdp/_collectives.py:119 gather", f"eval.py:{line} <module>"
    return Call("all_gather", site, condition=condition, origin=origin)


@pytest.mark.parametrize("world", [2, 3, 8])
def test_a_forward_of_one_rank_alone_is_named_where_the_library_makes_the_same_calls(
    world: int,
) -> None:
    """It met what the others call in their next step, and what differs comes later."""
    scatters = Call(
        "reduce_scatter",
        "torch/distributed/fsdp/_collectives.py:184 scatter",
        origin="eval.py:12 <module>",
    )
    step = [gathers(12)] * 3 + [scatters] * 3
    one = [*step * 3, *[gathers(14, "if step == 7 and r == 1")] * 3, *step]
    programs = [[*step * 5]] * world
    programs[1] = one
    found = find_mismatch(ran(programs))
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (1,))
    assert found.operation.site.startswith("eval.py:14")


def test_ranks_that_come_to_the_same_call_by_other_ways_go_together() -> None:
    """`if rank == 0: helper(a) else: helper(b)`: each made as many calls as the others."""
    first = [shapes(30), shapes(33), shapes(40)]
    other = [shapes(30), shapes(35), shapes(40)]
    hung = [[*first, saves("if rank == 0")], [*other, shapes(50)], [*other, shapes(50)]]
    found = find_mismatch(ran(hung))
    assert found is not None
    assert (found.operation.kind, found.ranks) == ("barrier", (0,))


def test_the_condition_may_stand_around_a_caller(tmp_path) -> None:  # type: ignore[no-untyped-def]
    train, save = tmp_path / "train.py", tmp_path / "save.py"
    train.write_text("def train(rank):\n    if rank == 0:\n        save_config()\n")
    save.write_text("def save_config():\n    barrier()\n")
    (facts, _) = ran([[saves()], [saves()]])
    (log,) = facts.collectives
    (one,) = log.operations
    placed = CollectiveLog(
        "ring",
        (
            type(one)(
                "0",
                "barrier",
                1,
                "save.py:2 save_config",
                file=str(save),
                path=("library/run.py:7 run", f"{train}:3 train"),
            ),
        ),
    )
    assert add_conditions(placed).operations[0].condition == "if rank == 0"
