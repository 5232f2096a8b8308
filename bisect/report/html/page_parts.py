"""What report.html shows in trees and tables.

The stacks of all ranks as a tree that folds (what they share is shown once); the tracebacks of
ranks that ended by an error; the looks at a process side by side (what stayed the same, and what
moved); what differs between ranks; the starts of an isolation or the cells of a matrix with a
link to each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from urllib.parse import quote

from markupsafe import Markup

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.process_facts import Frame, Look, Sample
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Verdict
from ...base.words import format_count, format_rank_numbers, format_ranks, format_seconds
from ...diagnosis.process.frames import format_frame
from ...diagnosis.process.merged_stacks import Branch, StackLines, merge_stacks
from ..run_reader.rank_differences import RankDifference, Topic
from ..run_reader.run import TRIALS_FOLDER, RecordedRun, RecordedTrial, trials_with_reports
from ..run_reader.run_files import read_stack_files
from ..stacks import (
    StackGroup,
    child_role,
    drop_starting_frames,
    format_call,
    format_state,
    group_stacks,
)
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
    without_stack = {"no Python stack": unseen} if unseen else {}
    return growing.tree(f"Children: {group.role}", group.stacks, without_stack)


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


_MOST_PROCESSES = 12
_MOST_LOOKS = 8  # of one process: the first ones and the last
_FRAMES = 4  # innermost ones
_SHORT = 240  # characters


@dataclass(frozen=True)
class Cell:
    words: str
    changed: bool  # it is another one than in the look before


@dataclass(frozen=True)
class Aspect:
    """One thing over all looks."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ProcessTable:
    """One process, a column a look."""

    who: str
    moved: str  # what moved, in words
    heads: tuple[str, ...]  # "+0.0 s, py-spy"
    aspects: tuple[Aspect, ...]


@dataclass(frozen=True)
class LooksPart:
    processes: tuple[ProcessTable, ...]
    left_out: str  # a sentence, "" if all are shown


def looks_part(ranks: Sequence[RankFacts], verdict: Verdict, shown: ShownTexts) -> LooksPart:
    """Return the looks at the culprits and their children, at the others that are stuck, and at
    as many of those that wait as there is room for.
    """
    looked = [one for one in ranks if one.looks]
    blamed = [one for one in looked if one.rank in verdict.ranks.culprit]
    stuck = [one for one in looked if one.rank in verdict.ranks.stuck and one not in blamed]
    rest = [one for one in looked if one not in blamed and one not in stuck]
    processes: list[ProcessTable] = []
    seen: list[RankId] = []
    for one in (*blamed, *stuck, *rest):
        if len(processes) < _MOST_PROCESSES:
            processes += _processes_of(one, shown)
            seen.append(one.rank)
    left = [one.rank for one in looked if one.rank not in seen]
    return LooksPart(
        tuple(processes),
        f"Those at {format_ranks(left)} are in evidence.json." if left else "",
    )


def _processes_of(one: RankFacts, shown: ShownTexts) -> Iterator[ProcessTable]:
    yield _process(f"rank {one.rank}", one.looks, one.moved, shown)
    for looks in one.children:
        if looks:
            yield _process(f"{child_role(looks[-1:])}, child of rank {one.rank}", looks, "", shown)


