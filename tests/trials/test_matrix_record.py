"""The record of a matrix: written whole, read again, and what is done again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hangbisect.base.errors import UsageError
from hangbisect.trials.matrix_session import MatrixRecord, cells_done, read_matrix

from .made_up_matrix import TOLD, ran


def test_what_was_judged_is_found_again_and_all_else_is_not(tmp_path: Path) -> None:
    MatrixRecord(tmp_path).write(TOLD)
    known = read_matrix(tmp_path)
    assert (known.scenario, known.started_in) == (TOLD.scenario, TOLD.started_in)
    done = cells_done(known)
    assert sorted(done) == ["mark1", "mark2"]
    found = done["mark2"]
    assert (found.result, found.where, found.seconds) == ("hang", TOLD.ran[1].where, 12.5)


def test_the_record_is_what_the_schema_says_at_any_time(tmp_path: Path, package: Path) -> None:
    schema = json.loads((package / "data" / "matrix.schema.json").read_text("utf-8"))
    for told in (TOLD, replace(TOLD, ran=()), replace(TOLD, ran=(ran(4, "killed"),))):
        MatrixRecord(tmp_path).write(told)
        jsonschema.validate(json.loads((tmp_path / "matrix.json").read_text("utf-8")), schema)


def test_no_secret_is_written(tmp_path: Path) -> None:
    record = MatrixRecord(tmp_path)
    record.write(TOLD)
    record.write_junit(TOLD)
    assert all("abcdef123456" not in file.read_text("utf-8") for file in tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"scenario": 1, "cells": []}', "null", "{"])
def test_what_is_no_record_is_said_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "matrix.json").write_text(text)
    with pytest.raises(UsageError, match="is not what a matrix writes"):
        read_matrix(tmp_path)


def test_a_folder_without_a_matrix_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_matrix(tmp_path)


def test_a_place_that_cannot_be_written_is_said_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        MatrixRecord(tmp_path / "file" / "run")


def test_a_disk_that_is_full_ends_no_cell_and_is_told(tmp_path: Path) -> None:
    record = MatrixRecord(tmp_path)
    (tmp_path / "matrix.json").mkdir()  # no file can take its place
    record.write(TOLD)
    assert "cannot be written" in record.trouble
