"""What was found, in words and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from ..report.words import counted, printable, seconds
from .examination import Examination
from .finding import LEVELS, Found, Level

SCHEMA = 1
_NAMED: dict[Level, str] = {
    "problem": "problem",
    "warning": "warning",
    "unknown": "not known",
    "ok": "ok",
}
_COLOURS: dict[Level, str] = {"problem": "31", "warning": "33", "unknown": "2", "ok": "32"}
_INDENT = " " * 11
_AFTERWARDS = "your own job: hangbisect run -- <the command you use today>"


def lines(
    found: Examination, where: str, *, everything: bool, width: int | None, colours: bool
) -> list[str]:
    """Return the report: the worst first, what is ok only with `everything`. `where` is this
    machine; `width` is the terminal's, None for a pipe: a finding is one line then, and so is its
    next step.
    """
    shown = [one for level in LEVELS for one in found.of(level) if everything or level != "ok"]
    report = _wrapped(_headline(found, where), "", width)
    for one in shown:
        report += _told(one, width, colours)
    if not everything:
        report.append("    every check: hangbisect doctor --all")
    if found.level == "ok":
        report.append(f"    {_AFTERWARDS}")
    return report


def _headline(found: Examination, where: str) -> str:
    problems, warnings, many = (len(found.of(level)) for level in LEVELS[:3])
    counts = [counted(problems, "problem")] if problems else []
    counts += [counted(warnings, "warning")] if warnings else []
    counts += [f"{many} not known"] if many else []
    what = ", ".join(counts) or "nothing found that makes a job hang"
    took = f"{counted(found.checks, 'check')} in {seconds(found.seconds)}"
    return f"{found.level.upper()}  doctor on {where}: {what}  ({took})"


def _told(one: Found, width: int | None, colours: bool) -> Iterator[str]:
    level = _NAMED[one.finding.level]
    first = f"{level:9}  "
    text = f"{one.check.id}: {printable(one.finding.value)}"
    body = _wrapped(text, first, width)
    if colours:
        body[0] = f"\x1b[{_COLOURS[one.finding.level]}m{level:9}\x1b[0m{body[0][9:]}"
    yield from body
    if one.finding.next:
        yield from _wrapped(f"next: {printable(one.finding.next)}", _INDENT, width)


def _wrapped(text: str, first: str, width: int | None) -> list[str]:
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text,
        max(width, len(_INDENT) + 30),
        initial_indent=first,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_data(found: Examination, host: str, node: int) -> dict[str, Any]:
    """Return the same for a program."""
    return {
        "schema": SCHEMA,
        "outcome": found.level,
        "host": host,
        "node": node,
        "seconds": round(found.seconds, 3),
        "findings": [
            {
                "id": one.check.id,
                "level": one.finding.level,
                "title": one.check.title,
                "value": one.finding.value,
                "next": one.finding.next or None,
            }
            for one in found.found
        ],
    }
