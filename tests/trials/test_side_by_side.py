"""What a scenario file names itself, for cells that run side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.search.cells import list_cells
from hangbisect.trials.matrix import MatrixContext, make_launch
from hangbisect.trials.resources import MachineShare, share_among_cells
from hangbisect.trials.scenario_file import load_scenario, locate_value

APART = {
    "MASTER_PORT": "20001",
    "PET_MASTER_PORT": "20001",
    "CUDA_VISIBLE_DEVICES": "2",
    "TMPDIR": "/tmp/hb-1",
    "WANDB_DIR": "/runs/1",
}
TWO = """\
command: python train.py
launcher: torchrun
ranks: 1
environment: {whole}
settings:
  - name: one
    environment: {one}
  - name: two
    environment: {two}
"""


def file_of(folder: Path, whole: str = "{}", one: str = "{}", two: str = "{}") -> str:
    file = folder / "mine.yaml"
    file.write_text(TWO.format(whole=whole, one=one, two=two))
    return str(file)


def shared(file: str, environ: dict[str, str], jobs: int = 2) -> list[MachineShare]:
    scenario = load_scenario(file)
    return share_among_cells(
        scenario, list_cells(scenario), jobs, environ, lambda path: locate_value(file, path)
    )


def environments(file: str) -> list[dict[str, str]]:
    """Return what each cell gets if it is kept apart by `APART`."""
    scenario = load_scenario(file)
    around = MatrixContext((), {}, Path("/runs"), Path("/work"), scenario.environment)
    started = [make_launch(cell, around, APART, 20001).environment for cell in list_cells(scenario)]
    return [{name: one[name] for name in APART if name in one} for one in started]


def test_the_gpus_that_the_file_names_are_the_ones_that_are_shared_out(tmp_path: Path) -> None:
    file = file_of(tmp_path, whole="{CUDA_VISIBLE_DEVICES: '2,3'}")
    found = shared(file, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert [share.devices for share in found] == [("2",), ("3",)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments(file)] == ["2", "2"]


def test_what_a_cell_names_itself_has_the_last_word(tmp_path: Path) -> None:
    one, two = environments(
        file_of(
            tmp_path,
            whole="{TMPDIR: /scratch}",
            one="{CUDA_VISIBLE_DEVICES: '', MASTER_PORT: '7000'}",
        )
    )
    assert one["CUDA_VISIBLE_DEVICES"] == ""
    assert (one["MASTER_PORT"], one.get("TMPDIR")) == ("7000", "/scratch")
    assert two == {**APART, "TMPDIR": "/scratch"}


@pytest.mark.parametrize(
    ("named", "line", "said"),
    [
        ({"whole": "{MASTER_PORT: '7000'}"}, 4, "'one' and 'two' both have MASTER_PORT=7000"),
        (
            {"one": "{MASTER_PORT: '7000'}", "two": "{MASTER_PORT: '7000'}"},
            7,
            "both have MASTER_PORT=7000",
        ),
        ({"one": "{CUDA_VISIBLE_DEVICES: '1'}"}, 7, "both have CUDA_VISIBLE_DEVICES=1"),
    ],
)
def test_what_cannot_be_kept_apart_is_said_with_its_line(
    tmp_path: Path, named: dict[str, str], line: int, said: str
) -> None:
    file = file_of(tmp_path, **named)
    with pytest.raises(UsageError, match=said) as error:
        shared(file, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert str(error.value).startswith(f"{file}:{line}: --jobs cannot be 2")
    assert len(shared(file, {}, jobs=1)) == 1


def test_cells_that_name_ports_and_gpus_of_their_own_run_side_by_side(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        one="{CUDA_VISIBLE_DEVICES: '0', MASTER_PORT: '7000'}",
        two="{CUDA_VISIBLE_DEVICES: '1', MASTER_PORT: '7001'}",
    )
    assert len(shared(file, {"CUDA_VISIBLE_DEVICES": "0,1"})) == 2


def test_a_cell_without_gpus_needs_none(tmp_path: Path) -> None:
    file = file_of(tmp_path, one="{CUDA_VISIBLE_DEVICES: ''}")
    assert len(shared(file, {"CUDA_VISIBLE_DEVICES": "0,1"})) == 2
