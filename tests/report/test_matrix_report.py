"""A matrix as a table and as JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hangbisect.report.matrix_text import matrix_junit, result_table, summarise_matrix
from hangbisect.search.cells import CellOutcome, CellRun
from hypothesis import given
from hypothesis import strategies as st

from ..trials.made_up_matrix import CELLS, TOLD, ran


def test_every_cell_has_a_row_with_result_and_place() -> None:
    assert result_table(TOLD) == [
        "#  cell   setting    result       s   where",
        "1  one    wandb=off  ok           12",
        "2  two    wandb=off  hang         12  at checkpoint 9 in wandb.init, rank 0 "
        "(service-silent)",
        "3  three  wandb=off  not started  12  there is no launcher 'x' [2J",
        "4  four   wandb=off  not run",
    ]


def test_settings_that_the_names_say_are_not_said_twice() -> None:
    cells = (replace(CELLS[0], name="wandb=off"), replace(CELLS[1], name="wandb=off b", setting={}))
    assert (
        result_table(replace(TOLD, cells=cells, ran=()))[0] == "#  cell         result   s  where"
    )


def test_a_narrow_terminal_cuts_rows_and_colours_cut_nothing() -> None:
    narrow = result_table(TOLD, width=30)
    assert all(len(line) <= 30 for line in narrow)
    assert narrow[2].endswith("…")
    coloured = result_table(TOLD, colours=True)
    assert "\x1b[31;1mhang\x1b[0m" in coloured[2]
    assert coloured[4] == result_table(TOLD)[4]


def test_the_summary_counts_what_came_of_the_cells() -> None:
    assert summarise_matrix(TOLD) == "4 cells: 1 ok, 1 hang, 1 not started, 1 not run; 40 s"


def test_junit_has_a_test_for_each_cell() -> None:
    root = ElementTree.fromstring(matrix_junit(TOLD))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    kinds = {name: [child.tag for child in case] for name, case in cases.items()}
    assert kinds["one"] == ["system-out"]
    assert "failure" in kinds["two"]
    assert "error" in kinds["three"]
    assert kinds["four"] == ["skipped"]
    failure = cases["two"].find("failure")
    assert failure is not None
    assert failure.get("message") == "hang at checkpoint 9 in wandb.init, rank 0"
    suite = next(root.iter("testsuite"))
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == list("4111")


@pytest.mark.parametrize(
    ("result", "where", "message"),
    [
        ("crash", "ValueError: no", "crash: ValueError: no"),
        ("killed", "`hangbisect run` was killed", "killed: `hangbisect run` was killed"),
        ("crash", "", "crash"),
        ("hang", "in wandb.init", "hang in wandb.init"),
    ],
)
def test_junit_says_what_came_of_it_and_why(result: CellOutcome, where: str, message: str) -> None:
    root = ElementTree.fromstring(matrix_junit(replace(TOLD, ran=(ran(1, result, where),))))
    assert next(one.get("message") for one in next(root.iter("testcase"))) == message


@given(st.text(), st.text())
def test_any_words_make_xml_and_rows(name: str, where: str) -> None:
    cell = replace(CELLS[0], name=name)
    one: CellRun = replace(ran(1, "crash"), where=where)
    told = replace(TOLD, cells=(cell,), ran=(one,), title=name, scenario=where)
    ElementTree.fromstring(matrix_junit(told))
    assert len("\n".join(result_table(told, width=80)).splitlines()) == 2
