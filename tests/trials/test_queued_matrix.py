"""Cells in Slurm's queue: which are an array, what queues them, what squeue says, what is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.trials.matrix import MatrixContext
from hangbisect.trials.queued_matrix import (
    CANCEL_LIMIT,
    RESULT_LIMIT,
    TaskOrders,
    TaskState,
    digest_cells,
    judge_lost,
)
from hangbisect.trials.slurm_queue import group_by_size, make_array_command, parse_task_states

from .made_up_matrix import CELLS

ORDERS = TaskOrders("/home/me/mine.yaml", "/home/me/runs/x", "/home/me", "0123")
AROUND = MatrixContext((), {}, Path("/home/me/runs/x"), Path("/home/me"))


def test_cells_of_one_size_are_one_array() -> None:
    cells = (CELLS[0], replace(CELLS[1], nodes=2), CELLS[2], replace(CELLS[3], ranks=4))
    found = [[cell.number for cell in group] for group in group_by_size(cells)]
    assert found == [[1, 3], [2], [4]]


def test_an_array_has_the_numbers_of_its_cells_and_the_users_options_last() -> None:
    options = ("--partition=gpu", "--time=5")
    command = make_array_command([CELLS[0], CELLS[2]], ORDERS, 2, options)
    assert "--array=1,3%2" in command
    assert {"--nodes=1", "--ntasks-per-node=2"} <= set(command)
    assert command.index("--time=5") > command.index("--time=17")  # 900 s, and 90 to end it
    assert command[-1].startswith("--wrap=exec ")
    assert command[-1].endswith(' "$SLURM_ARRAY_TASK_ID"')
    assert json.dumps("/home/me/mine.yaml") in command[-1]


def test_without_a_number_slurm_decides_how_many_run_at_a_time() -> None:
    assert "--array=1" in make_array_command([CELLS[0]], ORDERS, None, ())


def test_a_file_that_was_changed_is_another_matrix() -> None:
    changed = (*CELLS[:3], replace(CELLS[3], limit=10.0))
    assert digest_cells(CELLS, AROUND) == digest_cells(tuple(CELLS), AROUND)
    assert digest_cells(CELLS, AROUND) != digest_cells(changed, AROUND)


def test_what_squeue_says_of_each_task() -> None:
    printed = "12|1|RUNNING|None|n1\n12|2|PENDING|Resources|\n12|3|TIMEOUT|TimeLimit|n[2-3]\n"
    found = parse_task_states(printed + "slurm_load_jobs error: Unable to contact\n\n12|[4-5]|X|Y|")
    assert found == {
        ("12", 1): TaskState("on n1", runs=True),
        ("12", 2): TaskState("in the queue: Resources"),
        ("12", 3): TaskState("TIMEOUT", has_ended=True),
    }


@pytest.mark.parametrize(
    ("began", "gone", "cancelled", "expected"),
    [
        (True, None, None, None),  # it runs
        (True, 1.0, None, None),  # it has ended, and its file may be on its way
        (True, RESULT_LIMIT + 1, None, "killed"),
        (False, RESULT_LIMIT + 1, None, "killed"),  # too short to be seen running
        (False, 1.0, 1.0, "interrupted"),  # it was queued, and is no more
        (True, 1.0, 1.0, None),  # it tells how it ended
        (True, None, 1.0, None),
        (True, None, CANCEL_LIMIT + 1, "interrupted"),
    ],
)
def test_what_comes_of_a_cell_without_a_result(
    began: bool, gone: float | None, cancelled: float | None, expected: str | None
) -> None:
    assert judge_lost(began, gone, cancelled) == expected
