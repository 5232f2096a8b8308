"""Run a command as you do today, watched from outside as well.

hangbisect run -- torchrun --nproc_per_node=2 -m bisect --fast-dev-run 1
hangbisect run --repeat 50 --until-hang -- torchrun ...     start it again until it hangs

What comes before "--" is for the watch, what comes after it is the command. The watch also sees
what no rank can report: a launcher that starts no rank, and what is left at the end. A job
that ends by itself ends with its own status; of a pipeline of ours it is 0 ok, 3 hang, 4 slow,
5 crash.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.argument_types import Parser, around_dashes, count, dashes_missing
from ..base.errors import UsageError
from ..base.files import stamp
from ..base.loading import limit_delay
from ..base.variables import FRONT_VARIABLE, OUTER_VARIABLE, STARTER_VARIABLE, TOKEN_VARIABLE

if TYPE_CHECKING:
    import socket

    from ..front.watcher_socket import WatcherSocket
    from ..monitor.asked_hosts import HostsAnswer, Question
    from ..monitor.watcher_link import SupervisedCommand


def run(argv: list[str]) -> int:
    """Start the command, watch it, and return its status or ours."""
    from ..rank.watch_options import read_environment_words

    ours, command = around_dashes(argv)
    parser = _make_run_parser()
    _, rest = parser.parse_first(ours)
    if "--" not in argv and rest and not rest[0].startswith("-"):
        raise dashes_missing("run", argv, rest[0])
    args = parser.parse_all([*read_environment_words(parser, os.environ), *ours])
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
    return _supervise(args, command)


def _supervise(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Start the command, and beside it the process that watches; return the exit status."""
    from ..front import supervise, watcher_socket

    supervise.fill_closed_streams()
    starter = os.environ.pop(STARTER_VARIABLE, "")
    link = int(starter) if starter.isdigit() else None
    if link is not None:
        os.set_inheritable(link, False)  # it was passed to us, and is not for the command
    run_dir = _run_dir(args)
    try:
        listening = watcher_socket.open_watcher_socket()
    except OSError as error:
        supervise.say(f"ranks cannot tell this process where they are: {error.strerror or error}")
        listening = watcher_socket.WatcherSocket("", "", -1)

    def watch(front: socket.socket, pid: int) -> None:
        if link is not None:  # who started us ends it, should the front be killed
            around = json.dumps({"t": "around", "mark": listening.path})
            os.write(link, f"{around}\n".encode())
        if not supervise.wait_to_load(front, link, limit_delay(args.stall, args.limit)):
            from ..base.loading import import_at_low_priority

            import_at_low_priority(f"{__package__.partition('.')[0]}.monitor.watcher")
        from ..monitor.watcher import run_watcher as watch_from_outside

        watch_from_outside(_around(args, command, run_dir, link, began), listening, front, pid)

    def tidy_up() -> None:
        import asyncio

        from ..monitor import leftovers

        asyncio.run(leftovers.tidy_up(_around(args, command, run_dir, None, began), listening.path))

    def interrupted() -> None:
        if listening.path:
            watcher_socket.note_interruption(listening.path)

    began = time.time()
    keep = [one for one in (listening.descriptor, link) if one is not None and one >= 0]
    environ = {**os.environ, **_variables_if_any(args, command, run_dir, listening)}
    try:
        status, is_given = supervise.supervise(
            command,
            environ,
            watch,
            interrupted,
            args.json,
            keep,
            lambda: watcher_socket.remove_watcher_socket(listening),
            tidy_up,
        )
    finally:
        watcher_socket.remove_watcher_socket(listening)
    if is_given:
        return status
    # Who started us takes a signal for the end of us.
    return supervise.end_as_command(status) if link is None or status >= 0 else 128 - status


def _check_names(args: argparse.Namespace, command: Sequence[str]) -> None:
    if args.capture:
        from ..rank.watched.user_functions import check_captured_classes

        check_captured_classes(args.capture, command)
    if args.step:
        from ..rank.watched.user_functions import check_step_functions

        check_step_functions(args.step, command)
    if args.timeout and _is_ours(command):
        from ..base.pipeline import check_timeouts

        check_timeouts((name for name, _ in args.timeout), command)


