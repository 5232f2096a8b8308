"""What the monitor of a watched job knows of its ranks, and stacks do not tell: in which step each
is, which of them are held in a barrier of ours, and what they said.

It is read from the events that the monitor keeps in a file that it holds open, wherever that is.
The monitor is not disturbed, and answers to nobody but its ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.checkpoints import STARTUP, Checkpoint
from ..base.command_words import own_words_of_ours
from ..base.deadline import call_with_limit
from ..base.events import Event, decode
from ..base.lazy_dataclass import dataclass
from ..base.pipeline import find_walked_pipeline
from ..base.rank_facts import RankFacts
from ..base.rank_state import NodeRanks
from ..evidence.descriptors import read_links
from ..monitor.job_facts import make_rank_facts
from ..monitor.run_folder import EVENTS_FILE

if TYPE_CHECKING:
    from .jobs import Job
    from .processes import ProcessTable

LIMIT = 2.0  # seconds
_LARGEST = 1 << 26  # bytes of events; of a start they are some hundred kB


@dataclass(frozen=True)
class WatchedRanks:
    """The ranks of a node by pid, as their monitor knows them, and the checkpoints of the job."""

    ranks: dict[int, RankFacts]
    table: tuple[Checkpoint, ...]

    def add_to(self, found: Iterable[RankFacts]) -> list[RankFacts]:
        """Return ranks that were looked at, with what the monitor knows of each."""
        return [self._add_to_rank(facts) for facts in found]

    def _add_to_rank(self, facts: RankFacts) -> RankFacts:
        told = self.ranks.get(facts.pid or 0)
        if told is None or facts.left:
            return facts
        return replace(
            facts,
            reached=told.reached,
            held=told.held,
            awaits=told.awaits,
            phase=told.phase,
            entered=told.entered,
            step=told.step,
            announced=told.announced,
            last_line=told.last_line or facts.last_line,
            last_line_at=told.last_line_at if told.last_line else facts.last_line_at,
        )


async def read_watched_ranks(job: Job, processes: ProcessTable) -> WatchedRanks | None:
    """Return what the monitor of a job knows of all its ranks here; None where it has none, or
    where its events cannot be read.
    """
    monitors = [one.pid for one in processes.values() if one.is_monitor]
    pids = {rank.pid for rank in job.ranks}
    if not monitors or not pids:
        return None
    words = processes[job.ranks[0].pid].words
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        return await call_with_limit(_fold_events, monitors, pids, words, limit=LIMIT)
    return None


def _fold_events(
    monitors: Sequence[int], pids: Collection[int], words: Sequence[str]
) -> WatchedRanks | None:
    walks = own_words_of_ours(words) is not None
    table = find_walked_pipeline(words).table if walks else STARTUP
    for path in _list_event_files(monitors):
        members = NodeRanks(table, runs_script=not walks)
        for event in _read_events(path):
            members.apply(event)
        ranks = {one.pid: make_rank_facts(one) for one in members}
        if ranks.keys() >= set(pids):
            return WatchedRanks(ranks, table)
    return None


def _list_event_files(monitors: Sequence[int]) -> Iterator[str]:
    """Yield the files of events that monitors hold open: in a namespace or removed as well."""
    for pid in monitors:
        with contextlib.suppress(OSError):
            for number, link in read_links(pid).items():
                if os.path.basename(link.removesuffix(" (deleted)")) == EVENTS_FILE:
                    yield f"/proc/{pid}/fd/{number}"


def _read_events(path: str) -> Iterator[Event]:
    if os.stat(path).st_size > _LARGEST:
        return
    with open(path, "rb") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):  # the last one may be half written
                yield decode(json.loads(line))
