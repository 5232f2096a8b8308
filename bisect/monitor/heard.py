"""What was heard of a job from its monitors, folded: where each rank is, and what was said of it.

The same in the process around the launcher and in those that follow it (a matrix, a search).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BADNESS = (
    "ok",
    "interrupted",
    "slow",
    "crash",
    "hang",
)  # outcomes of a job's parts, the worst last


@dataclass
class HeardRank:
    """One rank, as far as it has spoken. Times are monotonic."""

    rank: int
    pid: int
    step: int = 1
    phase: str | None = None
    doing: tuple[str, ...] | None = None  # steps of a script of the user's own, the innermost last
    since: float = 0.0
    held: int | None = None  # the checkpoint behind which it waits in our barrier


@dataclass
class Heard:
    """All of it. `monitors` are their pids, `run_dirs` where each writes."""

    ranks: dict[int, HeardRank] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    monitors: set[int] = field(default_factory=set)
    run_dirs: list[str] = field(default_factory=list)
    outcome: str | None = None
    ends: bool = False  # the monitor that gave the outcome ends the job
    failed: bool = False  # a monitor failed: its ranks go on, and nobody watches them

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in one message of a monitor (outer_link.py)."""
        handler = getattr(self, f"_on_{str(message.get('t')).replace(' ', '_')}", None)
        if handler is not None:
            handler(message)

    def _on_watches(self, message: Mapping[str, Any]) -> None:
        self.monitors.add(int(message["pid"]))
        if message["run_dir"] not in self.run_dirs:
            self.run_dirs.append(str(message["run_dir"]))
        self.titles.update({int(n): str(title) for n, title in message["titles"].items()})

    def _on_hello(self, message: Mapping[str, Any]) -> None:
        rank = int(message["rank"])
        self.ranks[rank] = HeardRank(rank, int(message["pid"]), since=float(message["at"]))
        self.outcome, self.ends = None, False  # of an attempt before

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
        both = (self.outcome or BADNESS[0], str(message["outcome"]))
        self.outcome = max(both, key=BADNESS.index)
        self.ends = self.ends or bool(message["ends"])

    def _on_failed(self, message: Mapping[str, Any]) -> None:
        self.failed = True

    def _on_taken_back(self, message: Mapping[str, Any]) -> None:
        self.outcome, self.ends = None, False
