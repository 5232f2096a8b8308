"""What differs between two runs beyond noise: how they were started, the settings of their ranks,
and how long each step took. What is noise is decided here alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from typing import Any, Literal

from ..base.identity import RankId
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.masking import MASK
from .run_reader.rank_differences import (
    ByRank,
    hello_fields,
    initial_variables,
    rank_machines,
    rank_variables,
    rank_versions,
)
from .run_reader.run import RecordedRun
from .run_reader.timeline import RankRow, Span, Timeline

Topic = Literal["command", "ranks", "environment", "versions", "python", "machine"]


@dataclass(frozen=True)
class Start:
    """One of the two."""

    folder: str
    outcome: str  # "" where there is no verdict
    what: str  # how it went, in words: "hang at 9 WandbLogger ready: rank 1 in wandb.init"
    cause: str  # its title, "" if none is known
    world_size: int
    seconds: float | None


@dataclass(frozen=True)
class SettingDifference:
    """A setting of which the two have different values; "" for one that is not there."""

    topic: Topic
    name: str
    a: str
    b: str
    ranks: tuple[RankId, ...] = ()  # of those that both have, where it is not all of them


@dataclass(frozen=True)
class StepResult:
    """How one of the two did with a step: `seconds` of the slowest rank; None: no rank ended it.

    `unended`: seconds that a rank was at it when the verdict was made; None: none was.
    """

    seconds: float | None
    unended: float | None = None
    stopped: tuple[RankId, ...] = ()  # the ranks that had not ended it

    @property
    def was_begun(self) -> bool:
        """Return whether any rank came to it."""
        return self.seconds is not None or self.unended is not None

    @property
    def was_ended(self) -> bool:
        """Return whether every rank that came to it ended it."""
        return self.seconds is not None and self.unended is None


@dataclass(frozen=True)
class TimeDifference:
    """A step, a phase or an import that took another time, or did not end."""

    title: str
    number: int | None
    depth: int  # 0: a step; 1: what lies in the step before it
    a: StepResult
    b: StepResult
    ranks: tuple[RankId, ...] = ()  # those that differ most, where it is not all of them
    seconds: float = 0.0  # how much longer B took; without an end, how long it had been at it


@dataclass(frozen=True)
class Comparison:
    """All of it, the most telling first."""

    a: Start
    b: Start
    times: tuple[TimeDifference, ...]
    settings: tuple[SettingDifference, ...]
    same: Mapping[str, int]  # how much of each topic was compared, and is the same
    missing: tuple[str, ...]  # sentences: what could not be compared

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs beyond noise."""
        return not self.times and not self.settings and self.a.what == self.b.what


# Of five starts of the startup pipeline, on two cores with the work of ten, 7 of 120 pairs of steps
# are further apart than this; than 0.5 s and a fifth, 34 (benchmarks/compare_noise.py).
NOISE_SECONDS = 1.0
NOISE_SHARE = 0.5  # of the longer one

# Other names of the job, or of this start of it; what each rank is, is a line of its own.
_OF_A_START = re.compile(
    "|".join(
        [
            r"HANGBISECT_.*|WANDB_(?:RUN_ID|SERVICE|SWEEP_ID)",
            *(words.varying for words in DIALECTS.values() if words.varying),
        ]
    )
)
# Names that are drawn by lot: UUIDs, and folders of one start.
_DRAWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<=torchelastic_)\w+|(?<=/tmp/)tmp[\w]{8}"
)
_OURS = re.compile(r"/hangbisect-[0-9a-f]{12}\.tmp(?:/|$)")  # the folder that we gave a start
_EPHEMERAL = 32768  # the first port that the kernel gives out by itself (ip(7))


def varies_by_start(variable: str) -> bool:
    """Return whether a variable has another value in every start, or is a rank's own number."""
    return _OF_A_START.fullmatch(variable) is not None


def same_value(variable: str, one: str, other: str) -> bool:
    """Return whether two values of a variable are the same, but for what is drawn by lot."""
    if one == other:
        return True
    if variable == "MASTER_PORT" and _is_drawn(one) and _is_drawn(other):
        return True
    if _OURS.search(one) or _OURS.search(other):
        return True
    return _DRAWN.sub("*", one) == _DRAWN.sub("*", other)


def same_time(one: float, other: float) -> bool:
    """Return whether two times in seconds are as near to each other as those of any two starts."""
    return abs(one - other) <= max(NOISE_SECONDS, NOISE_SHARE * max(one, other))


def _is_drawn(port: str) -> bool:
    return port.isdecimal() and int(port) >= _EPHEMERAL


_Named = Mapping[str, ByRank]
_OF_PYTHON = ("python", "executable")


@dataclass
class SettingDifferences:
    """What differs, and how much of each topic is the same."""

    differing: list[SettingDifference] = field(default_factory=list)
    same: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)  # masked, so they cannot be compared


