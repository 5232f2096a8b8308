"""The stacks of all ranks as a tree that folds (what they share is shown once), and the tracebacks
of ranks that ended by an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from markupsafe import Markup

from ...base.facts import Frame, RankFacts, RankId, Verdict
from ...base.lazy_dataclass import dataclass
from ...base.words import format_count, format_ranks
from ...diagnosis.frames import format_frame
from ...diagnosis.merged_stacks import Branch, StackLines, merge_stacks
from ..run_reader.folder_files import read_stack_files
from ..run_reader.run import RecordedRun
from ..stacks import StackGroup, drop_starting_frames, group_stacks
from .templates import ShownTexts

_MOST_LINES = 2000  # frames of all trees
_MOST_TREES = 20
_OPEN = 120  # frames; a tree of up to so many is unfolded from the beginning
_DEEPEST = 24  # forks inside one another; browsers nest no more than 512 elements
_SYMBOL = 160  # characters of a frame: C++ templates have thousands
RanksByReason = Mapping[str, Sequence[RankId]]


@dataclass(frozen=True)
class FrameLine:
    """One frame."""

    words: str  # "Condition.wait (threading.py:327)"
    file: str  # whole
    native: bool
    here: bool = False  # the frame that the verdict names


@dataclass(frozen=True)
class Fork:
    """A run of frames that several stacks share, and what grows from it."""

    who: str
    lines: tuple[FrameLine, ...]
    forks: tuple[Fork, ...]
    open: bool
    culprit: bool  # a rank that is at fault is part of it
    blamed: bool  # no other rank is


@dataclass(frozen=True)
class Tree:
    title: str
    forks: tuple[Fork, ...]
    without: tuple[str, ...]  # sentences: those of which there is no stack
    left_out: int  # frames
    main: bool  # of the ranks' main threads


def stack_trees(ranks: Sequence[RankFacts], verdict: Verdict, shown: ShownTexts) -> list[Tree]:
    """Return the tree of the main threads, of the other threads, and of each kind of child."""
    growing = _TreeBuilder(verdict, shown)
    trees = [_make_tree(group, growing) for group in group_stacks(ranks)]
    return [tree for tree in trees if tree.forks or tree.without or tree.left_out][:_MOST_TREES]


def _make_tree(group: StackGroup, growing: _TreeBuilder) -> Tree:
    if group.kind == "main threads":
        without = {f"no stack, {why}": ranks for why, ranks in group.without.items()}
        return growing.tree("Main threads", group.stacks, without, main=True)
    if group.kind == "other threads":
        count = f"{format_count(len(group.idle), 'idle thread')} of pools"
        return growing.tree(
            "Other threads", group.stacks, {count: group.idle} if group.idle else {}
        )
    unseen = list(chain.from_iterable(group.without.values()))
    told = {"no Python stack": unseen} if unseen else {}
    return growing.tree(f"Children: {group.role}", group.stacks, told)


class _TreeBuilder:
    """Makes trees of stacks."""

    def __init__(self, verdict: Verdict, shown: ShownTexts) -> None:
        self._frame = verdict.frame
        self._culprits = frozenset(verdict.ranks.culprit)
        self._shown = shown
        self._lines: dict[str, FrameLine] = {}  # by what tells a frame from others
        self._room = _MOST_LINES

    def tree(
        self,
        title: str,
        stacks: Iterable[tuple[RankId, Sequence[Frame]]],
        without: RanksByReason,
        main: bool = False,
    ) -> Tree:
        """Return stacks, each with its rank, innermost frame first, as one tree."""
        branches = merge_stacks((rank, self._stack(frames)) for rank, frames in stacks)
        size = 0
        kept: list[Branch] = []
        for branch in branches:
            size += len(branch.lines)
            if size <= self._room:
                kept.append(branch)
        left = size - sum(len(branch.lines) for branch in kept)
        self._room -= size - left
        forks = self._forks(kept, small=size <= _OPEN, main=main)
        words = tuple(f"{format_ranks(ranks)}: {why}" for why, ranks in without.items())
        return Tree(title, forks, words, left, main)

    def _forks(self, branches: Sequence[Branch], small: bool, main: bool) -> tuple[Fork, ...]:
        """Return the branches nested, those of the same depth beside one another."""
        beside: list[list[Fork]] = [[] for _ in range(_DEEPEST + 2)]
        for branch in reversed(branches):
            depth = min(branch.depth, _DEEPEST)
            grown = tuple(reversed(beside[depth + 1]))
            beside[depth + 1] = []
            culprit = main and not self._culprits.isdisjoint(branch.ranks)
            lines = tuple(self._lines[line] for line in branch.lines)
            if culprit and not any(fork.culprit for fork in grown):
                lines = self._marked(lines)
            blamed = culprit and self._culprits.issuperset(branch.ranks)
            fork = Fork(format_ranks(branch.ranks), lines, grown, small or culprit, culprit, blamed)
            beside[depth].append(fork)
        return tuple(reversed(beside[0]))

    def _marked(self, lines: tuple[FrameLine, ...]) -> tuple[FrameLine, ...]:
        """Return frames with the innermost one marked that the verdict names."""
        for at in range(len(lines) - 1, -1, -1):
            if lines[at].words == self._frame:
                here = lines[at]
                marked = FrameLine(here.words, here.file, here.native, here=True)
                return (*lines[:at], marked, *lines[at + 1 :])
        return lines

    def _stack(self, frames: Sequence[Frame]) -> StackLines:
        """Return frames outermost first, without the native ones that started Python."""
        return tuple(self._key(frame) for frame in reversed(drop_starting_frames(frames)))

    def _key(self, frame: Frame) -> str:
        words = format_frame(frame)
        if frame.native:
            words = words.replace(":0)", ")")  # no line is known of it
        key = f"{frame.native} {words}"
        if key not in self._lines:
            self._lines[key] = FrameLine(
                self._shown.text(words, _SYMBOL),
                self._shown.text(frame.file, _SYMBOL),
                frame.native,
            )
        return key


_MOST_TRACEBACK_LINES = 60  # the last of each: the innermost
_MOST_TRACEBACKS = 8
_MOST_INDENT = 16  # spaces at the beginning of a line


@dataclass(frozen=True)
class Traceback:
    """One of them. `lines`: the indentation of each, and its words."""

    who: str
    culprit: bool
    lines: tuple[tuple[Markup, str], ...]
    left_out: int  # lines before these


def tracebacks(run: RecordedRun, verdict: Verdict) -> tuple[Traceback, ...]:
    """Return the tracebacks of ranks that ended by an error, those of culprits first."""
    by_text: dict[str, tuple[list[str], list[RankId]]] = {}
    for one in read_stack_files(run.stacks):
        if one.rank is None or (isinstance(one.rank, int) and one.rank >= run.world_size):
            continue
        if one.is_of_rank and one.is_traceback:
            by_text.setdefault(one.text, (one.lines, []))[1].append(one.rank)
    culprits = frozenset(verdict.ranks.culprit)
    found = sorted(by_text.values(), key=lambda one: culprits.isdisjoint(one[1]))
    return tuple(islice(_make_tracebacks(found, culprits), _MOST_TRACEBACKS))


def _make_tracebacks(
    found: list[tuple[list[str], list[RankId]]], culprits: frozenset[RankId]
) -> Iterator[Traceback]:
    for lines, ranks in found:
        kept = tuple(map(_split_indent, lines[-_MOST_TRACEBACK_LINES:]))
        blamed = not culprits.isdisjoint(ranks)
        yield Traceback(format_ranks(ranks), blamed, kept, len(lines) - len(kept))


def _split_indent(line: str) -> tuple[Markup, str]:
    words = line.lstrip(" ")
    return Markup("\N{NO-BREAK SPACE}") * min(len(line) - len(words), _MOST_INDENT), words
