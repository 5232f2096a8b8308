"""What NCCL's watchdog and the thread beside it printed of operations that did not end: which
operation of which group a rank gave up on, and how many operations it had enqueued by then.

The lines are those of ProcessGroupNCCL.cpp (torch/csrc/distributed/c10d), torch 2.0 to 2.13:

    [rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective
        operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, ...) ran for 600060 milliseconds
    [rank0]:[E321 ...] [PG ID 0 PG GUID 0(default_pg) Rank 0] ... detected by watchdog at work: 41,
        last enqueued NCCL work: 43, last completed NCCL work: 40.
    [rank2]:[E321 ...] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a
        collective timeout from rank 0 ... Last enqueued NCCL work: 40, last completed ...: 40.

`[rank2]` is the rank in the job, `Rank 2` the one in the group. A rank that is inside the call that
enqueues an operation has not enqueued it yet. Before torch 2.5 a group goes by a number that is its
process's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import Collective, CollectiveLog

_MOST_LINES = 1 << 16  # of these, that are kept of one log
_MOST_OPERATIONS = 64  # that timed out, of one rank
_HINTS = ("Watchdog caught", "ast enqueued ")  # no other line is looked at more closely
_LONGEST = 4000  # characters of a line
_RANK = re.compile(r"\[rank(?P<rank>\d{1,6})\]:")
# glog's head as c10 writes it: month and day without a zero in front of the month.
_TIME = re.compile(r"\[[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d{1,6})")
_GROUP = (
    r"\[PG (?P<global>ID \d{1,6} PG GUID )?(?P<group>[^\s()\]]{1,80})"
    r" ?(?:\((?P<desc>[^)]{0,80})\))? ?Rank (?P<group_rank>\d{1,6})\]"
)
_TIMED_OUT = re.compile(
    r"Rank (?P<group_rank>\d{1,6})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<number>\d{1,18}), )?OpType=(?P<kind>\w{1,40})"
    r"(?:, NumelIn=(?P<elements>\d{1,18}))?[^)]{0,200}\(ms\)=\d{1,12}\)"
    r" ran for (?P<ran>\d{1,12}) milliseconds"
)
_STARTED = r"(?:last started (?:NCCL )?work: -?\d{1,18}(?: \([^)]{0,80}\))?, )?"
_STATUS = re.compile(
    rf"{_GROUP}.{{0,600}}?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{{1,18}})"
    rf"(?: \([^)]{{0,80}}\))?, {_STARTED}last completed (?:NCCL )?work: (?P<completed>-?\d{{1,18}})"
)
_AT_WORK = re.compile(r"\b(?:at work|at work sequence id|at NCCL work): (?P<number>\d{1,18})")
_DEFAULT_GROUP, _DEFAULT_NAME = "0", "default_pg"
# c10d's OpType (Types.hpp, opTypeToString in ProcessGroup.cpp), as the job calls it.
_KINDS = {
    **{"ALLREDUCE": "all_reduce", "_ALLREDUCE_SPARSE": "all_reduce", "REDUCE": "reduce"},
    **{"ALLREDUCE_COALESCED": "all_reduce_coalesced", "ALLGATHER": "all_gather"},
    **{"_ALLGATHER_BASE": "all_gather_into_tensor", "ALLGATHER_COALESCED": "all_gather_coalesced"},
    **{"REDUCE_SCATTER": "reduce_scatter", "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor"},
    **{"ALLTOALL": "all_to_all", "ALLTOALL_BASE": "all_to_all_single", "RECVANYSOURCE": "recv"},
}
_TO_ONE_PEER = frozenset(["SEND", "RECV", "RECVANYSOURCE", "COALESCED"])


@dataclass(frozen=True)
class TimedOutOperation:
    """An operation that a rank gave up on. `group` is "" where no line names it."""

    number: int
    kind: str  # as torch calls it: "ALLREDUCE"
    elements: int | None = None
    group: str = ""
    since: float | None = None  # when it was enqueued, on the clock of `GroupCount.at`


@dataclass(frozen=True)
class GroupCount:
    """How far a rank had come in a group when it said so."""

    group: str
    group_rank: int
    enqueued: int  # operations
    is_global: bool  # the group's name is the same on all its ranks
    at: float | None = None  # seconds; only differences mean anything


@dataclass(frozen=True)
class WatchdogMessages:
    """What one rank printed. `rank` is None where no line names it."""

    rank: int | None
    operations: tuple[TimedOutOperation, ...] = ()
    counts: tuple[GroupCount, ...] = ()  # the last one of each group


class _Reader:
    """The lines of one rank while they are read."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.operations: list[TimedOutOperation] = []
        self.counts: dict[str, GroupCount] = {}
        self._unsure: set[str] = set()  # groups whose counts are not those of collectives

    def add(self, line: str) -> None:
        at = _parse_time(line)
        if match := _TIMED_OUT.search(line):
            self._add_operation(match, at)
        if match := _STATUS.search(line):
            self._add_count(match, line, at)

    def _add_operation(self, match: re.Match[str], at: float | None) -> None:
        number = int(match["number"] or 0)
        known = [one for one in self.operations if one.number == number]
        if not number or any(one.kind == match["kind"] for one in known):
            return  # said again, by the exception
        since = None if at is None else at - int(match["ran"]) / 1000
        elements = int(match["elements"]) if match["elements"] else None
        self.operations.append(TimedOutOperation(number, match["kind"], elements, since=since))

    def _add_count(self, match: re.Match[str], line: str, at: float | None) -> None:
        group = _DEFAULT_GROUP if match["desc"] == _DEFAULT_NAME else match["group"]
        enqueued, completed = int(match["enqueued"]), int(match["completed"])
        last = self.counts.get(group)
        if last is not None and enqueued < last.enqueued:  # it was started again
            self.operations = [one for one in self.operations if not one.group]
            self.counts.clear()
        is_global = match["global"] is not None or group == _DEFAULT_GROUP
        self.counts[group] = GroupCount(
            group, int(match["group_rank"]), max(0, enqueued), is_global, at
        )
        if completed > enqueued:  # sends count by themselves, and the two got mixed
            self._unsure.add(group)
        if failed := _AT_WORK.search(line):
            self._name_group(int(failed["number"]), group)

    def _name_group(self, number: int, group: str) -> None:
        for place, one in enumerate(self.operations):
            if one.number == number and one.group in ("", group):
                self.operations[place] = replace(one, group=group)
                if one.kind in _TO_ONE_PEER:
                    self._unsure.add(group)

    def messages(self) -> WatchdogMessages:
        counts = tuple(one for one in self.counts.values() if one.group not in self._unsure)
        return WatchdogMessages(self.rank, tuple(self.operations[-_MOST_OPERATIONS:]), counts)


