"""Many stacks as one tree."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import Thread
from hangbisect.diagnosis.process.merged_stacks import (
    Branch,
    StackLines,
    find_role,
    is_idle_thread,
    merge_stacks,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up import look, stack


def test_what_is_shared_stands_once_and_the_rest_below() -> None:
    stacks = [(r, ("main", "fit", "wait")) for r in range(3)] + [(3, ("main", "load"))]
    assert merge_stacks(stacks) == (
        Branch(0, (0, 1, 2, 3), ("main",), True),
        Branch(1, (0, 1, 2), ("fit", "wait"), False),
        Branch(1, (3,), ("load",), False),
    )


def test_those_that_go_no_deeper_are_a_branch_without_lines() -> None:
    assert merge_stacks([(0, ("main", "f")), (1, ("main",))]) == (
        Branch(0, (0, 1), ("main",), True),
        Branch(1, (0,), ("f",), False),
        Branch(1, (1,), (), False),
    )


def test_a_rank_may_have_several_stacks() -> None:
    assert merge_stacks([(0, ("run",)), (0, ("run",))]) == (Branch(0, (0, 0), ("run",), False),)


def test_nothing_makes_no_tree() -> None:
    assert merge_stacks([]) == ()


def test_recursions_of_many_depths_can_be_merged() -> None:
    """Each forks from the one before, more often than Python lets a function call itself."""
    depths = range(1, sys.getrecursionlimit() + 200, 3)
    assert len(depths) > 390
    with recursion_limit(300):
        tree = merge_stacks((depth, ("f",) * depth) for depth in depths)
    assert tree[-1].depth == len(depths) - 1
    assert sum(not branch.forks for branch in tree) == len(depths)


@contextlib.contextmanager
def recursion_limit(calls: int) -> Iterator[None]:
    """Let functions call themselves so often, and no more."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + calls)
    yield
    sys.setrecursionlimit(before)


STACKS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.sampled_from("abc"), max_size=5).map(tuple)),
    max_size=12,
)


def leaves(tree: tuple[Branch, ...]) -> list[tuple[RankId, StackLines]]:
    """Each rank with its stack, read back from a tree."""
    found: list[tuple[RankId, StackLines]] = []
    path: list[StackLines] = []
    for branch in tree:
        del path[branch.depth :]
        path.append(branch.lines)
        if not branch.forks:
            whole = tuple(line for lines in path for line in lines)
            found += [(rank, whole) for rank in branch.ranks]
    return sorted(found)


@given(STACKS)
def test_no_rank_and_no_line_is_lost(stacks: list[tuple[RankId, StackLines]]) -> None:
    assert leaves(merge_stacks(stacks)) == sorted(stacks)


@given(STACKS, st.randoms())
def test_the_order_makes_no_difference(
    stacks: list[tuple[RankId, StackLines]], random: object
) -> None:
    other = list(stacks)
    random.shuffle(other)  # type: ignore[attr-defined]  # a random.Random
    assert merge_stacks(other) == merge_stacks(stacks)


@given(STACKS)
def test_branches_beside_one_another_begin_differently(
    stacks: list[tuple[RankId, StackLines]],
) -> None:
    begins: dict[int, set[StackLines]] = {}
    for branch in merge_stacks(stacks):
        for deeper in [depth for depth in begins if depth > branch.depth]:
            del begins[deeper]
        assert branch.lines[:1] not in begins.setdefault(branch.depth, set())
        begins[branch.depth].add(branch.lines[:1])


# ---- what a process or a thread is to its rank ----------------------------------------------


@pytest.mark.parametrize(
    ("name", "frames", "role"),
    [
        ("pt_data_worker", (), "DataLoader worker"),
        (
            "python3",
            ("get data.py:1", "_worker_loop SP/torch/utils/data/_utils/worker.py:3"),
            "DataLoader worker",
        ),
        ("python3", ("main STD/multiprocessing/resource_tracker.py:1",), "resource tracker"),
        ("wandb-core", (), "wandb-core"),
        ("git", (), "git"),
        ("", (), "a program without a name"),
    ],
)
def test_a_child_is_called_by_what_it_does(name: str, frames: tuple[str, ...], role: str) -> None:
    assert find_role(look(*frames, name=name)) == role


@pytest.mark.parametrize(
    ("frames", "idle"),
    [
        (("Condition.wait STD/threading.py:3", "_worker STD/concurrent/futures/thread.py:9"), True),
        (("TMonitor.run SP/tqdm/_monitor.py:60", "_bootstrap STD/threading.py:1"), True),
        (("Condition.wait STD/threading.py:3", "flush own.py:9"), False),
        (("_worker SP/acme/pool.py:9", "_bootstrap STD/threading.py:1"), False),
        ((), False),
    ],
)
def test_a_pools_thread_that_runs_nobodys_code_is_idle(frames: tuple[str, ...], idle: bool) -> None:
    assert is_idle_thread(Thread(7, "pool_0", False, False, stack(*frames))) is idle
    assert not is_idle_thread(Thread(7, "pool_0", False, True, stack(*frames)))
