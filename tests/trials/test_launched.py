"""A launch that cannot be ended is left, and said: whatever waits for it goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hangbisect.trials import launch
from hangbisect.trials.launch import Launch, RunningLaunch, run_launch


class Stuck:
    """A process that no signal ends."""

    pid = 1 << 22

    def __init__(self, *command: Any, **options: Any) -> None:
        pass

    def wait(self, limit: float | None = None) -> int:
        raise subprocess.TimeoutExpired("hangbisect run", limit or 0.0)


class Nobody:
    """The family of a process that is not there."""

    def __init__(self, mark: str) -> None:
        pass

    def add_rank(self, pid: int) -> None:
        pass

    def end(self) -> None:
        pass


def test_what_cannot_be_ended_is_said_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Stuck)
    monkeypatch.setattr(launch, "ProcessFamily", Nobody)
    stuck = RunningLaunch(Launch(("true",), tmp_path / "one"))
    ended = stuck.stop()
    assert (ended.status, ended.verdict) == (None, None)
    assert f"(pid {Stuck.pid}) could not be ended" in ended.trouble
    assert stuck.wait() is stuck.stop() is ended
    monkeypatch.setattr(launch, "BEYOND", -1.0)
    assert run_launch(Launch(("true",), tmp_path / "two", limit=0.1)).trouble == ended.trouble
