"""The way from a hang of a script of the user's own to what avoids it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hangbisect.base.variables import ASKED, VARIABLE, parse_toggle_values
from hangbisect.base.verdict_facts import Result, Setting
from hangbisect.report.isolation_text import answer_lines
from hangbisect.toggles.command_toggles import parse_reached
from hangbisect.trials.isolation_plan import IsolationPlan, Starter, StartRequest
from hangbisect.trials.trial import Question

from .simulated_job import Job, hangs_unless, plan

COMMAND = ("torchrun", "--nproc_per_node=2", "train.py")
WORKERS = {"num_workers": ("0",)}


def a_users_own(**changes: object) -> IsolationPlan:
    return plan(command=COMMAND, ours=False, **changes)


def test_what_is_changed_in_the_code_is_said_with_the_command_that_shows_it() -> None:
    job = Job(hangs_unless(WORKERS))
    job.reached = parse_reached(["num_workers=4", "wandb=rank0", "strategy=auto"])
    isolation = job.isolate(a_users_own())
    (change,) = isolation.changes
    assert (change.before, change.value) == ("4", "0")
    assert change.in_code == "DataLoader(num_workers=0)"
    assert isolation.paste == (
        "HANGBISECT_STEER=num_workers=0 hangbisect run -- torchrun --nproc_per_node=2 train.py"
    )
    lines = answer_lines(isolation, folder="iso")
    assert "in code   DataLoader(num_workers=0)" in lines
    assert isolation.next.startswith("make the change in the code")


def test_what_the_script_never_reaches_is_named_so_and_started_with_never() -> None:
    job = Job(hangs_unless(WORKERS))
    job.reached = parse_reached(["num_workers=4"])
    isolation = job.isolate(a_users_own())
    assert isolation.unused["wandb"] == "the script never reaches it"
    assert isolation.unused["strategy"] == "the script never reaches it"
    tried = {name for ask in job.asked for name in ask.setting}
    assert "num_workers" in tried
    assert not {"wandb", "strategy", "hub", "compile"} & tried


def test_a_variable_stands_in_the_command_as_it_is_where_the_script_leaves_it_to_that() -> None:
    for told, paste in (
        (["wandb=rank0"], "WANDB_MODE=offline torchrun --nproc_per_node=2 train.py"),
        (
            ["wandb=rank0", "wandb:in-code"],
            "WANDB_MODE=offline HANGBISECT_STEER=wandb=offline hangbisect run -- "
            "torchrun --nproc_per_node=2 train.py",
        ),
    ):
        job = Job(hangs_unless({"wandb": ("offline", "off")}))
        job.reached = parse_reached(told)
        assert job.isolate(a_users_own()).paste == paste


def test_of_a_hang_that_comes_and_goes_any_start_as_it_is_run_tells() -> None:
    def behaves(setting: Setting, number: int) -> Result:
        job.reached = parse_reached(["num_workers=4"] if number > 1 else [])
        return "hang" if number % 3 == 0 and setting.get("num_workers") != "0" else "pass"

    job = Job(behaves)
    isolation = job.isolate(a_users_own())
    assert isolation.flaky
    assert [change.toggle for change in isolation.changes] == ["num_workers"]


def test_where_no_rank_spoke_nothing_inside_it_is_changed() -> None:
    job = Job(hangs_unless(WORKERS))
    job.reached = parse_reached([], inside=False)
    isolation = job.isolate(a_users_own())
    assert isolation.outcome == "hangs_all_safe"
    assert isolation.unused["num_workers"].startswith("no rank told of itself")
    assert "num_workers" not in {name for ask in job.asked for name in ask.setting}


def test_each_start_asks_for_all_that_it_does_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []

    def setting_of(plan: IsolationPlan, setting: Setting) -> dict[str, str]:
        starter = Starter(plan, tmp_path, {}, None, threading.Event(), print)
        made = starter._applied(StartRequest(setting, Question(), "why"), tmp_path)
        started.append(dict(made.environment))
        return parse_toggle_values(made.environment.get(VARIABLE, ""))

    asked = setting_of(a_users_own(environ={VARIABLE: "strategy=ddp"}), {"num_workers": "0"})
    assert (asked["num_workers"], asked["strategy"], asked["wandb"]) == ("0", "ddp", ASKED)
    assert "make_logs_dir" not in asked
    assert setting_of(plan(), {}) == {}
    # The rank side changes the call only where the script itself says what the variable would.
    assert setting_of(a_users_own(), {"wandb": "offline"})["wandb"] == "offline"
    assert started[-1]["WANDB_MODE"] == "offline"
