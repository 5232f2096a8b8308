"""`hangbisect doctor`: who speaks, in which form, and with which exit status."""

from __future__ import annotations

import json

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands.doctor import run
from hangbisect.doctor import catalogue
from hangbisect.doctor.examination import (
    Check,
    CheckFamily,
    Finding,
    ok,
    problem,
    read_nothing,
    warning,
)

LAUNCHED = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)


def finds(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    """Let the doctor know one check alone, which finds these."""
    check = Check("port", "a title", "a reason", read_nothing, lambda given, facts: findings)
    monkeypatch.setattr(catalogue, "FAMILIES", (CheckFamily("made up", (check,)),))


@pytest.mark.parametrize(
    ("finding", "status"), [(ok("a"), 0), (warning("b", "c"), 0), (problem("d", "e"), 1)]
)
def test_only_a_problem_fails(
    finding: Finding, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, finding)
    assert run([]) == run(["--json"]) == run(["--all"]) == status


def test_what_is_ok_is_shown_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finds(monkeypatch, ok("it is free"))
    run([])
    assert "it is free" not in capsys.readouterr().out
    run(["--all"])
    out = capsys.readouterr().out
    assert "ok         port: it is free\n" in out
    assert "\x1b" not in out
    run(["--json"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["findings"][0]["value"] == "it is free"


def test_of_the_ranks_of_a_node_the_first_one_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finds(monkeypatch, problem("d", "e"))
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    for rank, status in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert run([]) == status
        assert bool(capsys.readouterr().out) == bool(status)


def test_a_number_that_somebody_exported_makes_nobody_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finds(monkeypatch, problem("d", "e"))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run([]) == 1


@pytest.mark.parametrize("words", [["--limit", "0"], ["--limit", "x"], ["extra"], ["--jsn"]])
def test_a_wrong_word_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError):
        run(words)
