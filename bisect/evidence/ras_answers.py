"""What NCCL's RAS service answers, as JSON (2.28.7 and later) or in words, taken apart.

The JSON has every rank; the words only what is amiss, and of ranks that do not agree those of the
smaller part (rasCountIsOutlier): the others are all that are not named. Written from NCCL's
src/ras/client_support.cc, v2.24.3-1 to v2.30.7-1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from ..base.lazy_dataclass import dataclass

_MOST_COMMUNICATORS = 1 << 12
_MOST_RANKS = 1 << 20
_LARGEST_NUMBER = 1 << 63
_IN_PROGRESS = 7  # ncclInProgress


@dataclass(frozen=True)
class RasRank:
    """A rank of a communicator that answered; what it did not say is None."""

    rank: int  # in the communicator
    host: str = ""  # an address
    pid: int | None = None
    counts: tuple[tuple[str, int], ...] = ()  # by function: ("AllReduce", 41)
    making: bool = False  # the communicator is still being made
    error: int = 0  # ncclResult_t of the last error


@dataclass(frozen=True)
class MissingRank:
    """A rank of a communicator of which the service has no data."""

    rank: int
    host: str = ""
    pid: int | None = None
    dead: bool = False  # not to be reached for a minute


@dataclass(frozen=True)
class Communicator:
    """A communicator as the service knows it."""

    name: str  # NCCL's hash of it: "0x27a079b828ff1a75"
    size: int
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[MissingRank, ...] = ()


@dataclass(frozen=True)
class RasAnswer:
    """What the service says of a job."""

    version: str
    communicators: tuple[Communicator, ...] = ()


def parse_status(data: bytes) -> RasAnswer | None:
    """Return what a status says, JSON or words; None for what is none, or is cut off."""
    text = data.decode(errors="replace")
    if not text.lstrip().startswith("{"):
        return _parse_words(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _parse_json(found) if isinstance(found, dict) else None


def _parse_json(found: Mapping[str, Any]) -> RasAnswer | None:
    """jsonStartCommunicator, jsonWriteRankData and jsonWriteMissingRank of client_support.cc."""
    communicators = [
        Communicator(
            _text(one.get("hash")),
            size,
            tuple(_parse_each(one.get("ranks"), _parse_rank)),
            tuple(_parse_each(one.get("missing_ranks"), _parse_missing)),
        )
        for one in _mappings(found.get("communicators"), _MOST_COMMUNICATORS)
        if (size := _number(one.get("size"))) is not None and one.get("hash")
    ]
    if not isinstance(found.get("communicators"), list):
        return None
    return RasAnswer(_text(found.get("nccl_version")), tuple(communicators))


_Parsed = TypeVar("_Parsed", RasRank, MissingRank)


def _parse_each(
    found: Any, parse: Callable[[Mapping[str, Any], int, Mapping[str, Any]], _Parsed]
) -> Iterator[_Parsed]:
    for one in _mappings(found, _MOST_RANKS):
        if (rank := _number(one.get("rank"))) is not None:
            status = one.get("status")
            yield parse(one, rank, status if isinstance(status, dict) else {})


def _parse_rank(one: Mapping[str, Any], rank: int, status: Mapping[str, Any]) -> RasRank:
    counts = one.get("collective_counts")
    counted = [
        (_text(name), count)
        for name, value in islice(counts.items() if isinstance(counts, dict) else (), 64)
        if (count := _number(value)) is not None
    ]
    state, error = _number(status.get("init_state")) or 0, _number(status.get("async_error")) or 0
    failed = next((code for code in (error, state) if code not in (0, _IN_PROGRESS)), 0)
    return RasRank(
        rank,
        _text(one.get("host")),
        _number(one.get("pid")),
        tuple(counted),
        making=state == _IN_PROGRESS,
        error=failed,
    )


def _parse_missing(one: Mapping[str, Any], rank: int, status: Mapping[str, Any]) -> MissingRank:
    dead = status.get("considered_dead") is True
    return MissingRank(rank, _text(one.get("host")), _number(one.get("pid")), dead)


def _mappings(found: Any, most: int) -> list[dict[str, Any]]:
    return [one for one in found[:most] if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST_NUMBER else None


def _text(value: Any) -> str:
    return value[:80] if isinstance(value, str) else ""


# ---- the same in words: 2.24 to 2.28.3 -----------------------------------------------------------

_VERSION = re.compile(r"NCCL version (\S{1,40})")
_ROW = re.compile(r"\s{0,4}(?P<group>\d{1,9}) +\d+ +\d+ +\S+ +(?P<size>\d{1,9}) +\d+ +[A-Z]+ +\S+$")
_HEAD = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<hash>[0-9a-f]{1,16})\) [A-Z]+$")
_DIFFERENT = re.compile(r"  Communicator ranks have different (?P<what>\w+) operation counts$")
_PROCESS = (
    r"(?: -- GPU .{1,80} managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,80})| -- .*)$"
)
_COUNT = r"has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)"
_SEVERAL = re.compile(
    r"  (?P<many>\d{1,9}) ranks have "
    r"(?:launched up to operation (?P<count>\d{1,18})|not launched .*)$"
)
_RANK = re.compile(rf"  Rank (?P<rank>\d{{1,9}})(?: {_COUNT})?{_PROCESS}")
_MISSING = re.compile(r"  The missing ranks?: (?P<ranks>[\d, -]{1,4000})$")
_DEAD = re.compile(r"  Process (?P<pid>\d{1,9}) on node (?P<host>\S{1,80}) managing GPUs? .*$")
_LAST_SECTION = re.compile(r"^Warnings\n=+\n", re.MULTILINE)
ALL_FUNCTIONS = "collective"  # 2.24 and 2.25 count all of them together


class _Counted:
    """The counts of one function in a communicator, as the lines give them."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.listed: dict[int, int] = {}
        self.several: list[tuple[int, int, list[int]]] = []  # how many, their count, those named

    def add(self, line: str) -> RasRank | None:
        """Take a line in; return the rank that it names, if it does."""
        if match := _SEVERAL.match(line):
            self.several.append((int(match["many"]), int(match["count"] or 0), []))
            return None
        match = _RANK.match(line)
        if match is None:
            return None
        rank, alone = int(match["rank"]), _COUNT_WORDS in line
        if alone:
            self.listed[rank] = int(match["count"] or 0)
        elif self.several:
            self.several[-1][2].append(rank)
        pid = int(match["pid"]) if match["pid"] else None
        return RasRank(rank, match["host"] or "", pid)

    def spread(self, answering: Collection[int]) -> dict[int, int]:
        """Return the count of each rank of `answering`; {} where the lines do not tell it."""
        found = dict(self.listed)
        unnamed: list[tuple[int, int]] = []
        for many, count, named in self.several:
            if named:
                found.update(dict.fromkeys(named, count))
            else:
                unnamed.append((many, count))
        rest = [rank for rank in answering if rank not in found]
        if len(unnamed) > 1 or (unnamed and unnamed[0][0] != len(rest)):
            return {}
        if unnamed:
            found.update(dict.fromkeys(rest, unnamed[0][1]))
        return found if set(found) == set(answering) else {}


