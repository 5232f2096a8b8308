"""The commands that start a job again and again: isolate and matrix."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.argument_types import Parser, around_dashes, count, dashes_missing, positive, share
from ..base.errors import UsageError
from . import make_parser

if TYPE_CHECKING:
    from ..trials.isolation_request import IsolationRequest

HELP = {
    "isolate": """Find the smallest change that makes a hang go away, and prove it.

hangbisect isolate -- torchrun --nproc_per_node=2 train.py     the command that hangs
hangbisect isolate scenarios/startup.yaml                      what a scenario file names
hangbisect isolate --version vllm=0.19.1,0.20.0 -- vllm serve M   other versions of a package
hangbisect isolate --resume runs/iso-...                       go on after an interruption

It starts the job again and again, each time with other components turned off. As you run it, it
must hang; with all of them safe, it must not. Then it searches, and confirms what it found. With
--crash it looks in the same way for what avoids a crash. Exit status: 0 isolated, 1 no start
hung, 3 it hangs and nothing was isolated, 5 it fails in another way.
""",
    "matrix": """\
Run a job under one setting after the other, from a scenario file, and say how each ended.

hangbisect matrix recommended          one of ours, by name; any other by its path
hangbisect matrix my.yaml --jobs 2     cells side by side, kept apart
hangbisect matrix my.yaml --slurm      cells as tasks of a Slurm array, each on nodes of its own
hangbisect matrix my.yaml --dry-run    print the commands, ready to paste, and start nothing
hangbisect matrix --resume DIR         go on after an interruption; what is done is not repeated