def _repeat(args: argparse.Namespace, command: Sequence[str]) -> int:
    from pathlib import Path

    from ..rank.watch_options import format_options
    from ..trials.trial import RepeatRequest, repeat_command

    watch = format_options(args)
    watch.pop("run-dir", None)
    watch.pop("limit", None)
    folder = Path(_run_dir(args))
    return repeat_command(
        RepeatRequest(tuple(command), args.repeat, args.until_hang, folder, watch, limit=args.limit)
    )


def _run_dir(args: argparse.Namespace) -> str:
    """Return the run folder. Where the current folder is gone, it is one of our own."""
    new = os.path.join("runs", f"{stamp()}-{os.getpid():x}")
    try:
        return os.path.abspath(args.run_dir or new)
    except FileNotFoundError:
        from tempfile import mkdtemp

        from ..front.supervise import say

        folder = mkdtemp(prefix="hangbisect-runs-")
        say(f"the current folder is gone: the run folder is {folder}")
        return folder


def _make_run_parser() -> Parser:
    from ..rank.watch_options import parser_for_scripts

    parser = parser_for_scripts("hangbisect run", __doc__)
    add = parser.add_argument_group("starting").add_argument
    add("--repeat", metavar="N", type=count("--repeat", 1), default=1, help="start it N times (1)")
    add("--until-hang", action="store_true", help="stop repeating at the first hang")
    return parser


def _is_ours(command: Sequence[str]) -> bool:
    """Return whether a command walks one of our pipelines."""
    if not any("bisect" in word for word in command):
        return False  # most do not: what knows the words of launchers need not be loaded
    from ..base.command_words import own_words_of_ours

    return own_words_of_ours(command) is not None


def _variables_if_any(
    args: argparse.Namespace, command: Sequence[str], run_dir: str, listening: WatcherSocket
) -> Mapping[str, str]:
    """Return what _variables() does; a fault of ours there keeps no command from being started."""
    try:
        return _variables(args, command, run_dir, listening)
    except UsageError:
        raise
    except Exception as error:
        print(f"hangbisect: steps of the command cannot be told: {error!r}", file=sys.stderr)
        return {}


def _variables(
    args: argparse.Namespace, command: Sequence[str], run_dir: str, listening: WatcherSocket
) -> Mapping[str, str]:
    """Return what is set in the command's environment beside what is there."""
    from ..base.command_words import starts_all_nodes
    from ..rank.watch_options import format_options, variable_of
    from ..rank.watched.command_environment import variables
    from ..rank.watched.unreached_ranks import why_unreached

    options = {**format_options(args), "run-dir": run_dir}
    named = {variable_of(name): value for name, value in options.items()}
    if listening.path:
        named[OUTER_VARIABLE] = listening.path
        named[FRONT_VARIABLE] = str(os.getpid())
    if TOKEN_VARIABLE not in os.environ and starts_all_nodes(command):
        named[TOKEN_VARIABLE] = os.urandom(16).hex()
    if _is_ours(command):
        return named
    if why := why_unreached(command):
        print(f"hangbisect: {why}", file=sys.stderr)
    return {**named, **variables(options)}


def _around(
    args: argparse.Namespace,
    command: Sequence[str],
    run_dir: str,
    starter: int | None,
    began: float,
) -> SupervisedCommand:
    from pathlib import Path

    from ..base.checkpoints import STARTUP
    from ..base.pipeline import find_walked_pipeline
    from ..monitor.watcher_link import SupervisedCommand

    ours = _is_ours(command)
    limits: dict[str, float] = dict(args.timeout)
    table = find_walked_pipeline(command).table if ours else STARTUP
    return SupervisedCommand(
        command=tuple(command),
        run_dir=Path(run_dir),
        expects_words=ours,
        on_hang=args.on_hang or ("end" if ours else "report"),
        table=table,
        start_limit=limits.get("launcher", limits.get("", table[0].deadline)),
        stall=args.stall,
        limit=args.limit,
        answers=args.json,
        joins_nodes=args.nodes != "off",
        asks_health=args.health == "ask",
        since=began,
        starter=starter,
        ask_hosts=_ask_hosts,
    )


async def _ask_hosts(question: Question) -> HostsAnswer:
    """Return what the other hosts of the command say."""
    from ..attach.session import ask_launched_hosts

    return await ask_launched_hosts(question)