def _parse_time(line: str) -> float | None:
    """Return when a line was printed, in seconds of a year of 366 days: the year is not told."""
    match = _TIME.search(line)
    if match is None:
        return None
    text = f"2000-{int(match['month']):02}-{match['day']}T{match['clock'].ljust(15, '0')}+00:00"
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


_YEAR = 366 * 86400.0


def find_time_of_year(wall: float) -> float:
    """Return a wall clock's time as these lines have it: local time, in seconds of a year of 366
    days.
    """
    then = datetime.fromtimestamp(wall)
    return then.replace(year=2000, tzinfo=UTC).timestamp()


def is_earlier(at: float, since: float) -> bool:
    """Return whether a time of the year is before another one, no more than half a year apart."""
    return (at - since) % _YEAR > _YEAR / 2


def read_watchdog_messages(
    lines: Iterable[str], since: float | None = None, with_untimed: bool = False
) -> tuple[WatchdogMessages, ...]:
    """Return what each rank's watchdog says in a log, the rank None for lines that name none.

    With `since` (`find_time_of_year`) only what was said after it; a line without a time goes with
    those before it. In a log in which no line has one (torch 2.1 and older) all lines count
    `with_untimed`, and none without.
    """
    told = [line[:_LONGEST] for line in lines if any(hint in line for hint in _HINTS)]
    told = told[:_MOST_LINES]
    times = [None if since is None else _parse_time(line) for line in told]
    takes_all = since is None or (with_untimed and not any(at is not None for at in times))
    readers: dict[int | None, _Reader] = {}
    for line, at in zip(told, times, strict=True):
        match = _RANK.search(line)
        rank = int(match["rank"]) if match else None
        is_known = rank in readers if at is None else since is None or not is_earlier(at, since)
        if takes_all or is_known:
            readers.setdefault(rank, _Reader(rank)).add(line)
    found = [reader.messages() for reader in readers.values()]
    return tuple(one for one in found if one.operations or one.counts)