Exit status: 0 all well; 3 a hang; 5 a crash, or a cell that could not be judged; 4 none of these,
but a cell reached its limit while it still moved; 130 interrupted.
""",
}


def isolate(argv: list[str]) -> int:
    """Isolate; return what the answer comes to."""
    ours, command = around_dashes(argv)
    parser = _isolate_parser()
    args, rest = parser.parse_first(ours)
    if "--" not in argv and rest and _is_program(args.file, rest):
        raise dashes_missing("isolate", argv, args.file)
    args = parser.parse_all(ours)
    if sum((bool(command), args.file is not None)) > 1:
        raise UsageError(
            f"isolate has both a file ({args.file}) and a command",
            "One of them: hangbisect isolate FILE, or hangbisect isolate -- COMMAND",
        )
    from ..trials import isolation_session

    return isolation_session.isolate(_request(args, command))


def _is_program(word: str | None, following: Sequence[str]) -> bool:
    """Return whether a word, no file of ours, begins a command that goes on with others."""
    from ..trials.scenario_file import scenario_names

    if word is None or word in scenario_names():
        return False
    return not following[0].startswith("-") or shutil.which(word) is not None


def _isolate_parser() -> Parser:
    parser = make_parser("isolate", HELP["isolate"])
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="a scenario file, or the name of one of ours")
    add("--yes", action="store_true", help="do not ask before a command of yours is started")
    add("--resume", metavar="DIR", help="go on with the isolation in DIR; repeat no start")
    add("--run-dir", metavar="DIR", help="the isolation's folder (runs/iso-<UTC time>-<id>)")
    add("--plain", action="store_true", help="only lines as in a log")
    add("--json", action="store_true", help="the answer as JSON on standard output")
    _add_search(parser)
    _add_watch(parser)
    return parser


_KNOWN = "with what is known by then"
_CONFIDENCE = "of an answer about a hang that comes and goes (0.95)"


def _add_search(parser: Parser) -> None:
    add = parser.add_argument_group("the search").add_argument
    for flag, metavar, read, help in (
        ("--confirm", "N", count("--confirm"), "starts with the change and without (3)"),
        ("--max-trials", "N", count("--max-trials", 1), f"end after this many starts, {_KNOWN}"),
        ("--max-time", "SECONDS", positive("--max-time"), f"end after this time, {_KNOWN}"),
        ("--confidence", "P", share("--confidence"), _CONFIDENCE),
    ):
        add(flag, metavar=metavar, type=read, help=help)
    add(
        "--only",
        metavar="TOGGLE,...",
        type=_parse_names,
        default=(),
        help="try these toggles alone",
    )
    add(
        "--without",
        metavar="TOGGLE,...",
        type=_parse_names,
        default=(),
        help="leave these toggles out",
    )
    add(
        "--version",
        metavar="NAME=VERSION,...",
        dest="versions",
        action="append",
        default=[],
        help="also try these versions of a package, each in an environment of its own over that of "
        "the job, made by uv; repeatable",
    )
    add("--flaky", action="store_true", help="treat it as one that comes and goes, from the start")
    add("--crash", action="store_true", help="look for what avoids a crash, not a hang")
    less = "also start it on fewer ranks, on the CPU, with gloo"
    add("--describe", action="store_true", help=less)


# What is not taken over as it was said.
_READ = ("run_dir", "plain", "stall", "timeout", "versions")


def _parse_names(value: str) -> tuple[str, ...]:
    return tuple(name.strip().replace("-", "_") for name in value.split(",") if name.strip())


def _add_watch(parser: Parser) -> None:
    from ..base.argument_types import named_seconds

    add = parser.add_argument_group("the watch, of each start").add_argument
    add(
        "--timeout",
        metavar="[NAME=]SECONDS",
        type=named_seconds("--timeout"),
        action="append",
        default=[],
        help="deadline of every checkpoint, or of the checkpoint or phase NAME; repeatable",
    )
    for flag, help in (
        ("--stall", "look closely when nothing of a rank has moved for this long (20)"),
        ("--limit", "end a start after this time, even if it moves (3600)"),
    ):
        add(flag, metavar="SECONDS", type=positive(flag), help=help)
    add(
        "--keep-watching",
        action="store_true",
        help="while no hang is known let every start go on to its end, or to --limit, and not only "
        "the first: for one that comes and goes, later than the first training steps",
    )


def _request(args: argparse.Namespace, command: Sequence[str]) -> IsolationRequest:
    from ..trials.isolation_request import IsolationRequest

    watch = {} if args.stall is None else {"stall": f"{args.stall:g}"}
    if args.timeout:
        each = [f"{name}={seconds:g}" if name else f"{seconds:g}" for name, seconds in args.timeout]
        watch["timeout"] = ",".join(each)
    return IsolationRequest(
        command=tuple(command),
        folder=args.run_dir,
        plain=args.plain or not sys.stdout.isatty() or "NO_COLOR" in os.environ,
        watch=watch,
        versions=tuple(args.versions),
        **{name: value for name, value in vars(args).items() if name not in _READ},
    )


def matrix(argv: list[str]) -> int:
    """Run the cells of a scenario; return the status of the worst."""
    from ..trials.matrix_session import MatrixRequest, run_matrix

    args = _matrix_parser().parse_all(argv)
    return run_matrix(MatrixRequest(**vars(args)))


def _split_words(value: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise UsageError(f"--sbatch cannot be {value!r}: {error}") from None


def _matrix_parser() -> Parser:
    parser = make_parser("matrix", HELP["matrix"])
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="a scenario file, or the name of one of ours")
    add(
        "--jobs",
        metavar="N",
        type=count("--jobs", 1),
        help="cells side by side (1; with --slurm, --ray as there is room)",
    )
    add(
        "--slurm",
        action="store_true",
        help="queue the cells as tasks of a Slurm array; every node has to see this folder",
    )
    add(
        "--ray",
        action="store_true",
        help="have a Ray cluster start the cells, where there is a core for each rank; the same",
    )
    add(
        "--sbatch",
        metavar="OPTIONS",
        type=_split_words,
        default=(),
        help="options for sbatch, as in --sbatch='--partition=gpu --gpus-per-node=8'",
    )
    add("--resume", metavar="DIR", help="go on with the matrix in DIR; repeat no cell that is done")
    add("--dry-run", action="store_true", help="print the commands, and start nothing")
    add("--run-dir", metavar="DIR", help="the matrix's folder (runs/<UTC time>-matrix-<name>)")
    add("--plain", action="store_true", help="lines in place of a live table; no colours")
    add("--json", action="store_true", help="print what matrix.json holds")
    return parser
