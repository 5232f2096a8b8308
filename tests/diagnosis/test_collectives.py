"""Who made a collective call that the others did not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch, find_mismatched_ranks

from .logs import Call, ran, rank

SETUP = Call("barrier", "lightning/ddp.py:308 barrier")
SIZES = Call("all_reduce", "lightning/data.py:40 has_len_all_ranks")
EXTRA = Call("barrier", "train.py:30 on_fit_start")
STEP = Call("all_reduce", "train.py:50 step", "float32[4]")
END = Call("barrier", "train.py:60 main")


def test_an_extra_barrier_is_found_though_it_paired_with_a_later_one_of_another_rank() -> None:
    ranks = ran([[EXTRA, SETUP, SIZES], [SETUP, SIZES, STEP]])
    # What hangs is rank 0 in a barrier and rank 1 in an all_reduce, both of the library's.
    assert ranks[0].collectives[0].operations[-1].site == SETUP.site
    assert ranks[1].collectives[0].operations[-1].site == SIZES.site
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.operation.site) == ("extra", (0,), EXTRA.site)
    assert found.paired is not None
    assert found.paired.site == SETUP.site
    assert "rank 0 made a call that rank 1 did not: barrier (train.py:30 on_fit_start)" in (
        found.sentence
    )
    assert find_mismatched_ranks(ranks) == (0,)


def test_of_many_ranks_the_one_with_the_extra_call_is_named() -> None:
    usual = [SETUP, SIZES, STEP]
    ranks = ran([usual, usual, [SETUP, EXTRA, SIZES], usual])
    assert find_mismatched_ranks(ranks) == (2,)


def test_a_call_that_one_of_many_left_out_is_put_down_to_it() -> None:
    usual = [SETUP, EXTRA, SETUP, SIZES, STEP]
    ranks = ran([usual, usual, [SETUP, SETUP, SIZES, STEP], usual])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("skipped", (2,))
    assert found.operation.site == EXTRA.site


def test_two_ranks_in_different_operations_from_the_start_are_both_named() -> None:
    ranks = ran([[Call("all_reduce", "train.py:7")], [Call("broadcast", "train.py:8")]])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("different", (0, 1))
    assert "all_reduce (train.py:7)" in found.sentence
    assert "broadcast (train.py:8)" in found.sentence


def test_calls_in_another_order_are_both_ranks_fault() -> None:
    a, b = Call("all_reduce", "a.py:1"), Call("all_reduce", "a.py:2")
    ranks = ran([[a, b, SETUP, STEP], [b, a, SETUP, SIZES, END]])
    found = find_mismatch([replace(r) for r in ranks])
    assert found is not None
    assert (found.kind, found.ranks) == ("order", (0, 1))


def test_the_rank_that_left_the_loop_is_named_not_the_one_that_goes_on() -> None:
    backward = Call("backward", "train.py:44 step", group="")
    wrapped = Call("ddp", "train.py:20 main")
    first = [wrapped, *[backward] * 5]
    ranks = [rank(0, [*first, backward], 6), rank(1, [*first, END], 6)]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("uneven", (1,))
    assert found.operation.site == END.site
    assert "uneven batches" in found.sentence


def test_the_condition_that_ends_a_loop_does_not_accuse_who_goes_on() -> None:
    backward = Call("backward", "t.py:18", group="", condition="not left before by: if n >= most")
    first = [Call("ddp", "t.py:9"), *[backward] * 3]
    for culprit in (0, 1):
        programs = [[*first, backward], [*first, backward]]
        programs[culprit][-1] = END
        found = find_mismatch([rank(n, program, 4) for n, program in enumerate(programs)])
        assert found is not None
        assert (found.kind, found.ranks) == ("uneven", (culprit,))


def test_a_backward_that_is_not_the_first_call_without_a_group_cuts_no_log_off() -> None:
    makes = Call("init_process_group", "train.py:8", group="")
    wrapped, backward = Call("ddp", "train.py:20"), Call("backward", "train.py:44", group="")
    gathers = Call("all_gather", "debug.py:3", condition="if rank == 2")
    usual = [makes, wrapped, SIZES, backward]
    ranks = [rank(n, usual, 3) for n in (0, 1, 3)]
    ranks.append(rank(2, [makes, wrapped, gathers], 2))
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.operation.site) == ("extra", (2,), "debug.py:3")


def test_who_sends_in_another_line_than_who_receives_does_the_same() -> None:
    sends, receives = Call("broadcast", "a.py:10 load"), Call("broadcast", "a.py:12 load")
    ranks = ran([[sends, SETUP, STEP], [receives, SETUP, STEP], [receives, SETUP, STEP]])
    assert find_mismatch(ranks) is None


def test_a_rank_that_never_entered_what_others_wait_in_is_missing_and_not_yet_blamed() -> None:
    program = [SETUP, SIZES, STEP]
    ranks = [rank(0, program, 2), rank(1, program, 2), rank(2, program[:2], 2)]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.operation.site) == ("missing", (2,), STEP.site)
    assert find_mismatched_ranks(ranks) == ()


def test_a_group_made_by_one_rank_alone_is_that_ranks_doing() -> None:
    ranks = ran([[SETUP, Call("new_group", "train.py:9 main")], [SETUP, END]])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.operation.kind) == ("extra", (0,), "new_group")


def test_a_condition_in_the_source_decides_between_two() -> None:
    extra = replace(EXTRA, condition="if rank == 0")
    ranks = ran([[SETUP, extra], [SETUP, SIZES]])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (0,))
    assert "below `if rank == 0`" in found.sentence


def test_a_call_that_most_ranks_make_is_right_whatever_its_condition() -> None:
    extra = replace(EXTRA, condition="if shard")
    ranks = ran([[SETUP, SIZES], *[[SETUP, extra, SIZES]] * 3])
    assert find_mismatched_ranks(ranks) == (0,)


def test_a_call_under_a_condition_that_one_of_many_did_not_come_by_was_left_out() -> None:
    extra = replace(SIZES, condition="if shard")
    ranks = ran([[EXTRA, END], *[[EXTRA, extra, END]] * 3])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.operation.site) == ("skipped", (0,), SIZES.site)


def test_tensors_of_different_sizes_are_said() -> None:
    small, large = (
        Call("all_reduce", "a.py:1", "float32[4]"),
        Call("all_reduce", "a.py:1", "float32[8]"),
    )
    found = find_mismatch(ran([[SETUP, small], [SETUP, large], [SETUP, small]]))
    assert found is not None
    assert (found.kind, found.ranks) == ("shape", (1,))
    assert "float32[8]" in found.sentence


def test_two_groups_called_in_another_order_are_found_across_them() -> None:
    a, b = Call("all_reduce", "a.py:1", group="1"), Call("all_reduce", "a.py:2", group="2")
    ranks = [rank(0, [SETUP, a, b], 1, world=2), rank(1, [SETUP, b, a], 1, world=2)]
    found = find_mismatch(ranks)
    assert found is not None
    assert found.ranks == (0, 1)
    assert found.kind == "different"


def test_when_a_helper_thread_began_what_it_waits_in_is_no_order() -> None:
    """An asynchronous checkpoint: its thread gathers while the main thread trains on."""
    step, save = Call("all_reduce", "a.py:1"), Call("gather_object", "b.py:9", group="1")
    early = rank(1, [step, save, step], 3, world=3)
    (log,) = early.collectives
    operations = [replace(o, done=o.kind != "gather_object") for o in log.operations]
    early = replace(early, collectives=(replace(log, operations=tuple(operations)),))
    ranks = [
        rank(0, [step, step, save], 2, world=3),
        early,
        rank(2, [step, step, step], 2, world=3),
    ]
    assert find_mismatched_ranks(ranks) == (2,)


def test_sends_and_receives_are_no_mismatch() -> None:
    ranks = ran([[SETUP, Call("send", "a.py:1")], [SETUP, Call("recv", "a.py:2")]])
    assert find_mismatch(ranks) is None


def recorded(number: int, *kinds: str, pending: bool = True) -> RankFacts:
    operations = tuple(
        Collective("0", kind, n, at=10.0 + n, done=not pending or n < len(kinds))
        for n, kind in enumerate(kinds, 1)
    )
    return RankFacts(rank=number, collectives=(CollectiveLog("torch", operations),))


def test_what_only_torchs_recorder_has_is_compared_by_number() -> None:
    ranks = [
        recorded(0, "broadcast", "all_reduce", "all_reduce", "all_reduce"),
        recorded(1, "broadcast", "all_reduce", "all_reduce", "barrier"),
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.number) == ("uneven", (1,), 4)
    assert found.source == "torch"


def in_pairs(number: int, pair: str, rounds: int, *, done: bool = True) -> RankFacts:
    """A rank of a mesh: so many operations in its pair, then a barrier of all unless it hangs."""
    operations = [
        Collective(pair, "all_reduce", n, at=10.0 + n, done=done or n < rounds)
        for n in range(1, rounds + 1)
    ]
    if done:
        operations.append(Collective("0", "barrier", 1, at=30.0, done=False))
    return RankFacts(rank=number, collectives=(CollectiveLog("torch", tuple(operations)),))


@pytest.mark.parametrize("at", [0, 2])
def test_of_two_that_wait_for_each_other_in_two_groups_the_one_that_did_less_is_to_blame(
    at: int,
) -> None:
    """Tensor parallel pairs: one rank of a pair left a batch out, and came to the barrier early."""
    pairs = [in_pairs(0, "3", 10), in_pairs(1, "3", 10), in_pairs(2, "3", 10)]
    ranks = [*pairs, in_pairs(3, "3", 10)]
    ranks[at] = in_pairs(at, "4", 9)
    ranks[at + 1] = in_pairs(at + 1, "4", 10, done=False)
    found = find_mismatch(ranks)
    assert found is not None
    assert found.is_sure
    assert found.ranks == (at,)


def test_stages_that_do_unlike_things_are_not_compared_across_their_groups() -> None:
    """A pipeline: of stages with other operations nothing says who did too little."""
    first = [Collective("3", "all_gather", n, at=10.0 + n, done=n < 3) for n in range(1, 4)]
    ranks = [
        RankFacts(rank=0, collectives=(CollectiveLog("torch", tuple(first)),)),
        in_pairs(1, "4", 10),
        in_pairs(2, "4", 10),
    ]
    found = find_mismatch(ranks)
    assert found is None or not found.is_sure


def test_the_recorders_operations_get_the_sites_of_our_own_log() -> None:
    ours = CollectiveLog(
        "ring", (Collective("", "backward", 1, "train.py:44 step", at=13.0, done=False),)
    )
    ranks = [
        recorded(0, "broadcast", "all_reduce", "all_reduce", "all_reduce"),
        recorded(1, "broadcast", "all_reduce", "all_reduce"),
    ]
    ranks[0] = replace(ranks[0], collectives=(*ranks[0].collectives, ours))
    ranks[1] = replace(
        ranks[1],
        collectives=(
            replace(
                ranks[1].collectives[0],
                operations=tuple(replace(o, done=True) for o in ranks[1].collectives[0].operations),
            ),
        ),
    )
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("missing", (1,))
    assert found.operation.site == "train.py:44 step"


def test_without_logs_there_is_nothing_to_compare() -> None:
    assert find_mismatch([]) is None
    assert find_mismatch([RankFacts(rank=0), RankFacts(rank=1)]) is None
