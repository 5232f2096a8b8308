"""How a cell is started, and the same as a line for a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.toggles.table import TOGGLES
from hangbisect.trials.launch import Launch
from hangbisect.trials.matrix_launch import (
    MatrixContext,
    cell_mark,
    cell_run_dir,
    format_launch,
    make_launch,
    own_program,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up_matrix import CELLS, ONE

AROUND = MatrixContext(TOGGLES, {"timeout": "60,wandb_logger=9"}, Path("/runs/x"), Path("/work"))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def test_a_pipeline_is_started_by_its_launcher_with_the_toggles_of_the_cell() -> None:
    started = make_launch(ONE, AROUND, {"MASTER_PORT": "20001"}, 20001)
    program, *words = started.command[-5:]
    assert Path(program).name in ("bisect", "hangbisect")
    assert words == ["--fast-dev-run", "1", "--wandb", "off"]
    assert any(word.endswith("launchers/torchrun") for word in started.command)
    environment = dict(started.environment)
    first = environment.pop("PATH").partition(os.pathsep)[0]
    assert first == str(Path(sys.executable).parent)
    assert environment == {"NNODES": "1", "NPROC_PER_NODE": "2", "MASTER_PORT": "20001"}
    assert (started.limit, started.folder) == (900.0, Path("/work"))


def test_a_launcher_is_given_what_one_would_give_to_python() -> None:
    own = replace(ONE, pipeline=None, words=("python3.11", "train.py", "--x"), setting={})
    assert make_launch(own, AROUND, {}).command[-2:] == ("train.py", "--x")
    alone = replace(own, launcher=None)
    assert make_launch(alone, AROUND, {}).command == ("python3.11", "train.py", "--x")


def test_the_number_of_ranks_is_a_toggle_too() -> None:
    started = make_launch(replace(ONE, setting={"world_size": "1"}), AROUND, {})
    assert started.environment["NPROC_PER_NODE"] == "1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"launcher": "torchrn"}, "did you mean 'torchrun'"),
        ({"launcher": "./nowhere"}, "there is no launcher"),
        ({"setting": {"wandb": "of"}}, "did you mean 'off'"),
    ],
)
def test_what_cannot_be_started_is_said(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_launch(replace(ONE, **change), AROUND, {})  # type: ignore[arg-type]


def test_a_cell_is_known_again_wherever_it_stands_and_only_while_it_is_the_same() -> None:
    same = cell_mark(ONE, AROUND)
    assert same == cell_mark(replace(ONE, number=7), replace(AROUND, folder=Path("/elsewhere")))
    others = (
        cell_mark(CELLS[1], AROUND),
        cell_mark(replace(ONE, words=()), AROUND),
        cell_mark(replace(ONE, setting={}), AROUND),
        cell_mark(ONE, replace(AROUND, watch={})),
    )
    assert len({same, *others}) == 5


@given(st.text(max_size=80))
def test_any_name_makes_a_folder_of_its_own_in_that_of_the_matrix(name: str) -> None:
    folder = cell_run_dir(replace(ONE, name=name), AROUND)
    assert folder.parent == AROUND.folder
    assert folder.name.startswith("01")
    assert len(folder.name) < 60


@given(st.dictionaries(st.from_regex(r"X_[A-Z]{1,8}", fullmatch=True), TEXT, max_size=3), TEXT)
def test_a_pasted_line_says_to_a_shell_what_the_launch_says(
    environment: dict[str, str], word: str
) -> None:
    started = Launch(
        ("python", word), Path("/runs/1"), environment, dict(AROUND.watch), 9.0, Path("/")
    )
    line = format_launch(started)
    # In the place of ourselves: a program that prints what it is given.
    head, _, rest = line.partition(" run --timeout")
    variables = head.partition(" && ")[2].removesuffix(shlex.join(own_program()))
    words = ["sh", "-c", r"""printf '%s\0' "$@" .; env -0""", "sh"]
    script = f'{variables} "$@" run --timeout{rest}'
    ran = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, timeout=60)
    argv, _, environ = os.fsdecode(ran.stdout).rpartition("\0.\0")
    assert argv.split("\0")[:5] == ["run", "--timeout", "60", "--timeout", "wandb_logger=9"]
    assert argv.split("\0")[-3:] == ["--", "python", word]
    shown = dict(line.split("=", 1) for line in environ.split("\0") if line)
    assert {name: shown[name] for name in environment} == environment
