"""The command line of a walk: watch options, the pipeline's own arguments, the toggles; and the
tables at the end of --help.

Importable before anything heavy: the standard library and tables of ours only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from ..base.argument_types import Parser, assignment, choice, count, nearest, replacement
from ..base.errors import UsageError
from ..base.pipeline import PIPELINES, Pipeline, find_pipeline
from ..base.place import Place
from ..toggles.table import toggles_of
from .watch_options import add_watch_options, read_environment_words


def parse_walk_arguments(
    argv: Sequence[str], place: Place, environ: Mapping[str, str] = os.environ
) -> tuple[argparse.Namespace, Pipeline]:
    """Return the arguments of a walk, and the pipeline they name.

    Raises UsageError; --help prints (on rank 0) and exits with 0.

    Beside plain values: `timeout` is seconds by checkpoint or phase, "" for every checkpoint; `use`
    is "module:function" by step; `skip` is names of steps; `env` is values by variable; `inject`
    is a list of injections; `plain`, `json` and `every_rank` are bools.
    """
    walked = find_pipeline(_pipeline_name(argv))
    parser = Parser(prog="python -m bisect", epilog=format_epilog(walked))
    _add_help(parser, place)
    add_watch_options(parser)
    _add_walk_options(parser, walked)
    walked.add_arguments(parser)
    args = parser.parse_all([*read_environment_words(parser, environ), *argv])
    _check_names(args, walked)
    args.on_hang = args.on_hang or "end"
    return args, walked


def _pipeline_name(argv: Sequence[str]) -> str:
    first = Parser()
    first.add_argument("--pipeline", type=choice("--pipeline", PIPELINES), default=PIPELINES[0])
    known, _ = first.parse_known_args(argv)
    name: str = known.pipeline
    return name


def _add_walk_options(parser: argparse.ArgumentParser, walked: Pipeline) -> None:
    add = parser.add_argument_group("the walk").add_argument
    names = [step.checkpoint.name for step in walked.steps]
    add("--pipeline", metavar="NAME", default=walked.name, help=f"{', '.join(PIPELINES)} (startup)")
    add("--until", metavar="NAME", type=choice("--until", names), help="stop after a checkpoint")
    add(
        "--skip",
        metavar="NAME",
        type=choice("--skip", walked.skippable),
        action="append",
        default=[],
        help=f"leave a checkpoint out: {', '.join(walked.skippable)}; repeatable",
    )
    add(
        "--use",
        metavar="STEP=MODULE:FUNCTION",
        type=replacement("--use"),
        action="append",
        default=[],
        help="do this step with a function of yours; repeatable",
    )
    add(
        "--env",
        metavar="NAME=VALUE",
        type=assignment("--env"),
        action="append",
        default=[],
        help="set an environment variable first of all; repeatable",
    )
    add(
        "--inject",
        metavar="KIND@CHECKPOINT[:rankN]",
        action="append",
        default=[],
        help="make it hang on purpose (a phase is a checkpoint here too); repeatable",
    )
    add(
        "--local-rank",
        metavar="N",
        type=count("--local-rank"),
        help="accepted, because older launchers pass it",
    )


def _check_names(args: argparse.Namespace, walked: Pipeline) -> None:
    """Turn pairs into dicts and injections into objects, and check the names in them."""
    steps = [step.checkpoint.name for step in walked.steps]
    phases = [phase.name for row in walked.table for phase in row.phases]
    aliases = dict(walked.aliases)
    for name, _ in args.timeout:
        _check_name("--timeout", name, ["", "launcher", *steps, *phases])
    args.timeout = dict(args.timeout)
    if args.past:
        _check_name("--past", args.past, [*steps, *phases])
    args.use = {aliases.get(step, step): place for step, place in args.use}
    for step in args.use:
        _check_name("--use", step, [*steps, *aliases, *walked.called])
    args.env = dict(args.env)
    if args.inject:
        from . import injections

        args.inject = [
            injections.parse_injection(text, walked.table, aliases) for text in args.inject
        ]


def _check_name(flag: str, name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        known = [word for word in allowed if word]
        raise UsageError(
            f"{flag} names {name!r}, which is none of {', '.join(known)}{nearest(name, known)}"
        )


class _Help(argparse.Action):
    """--help: once, and not by every rank."""

    quiet = False

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, *_: object
    ) -> None:
        if not self.quiet:
            parser.print_help()
        parser.exit()


def _add_help(parser: Parser, place: Place) -> None:
    help = parser.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help")
    if isinstance(help, _Help):
        help.quiet = place.rank != 0


def format_epilog(walked: Pipeline) -> str:
    """Return the tables of checkpoints and toggles."""
    return "\n".join([*_format_checkpoints(walked), "", *_format_toggles(walked)])


def _format_checkpoints(walked: Pipeline) -> list[str]:
    lines = [f"checkpoints of {walked.name}, with their deadlines (--timeout [NAME=]SECONDS):"]
    for row in walked.table:
        deadline = "by phase" if row.phases else f"{row.deadline:g} s"
        lines.append(f"  {row.number:2} {row.name:18} {row.title:28} {deadline:>8}")
        for phase in row.phases:
            seconds = "none" if phase.deadline is None else f"{phase.deadline:g} s"
            lines.append(f"     phase {phase.name:40} {seconds:>8}")
    return lines


def _format_toggles(walked: Pipeline) -> list[str]:
    lines = ["toggles, from as you run it to safest (* is the default):"]
    for entry in toggles_of(walked.name):
        values = [f"{value}*" if value == entry.default else value for value in entry.values]
        if entry.accepts == "count":
            values = ["N", *values]
        lines.append(
            f"  {entry.flag or entry.variable or entry.name:26} "
            f"{' > '.join(values):42} {entry.kind}"
        )
    return lines
