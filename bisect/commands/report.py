"""Make the reports of a run, to attach to an issue and to look at; or read a saved log.

hangbisect report runs/20261120T174812-a1   report.md for an issue, report.html for a browser,
                                            trace.json for a trace viewer; secrets are masked
hangbisect report runs/... --anonymous      users, hosts and addresses are masked as well
hangbisect report runs/iso-... --trials     every start of an isolation, or cell of a matrix
hangbisect report slurm-4711.out            which ranks reached which checkpoint, and which did
                                            not, from a log of Slurm, kubectl, CI,
                                            torchrun: prefixes and other output in it
                                            do not matter
kubectl logs -l job=train --prefix --timestamps | hangbisect report -
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ..base.argument_types import Parser
from ..base.errors import HangbisectError, UsageError
from ..base.words import format_bytes
from . import make_parser

LARGEST = 256 << 20  # bytes
LIMIT = 60.0  # seconds to read a log: it may lie on a disk that hangs, or come out of a pipe
_PURPOSE = {
    "report.md": "paste it into an issue",
    "report.html": "open it in a browser, or attach it",
    "trace.json": "open it in https://ui.perfetto.dev",
}


def run(argv: list[str]) -> int:
    """Make the reports, or print the table of checkpoints, last lines and missing ranks.

    Returns the exit status.
    """
    args = _make_report_parser().parse_all(argv)
    if args.log is None:
        raise UsageError(
            "report needs a run folder or a log", "hangbisect report runs/20261120T174812-a1"
        )
    if args.log != "-" and _is_folder(args.log):
        return _trials(args) if args.trials else _reports(args)
    for name in ("output", "anonymous", "no_redact", "trials"):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} is for a run folder, and {_format_log_name(args.log)} is none"
            )
    return _log(args)


def _make_report_parser() -> Parser:
    parser = make_parser("report", __doc__)
    add = parser.add_argument
    add("--json", action="store_true", help="what was found or made, as JSON")
    add("log", nargs="?", metavar="RUN|LOGFILE", help='a run folder, or a log; "-" reads stdin')
    add = parser.add_argument_group("of a run folder").add_argument
    add("--output", metavar="DIR", help="where the reports go (the run folder)")
    add("--anonymous", action="store_true", help="pseudonyms for users, homes, hosts, addresses")
    add("--no-redact", action="store_true", help="leave secrets in: for your eyes alone")
    add("--trials", action="store_true", help="print every start of an isolation or a matrix")
    return parser


def _is_folder(path: str) -> bool:
    from ..base.deadline import within

    try:
        return within(LIMIT, os.path.isdir, path)
    except TimeoutError:
        raise UsageError(f"{path} does not answer within {LIMIT:.0f} s") from None


# ---- of a run folder -----------------------------------------------------------------------------


def _reports(args: argparse.Namespace) -> int:
    from ..base.words import replace_unprintable
    from ..report.report_files import make_reports, reports_json

    if args.anonymous and args.no_redact:
        raise UsageError("--anonymous masks more, and --no-redact nothing: give one of them")
    output = Path(args.output) if args.output else None
    made = make_reports(Path(args.log), output, anonymous=args.anonymous, redact=not args.no_redact)
    if args.json:
        print(json.dumps(reports_json(made), indent=2, ensure_ascii=False))
        return 1 if made.trouble else 0
    for path in made.files:
        print(f"{path}: {_PURPOSE[path.name]}")
    if args.no_redact:
        print("nothing is masked in them: for your eyes alone")
    else:
        print(f"masked: {made.masked.words or 'no secret was found'}")
    for sentence in (*made.missing, *made.trouble):
        print(f"hangbisect: {replace_unprintable(sentence)}", file=sys.stderr)
    return 1 if made.trouble else 0


def _trials(args: argparse.Namespace) -> int:
    from ..base.words import terminal_width
    from ..report.isolation_text import list_rows
    from ..report.run_reader.run import read_run

    found = read_run(args.log)
    if found.kind == "run":
        raise UsageError(f"{args.log} is one run: it has no trials", f"hangbisect show {args.log}")
    if args.json:
        print(json.dumps(found.answer, indent=2, ensure_ascii=False))
    else:
        print("\n".join(list_rows(found, terminal_width())))
    return 0


# ---- of a log ------------------------------------------------------------------------------------


def _log(args: argparse.Namespace) -> int:
    from ..base.words import terminal_width
    from ..report.saved_log_text import log_json, log_lines
    from ..saved_log import read_our_lines, read_progress

    found = read_progress(read_our_lines(_lines(args.log)))
    if found is None:
        raise HangbisectError(
            f"no line of ours in {_format_log_name(args.log)}: "
            "they look like [12:00:00.000][+0.123s][R0/2][LR0][PID:4711] CHECKPOINT 1: ...",
            "hangbisect run -- COMMAND makes them; dumps of stacks: hangbisect merge FILE...",
        )
    if args.json:
        print(json.dumps(log_json(found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(log_lines(found, _format_log_name(args.log), terminal_width())))
    return 0


def _format_log_name(log: str) -> str:
    return "stdin" if log == "-" else log


def _lines(log: str) -> list[str]:
    from ..base.deadline import within

    def read() -> bytes:
        if log == "-":
            return sys.stdin.buffer.read(LARGEST + 1)
        with open(log, "rb") as file:
            return file.read(LARGEST + 1)

    try:
        data = within(LIMIT, read)
    except TimeoutError:
        raise HangbisectError(
            f"{_format_log_name(log)} did not come to an end within {LIMIT:.0f} s"
        ) from None
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        end = f"tail --bytes={LARGEST} {log} | hangbisect report -"
        raise UsageError(f"{_format_log_name(log)} has more than {format_bytes(LARGEST)}", end)
    return data.decode("utf-8", "replace").splitlines()
