"""The nodes of a job as the lead knows them: who is there, what each has said last, and by how much
its clocks are apart from the lead's.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import RankFacts
from .channel import Channel
from .messages import Echo, Join, Report, TableRow
from .reports import ToldRanks

# Seconds without a word, where a beat comes each second, after which a side is gone.
LEASE = 5.0


@dataclass
class NodeAnswer:
    """What one node reported last."""

    join: Join
    report: Report
    told: ToldRanks = ToldRanks()
    facts: tuple[RankFacts, ...] = ()  # made of what is told once they are judged
    clock_error: float = 0.0  # seconds by which its clock, as the record has it, may be off
    clock_ahead: float | None = None  # seconds by which its wall clock is ahead of ours
    at: float = 0.0  # when it was here, monotonic
    address: str = ""  # by which it reached the lead


@dataclass(frozen=True)
class Unseen:
    """A node that did not answer."""

    join: Join
    why: str
    since: float  # monotonic: when it was heard last
    last_word: str
    address: str


@dataclass
class Peer:
    """One node as the lead knows it. Times are monotonic."""

    join: Join
    channel: Channel | None  # None: it is not there any more
    heard: float
    address: str = ""
    word: str = ""
    answer: NodeAnswer | None = None
    left: str = ""  # why it left, once it said so
    is_missed: bool = False  # that it is not heard any more was said
    is_read: bool = False  # what it has sent waits to be taken in: it is not silent
    error: float = float("inf")  # half of the shortest way there and back
    offset: float = 0.0  # to be added to its monotonic clock to have ours
    lease: float = LEASE
    moved_at: float = float("-inf")  # when the last of its ranks did, as it says
    rows: tuple[TableRow, ...] = ()  # of the table of all nodes, as it told at `rows_at`
    rows_at: float = 0.0

    @property
    def name(self) -> str:
        return self.join.host or self.join.node

    def is_heard(self, now: float) -> bool:
        """Return whether it is there and answers."""
        return self.channel is not None and (self.is_read or now - self.heard < self.lease)

    def note_clock(self, echo: Echo) -> None:
        """Keep the offset of the exchange that took the shortest time: it is off by half of that at
        the most.
        """
        now = time.monotonic()
        error = (now - echo.beat) / 2
        if 0 <= error < self.error:
            self.error, self.offset = error, (now + echo.beat) / 2 - echo.at

    def take_answer(self, report: Report, told: ToldRanks) -> NodeAnswer:
        """Keep what it has reported, its moment on our clocks, and return it."""
        found = NodeAnswer(self.join, _on_our_clock(report, self), told)
        found.clock_error, found.at, found.address = self.error, time.monotonic(), self.address
        if self.error != float("inf"):
            found.clock_ahead = report.record.clock.wall - found.report.record.clock.wall
        self.answer = found
        return found

    def describe_unseen(self) -> Unseen:
        """Return it as a node that has not answered."""
        why = self.left
        if not why:
            is_heard = self.is_heard(time.monotonic())
            why = "it has not answered in time" if is_heard else "it is not heard any more"
        return Unseen(self.join, why, self.heard, self.word, self.address)


def lease_of(every: float) -> float:
    """Return in how many seconds without a word a side is gone, where a beat comes `every` so many
    seconds.
    """
    return LEASE * max(1.0, every)


def _on_our_clock(report: Report, peer: Peer) -> Report:
    """Return a report with its moment on the lead's clocks: wall clocks may be apart."""
    if peer.error == float("inf"):
        return report
    clock = report.record.clock
    behind = time.monotonic() - (clock.monotonic + peer.offset)
    wall = time.time() - behind
    return replace(report, record=replace(report.record, clock=replace(clock, wall=wall)))
