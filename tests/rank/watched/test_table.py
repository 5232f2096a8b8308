"""The table of known calls."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from hangbisect.base import variables
from hangbisect.base.checkpoints import STARTUP, STARTUP_BY_NAME
from hangbisect.rank.watched.known_calls import KNOWN_CALLS, KnownCall
from hangbisect.rank.watched.user_functions import parse_steps

from ...examples import for_each


@for_each(KNOWN_CALLS, lambda row: row.where)
def test_a_row_belongs_to_what_is_known(row: KnownCall) -> None:
    assert all(part.isidentifier() for part in row.module.split("."))
    assert row.step.isidentifier()
    assert row.deadline is None or row.deadline > 0
    known = {checkpoint.component for checkpoint in STARTUP} | {"strategy", "fit"}
    assert row.component in known
    phases = {phase.name for checkpoint in STARTUP for phase in checkpoint.phases}
    assert row.phase is None or (row.checkpoint == "training" and row.phase in phases)


def test_no_call_is_there_twice() -> None:
    assert len({row.where for row in KNOWN_CALLS}) == len(KNOWN_CALLS)


def test_rows_of_one_step_say_the_same_of_it() -> None:
    """Whichever of them comes first, the monitor matches steps by their names."""
    told: dict[str, set[object]] = {}
    for row in KNOWN_CALLS:
        told.setdefault(row.step, set()).add((row.component, row.phase))
    assert {step for step, kinds in told.items() if len(kinds) > 1} <= {"trainer"}


def test_checkpoints_are_those_of_the_startup_pipeline() -> None:
    assert {row.checkpoint for row in KNOWN_CALLS if row.checkpoint} <= STARTUP_BY_NAME.keys()


def test_what_a_process_knows_first_is_what_the_tables_say() -> None:
    packages = {row.module.partition(".")[0] for row in KNOWN_CALLS} - sys.stdlib_module_names
    assert set(variables.PACKAGES) == packages


def test_a_row_is_a_line(package: Path) -> None:
    file = package / "rank" / "watched" / "known_calls.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (rows,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ROWS"
    ]
    assert isinstance(rows, ast.Tuple)
    assert all(row.lineno == row.end_lineno for row in rows.elts)


def test_nobody_knows_the_component_of_a_users_own_step() -> None:
    assert {row.component for row in parse_steps("a.b:c")} == {""}


def test_asking_ray_with_a_time_limit_is_no_step_for_it_is_done_again_and_again() -> None:
    (row,) = (row for row in KNOWN_CALLS if row.step == "ray_wait")
    assert row.when is not None
    assert row.when(([],), {"num_returns": 8})
    assert row.when(([],), {"timeout": None})
    assert not row.when(([],), {"timeout": 10})
