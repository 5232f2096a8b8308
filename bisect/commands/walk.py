"""Walk a pipeline on this rank, under the watch of its node's monitor."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..rank import began
from ..rank.lines import Lines
from ..rank.place import Place, command_line, find_place

if TYPE_CHECKING:
    import argparse

    from ..pipelines.pipeline import Pipeline
    from ..rank.link import Link
    from ..rank.started_monitor import Reached

MANY_RANKS = 16  # above this the monitor sums up the lines of all ranks


def run(argv: list[str]) -> int:
    """Be one rank of a pipeline; return its exit status."""
    place = find_place()
    outcome_pipe: int | None = None
    if place.launcher is None and not place.joined and not _asks_only(argv):
        from ..rank import front

        standing = front.stand()
        if standing.status is not None:
            return standing.status
        outcome_pipe = standing.pipe
        place = find_place()
    if place.impossible and not _asks_only(argv):
        raise UsageError(
            place.impossible,
            "Unset these variables, or let a launcher set them: torchrun, srun, mpirun.",
        )
    lines = Lines(place)
    answers = "--json" in argv or os.environ.get("HANGBISECT_JSON") == "1"
    if answers:
        lines.fd = 2
    monitor: Reached | OSError = OSError("nothing to watch")
    if not _asks_only(argv):
        from ..rank import started_monitor
        from ..version import VERSION

        lines.say(f"hangbisect {VERSION}, Python {sys.version.split()[0]}")
        for sentence in place.contradictions:
            lines.say(f"Contradiction: {sentence}")
        keep = [] if outcome_pipe is None else [outcome_pipe]
        try:  # now: it comes up while we read our arguments
            monitor = started_monitor.reach(place, keep=keep, answers=answers)
        except OSError as error:
            monitor = error
    from ..rank import arguments
    from ..rank.users_own import check_module

    args, pipeline = arguments.parse(argv, place)
    for function in args.use.values():
        check_module(function)
    return _watched(args, pipeline, place, lines, monitor, outcome_pipe)


def _asks_only(argv: list[str]) -> bool:
    return bool({"-h", "--help", "--version"} & set(argv))


def _watched(
    args: argparse.Namespace,
    pipeline: Pipeline,
    place: Place,
    lines: Lines,
    monitor: Reached | OSError,
    outcome_pipe: int | None,
) -> int:
    from ..rank import collective_log, sight
    from ..rank.context import Context
    from ..rank.link import Link
    from ..rank.logged import Logged
    from ..rank.signals import Signals
    from ..rank.walk import walk

    lines.fd = 2 if args.json else 1
    lines.plain = lines.plain or args.plain
    lines.quiet = place.world_size > MANY_RANKS and not args.every_rank
    sight.allow_looks()
    link = Link(place, _hello(args, place), lines.say)
    lines.told = lambda text: link.tell("line", text=text)
    signals = Signals(place.rank)
    link.connected, link.lost = signals.connect, signals.release
    link.open(monitor, _settings(args, pipeline, place, outcome_pipe))
    collective_log.begin(link, place.rank)
    Logged(lambda text: link.mention("logged", text=text)).listen()
    context = Context(args, place, lines, link)
    try:
        walk(pipeline.steps, context, lines, link)
    except BaseException as error:
        return _failed(error, place, lines, link)
    link.tell("exercised", missing=context.not_exercised)
    link.leaving(0, finished=True)
    return 0


def _failed(error: BaseException, place: Place, lines: Lines, link: Link) -> int:
    """Say how it ended; return the exit status. A KeyboardInterrupt goes on."""
    if isinstance(error, UsageError):
        link.leaving(2, str(error), usage=True)
        raise error
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        link.leaving(status, "" if status == 0 else f"SystemExit: {error.code}")
        return status
    if isinstance(error, KeyboardInterrupt):
        link.leaving(130, "KeyboardInterrupt")
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    summary = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
    whole = "".join(traceback.format_exception(error))
    link.leaving(
        1, f"{summary} ({os.path.basename(where.filename)}:{where.lineno})", traceback=whole
    )
    lines.say(f"FAILED: {summary}")
    sys.stderr.write(whole)
    return 1


def _hello(args: argparse.Namespace, place: Place) -> dict[str, Any]:
    from ..rank.environment import relevant

    return {
        **asdict(place),
        "pid": os.getpid(),
        "began": began.MONOTONIC,
        "wall": began.WALL,
        "error_file": os.environ.get("TORCHELASTIC_ERROR_FILE"),
        "max_restarts": int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0),
        "environment": relevant(os.environ),
        "python": sys.version.split()[0],
        "executable": sys.executable,
    }


def _settings(
    args: argparse.Namespace, pipeline: Pipeline, place: Place, outcome_pipe: int | None
) -> dict[str, Any]:
    """Return what the monitor must know before any rank speaks."""
    from ..rank.masking import mask_command

    return {
        "pipeline": pipeline.name,
        "table": [asdict(checkpoint) for checkpoint in pipeline.table],
        "command": mask_command(command_line(place, sys.orig_argv)),
        "folder_of_start": os.getcwd(),
        "folder_for_temporary_files": os.environ.get("TMPDIR") or "/tmp",
        "until": args.until,
        "timeout": args.timeout,
        "stall": args.stall,
        "slow_limit": args.slow_limit,
        "limit": args.limit,
        "barriers": args.barriers,
        "on_hang": args.on_hang,
        "past": args.past,
        "known_hang": args.known_hang,
        "run_dir": args.run_dir,
        "json": args.json,
        "plain": args.plain,
        "on_terminal": os.isatty(1),
        "sum_up": place.world_size > MANY_RANKS and not args.every_rank,
        "keep": [] if outcome_pipe is None else [outcome_pipe],
        "outcome_pipe": outcome_pipe,
        "place": asdict(place),
    }
