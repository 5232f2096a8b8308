"""Run a script of yours, watched, where only the script in the launcher's command can be changed.

torchrun --nproc_per_node=2 -m bisect watch train.py --lr 0.1
torchrun --nproc_per_node=2 -m bisect watch --stall 60 -m package.train

Options of the watch come before the script; what follows it is its own. The process becomes
`python train.py --lr 0.1` itself, of the same Python with the same flags. Where the launcher's
command can be changed too, `hangbisect run -- torchrun ...` sees more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..base.argument_types import Parser
from ..base.errors import UsageError

_LOCAL_RANK = ("--local-rank", "--local_rank")


def run(argv: list[str]) -> int:
    """Become the script; returns only if that is not possible."""
    from ..rank.watch_options import read_environment_words
    from ..rank.watched.user_functions import check_captured_classes, check_step_functions

    ours, script = _split_command(argv)
    parser = _make_watch_parser()
    args = parser.parse_all([*read_environment_words(parser, os.environ), *ours])
    if not script:
        raise UsageError("watch needs the script to run", "torchrun ... -m bisect watch train.py")
    if script[0] != "-m" and not os.path.exists(script[0]):
        raise UsageError(f"there is no script {script[0]!r} in {os.getcwd()}")
    if sys.flags.ignore_environment:
        raise UsageError(
            "this Python ignores its environment (-E or -I), by which the watch reaches a script",
            "Start it without that flag, or put `hangbisect run --` in front of the command.",
        )
    check_captured_classes(args.capture, script)
    check_step_functions(args.step, script)
    environ = {**os.environ, **_variables(args)}
    words = _with_local_rank(script, sys.argv[1:])
    command = [sys.executable, *python_flags(sys.orig_argv, len(sys.argv) - 1), *words]
    sys.stdout.flush()
    os.execve(sys.executable, command, environ)
    return 0


def _make_watch_parser() -> Parser:
    from ..rank.watch_options import parser_for_scripts

    return parser_for_scripts("python -m bisect watch", __doc__)


def _variables(args: argparse.Namespace) -> dict[str, str]:
    from ..rank.watch_options import format_options
    from ..rank.watched.command_environment import variables

    return variables(format_options(args))


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our options, and the script (or -m and its module) with its arguments."""
    flags = {
        flag: action.nargs == 0
        for action in _make_watch_parser()._actions
        for flag in action.option_strings
    }
    at = 0
    while at < len(argv):
        word = argv[at]
        name = word.partition("=")[0].replace("_", "-")
        if word == "--":
            return list(argv[:at]), list(argv[at + 1 :])
        if word == "-m" or not word.startswith("-"):
            break
        at += 1 if "=" in word or flags.get(name, True) else 2
    return list(argv[:at]), list(argv[at:])


def _with_local_rank(script: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the script's words, with the --local-rank that old launchers put before all others."""
    own = 2 if script[0] == "-m" else 1
    first = words[0] if words else ""
    given = [first] if first.startswith(tuple(f"{name}=" for name in _LOCAL_RANK)) else []
    if first in _LOCAL_RANK:
        given = list(words[:2])
    return [*script[:own], *given, *script[own:]]


def python_flags(original: Sequence[str], arguments: int) -> list[str]:
    """Return Python's own flags in `original` (sys.orig_argv), whose last `arguments` words are the
    program's; before these stands what was started: a script, or -m and a module.
    """
    words = list(original[1 : len(original) - arguments])
    if not words:
        return []
    last = words.pop()
    if last.startswith("-") and "m" in last:  # -mbisect
        words.append(last.partition("m")[0])
    elif words and words[-1][0] == "-" != words[-1][1:2] and words[-1][-1] == "m":
        words[-1] = words[-1][:-1]  # -m bisect, -um bisect
    return [word for word in words if word != "-"]
