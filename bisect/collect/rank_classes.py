"""What a series of looks says about each rank: does it move, wait for another, or hang."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..base.facts import Look, RankFacts, RankId, Wait
from ..diagnosis.blocked_syscalls import SLEEP_CALLS

ON_ANOTHER = ("rank", "absent_rank", "collective", "store")
_COUNT_DOWN = SLEEP_CALLS | {"futex"}  # calls whose time limit is read as what is left of it
_TICK = 0.05  # seconds by which two such readings may differ


@dataclass(frozen=True)
class RankClasses:
    """Ranks by what they do: they move, burn CPU in the same places, wait for others, or hang."""

    moving: frozenset[RankId]
    busy: frozenset[RankId]
    waiting: frozenset[RankId]
    hung: frozenset[RankId]


def classify_ranks(
    ranks: Sequence[RankFacts],
    waits: Mapping[RankId, Wait | None],
    had_time: Collection[RankId] = (),
    soon: float = 0.0,
) -> RankClasses:
    """Sort the ranks. A rank that waits for another hangs only if no other rank moves; so does one
    that may, for all one knows. Where others only burn CPU, that is said of it once it `had_time`:
    a GPU is waited for in such a way, too. One that sleeps and wakes within `soon` seconds waits.
    """
    held = {r.rank for r in ranks if r.held or r.awaits}
    alive = {r.rank for r in ranks if r.alive} - held
    moving = {r.rank for r in ranks if r.moved} & alive
    busy = {r.rank for r in ranks if r.busy and not r.moved} & alive
    quiet = alive - moving - busy
    unsure = {r.rank for r in ranks if may_wait_for_another(r, waits.get(r.rank))}
    unsure -= set() if moving else set(had_time)
    on_another = {r for r in quiet if r in unsure or waits_for_another(waits.get(r), r)}
    # A rank that spins inside a collective (NCCL does) waits, whatever CPU it burns.
    spinning = {r for r in busy if waits_for_another(waits.get(r), r)}
    dozing = {r.rank for r in ranks if r.rank in quiet and wakes_soon(r, waits.get(r.rank), soon)}
    goes_on = moving | dozing | (busy - spinning)
    hung = quiet - on_another - dozing if goes_on else quiet | spinning
    waiting = (alive | held) - hung - (goes_on - dozing)
    return RankClasses(
        frozenset(moving), frozenset(busy - spinning), frozenset(waiting), frozenset(hung)
    )


def waits_for_another(wait: Wait | None, rank: RankId) -> bool:
    """Return whether a wait is for another rank of the job."""
    if wait is None:
        return False
    return wait.kind in ON_ANOTHER or (wait.rank is not None and wait.rank != rank)


def may_wait_for_another(facts: RankFacts, wait: Wait | None) -> bool:
    """Return whether a rank looks now and then for something that another may do: it waits for a
    moment again and again (a file that is to be there), or for a lock of nobody knows whom.
    """
    if wait is None:
        return False
    if wait.kind in ("sleep", "futex"):
        return any(_waits_anew(*pair) for pair in pairwise(facts.looks))
    unknown = wait.kind == "lock" and wait.pid is None and not wait.what
    return unknown and not any(look.stale_locks for look in facts.looks)


def wakes_soon(facts: RankFacts, wait: Wait | None, soon: float) -> bool:
    """Return whether a rank is in one sleep that ends within `soon` seconds, as the kernel knows:
    a client that was told to come back later. What sleeps again and again has no such end.
    """
    if wait is None or wait.kind != "sleep" or not facts.looks:
        return False
    left = _time_left(facts.looks[-1])
    if left is None or not 0.0 < left <= soon:
        return False
    return not any(_waits_anew(*pair) for pair in pairwise(facts.looks))


def _waits_anew(before: Look, after: Look) -> bool:
    """Return whether the main thread waits for some time at both looks, and not the same time."""
    first, second = _time_left(before), _time_left(after)
    if first is None or second is None:
        return False
    return second > first - (after.at - before.at) + _TICK


def _time_left(look: Look) -> float | None:
    call = look.kernel[0].syscall if look.kernel else None
    return call.timeout if call is not None and call.name in _COUNT_DOWN else None
