"""What each rank handed out and is not done, and which ranks have not entered it: who waits for
whom as the logs of operations tell, whatever call a rank stands in.

A rank waits for its peers in many ways: inside the call, in `Work.wait()`, in a wait for the GPU
behind it, in a helper thread, in a loop that asks for a handle. What they have in common is an
operation that not all members of its group have entered. Numbers of one log are compared with those
of the same log of others: each counts in a way of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import Collective, CollectiveLog, RankFacts
from ...base.words import format_ranks
from ..process.frames import format_frame, frame_owner
from ..process.process_snapshot import merge_looks
from ..single_ranks import is_gone
from .collective_mismatch import BACKWARD_KINDS, DEFAULT_GROUP, LogSource, is_to_one_peer
from .counted_mismatch import COUNTED_SOURCES
from .unsent_messages import is_cut_off, is_handed_out, receives

# torch's own recorders know what C++ makes, and of each operation whether it is done.
_COMPLETE_SOURCES: tuple[LogSource, ...] = ("torch", "flight recorder")
_LESS_COMPLETE: tuple[LogSource, ...] = ("watchdog", "ring", "ras")


@dataclass(frozen=True)
class PendingOperation:
    """The first operation of a rank that is not done, as far as it is known, and that others have
    not entered.
    """

    operation: Collective
    missing: tuple[RankId, ...]  # the members of its group that have not entered it
    called: str = ""  # as the job called it, where torch's recorder has another name for it

    @property
    def is_sure(self) -> bool:
        """Whether a log says that it is not done, or ended by an exception; else it says only that
        it was handed out.
        """
        return self.operation.done is False or self.operation.raised


def find_pending_operations(ranks: Sequence[RankFacts]) -> dict[RankId, PendingOperation]:
    """Return the operation of each rank in which it may wait for others that have not come, none
    for a rank without one.
    """
    if not any(facts.collectives for facts in ranks):
        return {}
    found: dict[RankId, PendingOperation] = {}
    recorded: set[RankId] = set()  # ranks of which a recorder says what is done
    for source in _COMPLETE_SOURCES:
        logs = _LogsOfRanks(ranks, source)
        recorded.update(logs.by_rank)
        for rank in logs.by_rank:
            if rank not in found and (pending := logs.find_first_pending(rank)):
                found[rank] = pending
    for source in _LESS_COMPLETE:
        logs = _LogsOfRanks(ranks, source)
        for rank in logs.by_rank:
            if rank not in found:
                pending = logs.find_first_pending(rank, only_sure=rank in recorded)
                if pending is not None:
                    found[rank] = pending
    called = {facts.rank: log[-1] for facts in ranks if (log := _list_own(facts))}
    return {rank: _name_as_called(one, called.get(rank)) for rank, one in found.items()}


def _list_own(facts: RankFacts) -> tuple[Collective, ...]:
    logs = (log.operations for log in facts.collectives if log.source == "ring")
    return next(logs, ())


def _name_as_called(pending: PendingOperation, last: Collective | None) -> PendingOperation:
    """Return an operation with the name of the call in which its rank is: gloo reduces and scatters
    by an all_reduce, and torch's recorder has that (ProcessGroupGloo.cpp).
    """
    if last is None or last.done or not last.kind.startswith("reduce_scatter"):
        return pending
    reduces = pending.operation.kind in ("all_reduce", "allreduce")
    return replace(pending, called=last.kind) if reduces else pending


def find_groups_of_waiting(
    ranks: Sequence[RankFacts], pending: Container[RankId]
) -> dict[RankId, frozenset[RankId]]:
    """Return of each rank that waits in an operation by torch's recorder or NCCL's watchdog, and is
    not in `pending`, the members of its group that are known: all of these have entered it, so it
    waits for nobody outside of the group.
    """
    found: dict[RankId, frozenset[RankId]] = {}
    if not any(facts.collectives for facts in ranks):
        return found
    sources: tuple[LogSource, ...] = (*_COMPLETE_SOURCES, "watchdog")
    for source in sources:
        logs = _LogsOfRanks(ranks, source)
        for rank in logs.by_rank:
            if rank not in found and rank not in pending:
                members = logs.find_members_of_first(rank)
                found.update({rank: members} if members else {})
    return found


def find_partners(ranks: Iterable[RankFacts]) -> dict[RankId, frozenset[RankId]]:
    """Return of each rank whose own log ends with sends and receives that it only handed out
    (isend, irecv) with whom these are; none for a rank that did anything else after them.
    """
    found: dict[RankId, frozenset[RankId]] = {}
    for facts in ranks:
        log = next((one for one in facts.collectives if one.source == "ring"), None)
        last = takewhile(is_handed_out, reversed(log.operations if log is not None else ()))
        peers = frozenset(one.peer for one in last if one.peer is not None)
        found.update({facts.rank: peers} if peers else {})
    return found


_GroupKey = tuple[str, tuple[int, ...]]  # name and members: two groups may have one name


class _LogsOfRanks:
    """The logs of one source, of all ranks that have one."""

    def __init__(self, ranks: Sequence[RankFacts], source: LogSource) -> None:
        self.by_rank: dict[RankId, CollectiveLog] = {}
        self._ranks = tuple(facts.rank for facts in ranks)
        self._gone = frozenset(facts.rank for facts in ranks if is_gone(facts))
        self._is_counted = source in COUNTED_SOURCES
        for facts in ranks:
            log = next((one for one in facts.collectives if one.source == source), None)
            # A recorder that was switched off has nothing; a ring may well have nothing yet.
            has_count = log is not None and self._is_counted and log.sequence
            if log is not None and (log.operations or has_count or source == "ring"):
                self.by_rank[facts.rank] = _add_members(log, facts)
        self._entered: dict[tuple[RankId, _GroupKey], int] = {}
        self._kinds: dict[tuple[RankId, _GroupKey, int], str] = {}
        self._known_members: dict[_GroupKey, frozenset[RankId]] = {}
        self._sent: dict[tuple[RankId, RankId, bool], int] = {}
        # Whose sends and receives are not all there: a log keeps the last ones, of all peers.
        self._cut_off = {rank for rank, log in self.by_rank.items() if is_cut_off(log.operations)}
        for rank, log in self.by_rank.items():
            for one in log.operations:
                if is_to_one_peer(one):
                    if one.peer is not None:
                        pair = (rank, one.peer, receives(one))
                        self._sent[pair] = self._sent.get(pair, 0) + 1
                elif one.group and one.kind not in BACKWARD_KINDS:
                    key = rank, _key_of(log, one)
                    self._entered[key] = max(self._entered.get(key, 0), one.number)
                    self._kinds[*key, one.number] = one.kind if not one.raised else ""
            for name, number in log.sequence.items() if self._is_counted else ():
                key = rank, (name, tuple(log.groups.get(name, ())))
                self._entered[key] = max(self._entered.get(key, 0), number)

    def find_first_pending(
        self, rank: RankId, *, only_sure: bool = False
    ) -> PendingOperation | None:
        """Return the first operation of a rank that is not done and in which others are missing:
        one that its log says is not done before others. `only_sure`: no others.
        """
        found = [
            *self._pending_in_groups(rank),
            *self._pending_with_peers(rank),
            *self._failed_for_who_left(rank),
        ]
        return min(
            (one for one in found if one.is_sure or not only_sure),
            key=lambda one: (not one.is_sure, one.operation.at, one.operation.number),
            default=None,
        )

    def find_members_of_first(self, rank: RankId) -> frozenset[RankId]:
        """Return the members of the group of the first operation of a rank that its log says is not
        done, none if there is no such operation, or if one of them has no log: it may be missing.
        """
        own = [one for one in self._open_in_groups(rank) if one.done is False]
        if not own:
            return frozenset()
        key = _key_of(self.by_rank[rank], min(own, key=lambda one: (one.at, one.number)))
        if key not in self._known_members:
            name, listed = key
            known = frozenset(self._members(key))
            all_members = listed or (self._ranks if name == DEFAULT_GROUP else known)
            self._known_members[key] = known if known >= {*all_members} else frozenset()
        return self._known_members[key]

    def _open_in_groups(self, rank: RankId) -> Iterator[Collective]:
        """Yield the operations of a rank that may not be done, oldest first."""
        own = [
            one
            for one in self.by_rank[rank].operations
            if one.group and one.kind not in BACKWARD_KINDS and not is_to_one_peer(one)
        ]
        # Operations of a group end in the order in which they begin.
        done: dict[str, int] = {}
        for one in own:
            if one.done:
                done[one.group] = max(done.get(one.group, 0), one.number)
        yield from (one for one in own if not one.done and one.number > done.get(one.group, 0))

    def _pending_in_groups(self, rank: RankId) -> Iterator[PendingOperation]:
        for one in self._open_in_groups(rank):
            key = _key_of(self.by_rank[rank], one)
            missing = tuple(
                member
                for member in self._members(key)
                if member != rank and not self._has_entered(member, key, one)
            )
            if missing:
                yield PendingOperation(one, missing)

    def _failed_for_who_left(self, rank: RankId) -> Iterator[PendingOperation]:
        """Yield the last operation of a rank if it ended by an exception, as a member had left its
        group before it: a helper thread may have ended with it, for which the rank waits.
        """
        own = [one for one in self.by_rank[rank].operations if one.kind not in BACKWARD_KINDS]
        if not own or not own[-1].raised or not own[-1].group or is_to_one_peer(own[-1]):
            return
        key = _key_of(self.by_rank[rank], own[-1])
        missing = tuple(
            member
            for member in self._members(key)
            if member in self._gone and not self._has_entered(member, key, own[-1])
        )
        if missing:
            yield PendingOperation(own[-1], missing)

    def _has_entered(self, member: RankId, group: _GroupKey, one: Collective) -> bool:
        """Return whether a member has come to an operation: who is in another one of the same
        number has not, nor is there whom it left by an exception.
        """
        if self._entered.get((member, group), 0) < one.number:
            return False
        return self._kinds.get((member, group, one.number), one.kind) == one.kind

    def _members(self, group: _GroupKey) -> Iterator[RankId]:
        """Yield the members of a group whose logs are known; where operations are only counted,
        those that have a count.
        """
        if self._is_counted:
            yield from (rank for rank in self.by_rank if (rank, group) in self._entered)
            return
        name, members = group
        known = members or (self.by_rank if name == DEFAULT_GROUP else ())
        yield from (rank for rank in known if rank in self.by_rank)

    def _pending_with_peers(self, rank: RankId) -> Iterator[PendingOperation]:
        counted: dict[tuple[RankId, bool], int] = {}
        for one in self.by_rank[rank].operations:
            if not is_to_one_peer(one) or one.peer is None:
                continue
            receiving = receives(one)
            number = counted[one.peer, receiving] = counted.get((one.peer, receiving), 0) + 1
            if one.done or one.peer not in self.by_rank or {rank, one.peer} & self._cut_off:
                continue
            if self._sent.get((one.peer, rank, not receiving), 0) < number:
                yield PendingOperation(one, (one.peer,))


def _add_members(log: CollectiveLog, facts: RankFacts) -> CollectiveLog:
    """Return a log with the members of its groups: torch's recorder does not know those of gloo's,
    and the rank's own log has them by the same names.
    """
    own = next((one for one in facts.collectives if one.source == "ring" and one.groups), None)
    if log.groups or own is None or log.source not in _COMPLETE_SOURCES:
        return log
    return replace(log, groups=own.groups)


def _key_of(log: CollectiveLog, one: Collective) -> _GroupKey:
    return one.group, tuple(log.groups.get(one.group, ()))


def describe_operation(pending: PendingOperation) -> str:
    """Return the place where a rank waits: "collective all_reduce", "irecv from rank 2"."""
    one = pending.operation
    if is_to_one_peer(one):
        return f"{one.kind} {'from' if receives(one) else 'to'} rank {one.peer}"
    return f"collective {pending.called or one.kind}"


def describe_subgroups(ranks: Sequence[RankFacts], package: str = "") -> list[str]:
    """Return, a sentence for each group of some ranks in which one waits for another: its members,
    where they wait, and where those are that have not come. `package` is the folder of our own
    code.
    """
    pending = find_pending_operations(ranks)
    found: dict[tuple[_GroupKey, int], list[RankId]] = {}
    for facts in ranks:
        one = pending.get(facts.rank)
        key = _find_subgroup(facts, one.operation, len(ranks)) if one else None
        if one is not None and key is not None:
            found.setdefault((key, one.operation.number), []).append(facts.rank)
    by_rank = {facts.rank: facts for facts in ranks}
    lines = []
    for ((name, members), _), waiting in found.items():
        first = pending[waiting[0]]
        call, verb = _format_call(first.operation), "is" if len(waiting) == 1 else "are"
        rest = [
            f"rank {rank} has not entered it: {_say_where(by_rank[rank], pending, package)}"
            for rank in first.missing
        ]
        here = f"group {name} ({format_ranks(members)}): {format_ranks(waiting)} {verb} in {call}"
        lines.append("; ".join([here, *rest]))
    return lines


def _find_subgroup(facts: RankFacts, one: Collective, count: int) -> _GroupKey | None:
    """Return the group of an operation if only some of `count` ranks are known to be its members,
    else None.
    """
    log = next((log for log in facts.collectives if one in log.operations), None)
    if log is None or is_to_one_peer(one) or one.group == DEFAULT_GROUP:
        return None
    name, members = _key_of(log, one)
    return (name, members) if 0 < len(members) < count else None


def _say_where(facts: RankFacts, pending: Mapping[RankId, PendingOperation], package: str) -> str:
    if is_gone(facts):
        return "it has ended"
    if facts.rank in pending and not is_to_one_peer(pending[facts.rank].operation):
        one = pending[facts.rank].operation
        return f"it is in {_format_call(one)} of group {one.group}"
    view = merge_looks(facts.looks)
    frames = [one for one in (view.frames if view else ()) if frame_owner(one, package) == "user"]
    where = f"it is at {format_frame(frames[0])}" if frames else "it is elsewhere"
    return f"{where}, and {facts.moved}" if facts.moved else where


def _format_call(one: Collective) -> str:
    return f"{one.kind} ({one.site})" if one.site else one.kind
