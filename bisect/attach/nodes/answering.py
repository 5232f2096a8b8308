"""The answer on a job of several machines: judged as one, written, said."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...monitor.reports import make_reports
from ...report.terminal import culprit_stack
from ...report.width import terminal_width
from ..judging import Judgement, judge
from ..node_facts import NodeFacts
from ..telling import Wanted, tell, timed
from ..without_stacks import reason, unread_lines, unread_ranks
from ..words import hang_lines, moving_lines, with_unknown
from .node import Answer, Elsewhere
from .together import together, unmarked

_SLURMS = ("srun", "sbatch", "salloc")
_ONE_A_NODE = ("torchrun", "accelerate", "deepspeed")  # launchers that start a node's ranks
_OF_THOSE_NOT_SEEN = ("other-node-missing", "rank-never-started")


async def answer(
    job: Elsewhere,
    answers: Sequence[Answer],
    began: float,
    run_dir: Path | None,
    as_object: bool,
) -> int:
    """Say what the machines tell together, in words or as JSON; return the exit status. `began` is
    when they were asked.
    """
    found = timed(judged(job, answers, time.monotonic()), began)
    status, where = await tell(
        found,
        Wanted(run_dir, as_object, os.getpid()),
        lambda where: [*_told(found, job, where), *_unread(found, answers)],
    )
    if where:
        await make_reports(where)
    return status


def judged(job: Elsewhere, answers: Sequence[Answer], now: float) -> Judgement:
    """Return the judgement on what the machines that answered tell."""
    nodes = together([_named(one) for one in answers if one.facts is not None])
    if job.is_slurms:
        nodes = [replace(node, command=_by_srun(node, len(job.nodes))) for node in nodes]
    notes = [f"{one.node.name} is not seen: {one.trouble}" for one in answers if not one.facts]
    found = judge(nodes, notes, now)
    verdict = found.verdict
    if notes and verdict.cause is not None and verdict.cause.id in _OF_THOSE_NOT_SEEN:
        verdict = replace(verdict, cause=None)  # they may have come: nobody could ask them
    return replace(
        found,
        verdict=unmarked(verdict),
        ranks=unmarked(found.ranks),
        facts=replace(found.facts, notes=unmarked(found.facts.notes)),
    )


def _named(one: Answer) -> NodeFacts:
    """Return a machine's facts with the name that it was asked by: that of a host may be the same
    on all, and the id of a container says nothing.
    """
    assert one.facts is not None
    name = one.node.name
    return replace(
        one.facts, host=name, ranks=tuple(replace(r, host=name) for r in one.facts.ranks)
    )


def _by_srun(node: NodeFacts, nodes: int) -> tuple[str, ...]:
    """Return the command with the srun in front of it, as far as its nodes show it: that runs on
    none of them.
    """
    words = node.command
    name = os.path.basename(words[0]) if words else ""
    if not words or name in _SLURMS:
        return words
    tasks = nodes if name in _ONE_A_NODE else max(node.world, nodes)
    return ("srun", f"--nodes={nodes}", f"--ntasks={tasks}", *words)


def _told(found: Judgement, job: Elsewhere, where: str) -> list[str]:
    width = terminal_width()
    if found.moving:
        return moving_lines(found, width)
    state = f"still running, untouched; end it: {job.end_it}"
    lines = hang_lines(found, where, state, width, again=job.is_slurms)
    notes = [f"note      {note}" for note in found.facts.notes]
    stack = culprit_stack(found.ranks, found.verdict) if width is None else []
    return [*lines, *notes, *with_unknown(stack, found.unnumbered)]


def _unread(found: Judgement, answers: Sequence[Answer]) -> list[str]:
    """Return what is known of ranks whose stacks could not be read where they are."""
    downloads = [file for one in answers if one.facts for file in one.facts.downloads]
    lines = [
        line
        for facts in unread_ranks(found.ranks, found.verdict.ranks.culprit)
        for line in unread_lines(facts, reason(facts, "not permitted"), downloads)
    ]
    return with_unknown(lines, found.unnumbered)
