"""What NCCL itself prints: warnings, its version, by which interface the ranks meet, where it could
not connect to, and who has begun to make which communicator.

A line begins with the host, the process and the thread, and in newer versions a warning with the
time (src/debug.cc): `n01:4711:4720 [3] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to
... failed`. At the levels VERSION and WARN the version stands alone (`NCCL version
2.14.3+cuda11.5`), and up to 2.23 only a communicator's first rank says it (init.cc). NCCL names a
rank where a communicator is made, and nowhere else; there it is the one in that communicator (`...
rank 3 nranks 8 ... commId 0xdf33 - Init START`, init.cc).

A connection that is refused or times out is tried again, with a line of information, until a
warning says that it was tried too often. The words are those of include/socket.h (2.7),
misc/socket.cc (2.8 to 2.27) and os/linux.cc (2.28 and later), as NVIDIA/nccl#1515,
NVIDIA/nccl-tests#166, pytorch/pytorch#68893, Oneflow-Inc/oneflow#3586 and NVIDIA/nccl#975 show
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.line_prefixes import strip_prefixes
from ...base.masking import mask_text
from ...base.rank_facts import NcclFacts, UnreachedAddress
from ...base.words import format_ranks

_MOST_LINES = 4096  # that are kept of a log
_MOST_WARNINGS = 8  # different ones, that are told
_MOST_ADDRESSES = 8  # of a rank
_LONGEST = 300  # characters of a warning
_LINE = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d (?P<clock>\d\d:\d\d:\d\d)[^\]]{0,20}\] )?"
    r"(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,9}):\d{1,9} \[\d{1,4}\] "
    r"(?:\S{1,200} (?:\(\w+\) )?NCCL WARN (?P<warning>\S.*)|NCCL INFO (?P<told>.*))$"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d[\w.]{0,20})")
_INTERFACE = re.compile(
    r"Bootstrap ?: Using (?:\[0\])?(?P<name>[^\s<>:]{1,40}):(?P<address>[^\s<>]{1,80})<\d{1,5}>"
)
_MAKING = re.compile(
    r"rank (?P<rank>\d{1,7}) nranks (?P<size>\d{1,7}) .{0,200}commId (?P<name>0x[0-9a-f]{1,16})"
    r" .{0,40}- Init (?P<state>START|COMPLETE)"
)
_ADDRESS = r"(?P<address>[^\s<>]{1,120}<\d{1,5}>)"
_NOT_CONNECTED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b[Cc]onnect to {_ADDRESS} failed ?: (?P<reason>.+)",
        rf"\b[Cc]onnect to {_ADDRESS} returned \d{{0,5}}\(?(?P<reason>[A-Z][A-Za-z ]+)",
        r"\b[Cc]onnect (?:returned|timeout ?:) (?P<reason>[A-Z][A-Za-z ]+)",
        r"\bsocket(?:Start|Poll)Connect: (?P<reason>exceeded (?:retries|timeouts))",
    )
)


@dataclass(frozen=True)
class NcclLine:
    """One line of NCCL's. `task` is the rank that a launcher's prefix names, None without."""

    process: tuple[str, int]  # host and pid; ("", 0) where the line names none
    task: int | None = None
    clock: str = ""  # as it stands there: "13:06:53"
    warning: str = ""
    version: str = ""
    interface: str = ""  # "eth0"
    address: str = ""  # of that interface
    unreached: UnreachedAddress | None = None
    # Of a communicator that is made: its name, its size, the rank in it, whether that is done.
    making: tuple[str, int, int, bool] | None = None


RankedLine = tuple[NcclLine, RankId | None]


def read_nccl_lines(lines: Iterable[str]) -> tuple[NcclLine, ...]:
    """Return what is known of the lines of NCCL's in a log, each where it stands last."""
    found: dict[NcclLine, None] = {}
    for raw in lines:
        if "NCCL " in raw and len(found) < _MOST_LINES and (one := _parse_line(raw)):
            found.pop(one, None)
            found[one] = None
    return tuple(found)


def _parse_line(raw: str) -> NcclLine | None:
    stripped = strip_prefixes(raw[:4096])
    match = _LINE.match(stripped.text)
    if match is None:
        alone = _VERSION.match(stripped.text)
        return NcclLine(("", 0), stripped.task, version=alone["version"]) if alone else None
    process, clock = (match["host"], int(match["pid"])), match["clock"] or ""
    one = NcclLine(process, stripped.task, clock)
    if match["warning"]:
        text = mask_text(match["warning"].strip())[:_LONGEST]
        return replace(one, warning=text, unreached=_find_unreached(text))
    told = match["told"]
    if version := _VERSION.match(told):
        return NcclLine(process, stripped.task, version=version["version"])
    if chosen := _INTERFACE.match(told):
        name, address = chosen["name"], chosen["address"]
        return NcclLine(process, stripped.task, interface=name, address=address)
    if made := _MAKING.search(told):
        done = made["state"] == "COMPLETE"
        making = made["name"], int(made["size"]), int(made["rank"]), done
        return NcclLine(process, stripped.task, making=making)
    unreached = _find_unreached(told)
    return NcclLine(process, stripped.task, unreached=unreached) if unreached else None