def find_setting_differences(a: RecordedRun, b: RecordedRun) -> SettingDifferences:
    """Return what of their settings ranks of the same number have otherwise in two runs."""
    found = SettingDifferences()
    ones, others = _steady_variables(a), _steady_variables(b)
    _compare_topic(
        found, "environment", _set_by_both(ones, others, a, b), _set_by_both(others, ones, b, a)
    )
    ones, others = rank_versions(a), rank_versions(b)
    _compare_topic(
        found, "versions", _imported_by_both(ones, others, b), _imported_by_both(others, ones, a)
    )
    _compare_topic(found, "python", hello_fields(a, _OF_PYTHON), hello_fields(b, _OF_PYTHON))
    _compare_topic(found, "machine", rank_machines(a), rank_machines(b))
    return found


def compare_values(topic: Topic, name: str, a: ByRank, b: ByRank) -> Iterator[SettingDifference]:
    """Yield a difference for each two values that ranks of the same number have."""
    common = sorted(set(a) & set(b) if a and b else {*a, *b})
    pairs: dict[tuple[str, str], list[RankId]] = {}
    for rank in common:
        one, other = a.get(rank, ""), b.get(rank, "")
        if not same_value(name, one, other):
            pairs.setdefault((one, other), []).append(rank)
    for (one, other), ranks in pairs.items():
        yield SettingDifference(
            topic, name, one, other, tuple(ranks) if len(ranks) < len(common) else ()
        )


def _compare_topic(found: SettingDifferences, topic: Topic, ones: _Named, others: _Named) -> None:
    for name in sorted(ones.keys() | others.keys()):
        differences = list(compare_values(topic, name, ones.get(name, {}), others.get(name, {})))
        found.differing += differences
        if not differences:
            found.same[topic] = found.same.get(topic, 0) + 1
            if _is_masked(ones.get(name, {})):
                found.hidden.append(name)


def _is_masked(values: ByRank) -> bool:
    return any(value.startswith(MASK) for value in values.values())


# ---- what a start that stopped did not come to ---------------------------------------------------


def _steady_variables(run: RecordedRun) -> dict[str, ByRank]:
    return {name: them for name, them in rank_variables(run).items() if not varies_by_start(name)}


def _imported_by_both(ones: _Named, others: _Named, other: RecordedRun) -> _Named:
    """Return the versions of one run without those of libraries that the `other`, which stopped,
    never came to import.
    """
    if other.outcome == "ok":
        return ones
    return {name: them for name, them in ones.items() if name in others}


def _set_by_both(ones: _Named, others: _Named, run: RecordedRun, other: RecordedRun) -> _Named:
    """Return the variables of one run without those that it set on the way, and the `other`, which
    stopped, did not.
    """
    if other.outcome == "ok":
        return ones
    from_the_start = initial_variables(run)
    return {
        name: them
        for name, them in ones.items()
        if name in from_the_start or any(others.get(name, {}).values())
    }


# They change only how a run is printed, and where.
_REPORT_FLAGS = ("--run-dir", "--json", "--plain", "--every-rank")


def find_launch_differences(a: RecordedRun, b: RecordedRun) -> Iterator[SettingDifference]:
    """Yield what differs of command, number of ranks, hosts and launcher."""
    one, other = (_drop_report_flags(run.verdict.command if run.verdict else ()) for run in (a, b))
    if one and other and one != other:
        only_a, only_b = _differing_words(one, other)
        yield SettingDifference("command", "command", " ".join(only_a), " ".join(only_b))
    if a.world_size and b.world_size and a.world_size != b.world_size:
        yield SettingDifference("ranks", "ranks", str(a.world_size), str(b.world_size))
    hosts, others = (_list_hosts(run) for run in (a, b))
    if hosts and others and hosts != others:
        yield SettingDifference("ranks", "hosts", hosts, others)
    launchers = [hello_fields(run, ("launcher",)).get("launcher", {}) for run in (a, b)]
    yield from compare_values("ranks", "launcher", *launchers)


def _drop_report_flags(words: Iterable[Any]) -> list[str]:
    """Return a command without what changes only how it is printed."""
    words_kept: list[str] = []
    is_value = False
    for word in map(str, words):
        if not is_value and not word.startswith(_REPORT_FLAGS):
            words_kept.append(word)
        is_value = not is_value and word == "--run-dir"
    return words_kept


