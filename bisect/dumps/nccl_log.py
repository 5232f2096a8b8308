"""What NCCL itself prints into a log: warnings, its version, and who has begun to make which
communicator. These are facts for a verdict, and accuse nobody.

A line begins with the host, the process and the thread, and in newer versions a warning with the
time (src/debug.cc): `n01:4711:4720 [3] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to
... failed`. NCCL names a rank where a communicator is made, and nowhere else; there it is the one
in that communicator (`... rank 3 nranks 8 ... commId 0xdf33 - Init START`, init.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_text
from ..base.words import format_ranks
from ..saved_log import strip_prefixes

_MOST_LINES = 4096  # that are kept of a log
_MOST_WARNINGS = 8  # different ones, that are told
_LONGEST = 300  # characters of a warning
_LINE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d (?P<clock>\d\d:\d\d:\d\d)[^\]]{0,20}\] )?"
    r"(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,9}):\d{1,9} \[\d{1,4}\] "
    r"(?:\S{1,200} (?:\(\w+\) )?NCCL WARN (?P<warning>\S.*)|NCCL INFO (?P<told>.*))$"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d[\w.]{0,20})")
_MAKING = re.compile(
    r"rank (?P<rank>\d{1,7}) nranks (?P<size>\d{1,7}) .{0,200}commId (?P<name>0x[0-9a-f]{1,16})"
    r" .{0,40}- Init (?P<state>START|COMPLETE)"
)


@dataclass(frozen=True)
class NcclLine:
    """One line of NCCL's. `task` is the rank that a launcher's prefix names, None without."""

    process: tuple[str, int]  # host and pid
    task: int | None = None
    clock: str = ""  # as it stands there: "13:06:53"
    warning: str = ""
    version: str = ""
    # Of a communicator that is made: its name, its size, the rank in it, whether that is done.
    making: tuple[str, int, int, bool] | None = None


def read_nccl_lines(lines: Iterable[str]) -> tuple[NcclLine, ...]:
    """Return the warnings, versions and makings of communicators in a log."""
    found: list[NcclLine] = []
    for raw in lines:
        if "NCCL " in raw and len(found) < _MOST_LINES and (one := _parse_line(raw)):
            found.append(one)
    return tuple(dict.fromkeys(found))


def _parse_line(raw: str) -> NcclLine | None:
    stripped = strip_prefixes(raw[:4096])
    match = _LINE.match(stripped.text)
    if match is None:
        return None
    process, clock = (match["host"], int(match["pid"])), match["clock"] or ""
    if match["warning"]:
        text = mask_text(match["warning"].strip())[:_LONGEST]
        return NcclLine(process, stripped.task, clock, warning=text)
    if version := _VERSION.match(match["told"]):
        return NcclLine(process, stripped.task, version=version["version"])
    if made := _MAKING.search(match["told"]):
        done = made["state"] == "COMPLETE"
        making = made["name"], int(made["size"]), int(made["rank"]), done
        return NcclLine(process, stripped.task, making=making)
    return None


# ---- of all ranks together -----------------------------------------------------------------------


def describe_nccl_lines(told: Sequence[tuple[NcclLine, int | None]]) -> list[str]:
    """Return what the lines say, in sentences; each with the rank that its file is of."""
    largest = max((one.making[1] for one, _ in told if one.making), default=0)
    by_process = {
        one.process: one.making[2] for one, _ in told if one.making and one.making[1] == largest
    }

    def find_rank(one: NcclLine, of_file: int | None) -> int | None:
        known = one.task if one.task is not None else of_file
        return known if known is not None else by_process.get(one.process)

    ranked = [(one, find_rank(one, of_file)) for one, of_file in told]
    return [*_describe_versions(ranked), *_describe_makings(ranked), *_describe_warnings(ranked)]


def _describe_versions(told: Sequence[tuple[NcclLine, int | None]]) -> Iterator[str]:
    found: dict[str, set[int]] = {}
    for one, rank in told:
        if one.version and rank is not None:
            found.setdefault(one.version, set()).add(rank)
    if len(found) > 1:
        parts = [
            f"{name} on {format_ranks(sorted(ranks))}" for name, ranks in sorted(found.items())
        ]
        yield f"NCCL versions differ: {', '.join(parts)}"


def _describe_makings(told: Sequence[tuple[NcclLine, int | None]]) -> Iterator[str]:
    sizes: dict[str, int] = {}
    begun: dict[str, set[int]] = {}
    done: dict[str, set[int]] = {}
    for one, _ in told:
        if one.making is not None:
            name, sizes[one.making[0]], rank, is_done = one.making
            begun.setdefault(name, set()).add(rank)
            done.setdefault(name, set()).update({rank} if is_done else ())
    for name, size in sizes.items():
        making = sorted(begun[name] - done[name])
        silent = sorted(set(range(min(size, 1 << 16))) - begun[name])
        if making:
            text = f"NCCL communicator {name} of {size} is being made by {format_ranks(making)}"
            text += f", and done on {format_ranks(sorted(done[name]))}" if done[name] else ""
            yield text + (f": no word of it from {format_ranks(silent)}" if silent else "")


def _describe_warnings(told: Sequence[tuple[NcclLine, int | None]]) -> Iterator[str]:
    found: dict[str, list[tuple[NcclLine, int | None]]] = {}
    for one, rank in told:
        if one.warning:
            found.setdefault(one.warning, []).append((one, rank))
    for text, lines in list(found.items())[:_MOST_WARNINGS]:
        clock = next((one.clock for one, _ in lines if one.clock), "")
        when = f" at {clock}" if clock else ""
        yield f"NCCL warns on {_name_places(lines)}{when}: {text}"
    if len(found) > _MOST_WARNINGS:
        yield f"NCCL warns of {len(found) - _MOST_WARNINGS} more things"


def _name_places(lines: Sequence[tuple[NcclLine, int | None]]) -> str:
    ranks = sorted({rank for _, rank in lines if rank is not None})
    if ranks:
        return format_ranks(ranks)
    host, pid = lines[0][0].process
    return f"process {pid} of {host}"
