"""Read our lines out of a saved log: who reached which checkpoint, who is missing.

hangbisect report slurm-4711.out         a log of Slurm, kubectl, CI, torchrun: prefixes and other
                                         output in it do not matter
kubectl logs -l job=train --prefix --timestamps | hangbisect report -
hangbisect report runs/20261120T174812-a1   a run folder: its verdict again
"""

from __future__ import annotations

import json
import os
import sys

from ..errors import HangbisectError, UsageError
from ..rank.argument_types import Parser

LARGEST = 256 << 20  # bytes
LIMIT = 60.0  # seconds to read a log: it may lie on a disk that hangs, or come out of a pipe


def run(argv: list[str]) -> int:
    """Print the table of checkpoints, last lines and who is missing."""
    parser = Parser(prog="hangbisect report", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("log", nargs="?", metavar="LOGFILE", help='a saved log; "-" reads stdin')
    args = parser.parse_all(argv)
    if args.log is None:
        raise UsageError("report needs a log", "hangbisect report slurm-4711.out")
    if os.path.isdir(args.log):
        _print_verdict(args.log, args.json)
        return 0

    from ..report.saved_log import log_json, log_lines
    from ..saved_log.our_lines import read
    from ..saved_log.progress import progress

    found = progress(read(_lines(args.log)))
    if found is None:
        raise HangbisectError(
            f"no line of ours in {_name(args.log)}: "
            "they look like [12:00:00.000][+0.123s][R0/2][LR0][PID:4711] CHECKPOINT 1: ...",
            "hangbisect run -- COMMAND makes them; dumps of stacks: hangbisect merge FILE...",
        )
    if args.json:
        print(json.dumps(log_json(found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(log_lines(found, _name(args.log), _width())))
    return 0


def _name(log: str) -> str:
    return "stdin" if log == "-" else log


def _lines(log: str) -> list[str]:
    from ..evidence.aside import within

    def read() -> bytes:
        if log == "-":
            return sys.stdin.buffer.read(LARGEST + 1)
        with open(log, "rb") as file:
            return file.read(LARGEST + 1)

    try:
        data = within(LIMIT, read)
    except TimeoutError:
        raise HangbisectError(f"{_name(log)} did not come to an end within {LIMIT:.0f} s") from None
    except OSError as error:
        raise UsageError(f"{log} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        end = f"tail --bytes={LARGEST} {log} | hangbisect report -"
        raise UsageError(f"{_name(log)} has more than {LARGEST >> 20} MiB", end)
    return data.decode("utf-8", "replace").splitlines()


def _print_verdict(folder: str, as_json: bool) -> None:
    """Print the verdict of a run folder again."""
    from ..report.again import verdict_again

    file = os.path.join(folder, "verdict.json")
    try:
        with open(file, encoding="utf-8") as opened:
            data = json.load(opened)
    except OSError as error:
        raise UsageError(
            f"{folder} is a folder without a verdict ({file}: {error.strerror})",
            "report takes the log of a job, or its run folder.",
        ) from None
    except ValueError as error:
        raise HangbisectError(f"{file} is no JSON: {error}") from None
    if as_json:
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    try:
        lines = verdict_again(data, folder, _width())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HangbisectError(f"{file} is no verdict of schema 1 ({error!r})") from None
    print("\n".join(lines))


def _width() -> int | None:
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return None
