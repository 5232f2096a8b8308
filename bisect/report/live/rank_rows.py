"""Where ranks are at this moment, grouped into rows; from the monitor to the drawer as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal

from ...base.json_codec import from_json, to_json
from ...base.lazy_dataclass import dataclass
from ...base.words import format_rank_numbers

State = Literal["works", "trains", "waits", "ends", "left"]
_ORDER: tuple[State, ...] = ("works", "trains", "waits", "ends", "left")
RUNS_SHOWN = 4  # of ranks, in a row: "0-3,8-11,16,... and 40 more"


@dataclass(frozen=True)
class RankNow:
    """One rank. Times are monotonic, the same clock for all processes of a machine."""

    rank: int
    state: State
    place: str  # "9 WandbLogger ready"
    number: int  # of the step that it is in, to order by
    since: float  # it is there
    until: float | None = None  # its deadline; None: it is never late
    still_since: float | None = None  # nothing of it has moved; None: something has, just now
    moves: str = ""  # what moved when it was last looked at, in words


@dataclass(frozen=True)
class LiveRow:
    """Ranks in the same place: the longest wait and the first deadline among them."""

    ranks: str
    state: State
    place: str
    since: float
    until: float | None
    still_since: float | None
    moves: str


@dataclass(frozen=True)
class RankTable:
    """What the table shows. No rows: nothing is watched at the moment, and nothing is shown."""

    rows: tuple[LiveRow, ...]
    ranks: int
    began: float  # monotonic
    stall: float  # seconds without movement after which the watch looks

    def as_json(self) -> str:
        """Return it on one line."""
        return json.dumps(to_json(self), ensure_ascii=False)


def table_from_json(line: str) -> RankTable:
    """Return what as_json() wrote. Raises ValueError for anything else."""
    return from_json(RankTable, json.loads(line))


def group_ranks(ranks: Iterable[RankNow]) -> tuple[LiveRow, ...]:
    """Return a row for each place: first those that others wait for, the least far before all."""
    places: dict[tuple[int, int, str], list[RankNow]] = {}
    for one in ranks:
        places.setdefault((_ORDER.index(one.state), one.number, one.place), []).append(one)
    return tuple(_group_row(group) for _, group in sorted(places.items()))


def _group_row(group: list[RankNow]) -> LiveRow:
    still = [one.still_since for one in group if one.still_since is not None]
    return LiveRow(
        ranks=format_rank_numbers((one.rank for one in group), RUNS_SHOWN),
        state=group[0].state,
        place=group[0].place,
        since=min(one.since for one in group),
        until=min((one.until for one in group if one.until is not None), default=None),
        still_since=min(still, default=None),
        moves=next((one.moves for one in group if one.moves), ""),
    )
