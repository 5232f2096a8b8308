"""Walk a pipeline on this rank, under the watch of its node's monitor."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.place import Place, find_place
from ..rank.lines import Lines

if TYPE_CHECKING:
    import argparse

    from ..base.pipeline import Pipeline
    from ..rank.link import Link
    from ..rank.monitor_connection import MonitorConnection


def run(argv: list[str]) -> int:
    """Be one rank of a pipeline; return its exit status."""
    place = find_place()
    outcome_pipe: int | None = None
    if place.launcher is None and not place.joined and not _asks_only(argv):
        from ..rank import exit_proxy

        proxy = exit_proxy.start_exit_proxy()
        if proxy.status is not None:
            return proxy.status
        outcome_pipe = proxy.pipe
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
    monitor: MonitorConnection | OSError = OSError("nothing to watch")
    if not _asks_only(argv):
        from ..base.version import VERSION

        # Before anything else is imported: whoever waits for a first line waits for no module.
        lines.say(f"hangbisect {VERSION}, Python {sys.version.split()[0]}")
        from ..rank import monitor_connection

        for sentence in place.contradictions:
            lines.say(f"Contradiction: {sentence}")
        keep = [] if outcome_pipe is None else [outcome_pipe]
        try:  # now: it comes up while we read our arguments
            monitor = monitor_connection.connect_to_monitor(place, keep=keep, answers=answers)
        except OSError as error:
            monitor = error
    from ..rank import arguments
    from ..rank.walk import check_module

    args, pipeline = arguments.parse_walk_arguments(argv, place)
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
    monitor: MonitorConnection | OSError,
    outcome_pipe: int | None,
) -> int:
    from ..base import events
    from ..rank import collective_log
    from ..rank.link import Link
    from ..rank.messages import MANY_RANKS, LogCapture, Signals, make_hello
    from ..rank.walk import Context, walk_pipeline

    lines.fd = 2 if args.json else 1
    lines.plain = lines.plain or args.plain
    lines.quiet = place.world_size > MANY_RANKS and not args.every_rank
    link = Link(place, make_hello(place), lines.say)
    lines.told = lambda text: link.tell(events.Line(text=text))
    signals = Signals(place.rank)
    link.connected, link.lost = signals.connect, signals.release
    link.open(monitor, _settings(args, pipeline, place, outcome_pipe))
    collective_log.begin_collective_log(link, place.rank)
    LogCapture(lambda text: link.mention(events.Logged(text=text))).listen()
    context = Context(args, place, lines, link)
    try:
        walk_pipeline(pipeline.steps, context, lines, link)
    except BaseException as error:
        return _failed(error, place, lines, link)
    link.tell(events.Exercised(missing=tuple(context.not_exercised)))
    link.leaving(events.Bye(status=0, finished=True))
    return 0


def _failed(error: BaseException, place: Place, lines: Lines, link: Link) -> int:
    """Say how it ended; return the exit status. A KeyboardInterrupt goes on."""
    from ..base import events

    if isinstance(error, UsageError):
        link.leaving(events.Bye(status=2, error=str(error), usage=True))
        raise error
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        words = "" if status == 0 else f"SystemExit: {error.code}"
        link.leaving(events.Bye(status=status, error=words))
        return status
    if isinstance(error, KeyboardInterrupt):
        link.leaving(events.Bye(status=130, error="KeyboardInterrupt"))
        raise error
    from ..rank.tracebacks import format_error, format_traceback, summarize_error

    text = format_traceback(error)
    link.leaving(events.Bye(status=1, error=summarize_error(error), traceback=text))
    lines.say(f"FAILED: {format_error(error)}")
    sys.stderr.write(text)
    return 1


def _settings(
    args: argparse.Namespace, pipeline: Pipeline, place: Place, outcome_pipe: int | None
) -> dict[str, Any]:
    """Return what the monitor must know before any rank speaks."""
    from dataclasses import asdict

    from ..rank.messages import MANY_RANKS, make_watch_settings

    return {
        **make_watch_settings(args, place),
        "pipeline": pipeline.name,
        "table": [asdict(checkpoint) for checkpoint in pipeline.table],
        "until": args.until,
        "barriers": args.barriers,
        "on_hang": args.on_hang,
        "json": args.json,
        "sum_up": place.world_size > MANY_RANKS and not args.every_rank,
        "keep": [] if outcome_pipe is None else [outcome_pipe],
        "outcome_pipe": outcome_pipe,
    }
