"""`hangbisect run --repeat`: what is refused, and when it gives up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hangbisect.base.errors import HangbisectError, UsageError
from hangbisect.base.verdict_facts import Result, Trial
from hangbisect.toggles.command_toggles import AppliedSetting
from hangbisect.trials.trial import (
    Question,
    RepeatRequest,
    is_hopeless,
    repeat_command,
    summarize_starts,
    try_setting,
)


def trials(*results: Result) -> list[Trial]:
    return [
        Trial(number, {}, result, None, 1.0, ("x",), {}, "x")
        for number, result in enumerate(results, 1)
    ]


@pytest.mark.parametrize("on_hang", ["report", "hold"])
def test_a_start_that_would_not_be_ended_is_not_repeated(tmp_path: Path, on_hang: str) -> None:
    asked = RepeatRequest(("true",), 2, False, tmp_path / "new", {"on-hang": on_hang})
    with pytest.raises(UsageError, match=f"--on-hang {on_hang} does not"):
        repeat_command(asked)
    assert not asked.folder.exists()


def test_a_run_folder_that_cannot_be_made_is_said_in_a_sentence() -> None:
    folder = Path("/proc/nowhere/start-1")
    applied = AppliedSetting(("true",), {})
    with pytest.raises(HangbisectError, match="start 1 cannot be made in /proc/nowhere") as error:
        try_setting(1, applied, {}, Question(), folder, stopping=threading.Event())
    assert "--run-dir" in error.value.help


def test_it_gives_up_once_three_starts_and_no_other_could_not_be_judged() -> None:
    assert not is_hopeless(trials("other", "other"))
    assert is_hopeless(trials("other", "other", "other"))
    assert not is_hopeless(trials("other", "pass", "other", "other"))


def test_starts_that_could_not_be_judged_are_no_starts_without_a_hang() -> None:
    assert summarize_starts(trials("other"), None)[0] == "no start could be judged, of 1"
    assert summarize_starts(trials("other", "hang"), None)[0].startswith("1 hang in 1 start")
