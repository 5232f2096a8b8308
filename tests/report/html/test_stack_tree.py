"""The stacks as a tree that folds."""

from __future__ import annotations

from collections.abc import Iterator

from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Ranks, Verdict
from hangbisect.report.html.page_parts import Fork, FrameLine, Tree, stack_trees
from hangbisect.report.html.templates import ShownTexts

from .made_up import plain

VERDICT = Verdict("hang", "startup", (), 0, 3, None, Ranks(culprit=(2,)), frame="wait (train.py:1)")


def look(*names: str, pid: int = 100, name: str = "python") -> Look:
    """A look; frames innermost first, native ones with a "~"."""
    frames = tuple(
        Frame(n.strip("~"), "/home/ada/train.py", 0 if "~" in n else 1, "~" in n) for n in names
    )
    threads = (Thread(pid, "MainThread", False, False, frames),) if frames else ()
    return Look(10.0, pid, 1, name, (), 50.0, "S", "py-spy", threads=threads)


def rank(number: int, *names: str, child: Look | None = None) -> RankFacts:
    one = look(*names, pid=100 + number)
    return RankFacts(number, pid=one.pid, looks=(one,), children=((child,),) if child else ())


def trees(*ranks: RankFacts) -> list[Tree]:
    return stack_trees(ranks, VERDICT, ShownTexts(plain()))


def lines(forks: tuple[Fork, ...]) -> Iterator[tuple[str, FrameLine]]:
    for fork in forks:
        yield from ((fork.who, line) for line in fork.lines)
        yield from lines(fork.forks)


def depth(forks: tuple[Fork, ...]) -> int:
    return 1 + max((depth(fork.forks) for fork in forks), default=0) if forks else 0


def test_what_is_shared_stands_once_and_what_grows_from_it_inside() -> None:
    (tree,) = trees(rank(0, "meet", "main"), rank(1, "meet", "main"), rank(2, "wait", "main"))
    (root,) = tree.forks
    assert (root.who, [line.words for line in root.lines]) == ("ranks 0-2", ["main (train.py:1)"])
    assert [(fork.who, fork.culprit) for fork in root.forks] == [
        ("ranks 0-1", False),
        ("rank 2", True),
    ]
    assert (root.culprit, root.blamed, root.forks[1].blamed) == (True, False, True)


def test_the_frame_in_question_is_marked_once_on_the_rank_at_fault() -> None:
    (tree,) = trees(rank(0, "wait", "other"), rank(2, "wait", "wait", "wait", "main"))
    marked = [(who, line.words) for who, line in lines(tree.forks) if line.here]
    assert marked == [("rank 2", "wait (train.py:1)")]
    (own,) = [fork for fork in tree.forks if fork.who == "rank 2"]
    assert own.lines[-1].here


def test_native_frames_are_told_from_those_of_python() -> None:
    (tree,) = trees(rank(2, "~recv", "wait", "main", "~Py_RunMain"))
    assert [(line.words, line.native) for _, line in lines(tree.forks)] == [
        ("main (train.py:1)", False),
        ("wait (train.py:1)", False),
        ("recv (train.py)", True),
    ]


def test_ranks_without_a_stack_are_named_and_children_have_a_tree_by_their_role() -> None:
    found = trees(rank(0, child=look("send", name="wandb-core")), rank(2, "wait"))
    assert found[0].without[0].startswith("rank 0: no stack")
    assert [tree.title for tree in found] == ["Main threads", "Children: wandb-core"]


def test_recursions_of_all_depths_nest_no_deeper_than_a_browser_can() -> None:
    ranks = [rank(r, *["walk"] * (r + 1), "main") for r in range(120)]
    (tree,) = trees(*ranks)
    assert depth(tree.forks) <= 26
    assert tree.left_out == 0


def test_a_tree_that_is_too_large_says_how_much_is_left_out() -> None:
    ranks = [rank(r, *[f"f{r}_{n}" for n in range(30)]) for r in range(200)]
    (tree,) = trees(*ranks)
    shown = len(list(lines(tree.forks)))
    assert shown + tree.left_out == 200 * 30
    assert tree.left_out > 0
