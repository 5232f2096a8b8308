"""A series of looks at the ranks of a job: how one is taken, what is kept of it, and which ranks
hang as far as all of them tell. The watch and `attach` have their own reasons to look once more.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ..base.facts import Look, RankFacts, RankId
from ..base.proc import read_stat
from ..diagnosis.snapshot import Snapshot
from ..evidence.kernel import reason_not_to_pause
from ..evidence.look import Target, take_looks
from ..evidence.successive_looks import complete_look
from ..rank.collective_records import RECORDER_THREAD
from .rank_classes import RankClasses, classify_ranks

PAUSE = 0.7  # seconds between two looks


class LookSeries(ABC):
    """Looks at all ranks and what they started, and what these show together."""

    def __init__(self, most: int, soon: float) -> None:
        """`most` looks are kept of each process. Who sleeps, and wakes within `soon` seconds, does
        not hang.
        """
        self._most, self._soon = most, soon
        self.last_snapshot = Snapshot()
        self.began = time.monotonic()
        self.count = 0

    @abstractmethod
    def facts(self) -> list[RankFacts]:
        """Return each rank as it is now, with its looks and what they say of its movement."""

    @abstractmethod
    def had_time(self) -> Collection[RankId]:
        """Return the ranks that have waited so long that others must not only burn CPU."""

    def snapshot(self) -> Snapshot:
        """Return the ranks as they are now, for who settles and for who judges; what they wait for
        is found once for each look.
        """
        self.last_snapshot = self.last_snapshot.update(self.facts())
        return self.last_snapshot

    def settled(self) -> RankClasses:
        """Return who moves, waits and hangs, as far as these looks tell."""
        snapshot = self.snapshot()
        return classify_ranks(snapshot.ranks, snapshot.waits, self.had_time(), self._soon)

    def keep(self, looks: list[Look], one: Look) -> None:
        """Add a look to those at the same process, completed from the one before. The first shows
        what moved since long ago: it is kept, and the last ones.
        """
        if looks:
            one = complete_look(looks[-1], one)
            looks[-1] = replace(looks[-1], logs=())  # the newest tails are enough
        looks.append(one)
        del looks[1 : 1 - self._most]


async def take_good_looks(
    calm: Sequence[Target],
    paused: Sequence[Target] = (),
    *,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> list[Look]:
    """Look once at each, at the `paused` ones with native frames; return what is of use."""
    taken = [take_looks(calm, limit=limit)] if calm else []
    if paused:
        taken.append(take_looks(paused, native=True, limit=limit, resume=resume))
    looks = [one for found in await asyncio.gather(*taken) for one in found]
    return [drop_own_thread(one) for one in looks if not is_paused_by_a_look(one)]


def may_pause(looks: Sequence[Look]) -> bool:
    """Return whether a pausing look would leave what a process waits for as it is."""
    if not looks or looks[-1].state not in ("S", "R") or looks[-1].frozen:
        return False
    return not reason_not_to_pause(looks[-1].kernel)


def is_paused_by_a_look(one: Look) -> bool:
    """Return whether what was seen is a process in the middle of another look, of ours or of a
    person's: for a moment its tracer is py-spy. That is no debugger, and says nothing.
    """
    if one.state != "t" or not one.traced_by:
        return False
    tracer = read_stat(one.traced_by)
    return tracer is None or tracer.comm.startswith("py-spy")


def drop_own_thread(one: Look) -> Look:
    """Return a look without the thread of ours that waits in a rank for its monitor to ask."""
    ours = {t.os_id for t in one.threads if t.name == RECORDER_THREAD}
    if not ours:
        return one
    return replace(
        one,
        threads=tuple(t for t in one.threads if t.os_id not in ours),
        kernel=tuple(k for k in one.kernel if k.tid not in ours),
    )
