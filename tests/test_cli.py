"""From words to a command, and from its errors to one sentence and an exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect import cli, commands
from hangbisect.base.errors import HangbisectError, UsageError

Ran = list[tuple[str, list[str]]]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Commands `attach` and `walk` that only note what they were given."""
    noted: Ran = []

    def command(name: str) -> Callable[[list[str]], int]:
        return lambda argv: noted.append((name, argv)) or 3  # type: ignore[func-returns-value]

    monkeypatch.setattr(cli, "_command", command)
    monkeypatch.setattr(commands, "names", lambda: ("attach", "monitor", "walk"))
    return noted


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_command", lambda name: run)


def test_without_a_command_a_pipeline_is_walked(ran: Ran) -> None:
    assert cli.main(["--fast-dev-run", "1"]) == 3
    assert cli.main([]) == 3
    assert ran == [("walk", ["--fast-dev-run", "1"]), ("walk", [])]


def test_the_first_word_is_the_command(ran: Ran) -> None:
    assert cli.main(["attach", "--pid", "1"]) == 3
    assert ran == [("attach", ["--pid", "1"])]


@pytest.mark.parametrize("words", [["--local_rank=1"], ["--local-rank", "1"]])
def test_the_local_rank_of_old_launchers_may_stand_before_the_command(
    words: list[str], ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "")
    monkeypatch.delenv("LOCAL_RANK")
    cli.main([*words, "attach", "x"])
    cli.main([*words, "--until", "model"])
    assert ran == [("attach", ["x"]), ("walk", [*words, "--until", "model"])]
    assert os.environ["LOCAL_RANK"] == "1"


def test_an_unknown_command_is_named_with_the_nearest_one(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["atach"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "'atach'" in said.err
    assert "did you mean 'attach'?" in said.err
    assert "monitor" not in said.err
    assert ran == []


def test_a_usage_error_is_printed_by_the_first_rank_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, UsageError("--until cannot be 'x'", "All arguments: --help"))
    monkeypatch.setenv("RANK", "1")
    assert cli.main([]) == 2
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    assert cli.main([]) == 2
    assert capsys.readouterr().err == "hangbisect: --until cannot be 'x'\nAll arguments: --help\n"


def test_any_other_fact_is_printed_by_the_rank_it_is_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, HangbisectError("there is no /data on n03"))
    monkeypatch.setenv("RANK", "1")
    assert cli.main([]) == 1
    assert capsys.readouterr().err == "hangbisect: there is no /data on n03\n"


def test_an_error_of_ours_is_one_sentence_that_says_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HANGBISECT_DEBUG", raising=False)
    failing(monkeypatch, KeyError("rank"))
    assert cli.main([]) == 70
    said = capsys.readouterr().err
    assert "internal error: KeyError: 'rank' (cli.py:" in said
    assert "Traceback" not in said
    monkeypatch.setenv("HANGBISECT_DEBUG", "1")
    assert cli.main([]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_has_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert cli.main([]) == 130


def test_it_knows_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hangbisect 0.")


def test_every_command_says_what_it_does_and_can_be_run() -> None:
    assert all(commands.summaries().values())
    assert {"walk", "monitor"} <= set(commands.names())
    assert not {"walk", "monitor"} & set(commands.summaries())
    assert all(callable(cli._command(name)) for name in commands.names())


def test_who_has_read_enough_hears_no_more(package: Path) -> None:
    command = [sys.executable, str(package), "causes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
