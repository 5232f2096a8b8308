"""`hangbisect compare`: what it takes, in which form it answers, and with which exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands.results import compare as run

from ..report.kept.made_up import VERDICT, event, hello, write_run

SECRET = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
OK = {**VERDICT, "outcome": "ok", "checkpoint": None, "cause": None, "call": None}
OK["ranks"] = {key: type(value)() for key, value in VERDICT["ranks"].items()}


def write(folder: Path, verdict: Any = OK, **variables: str) -> str:
    """Write a run of one rank."""
    events = [hello(1.0, 0), event(1.1, "enter", 0, n=4), event(4.0, "reached", 0, n=4)]
    environment = {"versions": {"torch": "2.13.0"}, "host": "n03", "ranks": {"0": variables}}
    return str(write_run(folder, verdict, events, environment=environment))


def test_equal_runs_are_said_to_be_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write(tmp_path / name, WANDB_MODE="offline") for name in ("monday", "tuesday")]
    assert run(runs) == 0
    assert "nothing differs: 1 variable, 1 version" in capsys.readouterr().out


def test_what_differs_is_printed_and_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write(tmp_path / "good"), write(tmp_path / "bad", VERDICT, HTTPS_PROXY="http://p:3128")]
    assert run(runs) == 1
    printed = capsys.readouterr().out
    assert "variables HTTPS_PROXY  A (not set)  B http://p:3128\n" in printed
    assert "\x1b" not in printed
    assert run([*runs, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert found["b"]["outcome"] == "hang"
    assert found["settings"] == [
        {
            **{"topic": "environment", "name": "HTTPS_PROXY"},
            **{"a": "", "b": "http://p:3128", "ranks": []},
        }
    ]


def test_secrets_are_marks_and_two_of_them_are_two_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = SECRET[:-4] + "9876"
    runs = [
        write(tmp_path / "a", HF_HUB_URL=f"https://x/?t={SECRET}"),
        write(tmp_path / "b", HF_HUB_URL=f"https://x/?t={other}"),
    ]
    assert run(runs) == 1
    printed = capsys.readouterr().out
    assert "HF_HUB_URL" in printed
    assert SECRET not in printed
    assert other not in printed


@pytest.mark.parametrize("given", [[], ["one"], ["one", "two", "three"]])
def test_it_takes_two_folders(given: list[str]) -> None:
    with pytest.raises(UsageError, match=f"needs two run folders, and got {len(given)}"):
        run(given)


def test_what_is_no_run_is_refused_and_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    (tmp_path / "matrix").mkdir()
    (tmp_path / "matrix" / "matrix.json").write_text('{"schema": 1, "cells": []}')
    for name, why in (("empty", "without a verdict"), ("not there", "is no folder")):
        with pytest.raises(UsageError, match=why):
            run([good, str(tmp_path / name)])
    with pytest.raises(UsageError, match="is the folder of a matrix"):
        run([str(tmp_path / "matrix"), good])


def test_a_run_of_which_files_are_broken_is_compared_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken = write(tmp_path / "good"), write(tmp_path / "broken")
    (tmp_path / "broken" / "environment.json").write_text("{")
    (tmp_path / "broken" / "events.jsonl").write_text('{"t": 3}\nnonsense\n\x1b[2J')
    assert run([good, broken]) == 1
    printed = capsys.readouterr().out
    assert "unknown   B: " in printed
    assert "environment.json is no JSON" in printed
    assert "\x1b" not in printed
