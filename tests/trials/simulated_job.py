"""A job that is a function of its setting, in the place of real starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hangbisect.base.verdict_facts import (
    Cause,
    CheckpointPlace,
    HangPlace,
    Ranks,
    Result,
    Setting,
    Trial,
    Try,
    Verdict,
    Wait,
)
from hangbisect.search.isolation import Isolation
from hangbisect.toggles.command_toggles import ReachedToggles
from hangbisect.trials.isolation_plan import IsolationPlan, StartRequest
from hangbisect.trials.isolation_session import IsolationSearch

COMMAND = ("torchrun", "--nproc_per_node=2", "-m", "bisect", "--num-workers", "2")
PLACE = HangPlace(
    "wandb_logger", call="wandb.init", component="wandb", stacks=((("w.py", "init"),),)
)
VERDICT = Verdict(
    outcome="hang",
    pipeline="startup",
    command=COMMAND,
    attempt=0,
    world_size=2,
    checkpoint=CheckpointPlace(9, "wandb_logger", "WandbLogger ready"),
    ranks=Ranks(culprit=(0,)),
    component="wandb",
    cause=Cause("service-silent", "W&B's server accepts and never answers", "", "fits"),
    waits_for=Wait("socket", "127.0.0.1:80"),
    try_=(Try("wandb", "offline", ""),),
)

Behaves = Callable[[Setting, int], Result]


class Job:
    """Starts that end as `behaves` says; `asked` has all that was asked for."""

    def __init__(self, behaves: Behaves, *, seconds: float = 10.0) -> None:
        self.asked: list[StartRequest] = []
        self.limits: list[float | None] = []
        self.kept: list[Isolation] = []
        self.said: list[str] = []
        self.questions: list[Sequence[str]] = []
        self.verdict = VERDICT
        self.reached: ReachedToggles | None = None  # what a script of the user's own comes to
        self.agrees = True
        self.stopping = threading.Event()
        self._behaves = behaves
        self._seconds = seconds
        self.between = 0.0  # seconds from the end of a start to the next one
        self.now = 0.0

    def start(self, number: int, ask: StartRequest, left: float | None) -> Trial:
        self.asked.append(ask)
        self.limits.append(left)
        self.now += self._seconds + self.between
        result = self._behaves(ask.setting, number)
        return Trial(
            number=number,
            setting=dict(ask.setting),
            result=result,
            outcome={"pass": "ok", "hang": "hang", "other": "crash"}[result],  # type: ignore[arg-type]
            seconds=self._seconds,
            command=COMMAND,
            environment={},
            run_dir=f"iso/trials/{number:02}",
            why={"pass": "", "hang": "hang in wandb.init, rank 0", "other": "crash"}[result],
            place=PLACE if result == "hang" else None,
            at_place=2.5 if result == "pass" and ask.question.place else None,
        )

    def isolate(self, plan: IsolationPlan, recorded: Sequence[Trial] = ()) -> Isolation:
        return IsolationSearch(
            plan,
            self.start,
            tell=self.said.append,
            keep=self.kept.append,
            verdict_of=lambda trial: self.verdict,
            reached_by=lambda trial: self.reached,
            may_go_on=self._may_go_on,
            recorded=recorded,
            stopping=self.stopping,
            clock=lambda: self.now,
        ).run()

    def _may_go_on(self, lines: Sequence[str]) -> bool:
        self.questions.append(lines)
        return self.agrees


def plan(**changes: Any) -> IsolationPlan:
    """Return a plan for a pipeline of ours."""
    whole = IsolationPlan(
        COMMAND, {}, ours=True, has_gpu=False, again="hangbisect isolate --resume iso"
    )
    return replace(whole, **changes)


def hangs_unless(*wanted: Mapping[str, Sequence[str]]) -> Behaves:
    """Return a job that hangs unless one of `wanted` holds: each of its toggles at one of its
    values.
    """

    def behaves(setting: Setting, number: int) -> Result:
        avoided = any(
            all(setting.get(name) in values for name, values in one.items()) for one in wanted
        )
        return "pass" if avoided else "hang"

    return behaves
