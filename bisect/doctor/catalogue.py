"""All checks, family by family, and what they found, in words and as JSON.

A new family is a file with a FAMILY, and its name here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base.words import format_count, format_seconds, printable, wrap_line
from . import (
    contradictions,
    devices,
    folders,
    infiniband,
    interfaces,
    leftovers,
    libraries,
    limits,
    master_address,
    nodes,
    services,
)
from .examination import LEVELS, Examination, Found, Level

FAMILIES = (
    contradictions.FAMILY,
    master_address.FAMILY,
    master_address.PORT,
    nodes.FAMILY,
    interfaces.FAMILY,
    services.PROXIES,
    services.FAMILY,
    leftovers.FAMILY,
    leftovers.LOCK_FILES,
    folders.FAMILY,
    limits.SHARED_MEMORY,
    limits.FAMILY,
    devices.FAMILY,
    devices.PCI,
    libraries.PRELOADED,
    infiniband.FAMILY,
    limits.TRACING,
)


SCHEMA = 1
_LEVEL_NAMES: dict[Level, str] = {
    "problem": "problem",
    "warning": "warning",
    "unknown": "not known",
    "ok": "ok",
}
_COLOURS: dict[Level, str] = {"problem": "31", "warning": "33", "unknown": "2", "ok": "32"}
_INDENT = 11  # columns before what a check found
_AFTERWARDS = "your own job: hangbisect run -- <the command you use today>"


def format_examination(
    found: Examination, where: str, *, everything: bool, width: int | None, colours: bool
) -> list[str]:
    """Return the report: the worst first, what is ok only with `everything`. `where` is this
    machine; `width` is the terminal's, None for a pipe: a finding is one line then, and so is its
    next step.
    """
    shown = [one for level in LEVELS for one in found.of(level) if everything or level != "ok"]
    report = wrap_line(_format_headline(found, where), width, _INDENT)
    for one in shown:
        report += _format_finding(one, width, colours)
    if not everything:
        report.append("    every check: hangbisect doctor --all")
    if found.level == "ok":
        report.append(f"    {_AFTERWARDS}")
    return report


def _format_headline(found: Examination, where: str) -> str:
    problems, warnings, many = (len(found.of(level)) for level in LEVELS[:3])
    counts = [format_count(problems, "problem")] if problems else []
    counts += [format_count(warnings, "warning")] if warnings else []
    counts += [f"{many} not known"] if many else []
    what = ", ".join(counts) or "nothing found that makes a job hang"
    took = f"{format_count(found.checks, 'check')} in {format_seconds(found.seconds)}"
    return f"{found.level.upper()}  doctor on {where}: {what}  ({took})"


def _format_finding(one: Found, width: int | None, colours: bool) -> Iterator[str]:
    level = _LEVEL_NAMES[one.finding.level]
    text = f"{level:9}  {one.check.id}: {printable(one.finding.value)}"
    body = wrap_line(text, width, _INDENT)
    if colours:
        body[0] = f"\x1b[{_COLOURS[one.finding.level]}m{level:9}\x1b[0m{body[0][9:]}"
    yield from body
    if one.finding.next:
        text = f"{'':{_INDENT}}next: {printable(one.finding.next)}"
        yield from wrap_line(text, width, _INDENT)


def examination_json(found: Examination, host: str, node: int) -> dict[str, Any]:
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
