"""A verdict that lies on disk, in words once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..facts import JobFacts, RankFacts
from .as_json import from_json
from .people_lines import labelled
from .terminal import verdict_lines
from .well import well_lines
from .words import cut

_SOME = ("python",)  # in place of a command that nobody knows


def verdict_again(data: Mapping[str, Any], folder: str, width: int | None = None) -> list[str]:
    """Return the lines of the verdict in `data` (of a verdict.json in `folder`), as far as that
    holds them: the stacks are in files beside it.

    Raises KeyError, TypeError, ValueError or AttributeError if it is no verdict of schema 1.
    """
    verdict = from_json(data)
    if verdict.outcome == "ok":
        return well_lines(verdict, (), "", folder, width, own=True)
    ranks = [
        RankFacts(one.rank, pid=one.pid, host=one.host, last_line=one.last_line)
        for one in verdict.where
    ]
    job = JobFacts(
        ended="still",
        pipeline=verdict.pipeline,
        command=verdict.command,
        attempt=verdict.attempt,
        world_size=verdict.world_size,
        local_ranks=(),
        table=(),
        now=0.0,
        started=0.0,
        package="",
    )
    known = replace(verdict, command=verdict.command or _SOME)
    lines = verdict_lines(known, job, ranks, run_dir=folder, state="", width=width)
    if not verdict.command:
        lines = [line for line in lines if not line.startswith("prove it")]
    frame = labelled("frame", verdict.frame or "")
    return [*lines[:-1], *(cut(line, width) for line in frame), *lines[-1:]]
