"""Ranks that wait for one another in different groups: which of them left the common way.

In a program that all ranks run, the ranks of one subgroup make at a place what those of another
make there in theirs. So ranks of other groups tell whether a call was left out, or added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch, find_mismatched_ranks

from .made_up import look

Made = tuple[str, str, str]  # kind, group, site

WORLD = "0"
LOCAL = {"a": (0, 1), "b": (2, 3)}


def facts(
    number: int,
    made: Sequence[Made],
    groups: Mapping[str, tuple[int, ...]],
    waits: bool = True,
    conditions: Mapping[str, str] | None = None,
) -> RankFacts:
    """Return a rank that has made these calls, and waits in the last one."""
    numbers: dict[str, int] = {}
    operations = []
    for n, (kind, group, site) in enumerate(made):
        numbers[group] = numbers.get(group, 0) + 1
        operations.append(
            Collective(
                group=group,
                kind=kind,
                number=numbers[group],
                site=site,
                at=100.0 + n + number * 1e-3,
                done=not waits or n < len(made) - 1,
                condition=(conditions or {}).get(site, ""),
            )
        )
    known = {name: members for name, members in groups.items() if number in members}
    return RankFacts(
        rank=number,
        pid=100 + number,
        collectives=(CollectiveLog("ring", tuple(operations), known),),
    )


def local(rank: int) -> str:
    return "a" if rank in LOCAL["a"] else "b"


def tensor_parallel(skips: int | None = None, adds: int | None = None) -> list[RankFacts]:
    """Two groups of two and the world: each rank sums in its own group, then all meet.

    `skips` leaves the sum out; `adds` sums once more where nobody else does.
    """
    groups = {WORLD: (0, 1, 2, 3), **LOCAL}
    ranks = []
    for rank in range(4):
        sums = ("all_reduce", local(rank), "train.py:9")
        more = ("all_reduce", local(rank), "train.py:11")
        meets = ("barrier", WORLD, "train.py:12")
        made = [("new_group", WORLD, "train.py:5"), sums, meets]
        partner = next(r for r in LOCAL[local(rank)] if r != rank)
        if rank == skips:
            made.remove(sums)
        elif partner == skips:
            made = made[:2]
        elif rank == adds:
            made = [*made[:2], more]
        ranks.append(facts(rank, made, groups))
    return ranks


@pytest.mark.parametrize("culprit", range(4))
def test_who_left_out_what_the_ranks_of_another_group_made_is_named(culprit: int) -> None:
    found = find_mismatch(tensor_parallel(skips=culprit))
    assert found is not None
    assert (found.kind, found.ranks) == ("skipped", (culprit,))
    assert found.operation.site == "train.py:9"
    assert f"rank {culprit} left out a call" in found.sentence


@pytest.mark.parametrize("culprit", range(4))
def test_who_made_a_call_that_nobody_made_in_another_group_is_named(culprit: int) -> None:
    # It stands in it, and the others in another: whether they would have come to it nobody knows.
    found = find_mismatch(tensor_parallel(adds=culprit))
    assert found is not None
    assert (found.kind, found.ranks) == ("different", (culprit,))
    assert found.operation.site == "train.py:11"


def test_stages_that_do_different_things_are_no_mismatch() -> None:
    """Pipeline stages: each group does something of its own, and one rank is merely late."""
    groups = {WORLD: (0, 1, 2, 3), **LOCAL}
    ranks = [
        facts(0, [("all_reduce", "a", "embed.py:3"), ("barrier", WORLD, "train.py:9")], groups),
        facts(1, [("all_reduce", "a", "embed.py:3"), ("barrier", WORLD, "train.py:9")], groups),
        facts(2, [("all_gather", "b", "head.py:7"), ("barrier", WORLD, "train.py:9")], groups),
        facts(3, [("all_gather", "b", "head.py:7")], groups, waits=False),
    ]
    found = find_mismatch(ranks)
    assert found is None or not found.is_sure
    assert find_mismatched_ranks(ranks) == ()


EXPERTS = {WORLD: (0, 1, 2, 3), "e": (1, 2, 3)}
MEETS = ("barrier", WORLD, "train.py:37")
ROUTES = [("new_group", WORLD, "train.py:31"), ("broadcast", "e", "train.py:24")]


def test_a_rank_that_has_no_such_group_did_not_leave_out_what_the_members_of_one_do() -> None:
    """Rank 0 has no expert: that it is in the barrier and others in their broadcast is as it should
    be, and tells nothing of who keeps the broadcast from going on.
    """
    ranks = [
        facts(0, [ROUTES[0], MEETS], EXPERTS),
        facts(1, ROUTES, EXPERTS),
        facts(2, ROUTES, EXPERTS),
        facts(3, [*ROUTES, MEETS], EXPERTS),
    ]
    found = find_mismatch(ranks)
    assert found is None or not found.is_sure
    assert find_mismatched_ranks(ranks) == ()


@pytest.mark.parametrize("culprit", [1, 2, 3])
def test_members_of_one_group_are_compared_though_a_rank_has_no_part_in_it(culprit: int) -> None:
    ranks = [
        facts(0, [ROUTES[0], MEETS], EXPERTS),
        *(facts(n, [ROUTES[0], MEETS] if n == culprit else ROUTES, EXPERTS) for n in EXPERTS["e"]),
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert found.ranks == (culprit,)


def test_who_is_merely_behind_in_its_own_group_is_not_sure_to_be_to_blame() -> None:
    ranks = tensor_parallel()
    for number, rank in enumerate(ranks):
        (log,) = rank.collectives
        kept = log.operations[:1] if number == 3 else log.operations[: 2 if number == 2 else 3]
        if number == 3:
            kept = tuple(replace(one, done=True) for one in kept)
        ranks[number] = replace(rank, collectives=(replace(log, operations=kept),))
    assert find_mismatched_ranks(ranks) == ()


def recorded(rank: RankFacts, *made: tuple[str, str]) -> RankFacts:
    """Return a rank with torch's own record of group 0, which has no sites: kind and shape."""
    operations = tuple(
        Collective(WORLD, kind, n + 1, shape=shape, at=100.0 + n + 0.5, done=n + 1 < len(made))
        for n, (kind, shape) in enumerate(made)
    )
    log = CollectiveLog("torch", operations)
    return replace(rank, collectives=(*rank.collectives, log))