# ---- of all ranks together -----------------------------------------------------------------------


def make_watchdog_logs(
    messages: Mapping[RankId, Sequence[WatchdogMessages]],
) -> dict[RankId, CollectiveLog]:
    """Return what each rank told as a log: the operations that it gave up on, none of them done,
    and how many it had enqueued in each group, as far as that can be compared with others.

    A rank of which nothing is left is not in it.
    """
    merged = {rank: _merge_messages(of_rank) for rank, of_rank in messages.items()}
    unsure = _find_unsure_groups(merged)
    found = {}
    for rank, one in merged.items():
        log = CollectiveLog(
            "watchdog",
            tuple(_make_operation(op) for op in one.operations),
            sequence={
                count.group: count.enqueued
                for count in one.counts
                if count.group not in unsure and not _is_too_old(count, merged)
            },
        )
        if log.operations or log.sequence:
            found[rank] = log
    return found


def _merge_messages(of_rank: Sequence[WatchdogMessages]) -> WatchdogMessages:
    """Return what several files have of one rank together, the last word on each group."""
    counts: dict[str, GroupCount] = {}
    for count in (count for one in of_rank for count in one.counts):
        last = counts.get(count.group)
        if last is None or (last.at or 0.0, last.enqueued) <= (count.at or 0.0, count.enqueued):
            counts[count.group] = count
    operations = dict.fromkeys(op for one in of_rank for op in one.operations)
    return WatchdogMessages(None, tuple(operations), tuple(counts.values()))


def _find_unsure_groups(messages: Mapping[RankId, WatchdogMessages]) -> set[str]:
    """Return names that stand for more than one group, or may: two ranks have the same place in it,
    or the name is a number of each process's own and the places are not those of all ranks.
    """
    places: dict[str, dict[int, RankId]] = {}
    unsure: set[str] = set()
    for rank, one in messages.items():
        for count in one.counts:
            other = places.setdefault(count.group, {}).setdefault(count.group_rank, rank)
            if other != rank or not (count.is_global or count.group_rank == rank):
                unsure.add(count.group)
        unsure.update(op.group for op in one.operations if op.kind in _TO_ONE_PEER)
    return unsure


def _is_too_old(count: GroupCount, messages: Mapping[RankId, WatchdogMessages]) -> bool:
    """Return whether a rank said how far it was before others entered an operation beyond that."""
    return count.at is not None and any(
        op.since is not None and op.since > count.at
        for one in messages.values()
        for op in one.operations
        if op.group == count.group and op.number > count.enqueued
    )


def _make_operation(op: TimedOutOperation) -> Collective:
    kind = _KINDS.get(op.kind, op.kind.lower())
    if op.kind in _TO_ONE_PEER:
        kind = kind if kind in ("send", "recv") else "batch_isend_irecv"
    return Collective(
        group=op.group,
        kind=kind,
        number=op.number,
        shape="" if op.elements is None else f"of {op.elements} elements",
        at=op.since or 0.0,
        done=False,
    )
