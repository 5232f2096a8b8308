"""A verdict that lies on disk, in words once more."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..facts import JobFacts, RankFacts, Verdict
from .as_json import from_json
from .people_lines import labelled
from .terminal import verdict_lines
from .well import well_lines
from .words import cut

_SOME = ("python",)  # in place of a command that nobody knows
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def verdict_again(
    data: Mapping[str, Any],
    folder: str,
    width: int | None = None,
    ranks: Sequence[RankFacts] = (),
) -> list[str]:
    """Return the lines of the verdict in `data` (of a verdict.json in `folder`): the same as when
    it was made if `ranks` are those that it was made of, else as far as the verdict holds them.

    Raises KeyError, TypeError, ValueError or AttributeError if it is no verdict of schema 1.
    """
    verdict = from_json(data)
    if verdict.outcome == "ok":
        return well_lines(verdict, (), "", folder, width, own=True)
    lines = lines_again(verdict, folder, width, ranks)
    if any(one.looks for one in ranks):
        return lines
    frame = [cut(line, width) for line in labelled("frame", verdict.frame or "")]
    return [*lines[:-1], *frame, *lines[-1:]] if folder else [*lines, *frame]


def lines_again(
    verdict: Verdict, folder: str, width: int | None = None, ranks: Sequence[RankFacts] = ()
) -> list[str]:
    """Return the lines of a verdict on a job that did not end well; without a command none that is
    to prove it.
    """
    known = replace(verdict, command=verdict.command or _SOME)
    told = ranks or _of_the_verdict(verdict)
    lines = verdict_lines(known, job_of(verdict), told, run_dir=folder, state="", width=width)
    return [line for line in lines if verdict.command or not line.startswith("prove it")]


def job_of(verdict: Verdict) -> JobFacts:
    """Return what a verdict tells of its job, as those that word it take it."""
    return JobFacts(
        ended="still",
        pipeline=verdict.pipeline,
        command=verdict.command,
        attempt=verdict.attempt,
        world_size=verdict.world_size,
        local_ranks=(),
        table=(),
        now=0.0,
        started=0.0,
        package=_PACKAGE,
        still=verdict.seconds.still,
    )


def _of_the_verdict(verdict: Verdict) -> list[RankFacts]:
    return [
        RankFacts(one.rank, pid=one.pid, host=one.host, last_line=one.last_line)
        for one in verdict.where
    ]
