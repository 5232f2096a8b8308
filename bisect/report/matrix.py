"""What came of a matrix: a table for people, JSON, and JUnit XML for what shows tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bisection.cells import AS_IT_IS, Cell
from ..bisection.ran import Came, Ran, exit_status
from ..rank.masking import mask, mask_command
from .words import counted, cut, one_line, printable, seconds

# ECMA-48 colours, for a terminal that has them.
_COLOURS: Mapping[Came, str] = {"ok": "32", "slow": "33", "hang": "31;1", "crash": "31"}
_OTHER = "35"
_HEAD = ("#", "cell", "setting", "result", "s", "where")
_WIDEST = 40  # characters of a cell's name or setting
_CUT = "…"  # as the live table has it


@dataclass(frozen=True)
class Told:
    """A matrix, as far as it got."""

    scenario: str  # its file, or the name of one of ours
    title: str
    started_in: str
    folder: str
    started: str  # UTC
    seconds: float
    jobs: int
    cells: tuple[Cell, ...]
    ran: tuple[Ran, ...]
    interrupted: bool = False

    @property
    def status(self) -> int:
        """The exit status."""
        results = [ran.result for ran in self.ran]
        return exit_status([*results, "interrupted"] if self.interrupted else results)


# ---- for people ----------------------------------------------------------------------------------


def table(told: Told, *, width: int | None = None, colours: bool = False) -> list[str]:
    """Return a row for each cell; `width` is the terminal's, None for a pipe: nothing is cut."""
    ran = {one.number: one for one in told.ran}
    rows = [_HEAD, *(_row(cell, ran.get(cell.number)) for cell in told.cells)]
    if all(setting_words(cell.setting) in (cell.name, AS_IT_IS) for cell in told.cells):
        rows = [(*row[:2], *row[3:]) for row in rows]
    widths = [max(len(_short(row[i])) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = [_line(row, widths, width) for row in rows]
    if not colours:
        return lines
    before = sum(width + 2 for width in widths[:-2])  # the result stands before the seconds
    results = [None, *(ran[c.number].result if c.number in ran else None for c in told.cells)]
    return [_coloured(line, before, result) for line, result in zip(lines, results, strict=True)]


def _line(row: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    parts = [f"{_short(text):{size}}" for text, size in zip(row, widths, strict=False)]
    return cut(printable("  ".join([*parts, row[-1]])), width, _CUT)


def setting_words(setting: Mapping[str, str]) -> str:
    """Return a setting as people write it."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or AS_IT_IS


def _row(cell: Cell, ran: Ran | None) -> tuple[str, ...]:
    result, took, where = ("not run", "", "")
    if ran is not None:
        cause = f" ({ran.cause})" if ran.cause else ""
        result, took, where = ran.result, f"{ran.seconds:.0f}", ran.where + cause
    return (str(cell.number), cell.name, setting_words(cell.setting), result, took, where)


def _short(text: str) -> str:
    return cut(one_line(text), _WIDEST, _CUT)


def _coloured(line: str, at: int, result: Came | None) -> str:
    if result is None:
        return line
    end = at + len(result)
    return f"{line[:at]}\x1b[{_COLOURS.get(result, _OTHER)}m{line[at:end]}\x1b[0m{line[end:]}"


def summary(told: Told) -> str:
    """Return how many cells ended how, and how long all took."""
    ended = [ran.result for ran in told.ran]
    counts = [f"{ended.count(came)} {came}" for came in dict.fromkeys(ended)]
    left = len(told.cells) - len(told.ran)
    counts += [f"{left} not run"] if left else []
    return f"{counted(len(told.cells), 'cell')}: {', '.join(counts)}; {seconds(told.seconds)}"


# ---- for programs --------------------------------------------------------------------------------


def as_json(told: Told, version: str) -> dict[str, Any]:
    """Return the object that matrix.json holds, secrets masked."""
    ran = {one.number: one for one in told.ran}
    return {
        "schema": 1,
        "scenario": told.scenario,
        "title": told.title,
        "started_in": told.started_in,
        "started": told.started,
        "seconds": round(told.seconds, 3),
        "jobs": told.jobs,
        "status": told.status,
        "complete": len(told.ran) == len(told.cells) and not told.interrupted,
        "cells": [_cell(cell, ran.get(cell.number)) for cell in told.cells],
        "versions": {"hangbisect": version},
    }


def _cell(cell: Cell, ran: Ran | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "number": cell.number,
        "name": cell.name,
        "setting": dict(cell.setting),
        "launcher": cell.launcher,
        "nodes": cell.nodes,
        "ranks": cell.ranks,
        "result": None,
        "where": "",
        "cause": None,
        "seconds": None,
        "command": [],
        "environment": {},
        "run_dir": None,
        "mark": None,
    }
    if ran is None:
        return facts
    return facts | {
        "result": ran.result,
        "where": printable(ran.where),
        "cause": ran.cause,
        "seconds": ran.seconds,
        "command": mask_command(ran.command),
        "environment": {name: mask(name, value) for name, value in ran.environment.items()},
        "run_dir": ran.run_dir or None,
        "mark": ran.mark,
    }


def _message(ran: Ran) -> str:
    """Return "hang at checkpoint 9 in wandb.init, rank 0" or "crash: ValueError: no"."""
    between = " " if ran.where.startswith(("at ", "in ")) else ": "
    return f"{ran.result}{between}{ran.where}" if ran.where else ran.result


def as_junit(told: Told) -> str:
    """Return JUnit XML: a test a cell; a hang, a crash or a slow one is a failure."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    ran = {one.number: one for one in told.ran}
    suite = TestSuite(printable(told.title) or "hangbisect matrix")
    for cell in told.cells:
        one = ran.get(cell.number)
        test = TestCase(printable(cell.name), classname=f"hangbisect.{_stem(told.scenario)}")
        if one is None or one.result == "interrupted":
            test.result = [Skipped("not run: the matrix was interrupted")]
        else:
            test.time = one.seconds
            message = printable(_message(one))
            if one.result in ("hang", "crash", "slow"):
                test.result = [Failure(message, one.result)]
            elif one.result != "ok":
                test.result = [Error(message, one.result)]
            if one.run_dir:
                test.system_out = printable(f"run folder: {one.run_dir}")
        suite.add_testcase(test)
    xml = JUnitXml("hangbisect")
    xml.add_testsuite(suite)
    text: bytes = xml.tostring()  # type: ignore[no-untyped-call]  # junitparser says no types here
    return text.decode("utf-8")


def _stem(file: str) -> str:
    return printable(file.rstrip("/").rpartition("/")[2].rpartition(".")[0] or file)
