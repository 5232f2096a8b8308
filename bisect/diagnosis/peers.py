"""Which rank waits for which: the first hop of each, seen together with all the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..facts import FileLock, RankFacts, Wait, WaitKind
from .astray import astray
from .builds import builders, waits_for_somebody
from .crowd import Crowd, Hop, Party, is_gone
from .distributed import group_call, group_wait
from .hops import Context, first_hop
from .people import People, people
from .view import seen

__all__ = ["Situation", "claimed_world", "is_gone", "situations"]

_FIRST_GROUP = "init_process_group"  # the call that makes it
# Variables of each rank by which srun and mpirun count the ranks.
_COUNTED = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"}
_LARGEST_WORLD = 1 << 16  # a WORLD_SIZE beyond this is a typing error


@dataclass(frozen=True)
class Situation:
    """What one rank waits for, and for which ranks (none: it does not wait for ranks)."""

    wait: Wait | None
    whom: frozenset[int] = frozenset()  # shared between ranks, so a rank may be in its own
    meets: bool = False  # in a collective, or where a process group is made
    away: bool = False  # it can only wait for ranks that are not on this node
    rank: int = -1
    place: str = ""  # where it waits with others: "collective all_reduce", "our barrier ..."
    sure: bool = True  # False: no stack says that it is there
    hop: Wait | None = None  # what its own process waits for, before it is compared with others

    @property
    def needs(self) -> frozenset[int]:
        """The other ranks that it waits for."""
        return self.whom - {self.rank} if self.rank in self.whom else self.whom


def situations(
    ranks: Sequence[RankFacts],
    absent: Iterable[int] = (),
    remote: Iterable[int] = (),
) -> dict[int, Situation]:
    """Return each rank's situation. `absent` ranks will never come; of `remote` ones (on other
    nodes) nothing is known.
    """
    everyone = people(ranks)
    locks = _lock_files(ranks)
    hops = _with_builders([_hop(facts, everyone, locks) for facts in ranks])
    crowd = Crowd(_found_by_others(hops), absent)
    first_remote = min(remote, default=None)
    return {
        rank: replace(_situation(hop, crowd, first_remote), rank=rank, hop=hop.wait)
        for rank, hop in crowd.hops.items()
    }


def _hop(facts: RankFacts, everyone: People, locks: Sequence[_Held]) -> Hop:
    if is_gone(facts):
        return Hop(facts, None)
    view = seen(facts.looks)
    if view is None:
        return Hop(facts, Wait("unknown", ""))
    wait = first_hop(facts.looks, Context(facts, everyone, _held_by_others(facts, locks)))
    if wait.kind == "futex" and not view.frames:
        return Hop(facts, wait, "unsure")
    if wait.kind not in ("collective", "store"):
        return Hop(facts, wait)
    return Hop(facts, wait, group_wait(view) or "store", group_call(view))


def _with_builders(hops: Sequence[Hop]) -> Sequence[Hop]:
    """Return `hops`; the lock of a build is that of the only other rank that builds, also where no
    look shows who has it.
    """
    if not any(waits_for_somebody(hop.wait) for hop in hops):
        return hops
    building = builders(hop.facts for hop in hops)
    return [_of_a_builder(hop, building) for hop in hops]


def _of_a_builder(hop: Hop, building: Sequence[int]) -> Hop:
    others = [rank for rank in building if rank != hop.facts.rank]
    if hop.wait is None or not waits_for_somebody(hop.wait) or len(others) != 1:
        return hop
    return replace(hop, wait=replace(hop.wait, rank=others[0]))


def _found_by_others(hops: Sequence[Hop]) -> list[Hop]:
    """Return `hops`; ranks that make the group where the others never find them are not there."""
    lost = astray([h.facts for h in hops if h.group == "construction" and h.call == _FIRST_GROUP])
    return [
        replace(h, group="", call="", wait=wait) if (wait := lost.get(h.facts.rank)) else h
        for h in hops
    ]


class _Held(NamedTuple):
    rank: int
    lock: FileLock


def _lock_files(ranks: Sequence[RankFacts]) -> tuple[_Held, ...]:
    """Return the lock files that ranks and their children have, one entry a rank and file."""
    found: dict[tuple[int, int], _Held] = {}
    for facts in ranks:
        for look in [looks[-1] for looks in (facts.looks, *facts.children) if looks]:
            for lock in look.holds:
                if lock.path.endswith(".lock"):
                    held = replace(lock, holder=look.pid, holder_name=look.name)
                    found[facts.rank, lock.inode] = _Held(facts.rank, held)
    return tuple(found.values())


def _held_by_others(facts: RankFacts, locks: Sequence[_Held]) -> tuple[FileLock, ...]:
    """Return the lock files that other ranks and their children have."""
    return tuple(held.lock for held in locks if held.rank != facts.rank)


def _situation(hop: Hop, crowd: Crowd, remote: int | None) -> Situation:
    facts = hop.facts
    if is_gone(facts):
        return Situation(None)
    if facts.held:
        place = f"our barrier after checkpoint {facts.reached}"
        return replace(_for_ranks(place, crowd.behind(facts.reached), crowd), place=place)
    if facts.awaits:
        return _for_ranks("it said that it waits", crowd.named(facts.awaits))
    if hop.group:
        return _grouped(hop, crowd, remote)
    wait = hop.wait
    other = wait.rank if wait else None
    return Situation(wait, frozenset([other]) if other not in (None, facts.rank) else frozenset())


def _grouped(hop: Hop, crowd: Crowd, remote: int | None) -> Situation:
    """A collective, a group or a store: whoever is not there is waited for."""
    assert hop.wait is not None
    call = hop.call or hop.wait.detail
    place = f"collective {call}" if hop.group != "store" else f"store {hop.wait.what}".strip()
    if hop.group == "unsure":
        if not crowd.elsewhere:
            return Situation(hop.wait)
        found = _for_ranks("perhaps a collective (no stack)", crowd.elsewhere)
        return replace(found, place="a collective, perhaps", sure=False)
    missing = crowd.missing(hop)
    if missing or crowd.absent:
        found = _for_ranks(call, missing, crowd)
        return replace(found, meets=hop.group != "store", place=place)
    if hop.group == "store":
        return Situation(hop.wait)
    alone = not crowd.others(hop)
    peers = frozenset() if crowd.meeting == {hop.facts.rank} else crowd.meeting
    if remote is not None:
        named = f"{call}: rank {remote} and others of other nodes are not seen from here"
        wait = Wait("absent_rank", named, rank=remote)
        return Situation(wait, peers, True, away=True, place=place)
    if hop.group == "construction":
        kind: WaitKind = "store" if peers else "absent_rank"
        return Situation(Wait(kind, f"{call}: {hop.wait.detail}"), peers, True, place=place)
    if alone and "torch/distributed" not in hop.wait.detail and not hop.call:
        return Situation(Wait("futex", hop.wait.detail))  # a world of one meets nobody
    wait = Wait("collective", f"{call}: {hop.wait.detail}")
    return Situation(wait, peers, True, place=place)


def _for_ranks(what: str, waited_for: Party, crowd: Crowd | None = None) -> Situation:
    """Return the wait for the furthest behind of `waited_for`, or for an absent rank."""
    absent = crowd.absent if crowd else frozenset()
    ranks = crowd.with_absent(waited_for) if crowd else waited_for.ranks
    if absent or (waited_for.hops and not waited_for.started):
        rank = min(absent) if absent else waited_for.hops[0].facts.rank
        return Situation(Wait("absent_rank", f"{what}: rank {rank} never came", rank=rank), ranks)
    furthest = waited_for.furthest
    if furthest is None:
        return Situation(Wait("rank", what, rank=next(iter(waited_for.order), None)), ranks)
    facts = furthest.facts
    gone = ", which has left" if is_gone(facts) else ""
    detail = f"{what}: rank {facts.rank}{gone}"
    return Situation(Wait("rank", detail, facts.pid, None, facts.rank), ranks)


def claimed_world(ranks: Sequence[RankFacts]) -> int:
    """Return the largest WORLD_SIZE that a rank has in its environment, 0 if none.

    One that was exported by hand, where srun or mpirun started the ranks, is not theirs.
    """
    sizes = [
        facts.environment.get("WORLD_SIZE", "")
        for facts in ranks
        if "TORCHELASTIC_RUN_ID" in facts.environment or not _COUNTED & facts.environment.keys()
    ]
    numbers = [int(s) for s in sizes if s.isascii() and s.isdecimal() and len(s) < 7]
    return max((n for n in numbers if n <= _LARGEST_WORLD), default=0)