def test_what_torch_recorded_is_told_by_the_condition_that_our_log_has_for_it() -> None:
    """Rank 0 alone evaluates, and meets a broadcast that C++ makes in rank 1's next forward."""
    condition = {"train.py:16": "if step % 2 == 1 and is_master"}
    both = [("ddp", WORLD, "train.py:9")]
    evaluates = [*both, ("all_reduce", WORLD, "train.py:16")]
    forward = look(
        "broadcast_coalesced SP/torch/nn/parallel/distributed.py:1775", "main train.py:22"
    )
    ranks = [
        recorded(
            facts(0, evaluates, {WORLD: (0, 1)}, conditions=condition),
            ("all_gather", "int64[1]"),
            ("all_reduce", "float32[1]"),
        ),
        recorded(
            replace(facts(1, both, {WORLD: (0, 1)}, waits=False), looks=(forward,)),
            ("all_gather", "int64[1]"),
            ("broadcast", "int32[3]"),
        ),
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert found.sites[1] == "train.py:22 main"  # and not that of its last call before
    assert (found.kind, found.ranks) == ("extra", (0,))
    assert (found.operation.kind, found.operation.site) == ("all_reduce", "train.py:16")
    assert "below `if step % 2 == 1 and is_master`" in found.sentence


def test_without_a_condition_two_ranks_in_different_operations_are_both_named() -> None:
    both = [("ddp", WORLD, "train.py:9")]
    ranks = [
        recorded(
            facts(0, [*both, ("all_reduce", WORLD, "train.py:16")], {WORLD: (0, 1)}),
            ("all_reduce", "float32[1]"),
        ),
        recorded(facts(1, both, {WORLD: (0, 1)}, waits=False), ("broadcast", "int32[3]")),
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("different", (0, 1))


# ---- a call over another group -------------------------------------------------------------------

ROWS = {"r0": (0, 1, 2), "r1": (3, 4, 5)}
COLUMNS = {"c0": (0, 3), "c1": (1, 4), "c2": (2, 5)}
GATHERS, SUMS = ("all_gather", "layer.py:29"), ("all_reduce", "layer.py:35")


def mesh_of_two_by_three(swapped: Sequence[int] = (), waits: bool = True) -> list[RankFacts]:
    """A mesh: each rank gathers along its row, then sums along its column; those that `swapped` the
    names of the dimensions do it the other way round.
    """
    groups = {WORLD: (0, 1, 2, 3, 4, 5), **ROWS, **COLUMNS}
    ranks = []
    for number in range(6):
        row, column = f"r{number // 3}", f"c{number % 3}"
        first, second = (column, row) if number in swapped else (row, column)
        made = [(GATHERS[0], first, GATHERS[1]), (SUMS[0], second, SUMS[1])]
        together = {n for n in groups[first] if (n in swapped) == (number in swapped)}
        made = made if together == {*groups[first]} else made[:1]
        ranks.append(facts(number, made, groups, waits))
    return ranks


@pytest.mark.parametrize("culprit", [1, 4, 5])
def test_who_makes_a_call_over_another_group_than_its_members_is_to_blame(culprit: int) -> None:
    ranks = mesh_of_two_by_three([culprit])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("members", (culprit,))
    assert f"group of ranks {culprit % 3},{culprit % 3 + 3}" in found.sentence
    assert find_mismatched_ranks(ranks) == (culprit,)


def test_all_of_a_row_may_have_them_swapped() -> None:
    """Half of the ranks mean something else than the other half: nobody can tell whose is wrong."""
    found = find_mismatch(mesh_of_two_by_three([3, 4, 5]))
    assert found is None or found.kind != "members"


def test_in_a_mesh_in_order_groups_of_one_line_differ_and_nobody_is_wrong() -> None:
    found = find_mismatch(mesh_of_two_by_three())
    assert found is None or found.kind != "members"


def test_where_one_has_not_come_to_that_line_nothing_is_said() -> None:
    """Each goes round all groups that it is in, by their numbers: rank 4 waits in the second for
    rank 1, which waits in the first for rank 0.
    """
    groups = {WORLD: (0, 1, 2, 3, 4, 5), "a": (0, 1, 2), "b": (1, 4), "c": (3, 4, 5)}
    stands = {1: "a", 2: "a", 4: "b", 3: "c", 5: "c"}
    ranks = [facts(0, [("new_group", WORLD, "train.py:5")], groups, waits=False)]
    ranks += [facts(n, [("all_reduce", stands[n], "train.py:9")], groups) for n in range(1, 6)]
    found = find_mismatch(ranks)
    assert found is None or found.kind != "members"


def test_a_line_that_goes_round_several_groups_says_nothing() -> None:
    groups = {WORLD: (0, 1, 2, 3, 4, 5), "a": (0, 1, 2), "b": (1, 4), "c": (3, 4, 5)}
    done = {0: ["a"], 1: ["a", "b"], 2: ["a"], 3: ["c"], 4: ["b", "c"], 5: ["c"]}
    ranks = [
        facts(n, [("all_reduce", name, "train.py:9") for name in done[n]], groups) for n in range(6)
    ]
    found = find_mismatch(ranks)
    assert found is None or found.kind != "members"


@pytest.mark.parametrize("condition", ["if rank == 2", ""])
def test_a_call_below_a_condition_is_not_the_one_that_others_wait_in_elsewhere(
    condition: str,
) -> None:
    """Rank 2 sums with all once more, below a condition, before it sums in its group; ranks of the
    other group wait in their own sum with all, in another line.
    """
    groups = {WORLD: (0, 1, 2, 3, 4, 5), "even": (0, 2, 4), "odd": (1, 3, 5)}
    ranks = []
    for rank in range(6):
        mine = ("all_reduce", "odd" if rank % 2 else "even", "train.py:9")
        step = [mine, ("all_reduce", WORLD, "train.py:12")]
        made = [*step, *step, *(step if rank % 2 else [mine])]
        if rank == 2:
            made = [*step, *step, ("all_reduce", WORLD, "train.py:8")]
        ranks.append(facts(rank, made, groups, conditions={"train.py:8": condition}))
    found = find_mismatch(ranks)
    assert found is not None
    assert found.ranks == (2,)
    if condition:
        assert (found.kind, found.operation.site) == ("extra", "train.py:8")
        assert condition in found.sentence
