"""The table of toggles, and the arguments of the command line that are made of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..base.argument_types import choice, count
from .component_toggles import DATA, FILES, HUB, MODEL, PROBES, STRATEGY, WANDB
from .environment_toggles import NETWORK, THREADS
from .pipeline_toggles import FINETUNING, GENERATION, REPLAY
from .toggle import AS_SET as AS_SET
from .toggle import Toggle as Toggle
from .toggle import own_toggle as own_toggle

TOGGLES: tuple[Toggle, ...] = (
    *(WANDB, STRATEGY, FILES),
    *(*HUB, *DATA, *MODEL),
    *GENERATION,
    *FINETUNING,
    *REPLAY,
    *(*NETWORK, *THREADS),
    *PROBES,
)


def toggles_of(pipeline: str) -> tuple[Toggle, ...]:
    """Return the toggles that matter to a pipeline of ours, as it has them."""
    return tuple(entry.read_by(pipeline) for entry in TOGGLES if pipeline in entry.pipelines)


def showing_races(table: Iterable[Toggle]) -> dict[str, str]:
    """Return what toggles are set to where a hang comes and goes: another value may hide a race."""
    return {entry.name: entry.shows_races for entry in table if entry.shows_races}


def toggle(name: str) -> Toggle:
    """Return the toggle of that name. Raises KeyError."""
    for entry in TOGGLES:
        if entry.name == name:
            return entry
    raise KeyError(name)


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
