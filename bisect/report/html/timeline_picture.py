"""The timeline as it is drawn: a row for a rank or for a group of ranks that went the same way
(a thousand rows are not read), a block for a step. Places are percent of the whole length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.verdict_facts import Ranks, Verdict
from ...base.words import format_ranks, format_seconds
from ..run_reader.run import RecordedRun
from ..run_reader.timeline import Kind, RankRow, Span, Timeline, read_timeline
from .templates import ShownTexts


@dataclass(frozen=True)
class Block:
    """A stretch of time. Without words where a page would become too large by them."""

    x: float
    width: float
    kind: str  # a class of the style sheet
    depth: int
    name: str  # "4 Tokenizer loaded", "import torch"
    took: str  # "3.4 s (2.9 s to 5.1 s)"
    since: str  # "from 1.0 s"
    label: str  # in it, as far as there is room: "4 Tokenizer loaded", "4", ""


@dataclass(frozen=True)
class Step:
    """A line of the table that a row unfolds to."""

    name: str
    began: str
    worked: str
    imports: str
    waited: str


@dataclass(frozen=True)
class RankLine:
    """One rank of a group."""

    rank: RankId
    host: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class TimeRow:
    """A rank, or many."""

    who: str
    host: str
    standing: str  # a class of the style sheet
    stands: str  # in words
    end: str  # how it ends: "hangs in socket.recv since 23.2 s"
    blocks: tuple[Block, ...]
    steps: tuple[Step, ...]
    lines: tuple[RankLine, ...]  # the ranks of a group
    more: int  # ranks of the group that have no line


@dataclass(frozen=True)
class TimePicture:
    """All rows."""

    rows: tuple[TimeRow, ...]
    ticks: tuple[tuple[float, str], ...]  # percent, and the time there
    legend: tuple[tuple[str, str], ...]  # classes that occur, and what they mean
    worded: bool  # blocks of single ranks in groups have words
    ranks: int
    length: str
    seconds: float  # the same


MOST_SINGLE_ROWS = 16  # rows; up to so many each rank has its own
_MOST_SINGLE_CULPRITS = 8  # culprits that have rows of their own in any case
_MOST_ROWS = 40  # rows; where there would be more, where a rank was in the end makes no difference

# How a rank stands in the end, the most interesting first.
STANDINGS = ("culprit", "never started", "stuck", "waiting", "ended", "")
SpanKey = tuple[Kind, str, int]


@dataclass(frozen=True)
class Stretch:
    """A span as all ranks of a group had it: their medians, and the shortest and longest."""

    kind: Kind
    name: str
    title: str
    number: int | None
    depth: int
    start: float
    end: float
    open: bool  # it had not ended
    least: float  # seconds
    most: float


@dataclass(frozen=True)
class Group:
    """One row: a rank, or many that stand the same and came equally far."""

    standing: str
    rows: tuple[RankRow, ...]
    stretches: tuple[Stretch, ...]  # by start, those around others first


def group_rows(rows: Sequence[RankRow], ranks: Ranks, length: float) -> list[Group]:
    """Return the rows, culprits first. `length`: when all that had not ended is cut off."""
    standings = {row.rank: standing_of(row, ranks) for row in rows}
    alone = len(rows) <= MOST_SINGLE_ROWS
    ordered = sorted(rows, key=lambda row: (STANDINGS.index(standings[row.rank]), row.rank))
    for by_end in (True, False):
        keys: dict[tuple[object, ...], list[RankRow]] = {}
        for row in ordered:
            standing = standings[row.rank]
            single = alone or (
                standing == "culprit" and len(ranks.culprit) <= _MOST_SINGLE_CULPRITS
            )
            further = (row.rank,) if single else _last_spans(row) if by_end else ()
            keys.setdefault((standing, *further), []).append(row)
        if len(keys) <= _MOST_ROWS:
            break
    return [
        Group(standings[members[0].rank], tuple(members), common_stretches(members, length))
        for members in keys.values()
    ]


def standing_of(row: RankRow, ranks: Ranks) -> str:
    """Return how a rank stands in the verdict, "" if that says nothing of it."""
    if row.rank in ranks.culprit:
        return "culprit"
    if row.rank in ranks.never_started:
        return "never started"
    if row.rank in ranks.stuck:
        return "stuck"
    if row.rank in ranks.waiting:
        return "waiting"
    return "ended" if row.ended is not None or row.rank in ranks.dead else ""


def _last_spans(row: RankRow) -> tuple[object, ...]:
    """Return where a rank was in the end, but for imports, which come in between."""
    last = [span for span in row.spans if span.kind != "import" and span.end is None]
    if not last and row.spans:
        last = [row.spans[-1]]
    return tuple((span.kind, span.name) for span in last)


def common_stretches(rows: Sequence[RankRow], length: float) -> tuple[Stretch, ...]:
    """Return the spans that at least half of these ranks had, up to `length`."""
    found: dict[SpanKey, list[Span]] = {}
    for row in rows:
        for key, span in _spans_with_keys(row.spans):
            found.setdefault(key, []).append(span)
    common = [spans for spans in found.values() if 2 * len(spans) >= len(rows)]
    stretches = [_stretch(spans, length) for spans in common]
    return tuple(sorted(stretches, key=lambda one: (one.start, one.depth)))


def _spans_with_keys(spans: Sequence[Span]) -> Iterator[tuple[SpanKey, Span]]:
    """Yield spans with what tells them from others: the second time of a step is another one."""
    times: dict[tuple[Kind, str], int] = {}
    for span in spans:
        what = (span.kind, span.name)
        times[what] = times.get(what, 0) + 1
        yield (*what, times[what]), span


def _stretch(spans: Sequence[Span], length: float) -> Stretch:
    ends = [length if span.end is None else span.end for span in spans]
    took = [end - span.start for end, span in zip(ends, spans, strict=True)]
    one = spans[0]
    return Stretch(
        one.kind,
        one.name,
        one.title,
        one.number,
        one.depth,
        start=median(span.start for span in spans),
        end=median(ends),
        open=any(span.end is None for span in spans),
        least=min(took),
        most=max(took),
    )


# So that a page stays below 2 MiB: of so many blocks in all, those of single ranks in groups have
# words of their own; of up to the second number they are drawn; of more only groups are.
_TOLD, _DRAWN = 9_000, 26_000
_ROOM, _GAP, _THIN = 3.5, 0.1, 0.15  # percent of the length: for a number; no block is thinner
_LETTERS = 0.55  # for each percent
_MOST_BLOCKS, _MOST_STEPS = 200, 60  # of one row: the last ones, of a script with loops
_HOST = 60  # characters
_STANDS = {
    "culprit": "at fault",
    "never started": "never started",
    "stuck": "stuck",
    "waiting": "only waits",
    "ended": "ended",
    "": "",
}
_CLASSES = {
    "step": "work",
    "own step": "own",
    "phase": "phase",
    "import": "import",
    "wait": "wait",
    "hang": "hang",
    "training": "training",
}
_LEGEND = {
    "work": "works",
    "own": "a step of the script",
    "phase": "a phase",
    "import": "imports",
    "wait": "waits for others",
    "hang": "hangs",
    "training": "trains",
}
_KINDS = {"import": "", "wait": "waits: ", "hang": "hangs: ", "phase": "phase "}


def time_picture(run: RecordedRun, verdict: Verdict, shown: ShownTexts) -> TimePicture | None:
    """Return the timeline; None where no rank reported one."""
    found = read_timeline(run)
    if not found.rows or found.length <= 0:
        return None
    # Of a slow job these are who moves: not at fault.
    ranks = replace(verdict.ranks, culprit=()) if verdict.outcome == "slow" else verdict.ranks
    groups = group_rows(found.rows, ranks, found.length)
    blocks = sum(len(row.spans) for row in found.rows)
    drawing = _RowMaker(found, shown, worded=blocks <= _TOLD, drawn=blocks <= _DRAWN)
    rows = tuple(drawing.row(group) for group in groups)
    kinds = {block.kind for row in rows for block in row.blocks}
    return TimePicture(
        rows=rows,
        ticks=tuple(time_ticks(found.length)),
        legend=tuple((kind, words) for kind, words in _LEGEND.items() if kind in kinds),
        worded=drawing.worded,
        ranks=len(found.rows),
        length=_format_time(found.length),
        seconds=round(found.length, 3),
    )


def time_ticks(length: float) -> list[tuple[float, str]]:
    """Return a few round times with their places, none so far right that it would be cut."""
    size = 1.0
    while length / size > 8 or length / size < 3:
        size = size * 10 if length / size > 8 else size / 10
        for part in (1, 2, 5):
            if 3 <= length / (size * part) <= 8:
                size *= part
                break
    return [
        (round(100 * at * size / length, 2), f"{round(at * size, 6):g} s")
        for at in range(int(length / size) + 1)
        if at * size <= 0.95 * length
    ]


class _RowMaker:
    """Makes rows of groups."""

    def __init__(self, found: Timeline, shown: ShownTexts, *, worded: bool, drawn: bool) -> None:
        self._length = found.length
        self._shown = shown
        self.worded = worded
        self._drawn = drawn

    def row(self, group: Group) -> TimeRow:
        rows = group.rows
        many = len(rows) > 1
        return TimeRow(
            who=format_ranks(row.rank for row in rows),
            host=self._hosts(rows),
            standing=group.standing.replace(" ", "-") or "other",
            stands=_STANDS[group.standing],
            end=self._end(group),
            blocks=tuple(self._blocks(group.stretches)),
            steps=tuple(self._steps(group.stretches)),
            lines=tuple(self._line(row) for row in rows) if many and self._drawn else (),
            more=len(rows) if many and not self._drawn else 0,
        )

    def _line(self, row: RankRow) -> RankLine:
        blocks = self._blocks(common_stretches((row,), self._length), self.worded)
        return RankLine(row.rank, self._hosts((row,)), tuple(blocks))

    def _blocks(self, found: Sequence[Stretch], worded: bool = True) -> list[Block]:
        return [self._block(one, worded) for one in found[-_MOST_BLOCKS:]]

    def _block(self, one: Stretch, worded: bool) -> Block:
        left, right = (100 * min(max(at / self._length, 0), 1) for at in (one.start, one.end))
        # Where there is room a gap between this block and the next one.
        width = right - left - (_GAP if right - left > 10 * _GAP else 0)
        return Block(
            x=round(left, 2),
            width=round(max(width, _THIN), 2),
            kind=_CLASSES[one.kind],
            depth=min(one.depth, 3),
            name=self._name(one) if worded else "",
            took=_format_took(one) if worded else "",
            since=f"from {_format_time(one.start)}" if worded else "",
            label=self._label(one, right - left) if worded else "",
        )

    def _hosts(self, rows: Sequence[RankRow]) -> str:
        hosts = {row.host for row in rows if row.host}
        return f"{len(hosts)} hosts" if len(hosts) > 1 else self._shown.text("".join(hosts), _HOST)

    def _label(self, one: Stretch, width: float) -> str:
        name = self._name(one)
        if one.kind not in ("step", "own step") or one.depth:
            return ""
        if len(name) < width * _LETTERS:
            return name
        return str(one.number) if one.number is not None and width > _ROOM else ""

    def _name(self, one: Stretch) -> str:
        number = f"{one.number} " if one.number is not None and one.kind == "step" else ""
        return f"{_KINDS.get(one.kind, '')}{number}{self._shown.text(one.title, 80)}"

    def _end(self, group: Group) -> str:
        last = group.stretches[-1] if group.stretches else None
        if last is None:
            return "nothing is known of it"
        if group.standing == "never started":
            return "never started"
        if last.open:
            return f"{self._name(last)}, since {_format_time(last.start)}"
        ended = [row.ended for row in group.rows if row.ended is not None]
        after = f", ended at {_format_time(max(ended))}" if ended else ""
        return f"last: {self._name(last)}{after}"

    def _steps(self, found: Sequence[Stretch]) -> list[Step]:
        """Return a line for each step and phase, with what lies in it and the wait after it."""
        lines: list[list[Stretch]] = []
        for one in found:
            if one.kind not in ("import", "wait", "hang") or not lines:
                lines.append([])
            lines[-1].append(one)
        return [self._step(line) for line in lines[-_MOST_STEPS:]]

    def _step(self, line: Sequence[Stretch]) -> Step:
        first = line[0]
        imports = [f"{one.name} {_format_took(one)}" for one in line if one.kind == "import"]
        waits = [_format_took(one) for one in line if one.kind == "wait"]
        hangs = [one for one in line if one.kind == "hang"]
        took = _format_took(first) + (
            f", hangs since {_format_time(hangs[0].start)}" if hangs else ""
        )
        return Step(
            name=self._name(first),
            began=_format_time(first.start),
            worked="" if first.kind == "wait" else took,
            imports=", ".join(self._shown.text(one) for one in imports),
            waited=", ".join(waits),
        )


def _format_took(one: Stretch) -> str:
    middle, least, most = (_format_time(x) for x in (one.end - one.start, one.least, one.most))
    spread = f" ({least} to {most})" if least != most else ""
    return f"{middle}{spread}" + (", not ended" if one.open else "")


def _format_time(value: float) -> str:
    """Return "12 ms" or what `seconds` says."""
    return f"{1000 * value:.0f} ms" if 0 < value < 0.1 else format_seconds(value)