def _process(who: str, looks: Sequence[Look], moved: str, shown: ShownTexts) -> ProcessTable:
    first, last, count = looks[0], looks[-1], len(looks)
    if len(looks) > _MOST_LOOKS:
        looks = (*looks[: _MOST_LOOKS // 2], *looks[-_MOST_LOOKS // 2 :])
    aspects = [_aspect(name, [tell(look) for look in looks], shown) for name, tell in _ASPECTS]
    over = f"{format_count(count, 'look')} in {last.at - first.at:.1f} s"
    return ProcessTable(
        who=f"{who}, pid {last.pid}",
        moved=f"{over}: {moved or 'nothing moved'}" if moved or len(looks) > 1 else over,
        heads=tuple(f"+{look.at - first.at:.1f} s, {look.rung}" for look in looks),
        aspects=tuple(one for one in aspects if any(cell.words for cell in one.cells)),
    )


def _aspect(name: str, words: Sequence[str], shown: ShownTexts) -> Aspect:
    cells = [
        Cell(shown.text(word, _SHORT), at > 0 and word != words[at - 1])
        for at, word in enumerate(words)
    ]
    return Aspect(name, tuple(cells))


# ---- what is told of a look ----------------------------------------------------------------------


def _stack(look: Look) -> str:
    frames = look.main.frames if look.main else ()
    return " < ".join(format_frame(frame) for frame in frames[:_FRAMES])


def _counter(tell: Callable[[Sample], str]) -> Callable[[Look], str]:
    return lambda look: tell(look.sample) if look.sample else ""


def _received(sample: Sample) -> str:
    return "" if sample.received is None else f"{sample.received:,} bytes"


_ASPECTS: tuple[tuple[str, Callable[[Look], str]], ...] = (
    ("State", format_state),
    ("System call", format_call),
    ("Innermost frames", _stack),
    ("CPU time", _counter(lambda sample: f"{sample.cpu:.2f} s")),
    ("Read", _counter(lambda sample: f"{sample.read:,} bytes")),
    ("Written", _counter(lambda sample: f"{sample.written:,} bytes")),
    ("From the network", _counter(_received)),
    ("Not readable", lambda look: "; ".join(look.missing)),
)


_MOST_VALUES = 12  # values of one thing
_MOST_THINGS = 80
_LONGEST = 240  # characters of a value
_TOPICS: dict[Topic, str] = {
    "host": "Hosts",
    "versions": "Versions",
    "python": "Python",
    "gpu": "GPUs",
    "environment": "Environment",
}


@dataclass(frozen=True)
class DifferingValue:
    words: str
    ranks: str
    is_set: bool


@dataclass(frozen=True)
class DifferingThing:
    """Something of which ranks have different values, most ranks first."""

    name: str
    values: tuple[DifferingValue, ...]
    more: int  # values that are not shown


@dataclass(frozen=True)
class DifferenceTable:
    title: str
    things: tuple[DifferingThing, ...]


def difference_tables(found: Sequence[RankDifference], shown: ShownTexts) -> list[DifferenceTable]:
    """Return what differs, by topic."""
    topics: dict[str, list[DifferingThing]] = {}
    for one in found[:_MOST_THINGS]:
        topics.setdefault(_TOPICS[one.topic], []).append(_thing(one, shown))
    return [DifferenceTable(title, tuple(things)) for title, things in topics.items()]


def _thing(one: RankDifference, shown: ShownTexts) -> DifferingThing:
    values = list(one.values.items())
    differing = [
        DifferingValue(_value(one.name, value, shown), format_rank_numbers(ranks), bool(value))
        for value, ranks in values[:_MOST_VALUES]
    ]
    return DifferingThing(one.name, tuple(differing), len(values) - len(differing))


def _value(name: str, value: str, shown: ShownTexts) -> str:
    return shown.text(shown.value(name, value), _LONGEST) if value else "not set"


_MOST_TRIALS = 2000
_KNOWN = ("ok", "pass", "hang", "crash", "slow")


@dataclass(frozen=True)
class TrialRow:
    number: int
    name: str
    result: str  # "hang", "pass", "ok", ...
    kind: str  # the same as a class of the style sheet
    where: str
    took: str
    link: str  # to its own page or folder; "": there is none


def trial_rows(run: RecordedRun, shown: ShownTexts, reported: bool) -> list[TrialRow]:
    """Return a row for each start. `reported`: those that went wrong have reports of their own."""
    pages = {trial.number for trial in trials_with_reports(run.trials)} if reported else frozenset()
    return [_trial_row(trial, shown, trial.number in pages) for trial in run.trials[:_MOST_TRIALS]]


def _trial_row(trial: RecordedTrial, shown: ShownTexts, has_page: bool) -> TrialRow:
    link = ""
    # A name that cannot be shown, for it holds a secret or a control character, leads nowhere.
    if trial.link not in ("", ".", "..") and shown.text(trial.link) == trial.link:
        below = f"{TRIALS_FOLDER}/" if trial.link.startswith(f"{TRIALS_FOLDER}/") else ""
        link = f"./{below}{quote(trial.link.removeprefix(below), safe='')}/"
        link += "report.html" if has_page else ""
    took = "" if trial.seconds is None else format_seconds(trial.seconds)
    result = trial.result or "not run"
    kind = result if result in _KNOWN else "other"
    name, where = shown.text(trial.name, 200), shown.text(trial.where, 200)
    return TrialRow(trial.number, name, result, kind, where, took, link)
