"""One launch in the care of `hangbisect run`: started, followed while it runs, and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Launch:
    """What is to be launched. `command` has its launcher in it."""

    command: tuple[str, ...]
    run_dir: Path  # made; verdict.json, output.txt and all else are written there
    environment: Mapping[str, str] = field(default_factory=dict)  # set beside our own
    watch: Mapping[str, str] = field(default_factory=dict)  # {"stall": "10", "on-hang": "end"}
    limit: float | None = None  # seconds; then it is ended: slow if it moved, else hung
    folder: Path | None = None  # where it is started, ours if None


@dataclass(frozen=True)
class RankAt:
    """Where a rank is, for a live table."""

    rank: int
    checkpoint: int  # the one that it works towards
    title: str
    phase: str | None
    since: float  # monotonic
    waits: bool = False  # at our barrier
    allowed: float | None = None  # seconds that it may take


@dataclass(frozen=True)
class Ended:
    """How a launch ended."""

    status: int | None  # exit status of `hangbisect run`; None: it was killed from outside
    seconds: float
    verdict: Mapping[str, Any] | None  # verdict.json; None: there is none
    trouble: str = ""  # a sentence where it could not be started, or nobody could judge it


class Launched:
    """A launch under way."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises OSError only if `hangbisect run` itself cannot be started."""
        raise NotImplementedError

    def ranks(self) -> list[RankAt]:
        """Return where each rank is now, as far as it has spoken, by rank."""
        raise NotImplementedError

    def wait(self, limit: float | None = None) -> Ended | None:
        """Return how it ended; None if it is still under way after `limit` seconds."""
        raise NotImplementedError

    def stop(self) -> Ended:
        """End it with all that belongs to it, and return how it ended."""
        raise NotImplementedError


def run(launch: Launch, stopping: threading.Event | None = None) -> Ended:
    """Launch and wait for the end; once `stopping` is set, end it."""
    raise NotImplementedError
