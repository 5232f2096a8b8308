"""The arguments that stand for toggles."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..bisection.toggles import Toggle
from .argument_types import choice, count


def add_toggles(parser: argparse._ActionsContainer, table: Iterable[Toggle]) -> None:
    """Add the arguments of all toggles of a pipeline that have one."""
    for entry in table:
        if entry.flag and entry.name != "barriers":  # that is an option of the watch
            add_toggle(parser, entry)


def add_toggle(parser: argparse._ActionsContainer, entry: Toggle) -> None:
    """Add the argument of a toggle."""
    if entry.accepts == "choice":
        read, metavar = choice(entry.flag, entry.values), "|".join(entry.values)
    elif entry.accepts == "count":
        read, metavar = count(entry.flag), "N"
    else:
        read, metavar = str, f"{'|'.join(entry.values)}|..."
    default = int(entry.default or 0) if entry.accepts == "count" else entry.default
    shown = "" if entry.default is None else f" ({entry.default})"
    parser.add_argument(
        entry.flag, metavar=metavar, type=read, default=default, help=entry.help + shown
    )
