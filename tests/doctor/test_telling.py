"""The report on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import json
import re

import pytest
from hangbisect.doctor import catalogue
from hangbisect.doctor.examination import (
    Check,
    Examination,
    Finding,
    Found,
    ok,
    problem,
    read_nothing,
    unknown,
    warning,
)

GOOD, BAD = ok("29500 is free"), problem("29500 is taken by\npython", "kill 4711, " * 12)
CHECK: Check[None] = Check("port", "a title", "a reason", read_nothing, lambda given, facts: ())


def report(
    *findings: Finding, everything: bool = False, width: int | None = None, colours: bool = False
) -> list[str]:
    found = Examination(tuple(Found(CHECK, one) for one in findings), 34, 1.25)
    return catalogue.format_examination(
        found, "n01", everything=everything, width=width, colours=colours
    )


def test_where_all_is_well_three_lines_say_so() -> None:
    assert report(GOOD, GOOD) == [
        "OK  doctor on n01: nothing found that makes a job hang  (34 checks in 1.2 s)",
        "    every check: hangbisect doctor --all",
        "    your own job: hangbisect run -- <the command you use today>",
    ]


def test_the_worst_comes_first_and_what_is_ok_only_if_asked() -> None:
    lines = report(GOOD, unknown("why"), warning("w", "n"), BAD)
    assert lines[0].startswith("PROBLEM  doctor on n01: 1 problem, 1 warning, 1 not known  (34")
    levels = [line[:9].strip() for line in lines[1:-1] if not line.startswith(" ")]
    assert levels == ["problem", "warning", "not known"]
    every = report(GOOD, BAD, everything=True)
    assert [line[:9].strip() for line in every[1:] if line[0] != " "] == ["problem", "ok"]


def test_in_a_pipe_a_finding_is_one_line_and_its_next_step_another() -> None:
    lines = report(BAD)
    assert lines[1] == "problem    port: 29500 is taken by python"
    assert lines[2].startswith("           next: kill 4711")
    assert len(lines) == 4


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_a_terminal_is_never_overrun_and_nothing_is_lost(width: int) -> None:
    lines = report(GOOD, BAD, warning("w " * 60, "n " * 60), everything=True, width=width)
    assert max(map(len, lines)) <= max(width, 80 if width < 60 else width)
    assert " ".join(" ".join(lines).split()).count("kill 4711,") == 12


def test_colours_are_on_the_level_alone() -> None:
    plain, coloured = report(BAD, width=80), report(BAD, width=80, colours=True)
    assert coloured[1].startswith("\x1b[31mproblem  \x1b[0m  port")
    assert [re.sub(r"\x1b\[\d*m", "", line) for line in coloured] == plain


def test_as_json_everything_is_there() -> None:
    found = Examination((Found(CHECK, GOOD), Found(CHECK, BAD)), 34, 1.25)
    data = json.loads(json.dumps(catalogue.examination_json(found, "n01", 3)))
    assert {key: data[key] for key in ("schema", "outcome", "host", "node", "seconds")} == {
        **{"schema": 1, "outcome": "problem", "host": "n01", "node": 3, "seconds": 1.25},
    }
    assert [one["id"] for one in data["findings"]] == ["port", "port"]
    assert data["findings"][0] == {
        **{"id": "port", "level": "ok", "title": "a title", "value": "29500 is free"},
        "next": None,
    }
