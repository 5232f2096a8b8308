"""What was heard of a job from its monitors, folded: where each rank is, and what was said of it.

The same in the process around the launcher and in those that follow it (a matrix, a search).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.outcomes import BADNESS


@dataclass
class RankProgress:
    """One rank, as far as it has spoken. Times are monotonic."""

    rank: int
    pid: int
    step: int = 1
    phase: str | None = None
    doing: tuple[str, ...] | None = None  # steps of a script of the user's own, the innermost last
    since: float = 0.0
    held: int | None = None  # the checkpoint behind which it waits in our barrier


@dataclass
class JobProgress:
    """All of it. `monitors` are their pids, `run_dirs` where each writes."""

    ranks: dict[int, RankProgress] = field(default_factory=dict)
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
    def outcome(self) -> str | None:
        """The worst outcome of all jobs, None where there is none yet."""
        return max(self.outcomes.values(), key=BADNESS.index, default=None)

    @property
    def ends(self) -> bool:
        """Whether a monitor that gave an outcome ends its job."""
        return bool(self.ending)

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in one message of a monitor (supervisor_link.py)."""
        handler = getattr(self, f"_on_{str(message.get('t')).replace(' ', '_')}", None)
        if handler is not None:
            handler(message)

    def _on_watches(self, message: Mapping[str, Any]) -> None:
        self.monitors.add(int(message["pid"]))
        self.folders.add(str(message.get("folder", "")))
        if message["run_dir"] not in self.run_dirs:
            self.run_dirs.append(str(message["run_dir"]))
        self.titles.update({int(n): str(title) for n, title in message["titles"].items()})

    def _on_hello(self, message: Mapping[str, Any]) -> None:
        rank = int(message["rank"])
        self.ranks[rank] = RankProgress(rank, int(message["pid"]), since=float(message["at"]))
        self._forget(message)  # of an attempt before

    def _on_enter(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.step, one.phase, one.since, one.held = message["n"], None, message["at"], None

    def _on_phase(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.phase, one.since = message["name"], message["at"]

    def _on_begin(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.doing, one.since = (*(one.doing or ()), str(message["title"])), message["at"]

    def _on_end(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.doing, one.since = (one.doing or ())[:-1], message["at"]

    def _on_quiet(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.doing = ("trains",)

    def _on_reached(self, message: Mapping[str, Any]) -> None:
        if one := self.ranks.get(message["rank"]):
            one.step, one.phase, one.since = message["n"] + 1, None, message["at"]

    def _on_arrive(self, message: Mapping[str, Any]) -> None:
        if (one := self.ranks.get(message["rank"])) and message.get("held", True):
            one.held = message["n"]

    def _on_opened(self, message: Mapping[str, Any]) -> None:
        for one in self.ranks.values():
            if one.held is not None and one.held <= message["n"]:
                one.held, one.since = None, message["at"]

    def _on_verdict(self, message: Mapping[str, Any]) -> None:
        job = str(message.get("job", ""))
        both = (self.outcomes.get(job, BADNESS[0]), str(message["outcome"]))
        self.outcomes[job] = max(both, key=BADNESS.index)
        if message["ends"]:
            self.ending.add(job)
        if message.get("unseen_in") and message["outcome"] != "ok":
            self.unprinted.add(str(message["unseen_in"]))

    def _on_failed(self, message: Mapping[str, Any]) -> None:
        self.failed = True

    def _on_taken_back(self, message: Mapping[str, Any]) -> None:
        self._forget(message)

    def _forget(self, message: Mapping[str, Any]) -> None:
        job = str(message.get("job", ""))
        self.outcomes.pop(job, None)
        self.ending.discard(job)
