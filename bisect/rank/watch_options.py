"""The options of the watch: the same for every command that watches, and in the environment.

Each is also read from HANGBISECT_NAME: HANGBISECT_STALL=30. The command line has the last word.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ..base.argument_types import (
    Parser,
    choice,
    count,
    function,
    known_hang,
    named_seconds,
    positive,
)
from ..base.errors import UsageError
from ..base.variables import BARRIER_HELP, BARRIER_MODES, DEFAULT_BARRIER_MODE, STEADY

ENVIRONMENT_PREFIX = "HANGBISECT_"
WATCH = "the watch"
SCRIPT = "a script of your own"
_REPEATABLE = ("--timeout", "--step", "--capture")
_SWITCH = ("0", "1")


def parser_for_scripts(prog: str, epilog: str | None) -> Parser:
    """Return a parser for a command that watches a script: the options of the watch, and of it."""
    parser = Parser(prog=prog, epilog=epilog)
    parser.add_argument("-h", "--help", action="help", help="show this help")
    add_watch_options(parser)
    add_script_options(parser)
    return parser


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the watch, the same for every command that watches."""
    group = parser.add_argument_group(WATCH, "Each also as HANGBISECT_NAME (HANGBISECT_STALL=30).")
    add = group.add_argument
    add("--run-dir", metavar="DIR", help="the run folder (runs/<UTC time>-<run id>)")
    add(
        "--timeout",
        metavar="[NAME=]SECONDS",
        type=named_seconds("--timeout"),
        action="append",
        default=[],
        help="deadline of every checkpoint, or of the checkpoint or phase NAME; repeatable",
    )
    add(
        "--stall",
        metavar="SECONDS",
        type=positive("--stall"),
        default=20.0,
        help="look closely when nothing of a rank has moved for this long (20)",
    )
    add(
        "--slow-limit",
        metavar="FACTOR",
        type=positive("--slow-limit", "deadlines"),
        default=5.0,
        help="a rank that only uses CPU in one place is hung after this many deadlines (5)",
    )
    add(
        "--limit",
        metavar="SECONDS",
        type=positive("--limit"),
        help="end the run after this time, even if it moves",
    )
    add(
        "--barriers",
        metavar="|".join(BARRIER_MODES),
        type=choice("--barriers", BARRIER_MODES),
        default=DEFAULT_BARRIER_MODE,
        help=f"{BARRIER_HELP} ({DEFAULT_BARRIER_MODE})",
    )
    add(
        "--on-hang",
        metavar="WHAT",
        type=choice("--on-hang", ("end", "report", "hold")),
        help="end: end every rank; report: report, and go on watching; hold: stop nothing and wait "
        "for you (end; for a script of your own: report)",
    )
    add(
        "--past",
        metavar="NAME",
        help="end well as soon as every rank is past this checkpoint or phase; of a script of your "
        "own also a number: past so many training steps after the first",
    )
    add(
        "--known-hang",
        metavar="FILE",
        type=known_hang("--known-hang"),
        help="call the hang whose stacks are in FILE as soon as they stand still (isolate writes "
        "such files)",
    )
    add(
        "--plain",
        action="store_true",
        help="no colours and no live table, only lines as in a log",
    )
    add(
        "--nodes",
        metavar="HOW",
        type=choice("--nodes", ("join", "off")),
        default="join",
        help="join: the monitors of several nodes talk to each other, if they have a token in "
        "common, and give one verdict; off: each judges alone (join)",
    )
    add("--json", action="store_true", help="the verdict as JSON on the terminal")
    add("--every-rank", action="store_true", help="print the lines of all ranks, even above 16")


def add_script_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a script that is not ours: what of it is reported, and for how long."""
    add = parser.add_argument_group(SCRIPT, "Each also as HANGBISECT_NAME.").add_argument
    add(
        "--step",
        metavar="MODULE:FUNCTION",
        type=function("--step"),
        action="append",
        default=[],
        help="a step of your own: this function, whenever it is called; repeatable",
    )
    add(
        "--capture",
        metavar="MODULE:CLASS",
        type=function(
            "--capture", "For a module of the script itself write hangbisect.capture(it)."
        ),
        action="append",
        default=[],
        help="`hangbisect capture on` keeps the inputs of every module of this class; repeatable",
    )
    add(
        "--steady",
        metavar="N",
        type=count("--steady", 1),
        default=STEADY,
        help=f"stop reporting steps after this many training steps, or the end of fit ({STEADY})",
    )
    add(
        "--health",
        metavar="HOW",
        type=choice("--health", ("ask", "off")),
        default="ask",
        help="ask: an inference server is asked on this machine whether it is ready (GET /health) "
        "until it says so; off: that it listens is enough (ask)",
    )
    add("--keep-watching", action="store_true", help="report every step to the end")


def read_environment_words(parser: Parser, environ: Mapping[str, str]) -> list[str]:
    """Return the words that HANGBISECT_NAME variables stand for, for flags of the watch."""
    words: list[str] = []
    for group in parser._action_groups:
        if group.title not in (WATCH, SCRIPT):
            continue
        for action in group._group_actions:
            flag = action.option_strings[0]
            variable = variable_of(flag[2:])
            value = environ.get(variable, "")
            if not value:
                continue
            if action.nargs == 0:
                words += [flag] if choice(variable, _SWITCH)(value) == "1" else []
                continue
            # --timeout may be there more than once: HANGBISECT_TIMEOUT=60,wandb_logger=120
            values = value.split(",") if flag in _REPEATABLE else [value]
            for one in values:
                if callable(action.type):
                    _read_as(variable, flag, action.type, one)
                words.append(f"{flag}={one}")
    return words


def variable_of(option: str) -> str:
    """Return the variable that stands for an option of the watch: "run-dir", without dashes."""
    return ENVIRONMENT_PREFIX + option.replace("-", "_").upper()


def format_options(args: argparse.Namespace) -> dict[str, str]:
    """Return what `args` say of the watch, by option, without what is the default."""
    parser = Parser()
    add_watch_options(parser)
    add_script_options(parser)
    options = {}
    for action in parser._actions:
        value = getattr(args, action.dest, action.default)
        if value in (action.default, None, []):
            continue
        name = action.option_strings[0][2:]
        if action.dest == "timeout":
            pairs = [f"{where}={seconds}" if where else str(seconds) for where, seconds in value]
            options[name] = ",".join(pairs)
        elif action.dest in ("step", "capture"):
            options[name] = ",".join(value)
        elif action.dest == "known_hang":
            options[name] = value["file"]
        else:
            options[name] = "1" if value is True else str(value)
    return options


def _read_as(variable: str, flag: str, read: object, value: str) -> None:
    """Raise UsageError, with the variable in the place of the flag, if `value` cannot be read."""
    try:
        read(value)  # type: ignore[operator]  # a reader from argument_types
    except UsageError as error:
        raise UsageError(str(error).replace(flag, variable, 1)) from None
