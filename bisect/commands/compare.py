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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.argument_types import Parser
from ..base.errors import UsageError
from ..base.json_codec import to_json

if TYPE_CHECKING:
    from ..report.run_reader.run import RecordedRun

SCHEMA = 1
DIFFERENT = 1  # exit status, as diff(1) has it


def run(argv: list[str]) -> int:
    """Print what differs; return 0 if nothing does, else 1."""
    args = _arguments(argv)
    from ..report.comparison import compare_runs
    from ..report.redaction import redactor_for
    from ..report.redaction.run_redaction import redact_run

    a, b = (_read(folder) for folder in args.folders)
    # One for both: the same secret has the same mark in both, and another one another.
    redactor = redactor_for(replace(a, nodes=(*a.nodes, *b.everywhere)), anonymous=args.anonymous)
    named = [replace(one, folder=Path(redactor.text(str(one.folder)))) for one in (a, b)]
    found = compare_runs(*(redact_run(one, redactor) for one in named))
    if args.json:
        print(json.dumps({"schema": SCHEMA, **to_json(found)}, indent=2, ensure_ascii=False))
    else:
        from ..base.words import terminal_size
        from ..report.comparison import comparison_lines

        print("\n".join(comparison_lines(found, *terminal_size())))
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


def _read(folder: str) -> RecordedRun:
    from ..report.run_reader.run import read_run

    found = read_run(folder)
    if found.kind != "run":
        kind = "an isolation" if found.kind == "isolation" else "a matrix"
        raise UsageError(
            f"{folder} is the folder of {kind}",
            "compare takes single starts: name the folder of one of them, which lies in it.",
        )
    return found
