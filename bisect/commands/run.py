"""Run a command as you do today, watched from outside as well.

hangbisect run -- torchrun --nproc_per_node=2 -m bisect --fast-dev-run 1
hangbisect run --repeat 50 --until-hang -- torchrun ...     start it again until it hangs

What stands before "--" is for the watch, what stands after it is the command. It sees also what no
rank can tell: a launcher that starts nobody, and what is left when all is over. A job that ends by
itself ends with its own status; of a pipeline of ours it is 0 ok, 3 hang, 4 slow, 5 crash.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..rank.argument_types import Parser, around_dashes, count, dashes_missing
from ..stamp import stamp

if TYPE_CHECKING:
    from ..monitor.outer import Around


def run(argv: list[str]) -> int:
    """Start the command, watch it, and return its status or ours."""
    from ..rank.watch_options import from_environment

    ours, command = around_dashes(argv)
    parser = _parser()
    _, rest = parser.parse_first(ours)
    if "--" not in argv and rest and not rest[0].startswith("-"):
        raise dashes_missing("run", argv, rest[0])
    args = parser.parse_all([*from_environment(parser, os.environ), *ours])
    if not command:
        raise UsageError(
            "run needs the command to start",
            "hangbisect run -- torchrun --nproc_per_node=2 -m bisect --fast-dev-run 1",
        )
    _check_names(args, command)
    if args.until_hang and args.repeat == 1:
        raise UsageError("--until-hang stops repeating, and --repeat says how often: give both")
    if args.repeat > 1:
        return _repeat(args, command)
    from ..monitor.outer import Outer

    async def watch(around: Around) -> int:
        return await Outer(around).run()

    return asyncio.run(watch(_around(args, command)))


def _check_names(args: argparse.Namespace, command: Sequence[str]) -> None:
    from ..bisection.applying import is_ours
    from ..bisection.step_names import check_timeouts

    if is_ours(command):
        check_timeouts((name for name, _ in args.timeout), command)


def _repeat(args: argparse.Namespace, command: Sequence[str]) -> int:
    from ..rank.watch_options import as_options
    from ..trials.repeating import Repeat, repeat

    watch = as_options(args)
    watch.pop("run-dir", None)
    watch.pop("limit", None)
    folder = Path(_run_dir(args))
    return repeat(
        Repeat(tuple(command), args.repeat, args.until_hang, folder, watch, limit=args.limit)
    )


def _run_dir(args: argparse.Namespace) -> str:
    new = os.path.join("runs", f"{stamp()}-{os.getpid():x}")
    return os.path.abspath(args.run_dir or new)


def _parser() -> Parser:
    from ..rank.watch_options import parser_for_scripts

    parser = parser_for_scripts("hangbisect run", __doc__)
    add = parser.add_argument_group("starting").add_argument
    add("--repeat", metavar="N", type=count("--repeat", 1), default=1, help="start it N times (1)")
    add("--until-hang", action="store_true", help="stop repeating at the first hang")
    return parser


def _around(args: argparse.Namespace, command: Sequence[str]) -> Around:
    from ..bisection.applying import is_ours
    from ..monitor.outer import Around
    from ..monitor.outer_link import STARTER_VARIABLE
    from ..pipelines import find, walked_by
    from ..rank.watch_options import as_options, variable_of
    from ..rank.watched.captured import check_classes
    from ..rank.watched.own_functions import check_own_functions
    from ..rank.watched.reach import why_unreached
    from ..rank.watched.variables import variables

    ours = is_ours(command)
    check_classes(args.capture, command)
    check_own_functions(args.step, command)
    if not ours and (why := why_unreached(command)):
        print(f"hangbisect: {why}", file=sys.stderr)
    run_dir = _run_dir(args)
    options = {**as_options(args), "run-dir": run_dir}
    limits: dict[str, float] = dict(args.timeout)
    starter = os.environ.pop(STARTER_VARIABLE, "")
    table = (walked_by(command) if ours else find("startup")).table
    named = {variable_of(name): value for name, value in options.items()}
    return Around(
        command=tuple(command),
        run_dir=Path(run_dir),
        expects_words=ours,
        on_hang=args.on_hang or ("end" if ours else "report"),
        table=table,
        start_limit=limits.get("launcher", limits.get("", table[0].deadline)),
        stall=args.stall,
        limit=args.limit,
        answers=args.json,
        environment=named if ours else {**named, **variables(options)},
        starter=int(starter) if starter.isdigit() else None,
    )
