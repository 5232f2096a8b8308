"""What was heard of a job from its monitors: where each rank is, and what was said of it.

The same in the process around the launcher and in those that follow it (a matrix, a search).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base import events
from ..base.events import Event
from ..base.outcomes import BADNESS
from ..base.rank_state import NodeRanks, RankState


@dataclass
class JobProgress:
    """All of it. `monitors` are their pids, `run_dirs` where each writes."""

    everyone: NodeRanks = field(default_factory=NodeRanks)  # of all nodes, as far as we are told
    titles: dict[int, str] = field(default_factory=dict)
    monitors: set[int] = field(default_factory=set)
    run_dirs: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)  # of the monitors' sockets
    outcomes: dict[str, str] = field(default_factory=dict)  # by job: one command may start several
    ending: set[str] = field(default_factory=set)  # the jobs that their monitor ends
    failed: bool = False  # a monitor failed: its ranks go on, and nobody watches them
    # Run folders of verdicts that their monitor printed where our reader does not see it.
    unprinted: set[str] = field(default_factory=set)

    @property
    def ranks(self) -> dict[int, RankState]:
        """Each rank that has spoken, as far as its monitor tells."""
        return self.everyone.by_rank

    @property
    def outcome(self) -> str | None:
        """The worst outcome of all jobs, None where there is none yet."""
        return max(self.outcomes.values(), key=BADNESS.index, default=None)

    @property
    def ends(self) -> bool:
        """Whether a monitor that gave an outcome ends its job."""
        return bool(self.ending)

    def take(self, event: Event) -> None:
        """Take in what a monitor tells."""
        self.everyone.apply(event)
        if isinstance(event, events.Watches):
            self.monitors.add(event.pid)
            self.folders.add(event.folder)
            if event.run_dir not in self.run_dirs:
                self.run_dirs.append(event.run_dir)
            self.titles.update(event.titles)
        elif isinstance(event, events.Hello | events.TakenBack):
            self.outcomes.pop(event.job or "", None)  # of an attempt before
            self.ending.discard(event.job or "")
        elif isinstance(event, events.Verdict) and event.outcome in BADNESS:
            self._take_verdict(event)
        elif isinstance(event, events.Failed):
            self.failed = True

    def _take_verdict(self, event: events.Verdict) -> None:
        job = event.job or ""
        both = (self.outcomes.get(job, BADNESS[0]), event.outcome)
        self.outcomes[job] = max(both, key=BADNESS.index)
        if event.ends:
            self.ending.add(job)
        if event.unseen_in and event.outcome != "ok":
            self.unprinted.add(event.unseen_in)
