"""How launchers are found, and what they are given."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.trials import matrix_launch
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).resolve().parents[2] / "launchers"
SHIPPED = sorted(file.name for file in FOLDER.iterdir() if not file.suffix)


def test_those_that_ship_are_found_by_name() -> None:
    assert matrix_launch.launcher_names() == SHIPPED
    rows = re.findall(r"^\| `(\w+)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == SHIPPED
    for name in SHIPPED:
        found = matrix_launch.find_launcher(name)
        assert found.is_absolute()
        assert found.read_text().startswith("#!")


@pytest.mark.parametrize("name", SHIPPED)
def test_each_says_how_it_is_used_and_knows_nothing_of_us(name: str) -> None:
    text = matrix_launch.find_launcher(name).read_text()
    assert f" launchers/{name} train.py" in "".join(text.splitlines()[:10])
    assert "bisect" not in text


def test_one_of_ones_own_is_found_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert matrix_launch.find_launcher(str(mine)) == matrix_launch.find_launcher("./mine") == mine


@given(st.text(st.characters(exclude_characters="/\0")))
def test_any_other_name_is_one_clear_error(name: str) -> None:
    if name in SHIPPED:
        return
    with pytest.raises(UsageError, match="there is no launcher"):
        matrix_launch.find_launcher(name)


def test_an_error_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'torchrun'"):
        matrix_launch.find_launcher("torchrn")


def test_a_path_to_nothing_or_to_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no launcher at {tmp_path}/mine"):
        matrix_launch.find_launcher(f"{tmp_path}/mine")
    with pytest.raises(UsageError, match="there is no launcher at"):
        matrix_launch.find_launcher(str(tmp_path))
    (tmp_path / "mine").write_text("torchrun")
    with pytest.raises(UsageError, match="cannot be started") as raised:
        matrix_launch.find_launcher(f"{tmp_path}/mine")
    assert raised.value.help == f"chmod +x {tmp_path}/mine"


def test_a_launcher_gets_nodes_ranks_and_the_command_of_a_rank() -> None:
    torchrun = matrix_launch.find_launcher("torchrun")
    command, environ = matrix_launch.launcher_command(
        torchrun, 2, 4, ["train.py", "--x"], master_port=29511
    )
    assert command == (str(torchrun), "train.py", "--x")
    assert environ == {"NNODES": "2", "NPROC_PER_NODE": "4", "MASTER_PORT": "29511"}


def test_our_own_pipelines_run_under_our_own_interpreter() -> None:
    command, environ = matrix_launch.launcher_command(
        matrix_launch.find_launcher("srun"),
        1,
        2,
        ["-m", "bisect"],
        ours=True,
        environ={"PATH": "/usr/bin"},
    )
    assert command[1:] == ("-m", "bisect")
    assert environ["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


def test_without_a_launcher_our_pipeline_is_told_how_many_ranks_lightning_starts() -> None:
    python = matrix_launch.find_launcher("python")
    words = ["-m", "bisect"]
    assert matrix_launch.launcher_command(python, 1, 2, words, ours=True)[0][-2:] == (
        "--devices",
        "2",
    )
    assert matrix_launch.launcher_command(python, 1, 1, words, ours=True)[0][-1] == "bisect"
    assert matrix_launch.launcher_command(python, 1, 2, ["train.py"])[0][-1] == "train.py"


@pytest.mark.parametrize("first_line", ["#!/bin/sh", f"#!{sys.executable} -I"])
def test_an_installer_may_lose_the_executable_bit(first_line: str, tmp_path: Path) -> None:
    script = tmp_path / "mine"
    print_it = "import os; print(os.environ['NNODES'])" if "-I" in first_line else 'echo "$NNODES"'
    script.write_text(f"{first_line}\n{print_it}\n")
    script.chmod(0o644)
    command, environ = matrix_launch.launcher_command(
        matrix_launch.find_launcher(str(script)), 3, 1, []
    )
    said = subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "3\n"
