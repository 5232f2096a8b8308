"""What NCCL's RAS service answers, as JSON (2.28.7 and later) or in words, taken apart.

The JSON has every rank; the words only what is amiss, and of ranks that do not agree those of the
smaller part (rasCountIsOutlier): the others are all that are not named. Written from NCCL's
src/ras/client_support.cc, v2.24.3-1 to v2.32.3-1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from ...base.lazy_dataclass import dataclass

_MOST_COMMUNICATORS = 1 << 12
_MOST_RANKS = 1 << 20
_LARGEST_NUMBER = 1 << 63
_IN_PROGRESS = 7  # ncclInProgress
_GIVES_UP = ("finalize_called", "destroy_flag", "abort_flag")


@dataclass(frozen=True)
class RasRank:
    """A rank of a communicator that answered; what it did not say is None."""

    rank: int  # in the communicator
    host: str = ""  # an address
    pid: int | None = None
    counts: tuple[tuple[str, int], ...] = ()  # by function: ("AllReduce", 41)
    making: bool = False  # the communicator is still being made
    leaving: bool = False  # it gives the communicator up: finalizes, destroys or aborts it
    error: int = 0  # ncclResult_t of the last error


@dataclass(frozen=True)
class MissingRank:
    """A rank of a communicator of which the service has no data."""

    rank: int
    host: str = ""
    pid: int | None = None
    dead: bool = False  # not to be reached for a minute
    answered: bool = False  # its process answers, and says that it is not in the communicator


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
    # Communicators that all their ranks are making, of which no name is told: how many, their size.
    unnamed: tuple[tuple[int, int], ...] = ()
    is_whole: bool = False  # it has all communicators and all their ranks, as JSON does


def parse_ras_status(data: bytes) -> RasAnswer | None:
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
    return RasAnswer(_text(found.get("nccl_version")), tuple(communicators), is_whole=True)


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
        leaving=any(status.get(name) is True for name in _GIVES_UP),
        error=failed,
    )


def _parse_missing(one: Mapping[str, Any], rank: int, status: Mapping[str, Any]) -> MissingRank:
    dead, answers = status.get("considered_dead") is True, status.get("unresponsive") is False
    pid = _number(one.get("pid"))
    return MissingRank(rank, _text(one.get("host")), pid, dead, answers and not dead)


def _mappings(found: Any, most: int) -> list[dict[str, Any]]:
    return [one for one in found[:most] if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST_NUMBER else None


def _text(value: Any) -> str:
    return value[:80] if isinstance(value, str) else ""


# ---- the same in words: 2.24 to 2.28.3 -----------------------------------------------------------

_VERSION = re.compile(r"NCCL version (\S{1,40})")
_ROW = re.compile(
    r"\s{0,4}(?P<group>\d{1,9}) +(?P<many>\d{1,9}) +\d+ +\S+ +(?P<size>\d{1,9}) +\d+"
    r" +(?P<status>[A-Z]+) +\S+$"
)
_HEAD = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<hash>[0-9a-f]{1,16})\) [A-Z]+$")
_DIFFERENT = re.compile(
    r"  Communicator ranks have different (?:(?P<what>\w+) operation counts|status)$"
)
_FAILED = re.compile(r"  (?:Initialization|Asynchronous) errors? on \d+ ranks?$")
_PROCESS = (
    r"(?: -- GPU .{1,80} managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,80})| -- .*)$"
)
_COUNT = r"has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations)"
_STATE = r"has status (?P<state>[A-Z]{1,20})"
_REPORT = r"reported (?P<error>[A-Za-z ]{1,40}?)"
_SEVERAL = re.compile(
    r"  (?P<many>\d{1,9}) ranks (?:have launched up to operation (?P<count>\d{1,18})"
    r"|have not launched .*|have status (?P<state>[A-Z]{1,20})"
    r"|reported (?P<error>[A-Za-z ]{1,40}))$"
)
_RANK = re.compile(rf"  Rank (?P<rank>\d{{1,9}})(?: {_COUNT}| {_STATE}| {_REPORT})?{_PROCESS}")
_MISSING = re.compile(r"  The missing ranks?: (?P<ranks>[\d, -]{1,4000})$")
_PROCESS_ALONE = re.compile(
    r"  Process (?P<pid>\d{1,9}) on node (?P<host>\S{1,80}) managing GPUs? .*$"
)
_DEAD, _SILENT = "DEAD", "INCOMPLETE"  # above the processes that are so, of the whole job
_Process = tuple[int, str]  # its number, and its node
_LAST_SECTION = re.compile(r"^Warnings\n=+\n", re.MULTILINE)
ALL_FUNCTIONS = "collective"  # 2.24 and 2.25 count all of them together


class _Told:
    """What the ranks of a communicator have each, as the lines give it: the count of one function,
    a state, an error.
    """

    def __init__(self, what: str) -> None:
        self.what = what  # a function, STATES or ERRORS
        self.listed: dict[int, int | str] = {}
        self.several: list[tuple[int, int | str, list[int]]] = []  # how many, what, those named

    def add(self, line: str) -> RasRank | None:
        """Take a line in; return the rank that it names, if it does."""
        if match := _SEVERAL.match(line):
            self.several.append((int(match["many"]), _read_value(match), []))
            return None
        match = _RANK.match(line)
        if match is None:
            return None
        rank, alone = int(match["rank"]), any(word in line for word in _ALONE_WORDS)
        if alone:
            self.listed[rank] = _read_value(match)
        elif self.several:
            self.several[-1][2].append(rank)
        pid = int(match["pid"]) if match["pid"] else None
        return RasRank(rank, match["host"] or "", pid)

    def spread(self, answering: Collection[int]) -> dict[int, int | str]:
        """Return what each rank of `answering` has; {} where the lines do not tell it."""
        found = dict(self.listed)
        unnamed: list[tuple[int, int | str]] = []
        for many, value, named in self.several:
            if named:
                found.update(dict.fromkeys(named, value))
            else:
                unnamed.append((many, value))
        rest = [rank for rank in answering if rank not in found]
        if len(unnamed) > 1 or (unnamed and unnamed[0][0] != len(rest)):
            return {}
        if unnamed:
            found.update(dict.fromkeys(rest, unnamed[0][1]))
        return found if set(found) == set(answering) or self.what == _ERRORS else {}


_STATES, _ERRORS = "status", "error"
_ALONE_WORDS = (" has ", " reported ")
# ncclErrorToString; NOCOMM was UNKNOWN up to 2.25.
_ERROR_CODES = {
    **{"Unhandled CUDA error": 1, "System error": 2, "Internal error": 3, "Invalid argument": 4},
    **{"Invalid usage": 5, "Remote process error": 6},
}
_NOT_IN_IT = ("NOCOMM", "UNKNOWN")


def _read_value(match: re.Match[str]) -> int | str:
    if match["error"]:
        return _ERROR_CODES.get(match["error"].strip(), 3)
    return match["state"] or int(match["count"] or 0)


def _parse_words(text: str) -> RasAnswer | None:
    if _LAST_SECTION.search(text) is None:
        return None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    sizes = {m["group"]: int(m["size"]) for line in lines if (m := _ROW.match(line))}
    gone: dict[_Process, bool] = {}  # processes that do not answer, and whether they are dead
    heading = ""
    blocks: dict[tuple[str, int], list[list[str]]] = {}
    part: list[str] = []
    for line in lines:
        match = _HEAD.match(line)
        if match:
            size = min(sizes.get(match["group"], 0), _MOST_RANKS)
            part = []
            blocks.setdefault((f"0x{match['hash']}", size), []).append(part)
        elif not line.startswith("  "):
            part, heading = [], line or heading
        elif (one := _PROCESS_ALONE.match(line)) and heading in (_DEAD, _SILENT):
            gone[int(one["pid"]), one["host"]] = heading == _DEAD
        part.append(line)
    version = _VERSION.search(text)
    found = [_parse_block(name, size, parts, gone) for (name, size), parts in blocks.items()]
    unnamed = tuple(
        (int(m["many"]), int(m["size"]))
        for line in lines
        if (m := _ROW.match(line)) and m["status"] == "INIT" and line.endswith(" OK")
    )
    communicators = tuple(found[:_MOST_COMMUNICATORS])
    return RasAnswer(version[1] if version else "", communicators, unnamed[:_MOST_COMMUNICATORS])


def _parse_block(
    name: str, size: int, parts: Sequence[Sequence[str]], gone: Mapping[_Process, bool]
) -> Communicator:
    """Return what the lines below the heads of one communicator say. `gone` are the processes of
    the job that do not answer, and whether they are dead.
    """
    missing: dict[int, MissingRank] = {}
    named: dict[int, RasRank] = {}
    told: list[_Told] = []
    for part in parts:
        inside: _Told | None = None
        lacks = False
        for line in part:
            if match := _DIFFERENT.match(line):
                inside, lacks = _Told(match["what"] or _STATES), False
                told.append(inside)
            elif _FAILED.match(line):
                inside, lacks = _Told(_ERRORS), False
                told.append(inside)
            elif line.startswith("  Missing communicator data"):
                lacks = True
            elif match := _MISSING.match(line):
                numbers = [int(one) for one in re.findall(r"\d{1,9}", match["ranks"])]
                missing.update({rank: MissingRank(rank) for rank in numbers})
                if len(numbers) == len(gone) == 1:
                    ((pid, host), is_dead) = next(iter(gone.items()))
                    missing[numbers[0]] = MissingRank(numbers[0], host, pid, is_dead)
            elif lacks and (match := _RANK.match(line)):
                rank, number = int(match["rank"]), int(match["pid"]) if match["pid"] else None
                is_dead = number is not None and gone.get((number, match["host"]), False)
                missing[rank] = MissingRank(rank, match["host"] or "", number, is_dead)
            elif inside is not None and (one := inside.add(line)):
                named[one.rank] = one
    answering = [rank for rank in range(size) if rank not in missing]
    values = [(one.what, one.spread(answering)) for one in told]
    states = next((of for what, of in values if what == _STATES), {})
    for rank in [rank for rank in answering if states.get(rank) in _NOT_IN_IT]:
        one = named.get(rank, RasRank(rank))
        missing[rank] = MissingRank(rank, one.host, one.pid, answered=True)
    ranks = tuple(
        _put_together(named.get(rank, RasRank(rank)), values)
        for rank in (answering if told else ())
        if rank not in missing
    )
    return Communicator(name, size, ranks, tuple(missing.values()))


def _put_together(one: RasRank, values: Sequence[tuple[str, Mapping[int, int | str]]]) -> RasRank:
    """Return a rank with what the lines say of it."""
    counts = [
        (what, count)
        for what, of in values
        if what not in (_STATES, _ERRORS) and type(count := of.get(one.rank)) is int
    ]
    mine = {what: of[one.rank] for what, of in values if one.rank in of}
    error = mine.get(_ERRORS, 0)
    return replace(
        one,
        counts=tuple(counts),
        making=mine.get(_STATES) == "INIT",
        leaving=mine.get(_STATES) in ("FINALIZE", "ABORT"),
        error=error if isinstance(error, int) else 0,
    )