_COUNT_WORDS = " has "


def _parse_words(text: str) -> RasAnswer | None:
    if _LAST_SECTION.search(text) is None:
        return None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    sizes = {m["group"]: int(m["size"]) for line in lines if (m := _ROW.match(line))}
    dead: set[tuple[int, str]] = set()
    blocks: dict[tuple[str, int], list[list[str]]] = {}
    part: list[str] = []
    for line in lines:
        match = _HEAD.match(line)
        if match:
            size = min(sizes.get(match["group"], 0), _MOST_RANKS)
            part = []
            blocks.setdefault((f"0x{match['hash']}", size), []).append(part)
        elif not line.startswith("  "):
            part = []
        elif gone := _DEAD.match(line):
            dead.add((int(gone["pid"]), gone["host"]))
        part.append(line)
    version = _VERSION.search(text)
    found = [_parse_block(name, size, parts, dead) for (name, size), parts in blocks.items()]
    return RasAnswer(version[1] if version else "", tuple(found[:_MOST_COMMUNICATORS]))


def _parse_block(
    name: str, size: int, parts: Sequence[Sequence[str]], dead: Collection[tuple[int, str]]
) -> Communicator:
    """Return what the lines below the heads of one communicator say."""
    missing: dict[int, MissingRank] = {}
    named: dict[int, RasRank] = {}
    counted: list[_Counted] = []
    for part in parts:
        inside: _Counted | None = None
        lacks = False
        for line in part:
            if match := _DIFFERENT.match(line):
                inside, lacks = _Counted(match["what"]), False
                counted.append(inside)
            elif line.startswith("  Missing communicator data"):
                lacks = True
            elif match := _MISSING.match(line):
                numbers = map(int, re.findall(r"\d{1,9}", match["ranks"]))
                missing.update({rank: MissingRank(rank) for rank in numbers})
            elif lacks and (match := _RANK.match(line)):
                rank, pid = int(match["rank"]), int(match["pid"]) if match["pid"] else None
                is_dead = pid is not None and (pid, match["host"]) in dead
                missing[rank] = MissingRank(rank, match["host"] or "", pid, is_dead)
            elif inside is not None and (one := inside.add(line)):
                named[one.rank] = one
    answering = [rank for rank in range(size) if rank not in missing]
    counts = [(one.function, one.spread(answering)) for one in counted]
    ranks = tuple(
        RasRank(
            rank,
            named[rank].host if rank in named else "",
            named[rank].pid if rank in named else None,
            tuple((function, of[rank]) for function, of in counts if rank in of),
        )
        for rank in (answering if counts else ())
    )
    return Communicator(name, size, ranks, tuple(missing.values()))
