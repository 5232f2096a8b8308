"""report.md of an isolation: nothing that it promises is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.report.isolation_text import MOST_TRIAL_ROWS
from hangbisect.report.issue_page import trials_page
from hangbisect.report.run_reader.run import read_run
from hangbisect.search.isolation import Isolation
from hangbisect.trials.isolation_request import IsolationRecord

from ...trials.simulated_job import Job, hangs_unless, plan
from .rendering import OURS, rendered

FOUND = Job(hangs_unless({"wandb": ("offline", "off")})).isolate(plan())
REASON = "it changes nothing without --model"


def page(found: Isolation, folder: Path) -> str:
    IsolationRecord(folder).write(found)
    return trials_page(read_run(folder), None)


@pytest.mark.parametrize("starts", [1, MOST_TRIAL_ROWS, MOST_TRIAL_ROWS + 1, 40])
def test_every_start_stands_in_it(starts: int, tmp_path: Path) -> None:
    one = FOUND.trials[0]
    trials = tuple(replace(one, number=n + 1, why=f"ended so: {n}") for n in range(starts))
    text = page(replace(FOUND, trials=trials), tmp_path)
    assert all(re.search(rf"\bended so: {n}$", text, re.MULTILINE) for n in range(starts))


def test_why_a_toggle_was_not_tried_stands_in_it_folded(tmp_path: Path) -> None:
    unused = {"attention": REASON, "packing": REASON, "hub": "`</details><b>`"}
    text = page(replace(FOUND, unused=unused), tmp_path)
    assert "unused    3 toggles, for reasons below" in text
    folded = text.partition("<summary>3 toggles not tried, and why</summary>")[2]
    assert f"attention, packing: {REASON}" in folded
    assert not set(rendered(text).tags) - OURS


def test_it_does_not_point_at_itself(tmp_path: Path) -> None:
    text = page(replace(FOUND, unused={"attention": REASON}), tmp_path)
    assert "report.md" not in text
