"""The command line of `hangbisect matrix`: what it says before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.cli import main
from hangbisect.search.cells import list_cells
from hangbisect.search.scenario_checks import toggles_of_scenario
from hangbisect.trials.matrix import MatrixContext, cell_mark
from hangbisect.trials.matrix_session import MatrixRecord
from hangbisect.trials.scenario_file import load_scenario

from ..trials.made_up_matrix import TOLD, ran


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "matrix needs a scenario"),
        (["recomended"], "did you mean 'recommended'"),
        (["recommended", "--jobs", "0"], "--jobs cannot be '0': it is a whole number from 1"),
        (["recommended", "--job", "2"], "there is no argument '--job'; did you mean '--jobs'?"),
        (["--resume", "nowhere"], "nowhere/matrix.json cannot be read: No such file or directory"),
        (["--resume", "x", "--run-dir", "y"], "leave --run-dir out"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_holds_a_matrix_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix.json").write_text("{}")
    assert main(["matrix", "recommended", "--run-dir", str(tmp_path)]) == 2
    assert f"hangbisect matrix --resume {tmp_path}" in capsys.readouterr().err


def test_a_matrix_goes_on_only_where_its_commands_mean_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    MatrixRecord(tmp_path).write(TOLD)
    assert main(["matrix", "--resume", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"cd /home/me && hangbisect matrix --resume {tmp_path}" in said


def test_a_dry_run_of_a_matrix_to_go_on_with_prints_what_is_left_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("recommended")
    listed = list_cells(scenario)
    options = scenario.watch.options()
    around = MatrixContext(
        toggles_of_scenario(scenario), options, tmp_path, tmp_path, scenario.environment
    )
    done = replace(ran(1, "ok"), mark=cell_mark(listed[0], around))
    told = replace(TOLD, scenario="recommended", started_in=str(tmp_path), cells=listed)
    MatrixRecord(tmp_path / "run").write(replace(told, ran=(done,)))
    assert main(["matrix", "--resume", "run", "--dry-run"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert heads == ["# 2 with workers", "# 3 one process"]


def test_a_dry_run_says_by_its_status_that_a_cell_cannot_be_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("launcher: ./nowhere\n")
    assert main(["matrix", str(file), "--dry-run"]) == 5
    assert "# cannot be started: there is no launcher at" in capsys.readouterr().out


def test_gpus_that_do_not_go_round_are_said_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert main(["matrix", "recommended", "--jobs", "2", "--dry-run"]) == 2
    assert "each cell gets 1 GPU, and 'minimal' has 2 ranks" in capsys.readouterr().err


def test_what_is_missing_is_said_in_one_sentence(package: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asked = subprocess.run(
        [sys.executable, "-I", "-S", str(package), "matrix", "recommended"],  # -S: no library
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
    )
    assert asked.returncode == 1
    assert "scenario files need junitparser, which is not installed" in asked.stderr
    assert "pip install PyYAML junitparser pydantic" in asked.stderr