def _find_unreached(text: str) -> UnreachedAddress | None:
    match = next((m for one in _NOT_CONNECTED if (m := one.search(text))), None)
    if match is None:
        return None
    reason = match["reason"].strip().rstrip(".")[:80]
    return UnreachedAddress(match.groupdict().get("address") or "", reason)


# ---- of all ranks together -----------------------------------------------------------------------


def assign_ranks(entries: Sequence[RankedLine]) -> list[RankedLine]:
    """Return the lines, each with its rank: that of a launcher's prefix, else of its file, else the
    one that its process has in the largest communicator; None where nothing tells.
    """
    largest = max((one.making[1] for one, _ in entries if one.making), default=0)
    by_process = {
        one.process: one.making[2] for one, _ in entries if one.making and one.making[1] == largest
    }

    def find_rank(one: NcclLine, of_file: RankId | None) -> RankId | None:
        known = one.task if one.task is not None else of_file
        return known if known is not None else by_process.get(one.process)

    return [(one, find_rank(one, of_file)) for one, of_file in entries]


def collect_nccl_facts(entries: Sequence[RankedLine]) -> dict[RankId, NcclFacts]:
    """Return what NCCL said on each rank, by the rank of each line; those of none are left out."""
    by_rank: dict[RankId, list[NcclLine]] = {}
    for one, rank in entries:
        if rank is not None:
            by_rank.setdefault(rank, []).append(one)
    found = {rank: _merge_lines(lines) for rank, lines in by_rank.items()}
    return {rank: facts for rank, facts in found.items() if facts != NcclFacts()}


def _merge_lines(lines: Sequence[NcclLine]) -> NcclFacts:
    unreached: dict[UnreachedAddress, None] = {}
    for one in lines:
        if one.unreached is not None:
            unreached[one.unreached] = None
        elif one.making is not None and one.making[3]:
            unreached.clear()  # it got there in the end
    if any(one.address for one in unreached):
        unreached = {one: None for one in unreached if one.address}
    warnings = dict.fromkeys(one.warning for one in lines if one.warning)
    meets = next((one for one in reversed(lines) if one.interface), NcclLine(("", 0)))
    return NcclFacts(
        version=next((one.version for one in reversed(lines) if one.version), ""),
        interface=meets.interface,
        address=meets.address,
        unreached=tuple(unreached)[-_MOST_ADDRESSES:],
        warnings=tuple(warnings)[-_MOST_WARNINGS:],
    )


def describe_nccl_lines(entries: Sequence[RankedLine]) -> list[str]:
    """Return what the lines say, in sentences; each with the rank that its file is of."""
    ranked = assign_ranks(entries)
    return [*_describe_versions(ranked), *_describe_makings(ranked), *_describe_warnings(ranked)]


def _describe_versions(entries: Sequence[RankedLine]) -> Iterator[str]:
    found: dict[str, set[RankId]] = {}
    for one, rank in entries:
        if one.version and rank is not None:
            found.setdefault(one.version, set()).add(rank)
    if len(found) > 1:
        parts = [
            f"{name} on {format_ranks(sorted(ranks))}" for name, ranks in sorted(found.items())
        ]
        yield f"NCCL versions differ: {', '.join(parts)}"


def _describe_makings(entries: Sequence[RankedLine]) -> Iterator[str]:
    sizes: dict[str, int] = {}
    begun: dict[str, set[int]] = {}
    done: dict[str, set[int]] = {}
    for one, _ in entries:
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


def _describe_warnings(entries: Sequence[RankedLine]) -> Iterator[str]:
    found: dict[str, list[RankedLine]] = {}
    for one, rank in entries:
        if one.warning:
            found.setdefault(one.warning, []).append((one, rank))
    for text, lines in list(found.items())[:_MOST_WARNINGS]:
        clock = next((one.clock for one, _ in lines if one.clock), "")
        when = f" at {clock}" if clock else ""
        yield f"NCCL warns on {_name_places(lines)}{when}: {text}"
    if len(found) > _MOST_WARNINGS:
        yield f"NCCL warns of {len(found) - _MOST_WARNINGS} more things"


def _name_places(lines: Sequence[RankedLine]) -> str:
    ranks = sorted({rank for _, rank in lines if rank is not None})
    if ranks:
        return format_ranks(ranks)
    host, pid = lines[0][0].process
    return f"process {pid} of {host}"
