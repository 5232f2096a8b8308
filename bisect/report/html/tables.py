"""The tables of a page: the looks at a process side by side (what stayed the same, and what moved),
what differs between ranks, and the starts of an isolation or the cells of a matrix with a link
to each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

from ...base.facts import Look, RankFacts, RankId, Sample, Verdict
from ...base.lazy_dataclass import dataclass
from ...base.words import format_count, format_rank_numbers, format_ranks, format_seconds
from ...diagnosis.frames import format_frame
from ..run_reader.rank_differences import RankDifference, Topic
from ..run_reader.run import TRIALS_FOLDER, RecordedRun, RecordedTrial, trials_with_reports
from ..stacks import child_role, format_call, format_state
from .templates import ShownTexts

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
    told = [
        DifferingValue(_value(one.name, value, shown), format_rank_numbers(ranks), bool(value))
        for value, ranks in values[:_MOST_VALUES]
    ]
    return DifferingThing(one.name, tuple(told), len(values) - len(told))


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
