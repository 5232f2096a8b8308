"""One `attach`: looks at a job, judges it, gives the answer, and ends the job if that was asked
for: its ranks, what they started, and what started them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..base.json_codec import to_json
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_command
from ..base.words import join_lines, terminal_width
from ..monitor.child_processes import start_report_maker
from ..monitor.ending import ProcessFamily
from ..report.terminal import culprit_stack
from .answer import (
    AnswerOptions,
    add_time,
    describe_ranks,
    describe_state,
    give_answer,
    hang_lines,
    moving_lines,
)
from .job_looks import STILL_SPAN
from .jobs import FoundJobs, Job
from .judgement import Judgement, judge_nodes
from .node_facts import NodeFacts, look_at_job
from .processes import ProcessTable
from .unreadable_stacks import (
    find_denial,
    find_reason,
    find_trace_permission,
    find_unread_ranks,
    list_ways,
    unread_lines,
    way_lines,
)

_UNUSED_MARK = "HANGBISECT_ATTACHED"  # no process of a job that we only looked at has a mark


def end_job(job: Job, processes: ProcessTable) -> tuple[list[int], list[int]]:
    """End the family, all at once; return who was ended, and who is still there, in the kernel. The
    kernel of a notebook is spared, and so is a container's first process: no signal from inside
    ends it (pid_namespaces(7)), and a launcher ends when its ranks have. `processes` are those
    among which the job was found: who has one of their pids since then is let alone.
    """
    family = ProcessFamily(str(os.getpid()), _UNUSED_MARK)
    for pid in sorted(job.pids - {job.notebook, 1}):
        if pid in processes:
            family.add_rank(pid, processes[pid].started)
    family.refresh()
    before = family.living()
    left = family.end_for_good()
    return [pid for pid in before if pid not in left], left


@dataclass(frozen=True)
class AttachRequest:
    """What is asked for."""

    span: float = STILL_SPAN  # seconds
    run_dir: Path | None = None
    ends: bool = False  # end the job after that
    answers: bool = False  # the verdict as JSON


async def print_facts(found: FoundJobs, job: Job, span: float = STILL_SPAN) -> int:
    """Print what this machine tells of a job as JSON, for who asks from elsewhere; return 0."""
    print(json.dumps(to_json(await look_at_job(job, found.processes, span))))
    return 0


async def attach_to_job(found: FoundJobs, job: Job, request: AttachRequest) -> int:
    """Look at a job, say whether it moves, and if not, why; return the exit status."""
    began = time.monotonic()
    _introduce(job)
    node = await look_at_job(job, found.processes, request.span)
    judgement = add_time(judge_nodes([node], _note_watch(job), time.monotonic()), began)
    unread = _unread_lines(judgement, node, found.processes)
    status, where = await give_answer(
        judgement,
        AnswerOptions(request.run_dir, request.answers, job.pid),
        lambda where: _answer_lines(judgement, job, where, unread, request.ends),
        unread,
    )
    if request.ends:
        await _end_job(job, found.processes, bool(judgement.moving))
    if where:
        await start_report_maker(where)
    return status


def _introduce(job: Job) -> None:
    ranks = describe_ranks([rank.number for rank in job.ranks], job.world)
    _print_progress(
        f"Looking at {job.pid} ({ranks}): {join_lines(' '.join(mask_command(job.command)))[:120]}"
    )
    if not job.whole:
        _print_progress(
            "Its other ranks are to be elsewhere: --slurm, --hosts or --kubernetes asks them too"
        )
    if job.watched is not None:
        where = f": {job.watched}" if job.watched else ""
        _print_progress(f"It is watched by hangbisect since its start{where}; looking all the same")


def _note_watch(job: Job) -> list[str]:
    if job.watched is None:
        return []
    return [f"this job is watched by hangbisect since its start{_format_folder(job.watched)}"]


def _format_folder(folder: str) -> str:
    return f", in {folder}" if folder else ""


def _answer_lines(
    found: Judgement, job: Job, where: str, unread: Sequence[str], ends: bool
) -> list[str]:
    width = terminal_width()
    if found.only_moves:
        return [*moving_lines(found, width), *unread]
    state = describe_state(job.pid, job.notebook, job.watched is not None, ends)
    lines = hang_lines(found, where, state, width, job.has_one_command)
    stack = culprit_stack(found.ranks, found.verdict, found.graph) if width is None else []
    return [*lines, *unread, *(() if unread else stack)]


def _unread_lines(found: Judgement, node: NodeFacts, processes: ProcessTable) -> list[str]:
    """Return what is known of ranks whose stacks cannot be read, and the ways to one."""
    ranks = find_unread_ranks(found.ranks, found.verdict.ranks.culprit)
    if not ranks:
        return []
    own = find_trace_permission()
    lines: list[str] = []
    told: list[str] = []
    for facts in ranks:
        one = processes.get(facts.pid or 0)
        uid = own.uid if one is None else one.uid
        why = find_reason(facts, find_denial(own, uid))
        who = "the launcher" if node.launcher == facts.pid else ""
        lines += unread_lines(facts, why, node.downloads, who)
        environ = (one.environ if one else None) or {}
        told = told or (list_ways(why, own, facts.pid or 0, environ, uid) if why else [])
    return [*lines, *way_lines(told)]


async def _end_job(job: Job, processes: ProcessTable, moves: bool) -> None:
    if moves:
        _print_progress("It moves, so it was not ended")
        return
    ended, left = await asyncio.to_thread(end_job, job, processes)
    _print_progress(f"Ended: {', '.join(map(str, ended)) or 'nobody, they were gone'}")
    if left:
        _print_progress(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    if job.notebook is not None:
        _print_progress(f"The notebook's kernel ({job.notebook}) was left alone")


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
