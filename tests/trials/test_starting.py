"""One start of an isolation: what it gets, and what is left of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.verdict_facts import Trial
from hangbisect.toggles.command_toggles import AppliedSetting
from hangbisect.trials import isolation_plan
from hangbisect.trials.isolation_plan import Starter, StartRequest
from hangbisect.trials.trial import Question

from .simulated_job import plan


class World:
    """What stands in the place of a launch, and of the wait after it."""

    def __init__(self) -> None:
        self.waited_for: list[Mapping[str, str]] = []
        self.caches: list[Path] = []

    def start(self, number: int, made: AppliedSetting, *rest: Any, **options: Any) -> Trial:
        folder = Path(made.environment["HF_HOME"])
        folder.mkdir(parents=True)
        self.caches.append(folder)
        return Trial(number, {}, "pass", "ok", 1.0, made.command, made.environment, "x")

    def wait(
        self, before: object, command: Sequence[str], environ: Mapping[str, str], stopping: object
    ) -> str:
        self.waited_for.append(environ)
        return ""


def test_own_caches_are_removed_and_the_port_of_the_users_own_environment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(isolation_plan, "try_setting", world.start)
    monkeypatch.setattr(isolation_plan, "wait_until_free", world.wait)
    work = plan(environ={"MASTER_PORT": "29600"})
    starter = Starter(work, tmp_path, {}, None, threading.Event(), lambda text: None)
    starter.start(1, StartRequest({"caches": "own"}, Question(), ""), None)
    (caches,) = world.caches
    assert caches.is_relative_to(tmp_path / "trials" / "01")
    assert not caches.exists()
    assert world.waited_for[0]["MASTER_PORT"] == "29600"
