"""Which checkpoints and phases a command can be asked about by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import UsageError
from ..nearest import nearest
from ..pipelines import PIPELINES
from ..pipelines import find as find_pipeline
from .flags import pipeline_of


def known_names(command: Sequence[str]) -> tuple[str, ...]:
    """Return those of the pipeline of ours that a command walks."""
    return names_of(pipeline_of(command))


def names_of(pipeline: str) -> tuple[str, ...]:
    """Return the names of a pipeline's checkpoints and phases, () if there is no such pipeline."""
    if pipeline not in PIPELINES:
        return ()
    table = find_pipeline(pipeline).table
    return (*(row.name for row in table), *(p.name for row in table for p in row.phases))


def check_timeouts(names: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError for a name of --timeout that a command of ours does not have; "" is none."""
    known = known_names(command)
    for name in names:
        if name and known and name not in known:
            raise UsageError(
                f"--timeout names {name!r}, which is none of {', '.join(known)}"
                f"{nearest(name, known)}"
            )
