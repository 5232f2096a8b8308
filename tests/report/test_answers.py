"""The answer of an isolation or a matrix, told again from its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.json_codec import to_json
from hangbisect.report.isolation_text import (
    answer_lines,
    list_rows,
    replay_answer,
    table_lines,
)
from hangbisect.report.run_reader.run import RecordedRun, read_run
from hangbisect.search.cells import RecordedMatrix
from hangbisect.search.isolation import Isolation
from hangbisect.trials.isolation_request import IsolationRecord

from ..trials.simulated_job import Job, hangs_unless, plan
from .kept.made_up import write_run

WANDB = {"wandb": ("offline", "off")}


@pytest.mark.parametrize(
    "found",
    [
        Job(hangs_unless(WANDB)).isolate(plan()),
        Job(hangs_unless(WANDB)).isolate(plan(describe=True)),
        Job(lambda setting, number: "other").isolate(plan()),
        Isolation("interrupted", ("python",), (), 0.0),
    ],
    ids=["isolated", "described", "other", "interrupted"],
)
def test_an_isolation_is_told_in_the_same_words_as_at_its_end(
    found: Isolation, tmp_path: Path
) -> None:
    IsolationRecord(tmp_path).write(found)
    kept = read_run(tmp_path)
    assert kept.kind == "isolation"
    assert replay_answer(kept, "iso") == answer_lines(found, folder="iso")
    assert list_rows(kept) == table_lines(found)
    assert [trial.number for trial in kept.trials] == [trial.number for trial in found.trials]


def test_a_matrix_is_told_by_its_cells(tmp_path: Path) -> None:
    cell = {"number": 1, "name": "a\x1b[31m\nb", "setting": {}, "result": "hang", "seconds": 62.0}
    left = {**cell, "number": 2, "name": "c", "result": None, "seconds": None}
    whole = to_json(RecordedMatrix("x.yaml", "mine", "/", "", 62.0, 1, 3, False, ()))
    kept = read_run(write_run(tmp_path, None, matrix={**whole, "cells": [cell, left]}))
    assert replay_answer(kept, "m")[0] == "matrix  mine  2 starts: 1 hang, 1 not run"
    assert [row.split() for row in list_rows(kept)[1:]] == [
        ["1", "a", "[31m", "b", "62", "s", "hang"],
        ["2", "c", "not", "run"],
    ]


def test_an_isolation_that_nobody_wrote_is_told_by_its_starts(tmp_path: Path) -> None:
    trial = {"number": 1, "setting": {"wandb": "off"}, "result": "hang", "seconds": 1.0}
    kept = read_run(write_run(tmp_path, None, isolation={"trials": [{**trial, "outcome": 7}]}))
    assert kept.answer is None
    assert replay_answer(kept, "iso")[0] == "isolation  1 start: 1 hang"


def test_a_line_is_cut_to_the_width_of_the_terminal() -> None:
    matrix = RecordedMatrix("x.yaml", "x" * 200, "/", "", 0.0, 1, 0, True, ())
    run = RecordedRun(Path("m"), kind="matrix", answer=matrix)
    assert max(map(len, replay_answer(run, "m", 60))) <= 60
