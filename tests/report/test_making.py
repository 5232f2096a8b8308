"""The reports of a folder: which are written, where, and what is never overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hangbisect.base.errors import HangbisectError, UsageError
from hangbisect.base.json_codec import to_json
from hangbisect.report.report_files import (
    NAMES,
    add_to_step_summary,
    failed_starts,
    make_reports,
    reports_json,
)
from hangbisect.search.cells import RecordedMatrix

from .kept.made_up import VERDICT, event, hello, write_run

SECRET = "hf_" + "Zx9Qw7Er5Ty3Ui1Op8As6Df4"
TRIAL = {
    "number": 1,
    "setting": {},
    "result": "hang",
    "outcome": "hang",
    "seconds": 12.5,
    "command": ["python", "train.py"],
    "environment": {},
    "run_dir": "iso/trial-1",
    "why": "hang at checkpoint 9",
}
ISOLATION = {
    "schema": 1,
    "outcome": "isolated",
    "command": ["python", "train.py"],
    "trials": [TRIAL, {**TRIAL, "number": 2, "result": "pass", "run_dir": "iso/trial-2"}],
    "seconds": 25.0,
    "options": {"confirm": 3},
}


def a_run(folder: Path) -> Path:
    return write_run(
        folder,
        {**VERDICT, "command": ["python", "train.py", "--token", SECRET]},
        [hello(1.0, 0), event(2.0, "verdict", outcome="hang")],
        environment={"ranks": {"0": {"HF_TOKEN": SECRET}}},
    )


def test_all_three_lie_in_the_run_folder_without_the_secret(tmp_path: Path) -> None:
    made = make_reports(a_run(tmp_path))
    assert [path.name for path in made.files] == [*NAMES]
    assert (made.trouble, made.missing, made.masked.secrets) == ((), (), 1)
    for path in made.files:
        assert SECRET not in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert reports_json(made)["files"] == [str(tmp_path / name) for name in NAMES]


def umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_the_secret_stays_where_that_was_asked_for(tmp_path: Path) -> None:
    make_reports(a_run(tmp_path / "run"), tmp_path / "mine", redact=False)
    assert SECRET in (tmp_path / "mine" / "report.md").read_text()
    assert not (tmp_path / "run" / "report.md").exists()


def test_who_and_where_it_was_can_be_hidden(tmp_path: Path) -> None:
    make_reports(a_run(tmp_path), anonymous=True)
    assert "n03" not in (tmp_path / "report.md").read_text()


def test_a_link_in_the_folder_is_replaced_and_what_it_led_to_is_left(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = a_run(tmp_path / "run")
    for name in (*NAMES, ".report.md.new"):
        (folder / name).symlink_to(precious)
    make_reports(folder)
    assert precious.read_text() == "mine"
    assert not (folder / "report.md").is_symlink()


def test_a_job_that_nobody_told_of_has_no_trace(tmp_path: Path) -> None:
    made = make_reports(write_run(tmp_path))
    assert [path.name for path in made.files] == ["report.md", "report.html"]


def test_what_cannot_be_written_or_is_no_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = a_run(tmp_path / "run")
    with pytest.raises(HangbisectError, match="cannot be written"):
        make_reports(folder, tmp_path / "file")
    with pytest.raises(UsageError, match="without a verdict"):
        make_reports(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_of_an_isolation_its_answer_its_starts_and_the_hang_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, None, isolation=ISOLATION)
    a_run(tmp_path / "trial-1")
    (tmp_path / "stacks").rmdir()
    make_reports(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "ISOLATED  2 starts" in text
    assert "hang at checkpoint 9" in text
    assert "HANG at checkpoint 9" in text  # of the start that hung
    assert SECRET not in text
    assert failed_starts(tmp_path) == [tmp_path / "trial-1"]


def test_of_a_matrix_every_cell_is_a_row(tmp_path: Path) -> None:
    cell = {**TRIAL, "name": "offline", "where": "in wandb.init", "run_dir": "m/01"}
    cells = [cell, {**cell, "number": 2, "name": "online", "result": None, "seconds": None}]
    whole = to_json(RecordedMatrix("mine.yaml", "mine", "/", "", 24.0, 1, 3, False, ()))
    write_run(tmp_path, None, matrix={**whole, "cells": cells})
    make_reports(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "matrix  mine  2 starts: 1 hang, 1 not run" in text
    assert " 1  offline    12 s  hang in wandb.init" in text


def test_the_summary_of_a_step_is_added_to_and_never_made_too_long(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(file)}
    file.write_text("before\n")
    assert add_to_step_summary("after", environ)
    assert file.read_text() == "before\nafter\n"
    assert not add_to_step_summary("x" * (1 << 20), environ)
    assert not add_to_step_summary("x", {**environ, "GITHUB_ACTIONS": ""})
    assert not add_to_step_summary("x", {**environ, "GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert file.read_text() == "before\nafter\n"


def test_what_was_made_is_json(tmp_path: Path) -> None:
    made = reports_json(make_reports(a_run(tmp_path)))
    assert json.loads(json.dumps(made))["schema"] == 1
