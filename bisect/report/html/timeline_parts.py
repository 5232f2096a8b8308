"""What the timeline of a page consists of. Facts only; places are percent of the whole length."""

from __future__ import annotations

from dataclasses import dataclass


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
class Line:
    """One rank of a group."""

    rank: int
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
    lines: tuple[Line, ...]  # the ranks of a group
    more: int  # ranks of the group that have no line


@dataclass(frozen=True)
class TimePicture:
    """All rows."""

    rows: tuple[TimeRow, ...]
    ticks: tuple[tuple[float, str], ...]  # percent, and the time there
    legend: tuple[tuple[str, str], ...]  # classes that occur, and what they mean
    told: bool  # blocks of single ranks in groups have words
    ranks: int
    length: str
    seconds: float  # the same
