"""The timeline as it is drawn: a row a rank or a group of them, a block a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from ...facts import Verdict
from ..kept.run import KeptRun
from ..kept.span import Row
from ..kept.timeline import Timeline, timeline
from ..words import of_ranks, seconds
from .row_groups import Group, Stretch, grouped, stretches
from .shown import Shown
from .timeline_parts import Block, Line, Step, TimePicture, TimeRow

# So that a page stays below 2 MB: of so many blocks in all, those of single ranks in groups have
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


def time_picture(run: KeptRun, verdict: Verdict, shown: Shown) -> TimePicture | None:
    """Return the timeline; None where nobody told it."""
    found = timeline(run)
    if not found.rows or found.length <= 0:
        return None
    groups = grouped(found.rows, verdict.ranks, found.length)
    blocks = sum(len(row.spans) for row in found.rows)
    drawing = _Drawing(found, shown, told=blocks <= _TOLD, drawn=blocks <= _DRAWN)
    rows = tuple(drawing.row(group) for group in groups)
    kinds = {block.kind for row in rows for block in row.blocks}
    return TimePicture(
        rows=rows,
        ticks=tuple(ticks(found.length)),
        legend=tuple((kind, words) for kind, words in _LEGEND.items() if kind in kinds),
        told=drawing.told,
        ranks=len(found.rows),
        length=_time(found.length),
        seconds=round(found.length, 3),
    )


def ticks(length: float) -> list[tuple[float, str]]:
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


class _Drawing:
    """Makes rows of groups."""

    def __init__(self, found: Timeline, shown: Shown, *, told: bool, drawn: bool) -> None:
        self._length = found.length
        self._shown = shown
        self.told = told
        self._drawn = drawn

    def row(self, group: Group) -> TimeRow:
        rows = group.rows
        many = len(rows) > 1
        return TimeRow(
            who=of_ranks(row.rank for row in rows),
            host=self._hosts(rows),
            standing=group.standing.replace(" ", "-") or "other",
            stands=_STANDS[group.standing],
            end=self._end(group),
            blocks=tuple(self._blocks(group.stretches)),
            steps=tuple(self._steps(group.stretches)),
            lines=tuple(self._line(row) for row in rows) if many and self._drawn else (),
            more=len(rows) if many and not self._drawn else 0,
        )

    def _line(self, row: Row) -> Line:
        blocks = self._blocks(stretches((row,), self._length), self.told)
        return Line(row.rank, self._hosts((row,)), tuple(blocks))

    def _blocks(self, found: Sequence[Stretch], told: bool = True) -> list[Block]:
        return [self._block(one, told) for one in found[-_MOST_BLOCKS:]]

    def _block(self, one: Stretch, told: bool) -> Block:
        left, right = (100 * min(max(at / self._length, 0), 1) for at in (one.start, one.end))
        # Where there is room a gap between this block and the next one.
        width = right - left - (_GAP if right - left > 10 * _GAP else 0)
        return Block(
            x=round(left, 2),
            width=round(max(width, _THIN), 2),
            kind=_CLASSES[one.kind],
            depth=min(one.depth, 3),
            name=self._name(one) if told else "",
            took=_took(one) if told else "",
            since=f"from {_time(one.start)}" if told else "",
            label=self._label(one, right - left) if told else "",
        )

    def _hosts(self, rows: Sequence[Row]) -> str:
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
            return f"{self._name(last)}, since {_time(last.start)}"
        ended = [row.ended for row in group.rows if row.ended is not None]
        after = f", ended at {_time(max(ended))}" if ended else ""
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
        imports = [f"{one.name} {_took(one)}" for one in line if one.kind == "import"]
        waits = [_took(one) for one in line if one.kind == "wait"]
        hangs = [one for one in line if one.kind == "hang"]
        took = _took(first) + (f", hangs since {_time(hangs[0].start)}" if hangs else "")
        return Step(
            name=self._name(first),
            began=_time(first.start),
            worked="" if first.kind == "wait" else took,
            imports=", ".join(self._shown.text(one) for one in imports),
            waited=", ".join(waits),
        )


def _took(one: Stretch) -> str:
    middle, least, most = (_time(x) for x in (one.end - one.start, one.least, one.most))
    spread = f" ({least} to {most})" if least != most else ""
    return f"{middle}{spread}" + (", not ended" if one.open else "")


def _time(value: float) -> str:
    """Return "12 ms" or what `seconds` says."""
    return f"{1000 * value:.0f} ms" if 0 < value < 0.1 else seconds(value)