def _differing_words(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that only one of two commands has, each with the flag that it is for."""
    only: tuple[list[str], list[str]] = ([], [])
    for kind, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind != "equal":
            is_value = i > 0 and one[i - 1].startswith("-") and "=" not in one[i - 1]
            flag = [one[i - 1]] if is_value and kind == "replace" else []
            only[0].extend([*flag, *one[i:j]])
            only[1].extend([*flag, *other[k:m]])
    return only


def _list_hosts(run: RecordedRun) -> str:
    return ", ".join(sorted({*hello_fields(run, ("host",)).get("host", {}).values()}))


_KINDS = ("step", "own step", "phase", "import")
# What it lies in and itself, each by kind and name: ("step tokenizer", "import torch").
StepKey = tuple[str, ...]


@dataclass
class StepTimes:
    """A step, or what lies in one. Seconds by rank."""

    title: str
    number: int | None
    took: dict[RankId, float] = field(default_factory=dict)
    unended: dict[RankId, float] = field(default_factory=dict)  # until the verdict, or its own end

    @property
    def longest(self) -> float | None:
        """Return the longest time that a rank took; None if no rank has ended it."""
        return max(self.took.values(), default=None)


def measure_steps(times: Timeline) -> dict[StepKey, StepTimes]:
    """Return what ranks did, in the order in which it was begun."""
    found: dict[StepKey, StepTimes] = {}
    begun: dict[StepKey, float] = {}
    for row in times.rows:
        for key, span in _spans_with_keys(row):
            one = found.setdefault(key, StepTimes(span.title, span.number))
            begun[key] = min(begun.get(key, span.start), span.start)
            if span.end is None:
                one.unended[row.rank] = (row.ended or times.length) - span.start
            else:
                one.took[row.rank] = one.took.get(row.rank, 0.0) + span.end - span.start
    return {key: found[key] for key in sorted(found, key=lambda key: begun[key])}


def _spans_with_keys(row: RankRow) -> Iterator[tuple[StepKey, Span]]:
    """Yield a rank's spans with a key that the same step of another rank has, too.

    A step that comes more than once is as many steps: the first of one rank is that of the other.
    """
    around: list[tuple[Span, StepKey]] = []
    times: Counter[StepKey] = Counter()
    for span in row.spans:
        while around and not _is_inside(span, around[-1][0]):
            around.pop()
        if span.kind not in _KINDS:
            continue
        outer = around[-1][1] if around else ()
        key = (*outer, f"{span.kind} {span.name}")
        times[key] += 1
        if span.kind == "own step" and times[key] > 1:
            key = (*outer, f"{key[-1]} {times[key]}")
        around.append((span, key))
        yield key, span


def _is_inside(span: Span, other: Span) -> bool:
    return span.depth > other.depth and (other.end is None or span.start < other.end)


_MUCH = 0.5  # of the largest difference: a rank with as much belongs to those named


def find_time_differences(
    a: Timeline, b: Timeline, ended_well: tuple[bool, bool]
) -> tuple[list[TimeDifference], int]:
    """Return what differs, that first at which one of the two had stopped, then the largest
    difference; below each step what differs inside it. And how many steps are the same.

    `ended_well`: whether each of the two came to its end. What a start that did not never came to
    tells nothing more.
    """
    if not a.rows or not b.rows:
        return [], 0
    ones, others = measure_steps(a), measure_steps(b)
    found: dict[StepKey, TimeDifference] = {}
    same = 0
    for key in dict.fromkeys((*ones, *others)):
        one, other = ones.get(key), others.get(key)
        if (one is None and not ended_well[0]) or (other is None and not ended_well[1]):
            continue
        difference = _difference(key, one, other)
        if difference is not None:
            found[key] = difference
        elif len(key) == 1:
            same += 1
    return [found[key] for key in _order_keys(found)], same


def _difference(key: StepKey, a: StepTimes | None, b: StepTimes | None) -> TimeDifference | None:
    known = b or a
    assert known is not None
    one, other = _step_result(a), _step_result(b)
    if _is_same(one, other) or (len(key) > 1 and not (one.was_begun and other.was_begun)):
        return None  # of what lies in a step that the other took otherwise, the step tells
    return TimeDifference(
        title=known.title,
        number=known.number if len(key) == 1 else None,
        depth=min(len(key) - 1, 1),
        a=one,
        b=other,
        ranks=_slowest_ranks(a, b),
        seconds=(other.unended or other.seconds or 0.0) - (one.unended or one.seconds or 0.0),
    )


def _is_same(one: StepResult, other: StepResult) -> bool:
    if one.stopped or other.stopped:
        return bool(one.stopped) == bool(other.stopped)
    return same_time(one.seconds or 0.0, other.seconds or 0.0)


def _step_result(one: StepTimes | None) -> StepResult:
    if one is None:
        return StepResult(None)
    return StepResult(
        one.longest, max(one.unended.values(), default=None), tuple(sorted(one.unended))
    )


def _slowest_ranks(a: StepTimes | None, b: StepTimes | None) -> tuple[RankId, ...]:
    """Return the ranks that differ most; none where all do, or where they cannot be compared."""
    if a is None or b is None:
        return ()
    common = a.took.keys() & b.took.keys()
    by_rank = {rank: abs(a.took[rank] - b.took[rank]) for rank in common}
    much = _MUCH * max(by_rank.values(), default=0.0)
    who = sorted(rank for rank, seconds in by_rank.items() if seconds >= much)
    return () if len(who) == len(by_rank) else tuple(who)


def _order_keys(found: Mapping[StepKey, TimeDifference]) -> list[StepKey]:
    """Return the keys: steps by what they tell, and after each what lies in it."""
    weights: dict[str, tuple[bool, float]] = {}
    for key, one in found.items():
        stopped = len(key) == 1 and bool(one.a.stopped or one.b.stopped)
        weights[key[0]] = max(weights.get(key[0], (False, 0.0)), (stopped, abs(one.seconds)))
    steps = sorted(weights, key=lambda step: weights[step], reverse=True)
    return [key for step in steps for key in found if key[0] == step]
