"""The logs of all ranks, by group, so that they can be laid side by side. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..facts import Collective, CollectiveLog, RankFacts

Source = Literal["ring", "torch", "flight recorder"]

TO_ONE_PEER = frozenset(["send", "recv", "send_object_list", "recv_object_list"])
WRAPS = frozenset(["ddp", "fsdp"])
MAKES_GROUPS = frozenset(["new_group", "split_group", "shrink_group"])
# Not a collective itself: it stands for those that C++ makes meanwhile.
MARKS = frozenset(["backward"])
DEFAULT = "0"


@dataclass(frozen=True)
class Stream:
    """The operations of one group on one rank, oldest first; `since` numbers were not kept."""

    rank: int
    operations: tuple[Collective, ...]
    since: int = 0


@dataclass(frozen=True)
class Group:
    """A process group as its members logged it."""

    name: str
    source: Source
    members: tuple[int, ...]  # as far as they are known
    streams: tuple[Stream, ...]  # of the members that have a log, by rank


def groups_of(ranks: Sequence[RankFacts], source: Source) -> list[Group]:
    """Return the groups that ranks logged from `source`, the default group first."""
    logs = {r.rank: log for r in ranks if (log := _log(r, source)) is not None}
    names = {one.group for log in logs.values() for one in log.operations} - {""}
    return [_group(name, source, logs) for name in sorted(names, key=_by_number)]


def _by_number(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)


def _log(facts: RankFacts, source: Source) -> CollectiveLog | None:
    return next((log for log in facts.collectives if log.source == source), None)


def _group(name: str, source: Source, logs: Mapping[int, CollectiveLog]) -> Group:
    known = [set(log.groups[name]) for log in logs.values() if log.groups.get(name)]
    members = set.union(*known) if known else set()
    if not members:  # the recorder of gloo does not tell
        there = {r for r, log in logs.items() if any(o.group == name for o in log.operations)}
        members = set(logs) if name == DEFAULT else there
    marks = name == DEFAULT and source == "ring" and _backward_counts(logs.values())
    streams = [
        _stream(rank, log, name, marks) for rank, log in sorted(logs.items()) if rank in members
    ]
    return Group(name, source, tuple(sorted(members)), tuple(streams))


def _backward_counts(logs: object) -> bool:
    """Return whether backward makes collectives: a model was wrapped, or one hangs in it."""
    operations = [one for log in logs for one in log.operations]  # type: ignore[attr-defined]
    return any(one.kind in WRAPS or (one.kind in MARKS and not one.done) for one in operations)


def _stream(rank: int, log: CollectiveLog, name: str, marks: bool) -> Stream:
    own = [o for o in log.operations if o.group == name and o.kind not in TO_ONE_PEER]
    since = own[0].number - 1 if own else 0
    if marks:
        backward = [replace(o, group=name) for o in log.operations if o.kind in MARKS]
        if since:  # of a time from which nothing else is kept
            backward = [o for o in backward if o.at >= own[0].at]
        elif backward and _is_cut_off(log):
            since, own = 1, [o for o in own if o.at >= backward[0].at]
        own = sorted([*own, *backward], key=lambda one: one.at)
    return Stream(rank, tuple(own), since)


def _is_cut_off(log: CollectiveLog) -> bool:
    """Return whether the log has no longer all that was called without a group: backward is counted
    together with the making of the first group.
    """
    outside = [one.number for one in log.operations if not one.group]
    return bool(outside) and min(outside) > 1
