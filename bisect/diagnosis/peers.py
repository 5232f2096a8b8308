"""Which rank waits for which: the first hop of each, seen together with all the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..facts import FileLock, RankFacts, Wait, WaitKind
from .distributed import group_call, group_wait
from .hops import Context, first_hop
from .people import People, people
from .view import seen

_LARGEST_WORLD = 1 << 16  # a WORLD_SIZE beyond this is a typing error


@dataclass(frozen=True)
class Situation:
    """What one rank waits for, and for which ranks (none: it does not wait for ranks)."""

    wait: Wait | None
    needs: frozenset[int] = frozenset()
    meets: bool = False  # in a collective, or where a process group is made
    away: bool = False  # it can only wait for ranks that are not on this node


@dataclass(frozen=True)
class _Hop:
    """One rank before it is compared with the others."""

    facts: RankFacts
    wait: Wait | None
    # construction, collective, store; unsure: asleep in a futex, and no stack to tell why
    group: str = ""
    call: str = ""


def situations(
    ranks: Sequence[RankFacts],
    absent: Iterable[int] = (),
    remote: Iterable[int] = (),
) -> dict[int, Situation]:
    """Return each rank's situation. `absent` ranks will never come; of `remote` ones (on other
    nodes) nothing is known.
    """
    everyone = people(ranks)
    hops = {facts.rank: _hop(facts, ranks, everyone) for facts in ranks}
    return {
        rank: _situation(hop, hops, sorted(absent), sorted(remote)) for rank, hop in hops.items()
    }


def is_gone(facts: RankFacts) -> bool:
    """Return True for a rank that left, or has no process."""
    return facts.left or not facts.alive or (facts.pid is None and not facts.looks)


def _hop(facts: RankFacts, ranks: Sequence[RankFacts], everyone: People) -> _Hop:
    if is_gone(facts):
        return _Hop(facts, None)
    view = seen(facts.looks)
    if view is None:
        return _Hop(facts, Wait("unknown", ""))
    around = Context(facts, everyone, _lock_files_of_others(facts, ranks))
    wait = first_hop(facts.looks, around)
    if wait.kind == "futex" and not view.frames:
        return _Hop(facts, wait, "unsure")
    if wait.kind not in ("collective", "store"):
        return _Hop(facts, wait)
    return _Hop(facts, wait, group_wait(view) or "store", group_call(view))


def _lock_files_of_others(facts: RankFacts, ranks: Sequence[RankFacts]) -> tuple[FileLock, ...]:
    """Return the lock file that another rank or a child of it has, none if there are several."""
    found: dict[int, FileLock] = {}
    for other in ranks:
        families = (other.looks, *other.children) if other.rank != facts.rank else ()
        for look in [looks[-1] for looks in families if looks]:
            for lock in look.holds:
                if lock.path.endswith(".lock"):
                    found[lock.inode] = replace(lock, holder=look.pid, holder_name=look.name)
    return tuple(found.values()) if len(found) == 1 else ()


def _situation(hop: _Hop, hops: dict[int, _Hop], absent: list[int], remote: list[int]) -> Situation:
    facts = hop.facts
    others = [h for r, h in hops.items() if r != facts.rank and not h.facts.finished]
    if is_gone(facts):
        return Situation(None)
    if facts.held:
        behind = [h for h in others if _behind(h.facts, facts)]
        return _for_ranks(f"our barrier after checkpoint {facts.reached}", behind, absent)
    if facts.awaits:
        awaited = [h for h in others if h.facts.rank in facts.awaits]
        return _for_ranks("it said that it waits", awaited, [], facts.awaits)
    if hop.group:
        return _grouped(hop, others, absent, remote)
    wait = hop.wait
    needs = frozenset({wait.rank} - {None, facts.rank}) if wait else frozenset()
    return Situation(wait, frozenset(n for n in needs if n is not None))


def _behind(other: RankFacts, facts: RankFacts) -> bool:
    return other.never_started or is_gone(other) or not other.held or other.reached < facts.reached


def _grouped(hop: _Hop, others: list[_Hop], absent: list[int], remote: list[int]) -> Situation:
    """A collective, a group or a store: whoever is not there is waited for."""
    assert hop.wait is not None
    call = hop.call or hop.wait.detail
    own = [h for h in others if not h.group and not h.facts.held and not h.facts.awaits]
    ours = [h for h in others if not h.group and (h.facts.held or h.facts.awaits)]
    if hop.group == "unsure":
        found = _for_ranks("perhaps a collective (no stack)", own, [])
        return found if own else Situation(hop.wait)
    softer = [h for h in others if h.group == "store"] if hop.group != "store" else []
    missing = _first([own, softer, ours])
    if missing or absent:
        found = _for_ranks(call, missing, absent)
        return replace(found, meets=hop.group != "store")
    if hop.group == "store":
        return Situation(hop.wait)
    peers = frozenset(h.facts.rank for h in others if h.group and h.group != "unsure")
    if remote:
        named = f"{call}: rank {remote[0]} and others of other nodes are not seen from here"
        return Situation(Wait("absent_rank", named, rank=remote[0]), peers, True, away=True)
    if hop.group == "construction":
        kind: WaitKind = "store" if peers else "absent_rank"
        return Situation(Wait(kind, f"{call}: {hop.wait.detail}"), peers, True)
    if not others and "torch/distributed" not in hop.wait.detail and not hop.call:
        return Situation(Wait("futex", hop.wait.detail))  # a world of one meets nobody
    return Situation(Wait("collective", f"{call}: {hop.wait.detail}"), peers, True)


def _first(groups: Iterable[list[_Hop]]) -> list[_Hop]:
    return next((group for group in groups if group), [])


def _for_ranks(
    what: str, waited_for: list[_Hop], absent: Sequence[int], named: Sequence[int] = ()
) -> Situation:
    """Return the wait for the furthest behind of `waited_for`, or for an absent rank."""
    ranks = frozenset(h.facts.rank for h in waited_for) | frozenset(absent) | frozenset(named)
    started = [h for h in waited_for if not h.facts.never_started or h.facts.pid is not None]
    if absent or (waited_for and not started):
        rank = next(iter(absent), None)
        if rank is None:
            rank = waited_for[0].facts.rank
        return Situation(Wait("absent_rank", f"{what}: rank {rank} never came", rank=rank), ranks)
    # Of those that came equally far, one that waits for others itself is the last to name.
    furthest = min(
        started,
        key=lambda h: (h.facts.reached, bool(h.group or h.facts.awaits), h.facts.rank),
        default=None,
    )
    if furthest is None:
        rank = next(iter(named), None)
        return Situation(Wait("rank", what, rank=rank), ranks)
    facts = furthest.facts
    gone = ", which has left" if is_gone(facts) else ""
    detail = f"{what}: rank {facts.rank}{gone}"
    return Situation(Wait("rank", detail, facts.pid, None, facts.rank), ranks)


def claimed_world(ranks: Sequence[RankFacts]) -> int:
    """Return the largest WORLD_SIZE that a rank has in its environment, 0 if none."""
    sizes = [facts.environment.get("WORLD_SIZE", "") for facts in ranks]
    numbers = [int(s) for s in sizes if s.isascii() and s.isdecimal() and len(s) < 7]
    return max((n for n in numbers if n <= _LARGEST_WORLD), default=0)
