"""Which rank waits for which: why each one's process is blocked, seen together with all the others.

What a rank waits for depends on where every other rank is; asked rank by rank, a thousand of
them would be a million comparisons. So `RankIndex` holds who is where, worked out once for all
of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.verdict_facts import Wait, WaitKind
from .collectives.collective_mismatch import DEFAULT_GROUP
from .collectives.peer_calls import (
    GivenGroup,
    Transfer,
    find_handle,
    find_transfer,
    keeps_waiting,
    list_followers,
    read_group,
)
from .collectives.pending_operations import (
    PendingOperation,
    describe_operation,
    find_groups_of_waiting,
    find_partners,
    find_pending_operations,
)
from .process.blocked_syscalls import is_fed_by_itself, list_connected_pids
from .process.process_snapshot import ProcessSnapshot
from .rank_connections import find_usual_receivers
from .rendezvous_claims import find_local_group, find_own_masters, find_rendezvous_mismatch
from .served_ranks import find_awaited_guests, find_unseen_end
from .single_ranks import SingleRank, SingleRanks, is_gone


@dataclass(frozen=True)
class RankGroup:
    """Some ranks that others wait for; `order` also has those of which nothing is known."""

    members: tuple[SingleRank, ...]
    order: tuple[RankId, ...]

    def __bool__(self) -> bool:
        return bool(self.members)

    @cached_property
    def ranks(self) -> frozenset[RankId]:
        """Their numbers."""
        return frozenset(self.order)

    @cached_property
    def started(self) -> tuple[SingleRank, ...]:
        """Those that have, or had, a process."""
        return tuple(
            one for one in self.members if not one.facts.never_started or one.facts.pid is not None
        )

    @cached_property
    def least_advanced(self) -> SingleRank | None:
        """The one that is furthest behind. Of those that came equally far, one that waits for
        others itself is the last to name.
        """
        return min(
            self.started,
            key=lambda one: (
                one.facts.reached,
                bool(one.group or one.facts.awaits),
                one.facts.rank,
            ),
            default=None,
        )


def _find_sends_to_usual_receivers(
    members: Sequence[SingleRank], known: Mapping[RankId, Transfer]
) -> dict[RankId, Transfer]:
    """Return the sends for whose handles ranks wait, where neither frames nor source say for whom
    they are, and what goes over their connections does.
    """
    sending = [
        one.facts.rank
        for one in members
        if one.facts.rank not in known
        and (handle := find_handle(one.frames)) is not None
        and not (handle.receives or handle.peers)
    ]
    usual = find_usual_receivers([one.facts for one in members]) if sending else {}
    return {rank: Transfer("isend", usual[rank], False) for rank in sending if rank in usual}


_NO_RANKS = RankGroup((), ())


def _make_rank_group(members: Iterable[SingleRank]) -> RankGroup:
    chosen = tuple(members)
    return RankGroup(chosen, tuple(one.facts.rank for one in chosen))


class RankIndex:
    """The ranks of a job by where they are. Those that finished are in none of the groups."""

    def __init__(
        self,
        members: Sequence[SingleRank],
        absent: Iterable[RankId],
        masters: Collection[str] = (),
    ) -> None:
        """`absent` ranks will never come; `masters` are addresses of the node of rank 0."""
        self.members = {single_rank.facts.rank: single_rank for single_rank in members}
        self.absent = frozenset(absent)
        self._masters = masters
        self.pending = find_pending_operations([single.facts for single in members])
        # Of those that wait in an operation which all of its group have entered: the group.
        self._together = find_groups_of_waiting([one.facts for one in members], self.pending)
        # Of those that stand in a send or a receive: which, and for whom.
        self.transfers = {
            one.facts.rank: found
            for one in members
            if one.group == "collective" and (found := find_transfer(one.frames)) is not None
        }
        self.transfers |= _find_sends_to_usual_receivers(members, self.transfers)
        # Of those that make a group with its members alone: which.
        self._local = {
            one.facts.rank: made
            for one in members
            if one.group == "construction" and (made := find_local_group(one.frames)) is not None
        }
        # Of those that handed out sends and receives last, for whom these are.
        self.partners = find_partners([one.facts for one in members if one.group == "collective"])
        # Of those that wait for a handle of a send or a receive, for whom it is is not known.
        self._at_handles = frozenset(
            one.facts.rank
            for one in members
            if one.group == "collective" and find_handle(one.frames) is not None
        )
        self._behind_others = list_followers(self.transfers)
        self.guests = find_awaited_guests(members)
        self._inside: dict[tuple[int, frozenset[RankId]], RankGroup] = {}
        self._unfinished = [one for one in self.members.values() if not one.facts.finished]
        self._behind: dict[int, RankGroup] = {}
        self._with_absent: dict[int, frozenset[RankId]] = {}

    def others(self, single_rank: SingleRank) -> int:
        """Return how many other ranks have not finished."""
        return len(self._unfinished) - (not single_rank.facts.finished)

    @cached_property
    def unseen_masters(self) -> frozenset[str]:
        """The addresses of the node of rank 0, if that is not seen."""
        if 0 in self.members:
            return frozenset()
        told = (one.facts.environment.get("MASTER_ADDR", "") for one in self.members.values())
        return frozenset([*self._masters, *told])

    @cached_property
    def waiting_for_nobody(self) -> RankGroup:
        """Those that wait for no rank."""
        return _make_rank_group(
            one for one in self._unfinished if not (one.group or one.facts.held or one.facts.awaits)
        )

    @cached_property
    def _ours(self) -> RankGroup:
        """Those that wait because of us: in our barrier, or for a rank that they told us."""
        return _make_rank_group(
            one
            for one in self._unfinished
            if not one.group and (one.facts.held or one.facts.awaits)
        )

    @cached_property
    def _at_a_store(self) -> RankGroup:
        return _make_rank_group(one for one in self._unfinished if one.group == "store")

    @cached_property
    def meeting(self) -> frozenset[RankId]:
        """Those that wait for their peers."""
        return frozenset(
            one.facts.rank for one in self._unfinished if one.group not in ("", "unsure")
        )

    @cached_property
    def all_in_collectives(self) -> bool:
        """Whether each that has not finished stands in a collective of several: whom some lack in
        theirs waits in another one.
        """
        others = self.absent or self.transfers
        return not others and all(one.group == "collective" for one in self._unfinished)

    def missing(self, single_rank: SingleRank) -> RankGroup:
        """Return those for whom a rank that waits for its peers waits, nobody if all are there."""
        softer = self._at_a_store if single_rank.group != "store" else _NO_RANKS
        found = next(
            (group for group in (self.waiting_for_nobody, softer, self._ours) if group), _NO_RANKS
        )
        inside = self._together.get(single_rank.facts.rank)
        if single_rank.facts.rank in self._local:
            return self._missing_in_local_group(single_rank.facts.rank, found)
        if inside is None or single_rank.group != "collective":
            return found
        key = id(found), inside
        if key not in self._inside:
            members = (one for one in found.members if one.facts.rank in inside)
            self._inside[key] = _make_rank_group(members)
        return self._inside[key]

    def makes_local_group(self, rank: RankId) -> bool:
        """Return whether a rank makes a group with its members alone."""
        return rank in self._local

    def _missing_in_local_group(self, rank: RankId, found: RankGroup) -> RankGroup:
        """Return for whom a rank waits that makes a group with its members alone: for those of them
        that `found` has, else for those that are not making the same one.
        """
        made = self._local[rank]
        others = [self.members[one] for one in made.members if one in self.members and one != rank]
        inside = [one for one in others if one.facts.rank in found.ranks]
        return _make_rank_group(
            inside or (one for one in others if self._local.get(one.facts.rank) != made)
        )

    def find_meeting(self, rank: RankId) -> frozenset[RankId]:
        """Return for whom a rank may wait that waits for its peers, where all others do so too:
        if it is itself what some wait for by name, not for those that these keep waiting; and
        where some stand in a send or a receive, for one of these. At the handles of sends and
        receives it waits for one of those that they name, but not for one that waits for it; where
        nothing names them, for any.
        """
        if rank in self.partners:
            kept = {one for one in self.partners[rank] if self._waits_for_it_alone(one, rank)}
            return (self.partners[rank] - kept) or self.partners[rank]
        if not self.transfers or rank in self.transfers or rank in self._at_handles:
            return frozenset() if self.meeting == {rank} else self.meeting
        behind = self._behind_others.get(rank, frozenset())
        return frozenset(one for one in self.transfers if one not in behind) - {rank}

    def _waits_for_it_alone(self, rank: RankId, awaited: RankId) -> bool:
        pending = self.pending.get(rank)
        return pending is not None and pending.missing == (awaited,)

    def behind(self, reached: int) -> RankGroup:
        """Return those that are not yet in our barrier after checkpoint `reached`."""
        if reached not in self._behind:
            self._behind[reached] = _make_rank_group(
                one
                for one in self._unfinished
                if is_gone(one.facts) or not one.facts.held or one.facts.reached < reached
            )
        return self._behind[reached]

    def named(self, ranks: Sequence[RankId]) -> RankGroup:
        """Return these ranks, whether anything is known of them or not."""
        known = [self.members[r] for r in ranks if r in self.members]
        return RankGroup(tuple(one for one in known if not one.facts.finished), tuple(ranks))

    def with_absent(self, group: RankGroup) -> frozenset[RankId]:
        """Return the ranks of a group and the absent ones, the same object each time."""
        # By identity, which is safe for groups that live as long as the index, as these do.
        if id(group) not in self._with_absent:
            self._with_absent[id(group)] = group.ranks | self.absent
        return self._with_absent[id(group)]


_FIRST_GROUP = "init_process_group"  # the call that makes it
_OTHER_NODES = "ranks of other nodes, which this watch does not see"


@dataclass(frozen=True)
class RankWait:
    """What one rank waits for, and for which ranks (none: it does not wait for ranks)."""

    wait: Wait | None
    awaited: frozenset[RankId] = frozenset()  # shared between ranks, so a rank may be in its own
    waits_for_peers: bool = False  # in a collective, or where a process group is made
    unseen_ranks: str = ""  # in words, ranks that are not seen: it can only wait for these
    rank: RankId = -1
    place: str = ""  # where it waits with others: "collective all_reduce", "our barrier ..."
    # The send or receive in which it stands; whether its peer stands in one that keeps it there.
    transfer: Transfer | None = None
    is_kept_by_transfer: bool = False
    group: GivenGroup = ""  # over which the collective goes in which it stands
    # What its own process waits for, before it is compared with others.
    own_wait: Wait | None = None
    view: ProcessSnapshot | None = field(default=None, compare=False, repr=False)

    @property
    def waits_for_unseen(self) -> bool:
        """It can only wait for ranks that are not seen."""
        return bool(self.unseen_ranks)

    @property
    def other_awaited(self) -> frozenset[RankId]:
        """The other ranks that it waits for."""
        return self.awaited - {self.rank} if self.rank in self.awaited else self.awaited


def find_rank_waits(
    single_ranks: SingleRanks,
    absent: Iterable[RankId] = (),
    remote: Iterable[RankId] = (),
    unstarted: str = "",
    masters: Collection[str] = (),
) -> dict[RankId, RankWait]:
    """Return what each rank waits for, compared with all others. `absent` ranks will never come; of
    `remote` ones (on other nodes) nothing is known. `unstarted` says how many of this node have not
    come that have no number; `masters` are addresses of the node of rank 0.
    """
    remote = frozenset(remote)
    without = masters if 0 in remote else None
    index = RankIndex(_exclude_lost_ranks(single_ranks.ranks, without), absent, masters)
    unseen_ranks = unstarted or (_OTHER_NODES if remote else "")
    return {
        rank: replace(
            _make_rank_wait(single_rank, index, unseen_ranks),
            rank=rank,
            own_wait=single_rank.wait,
            view=single_rank.view,
            group=read_group(single_rank.frames),
        )
        for rank, single_rank in index.members.items()
    }


def _exclude_lost_ranks(
    members: Sequence[SingleRank], masters: Collection[str] | None
) -> list[SingleRank]:
    """Return `members`; ranks that make a group where the others never find them are not there.
    `masters`: what the master's name means where rank 0 is on another node; None where it is not.
    """
    meeting = [one for one in members if one.group == "construction" and one.call == _FIRST_GROUP]
    lost = find_rendezvous_mismatch(meeting)
    if masters is not None:
        lost = find_own_masters(meeting, masters) | lost
    return [
        replace(one, group="", call="", wait=wait) if (wait := lost.get(one.facts.rank)) else one
        for one in members
    ]


def _make_rank_wait(single_rank: SingleRank, index: RankIndex, unseen_ranks: str) -> RankWait:
    facts = single_rank.facts
    if is_gone(facts):
        return RankWait(None)
    if facts.held:
        place = f"our barrier after checkpoint {facts.reached}"
        behind = index.behind(facts.reached)
        if unseen_ranks and not behind:
            return RankWait(
                Wait("absent_rank", f"{place}: {unseen_ranks}"),
                unseen_ranks=unseen_ranks,
                place=place,
            )
        return replace(_make_wait_for_ranks(place, behind, index), place=place)
    if facts.awaits:
        return _make_wait_for_ranks("it said that it waits", index.named(facts.awaits))
    pending = index.pending.get(facts.rank)
    if index.makes_local_group(facts.rank):
        pending = None  # of a group that its members alone make logs do not know these
    if pending is not None and _may_wait_in(pending, single_rank):
        found = _make_pending_wait(facts.rank, pending, index)
        if index.all_in_collectives and not unseen_ranks and single_rank.wait is not None:
            detail = f"{pending.operation.kind}: {single_rank.wait.detail}"
            return replace(found, wait=Wait("collective", detail))
        return found
    transfer = index.transfers.get(facts.rank)
    if transfer is not None and transfer.peer != facts.rank:
        return _make_transfer_wait(facts.rank, transfer, index)
    if guests := index.guests.get(facts.rank):
        return RankWait(guests.make_wait(single_rank.wait), guests.ranks, place=guests.place)
    if single_rank.group:
        return _make_peer_wait(single_rank, index, unseen_ranks)
    wait = single_rank.wait
    if (
        unseen_ranks
        and wait is not None
        and (end := find_unseen_end(single_rank, index.unseen_masters))
    ):
        unseen = f"{wait.detail}{end}: {unseen_ranks}"
        return RankWait(Wait("absent_rank", unseen), unseen_ranks=unseen_ranks)
    other = wait.rank if wait else None
    return RankWait(wait, frozenset([other]) if other not in (None, facts.rank) else frozenset())


POLLS = frozenset(["itself", "sleep"])  # kinds of waits that look for something again and again
# In each of these a rank may wait for an operation, and nothing in it says for whom.
_ANONYMOUS = frozenset(["device", "futex", "itself", "sleep", "thread", "unknown"])


def is_anonymous(wait: Wait | None) -> bool:
    """Return whether nothing in a wait says for whom it is: it may be for a peer."""
    if wait is None:
        return False
    no_owner = wait.has_no_owner or wait.is_for_a_file
    return wait.rank is None and (wait.kind in _ANONYMOUS or no_owner)


def sort_by_telling(
    ranks: Iterable[RankId], found: Mapping[RankId, RankWait]
) -> tuple[RankId, ...]:
    """Return ranks of which each is to blame, those first whose wait has a name: a sleep ends by
    itself, and a wait that says nothing explains nothing.
    """

    def says_little(rank: RankId) -> bool:
        wait = found[rank].wait if rank in found else None
        return wait is None or wait.kind == "sleep" or is_anonymous(wait)

    return tuple(sorted(ranks, key=says_little))


def _may_wait_in(pending: PendingOperation, single_rank: SingleRank) -> bool:
    """Return whether a rank may wait for an operation that it handed out: not where its stack or
    the kernel says what else it waits for.
    """
    if single_rank.group in ("collective", "unsure"):
        return True
    if single_rank.group:  # a store, or a group that is made: the log may know that call
        return single_rank.group == "construction" and pending.is_sure
    if is_anonymous(single_rank.wait):
        return True
    view = single_rank.view  # a thread of its own that is in the operation wakes it
    return pending.is_sure and view is not None and is_fed_by_itself(view.look, view.call)


def _make_pending_wait(rank: RankId, pending: PendingOperation, index: RankIndex) -> RankWait:
    place, peer = describe_operation(pending), pending.operation.peer
    kept = peer is not None and keeps_waiting(peer, rank, index.transfers)
    of_all = pending.operation.group == DEFAULT_GROUP and pending.operation.peer is None
    found = _make_wait_for_ranks(
        place.removeprefix("collective "), index.named(pending.missing), index if of_all else None
    )
    return replace(found, waits_for_peers=True, place=place, is_kept_by_transfer=kept)


def _make_transfer_wait(rank: RankId, transfer: Transfer, index: RankIndex) -> RankWait:
    """Return the wait of a rank in a send or a receive, for the one that it names."""
    peer, place = transfer.peer, transfer.place
    if peer in index.absent:
        wait = Wait("absent_rank", f"{place}, which never came", rank=peer)
        return RankWait(wait, frozenset([peer]), True, place=place)
    if peer not in index.members:
        wait = Wait("rank", f"{place}, which is not seen from here", rank=peer)
        return RankWait(wait, frozenset(), True, unseen_ranks=f"rank {peer}", place=place)
    found = _make_wait_for_ranks(transfer.call, index.named([peer]))
    kept = keeps_waiting(peer, rank, index.transfers)
    return replace(
        found, waits_for_peers=True, place=place, transfer=transfer, is_kept_by_transfer=kept
    )


_IN_BACKWARD = "_engine_run_backward "  # torch/autograd/graph.py: DDP reduces gradients in it


def _make_peer_wait(single_rank: SingleRank, index: RankIndex, unseen_ranks: str) -> RankWait:
    """A collective, a group or a store: whoever is not there is waited for."""
    assert single_rank.wait is not None
    call = single_rank.call or single_rank.wait.detail
    call = "backward" if call.startswith(_IN_BACKWARD) else call
    place = (
        f"collective {call}"
        if single_rank.group != "store"
        else f"store {single_rank.wait.what}".strip()
    )
    if single_rank.group == "unsure":
        if not index.waiting_for_nobody:
            return RankWait(single_rank.wait)
        found = _make_wait_for_ranks("perhaps a collective (no stack)", index.waiting_for_nobody)
        return replace(found, place="a collective, perhaps")
    missing = index.missing(single_rank)
    if missing or index.absent:
        found = _make_wait_for_ranks(call, missing, index)
        return replace(found, waits_for_peers=single_rank.group != "store", place=place)
    if single_rank.group == "store":
        return RankWait(single_rank.wait, unseen_ranks=unseen_ranks)
    alone = not index.others(single_rank)
    peers = index.find_meeting(single_rank.facts.rank)
    if unseen_ranks:
        # Whoever is in a collective has found its peers before: they came.
        came: WaitKind = "absent_rank" if single_rank.group == "construction" else "rank"
        wait = Wait(came, f"{call}: {unseen_ranks}")
        return RankWait(wait, peers, True, unseen_ranks=unseen_ranks, place=place)
    if single_rank.group == "construction":
        kind: WaitKind = "store" if peers else "absent_rank"
        return RankWait(Wait(kind, f"{call}: {single_rank.wait.detail}"), peers, True, place=place)
    if alone and "torch/distributed" not in single_rank.wait.detail and not single_rank.call:
        return RankWait(Wait("futex", single_rank.wait.detail))  # world size 1 has no rendezvous
    wait = Wait("collective", f"{call}: {single_rank.wait.detail}")
    if alone and (outside := _find_member_beside(single_rank)) is not None:
        wait = replace(wait, pid=outside.pid, process=outside.name)
    return RankWait(wait, peers, True, place=place)


def _find_member_beside(one: SingleRank) -> Look | None:
    """Return the process started beside the only rank that is seen of a group, where it alone is at
    the other ends of that rank's connections: a member of the group that is no rank of the job, as
    a rollout server is of the group for the weights.
    """
    if one.view is None:
        return None
    connected = list_connected_pids(one.view.look) & {*one.facts.beside}
    found = [looks[-1] for looks in one.facts.children if looks and looks[-1].pid in connected]
    return found[0] if len(found) == 1 else None


def _make_wait_for_ranks(
    what: str, waited_for: RankGroup, index: RankIndex | None = None
) -> RankWait:
    """Return the wait for the furthest behind of `waited_for`, or for an absent rank."""
    absent = index.absent if index else frozenset()
    ranks = index.with_absent(waited_for) if index else waited_for.ranks
    if absent or (waited_for.members and not waited_for.started):
        rank = min(absent) if absent else waited_for.members[0].facts.rank
        return RankWait(Wait("absent_rank", f"{what}: rank {rank} never came", rank=rank), ranks)
    least_advanced = waited_for.least_advanced
    if least_advanced is None:
        return RankWait(Wait("rank", what, rank=next(iter(waited_for.order), None)), ranks)
    facts = least_advanced.facts
    gone = ", which has left" if is_gone(facts) else ""
    detail = f"{what}: rank {facts.rank}{gone}"
    return RankWait(Wait("rank", detail, facts.pid, None, facts.rank), ranks)
