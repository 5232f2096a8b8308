"""Merges what several machines tell of one job, judges it as one, writes and prints the answer.

Two machines (and two pods of one image always) may have processes of the same number, and names of
their own that are the same: the name that each was asked by tells whose process or rank it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...base.facts import RankId
from ...base.identity import UnknownRank
from ...base.launchers import SRUN, find_typed_launcher
from ...base.words import terminal_width
from ...monitor.child_processes import start_report_maker
from ...report.terminal import culprit_stack
from ..answer import (
    AnswerOptions,
    add_time,
    give_answer,
    hang_lines,
    moving_lines,
)
from ..judgement import Judgement, judge_nodes
from ..node_facts import NodeFacts
from ..unreadable_stacks import find_reason, find_unread_ranks, unread_lines
from .asking import NodeAnswer, RemoteJob


def merge_nodes(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without ranks that an earlier one has too: of these a note says so."""
    seen: dict[RankId, str] = {}
    return [_drop_double_ranks(node, seen) for node in nodes]


def _drop_double_ranks(node: NodeFacts, seen: dict[RankId, str]) -> NodeFacts:
    doubles = sorted({r.rank for r in node.ranks} & seen.keys())
    for facts in node.ranks:
        seen.setdefault(facts.rank, node.host)
    if not doubles:
        return node
    first = doubles[0]
    note = (
        f"rank {first} runs on {seen[first]} and on {node.host}: two jobs, or two starts of one; "
        f"{len(doubles)} ranks of {node.host} were left out"
    )
    return replace(
        node,
        ranks=tuple(r for r in node.ranks if r.rank not in doubles),
        notes=(*node.notes, note),
    )


_CAUSES_OF_ABSENCE = ("other-node-missing", "rank-never-started")


async def answer_for_nodes(
    job: RemoteJob,
    answers: Sequence[NodeAnswer],
    began: float,
    run_dir: Path | None,
    as_object: bool,
) -> int:
    """Say what the machines tell together, in words or as JSON; return the exit status. `began` is
    when they were asked.
    """
    found = add_time(judge_answers(job, answers, time.monotonic()), began)
    status, where = await give_answer(
        found,
        AnswerOptions(run_dir, as_object, os.getpid()),
        lambda where: [*_answer_lines(found, job, where), *_unread_lines(found, answers)],
    )
    if where:
        await start_report_maker(where)
    return status


def judge_answers(job: RemoteJob, answers: Sequence[NodeAnswer], now: float) -> Judgement:
    """Return the judgement on what the machines that answered tell."""
    nodes = merge_nodes([_facts_by_asked_name(one) for one in answers if one.facts is not None])
    if job.is_slurms:
        nodes = [replace(node, command=_command_with_srun(node, len(job.nodes))) for node in nodes]
    notes = [f"{one.node.name} is not seen: {one.trouble}" for one in answers if not one.facts]
    found = judge_nodes(nodes, notes, now)
    verdict = found.verdict
    # Who is absent here may be on a machine that could not be asked.
    if notes and verdict.cause is not None and verdict.cause.id in _CAUSES_OF_ABSENCE:
        verdict = replace(verdict, cause=None)
    ranks = verdict.ranks
    if notes and verdict.outcome == "hang" and {*ranks.culprit} <= {*ranks.never_started}:
        verdict = replace(verdict, outcome="silent")
    return replace(found, verdict=verdict)


def _facts_by_asked_name(one: NodeAnswer) -> NodeFacts:
    """Return a machine's facts with the name that it was asked by: that of a host may be the same
    on all, and the id of a container says nothing.
    """
    node, name = one.facts, one.node.name
    assert node is not None

    def named(rank: RankId) -> RankId:
        return replace(rank, host=name) if isinstance(rank, UnknownRank) else rank

    return replace(
        node,
        host=name,
        ranks=tuple(replace(r, rank=named(r.rank), host=name) for r in node.ranks),
        moving=tuple(map(named, node.moving)),
        busy=tuple(map(named, node.busy)),
        quiet=tuple(map(named, node.quiet)),
    )


def _command_with_srun(node: NodeFacts, nodes: int) -> tuple[str, ...]:
    """Return the command with the srun in front of it, as far as its nodes show it: that runs on
    none of them.
    """
    words = node.command
    name = os.path.basename(words[0]) if words else ""
    if not words or name in SRUN.clients:
        return words
    tasks = nodes if find_typed_launcher(name).is_on_each_node else max(node.world, nodes)
    return ("srun", f"--nodes={nodes}", f"--ntasks={tasks}", *words)


def _answer_lines(found: Judgement, job: RemoteJob, where: str) -> list[str]:
    width = terminal_width()
    if found.only_moves:
        return moving_lines(found, width)
    state = f"still running, untouched; end it: {job.end_it}"
    lines = hang_lines(found, where, state, width, again=job.is_slurms)
    notes = [f"note      {note}" for note in found.facts.notes]
    stack = culprit_stack(found.ranks, found.verdict, found.graph) if width is None else []
    return [*lines, *notes, *stack]


def _unread_lines(found: Judgement, answers: Sequence[NodeAnswer]) -> list[str]:
    """Return what is known of ranks whose stacks could not be read where they are."""
    downloads = [file for one in answers if one.facts for file in one.facts.downloads]
    return [
        line
        for facts in find_unread_ranks(found.ranks, found.verdict.ranks.culprit)
        for line in unread_lines(facts, find_reason(facts, "not permitted"), downloads)
    ]
