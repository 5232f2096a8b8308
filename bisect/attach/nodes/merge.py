"""Merges what several machines tell of one job, judges it as one, writes and prints the answer.

Two machines (and two pods of one image always) may have processes of the same number: while they
are judged, marks of our own tell them apart. Stand-ins for ranks whose numbers are not known are
each machine's own, and would be taken for another's ranks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from ...base.facts import Syscall
from ...base.launchers import SRUN, find_typed_launcher
from ...base.words import terminal_width
from ...diagnosis.blocked_syscalls import CHILD_WAIT_CALLS
from ...monitor.child_processes import make_reports
from ...report.terminal import culprit_stack
from ..answer import (
    AnswerOptions,
    add_time,
    give_answer,
    hang_lines,
    hide_unknown_numbers,
    moving_lines,
)
from ..judgement import Judgement, judge_nodes
from ..node_facts import NodeFacts
from ..unreadable_stacks import find_reason, find_unread_ranks, unread_lines
from .asking import Answer, RemoteJob

T = TypeVar("T")

_PID_STEP = 10**12  # pids have at most seven digits (PID_MAX_LIMIT, 4194304)
_MARKED_PID = re.compile(r"(?<![\w.])[1-9]\d{0,4}00000(\d{7})(?![\w.])")
# The fields that hold numbers of processes or threads.
_PID_FIELDS = frozenset(
    [
        *("pid", "ppid", "os_id", "tid", "peer_pids", "other_ends", "holder", "traced_by", "owner"),
        *("pids", "launcher", "notebook"),
    ]
)
_UNKNOWN_CHILD = (0,)  # in place of the arguments of a call that name a process
_FIRST_STAND_IN = 1 << 20


def merge_nodes(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines with processes and ranks that are told apart, and without ranks that an
    earlier one has as well: of these a note says so.
    """
    whole = len(nodes) == 1
    taken = {r.rank for n in nodes for r in n.ranks if r.rank not in n.unnumbered}
    free = iter(sorted(set(range(max((n.world for n in nodes), default=0))) - taken))
    beyond = iter(range(_FIRST_STAND_IN, 2 * _FIRST_STAND_IN))
    seen: dict[int, str] = {}
    found = []
    for at, node in enumerate(nodes):
        numbers = {r: next(free, next(beyond)) for r in node.unnumbered}
        one = _renumber_ranks(node, numbers) if numbers and not whole else node
        one = _drop_double_ranks(one, seen)
        found.append(mark_pids(one, at) if at else one)
    return found


def _renumber_ranks(node: NodeFacts, numbers: Mapping[int, int]) -> NodeFacts:
    def new(ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(numbers.get(rank, rank) for rank in ranks))

    return replace(
        node,
        ranks=tuple(replace(r, rank=numbers.get(r.rank, r.rank)) for r in node.ranks),
        unnumbered=new(node.unnumbered),
        moving=new(node.moving),
        busy=new(node.busy),
        quiet=new(node.quiet),
    )


def _drop_double_ranks(node: NodeFacts, seen: dict[int, str]) -> NodeFacts:
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


def mark_pids(node: NodeFacts, at: int) -> NodeFacts:
    """Return a machine with the numbers of its processes marked as those of machine `at`."""

    def changed(value: Any, is_pid: bool) -> Any:
        if isinstance(value, Syscall) and value.name in CHILD_WAIT_CALLS:
            return replace(value, args=_UNKNOWN_CHILD)
        return value + at * _PID_STEP if is_pid and type(value) is int and value > 0 else value

    return _map_values(node, changed)


def unmark_pids(value: T) -> T:
    """Return facts, or a verdict on them, with the numbers that processes really have."""
    return _map_values(value, _unmark_value)


def _unmark_value(value: Any, is_pid: bool) -> Any:
    if isinstance(value, str):
        return _MARKED_PID.sub(lambda match: str(int(match[1])), value)
    return value % _PID_STEP if is_pid and type(value) is int else value


def _map_values(value: T, change: Callable[[Any, bool], Any], is_pid: bool = False) -> T:
    """Return facts with everything in them changed, the outer before the inner: `change` gets each
    value, and whether it is of a field that holds numbers of processes.
    """
    found: Any = change(value, is_pid)
    if is_dataclass(found) and not isinstance(found, type):
        names = [one.name for one in fields(found) if one.init]
        inside = {n: _map_values(getattr(found, n), change, n in _PID_FIELDS) for n in names}
        return cast(T, replace(found, **inside))
    if isinstance(found, tuple):
        return cast(T, tuple(_map_values(item, change, is_pid) for item in found))
    return cast(T, found)


_CAUSES_OF_ABSENCE = ("other-node-missing", "rank-never-started")


async def answer_for_nodes(
    job: RemoteJob,
    answers: Sequence[Answer],
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
        await make_reports(where)
    return status


def judge_answers(job: RemoteJob, answers: Sequence[Answer], now: float) -> Judgement:
    """Return the judgement on what the machines that answered tell."""
    nodes = merge_nodes([_facts_by_asked_name(one) for one in answers if one.facts is not None])
    if job.is_slurms:
        nodes = [replace(node, command=_command_with_srun(node, len(job.nodes))) for node in nodes]
    notes = [f"{one.node.name} is not seen: {one.trouble}" for one in answers if not one.facts]
    found = judge_nodes(nodes, notes, now)
    verdict = found.verdict
    if notes and verdict.cause is not None and verdict.cause.id in _CAUSES_OF_ABSENCE:
        verdict = replace(verdict, cause=None)  # they may have come: nobody could ask them
    found.graph.waits = {
        (rank, pid % _PID_STEP): unmark_pids(wait)
        for (rank, pid), wait in found.graph.waits.items()
    }
    return replace(
        found,
        verdict=unmark_pids(verdict),
        ranks=unmark_pids(found.ranks),
        facts=replace(found.facts, notes=unmark_pids(found.facts.notes)),
    )


def _facts_by_asked_name(one: Answer) -> NodeFacts:
    """Return a machine's facts with the name that it was asked by: that of a host may be the same
    on all, and the id of a container says nothing.
    """
    assert one.facts is not None
    name = one.node.name
    return replace(
        one.facts, host=name, ranks=tuple(replace(r, host=name) for r in one.facts.ranks)
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
    if found.moving:
        return moving_lines(found, width)
    state = f"still running, untouched; end it: {job.end_it}"
    lines = hang_lines(found, where, state, width, again=job.is_slurms)
    notes = [f"note      {note}" for note in found.facts.notes]
    stack = culprit_stack(found.ranks, found.verdict, found.graph) if width is None else []
    return [*lines, *notes, *hide_unknown_numbers(stack, found.unnumbered)]


def _unread_lines(found: Judgement, answers: Sequence[Answer]) -> list[str]:
    """Return what is known of ranks whose stacks could not be read where they are."""
    downloads = [file for one in answers if one.facts for file in one.facts.downloads]
    lines = [
        line
        for facts in find_unread_ranks(found.ranks, found.verdict.ranks.culprit)
        for line in unread_lines(facts, find_reason(facts, "not permitted"), downloads)
    ]
    return hide_unknown_numbers(lines, found.unnumbered)
