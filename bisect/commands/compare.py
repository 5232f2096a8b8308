"""What two starts differ in: it worked yesterday.

hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2           a good one, a bad one
hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2 --json

Outcome, command, ranks, environment, versions, Python, machine, and the time of each step, phase
and import. What differs between any two starts is left out. Secrets are masked. The exit status is
that of diff: 0 the same, 1 something differs.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..rank.argument_types import Parser

if TYPE_CHECKING:
    from ..report.kept.run import KeptRun

SCHEMA = 1
DIFFERENT = 1  # exit status, as diff(1) has it


def run(argv: list[str]) -> int:
    """Print what differs; return 0 if nothing does, else 1."""
    args = _arguments(argv)
    from ..report.comparison.comparing import compared
    from ..report.kept.redacted import redacted
    from ..report.redaction import redactor_for

    a, b = (_read(folder) for folder in args.folders)
    # One for both: the same secret has the same mark in both, and another one another.
    redactor = redactor_for(replace(a, nodes=(*a.nodes, *b.everywhere)), anonymous=args.anonymous)
    named = [replace(one, folder=Path(redactor.text(str(one.folder)))) for one in (a, b)]
    found = compared(*(redacted(one, redactor) for one in named))
    if args.json:
        print(json.dumps({"schema": SCHEMA, **asdict(found)}, indent=2, ensure_ascii=False))
    else:
        from ..report.comparison.lines import comparison_lines

        print("\n".join(comparison_lines(found, *_size())))
    return 0 if found.is_same else DIFFERENT


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="hangbisect compare", epilog=__doc__)
    add = parser.add_argument
    add("-h", "--help", action="help", help="show this")
    add("--json", action="store_true", help="all that differs, as JSON")
    add("--anonymous", action="store_true", help="pseudonyms for users, homes, hosts, addresses")
    add("folders", nargs="*", metavar="RUN", help="a run folder")
    args = parser.parse_all(argv)
    if len(args.folders) != 2:
        raise UsageError(
            f"compare needs two run folders, and got {len(args.folders)}",
            "hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2",
        )
    return args


def _read(folder: str) -> KeptRun:
    from ..report.kept.run import read

    found = read(folder)
    if found.kind != "run":
        kind = "an isolation" if found.kind == "isolation" else "a matrix"
        raise UsageError(
            f"{folder} is the folder of {kind}",
            "compare takes single starts: name the folder of one of them, which lies in it.",
        )
    return found


def _size() -> tuple[int | None, int | None]:
    """Return columns and lines of the terminal, None and None where the answer goes elsewhere."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return None, None
    return size.columns or None, size.lines or None
