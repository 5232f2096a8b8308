"""One `attach`, from the job to the answer."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..monitor.reports import make_reports
from ..rank.masking import mask_command
from ..report.terminal import culprit_stack
from ..report.width import terminal_width
from ..report.words import one_line
from .ending import end
from .finding import Found
from .jobs import Job
from .judging import Judgement, judge
from .leave_to_trace import leave, ways, why_not
from .node_facts import NodeFacts, look_at
from .processes import Table
from .series import SPAN
from .telling import Wanted, tell, timed
from .without_stacks import reason, unread_lines, unread_ranks, ways_lines
from .words import hang_lines, moving_lines, size, state_after, with_unknown


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    span: float = SPAN  # seconds
    run_dir: Path | None = None
    ends: bool = False  # end the job after that
    answers: bool = False  # the verdict as JSON


async def print_facts(found: Found, job: Job, span: float = SPAN) -> int:
    """Print what this machine tells of a job as JSON, for who asks from elsewhere; return 0."""
    print(json.dumps(asdict(await look_at(job, found.processes, span)), default=str))
    return 0


async def attach(found: Found, job: Job, request: Request) -> int:
    """Look at a job, say whether it moves, and if not, why; return the exit status."""
    began = time.monotonic()
    _introduce(job)
    node = await look_at(job, found.processes, request.span)
    judgement = timed(judge([node], _notes(job), time.monotonic()), began)
    unread = _unread(judgement, node, found.processes)
    status, where = await tell(
        judgement,
        Wanted(request.run_dir, request.answers, job.pid),
        lambda where: _told(judgement, job, where, unread, request.ends),
        unread,
    )
    if request.ends:
        await _end(job, bool(judgement.moving))
    if where:
        await make_reports(where)
    return status


def _introduce(job: Job) -> None:
    ranks = size([rank.number for rank in job.ranks], job.world)
    _say(f"Looking at {job.pid} ({ranks}): {one_line(' '.join(mask_command(job.command)))[:120]}")
    if not job.whole:
        _say("Its other ranks are to be elsewhere: --slurm, --hosts or --kubernetes asks them too")
    if job.watched is not None:
        where = f": {job.watched}" if job.watched else ""
        _say(f"It is watched by hangbisect since its start{where}; looking all the same")


def _notes(job: Job) -> list[str]:
    if job.watched is None:
        return []
    return [f"this job is watched by hangbisect since its start{_in(job.watched)}"]


def _in(folder: str) -> str:
    return f", in {folder}" if folder else ""


def _told(found: Judgement, job: Job, where: str, unread: Sequence[str], ends: bool) -> list[str]:
    width = terminal_width()
    if found.moving:
        return [*moving_lines(found, width), *unread]
    state = state_after(job.pid, job.notebook, job.watched is not None, ends)
    lines = hang_lines(found, where, state, width, job.has_one_command)
    stack = culprit_stack(found.ranks, found.verdict) if width is None else []
    return [*lines, *unread, *(() if unread else with_unknown(stack, found.unnumbered))]


def _unread(found: Judgement, node: NodeFacts, processes: Table) -> list[str]:
    """Return what is known of ranks whose stacks cannot be read, and the ways to one."""
    ranks = unread_ranks(found.ranks, found.verdict.ranks.culprit)
    if not ranks:
        return []
    own = leave()
    lines: list[str] = []
    told: list[str] = []
    for facts in ranks:
        one = processes.get(facts.pid or 0)
        uid = own.uid if one is None else one.uid
        why = reason(facts, why_not(own, uid))
        who = "the launcher" if node.launcher == facts.pid else ""
        lines += unread_lines(facts, why, node.downloads, who)
        environ = (one.environ if one else None) or {}
        told = told or (ways(why, own, facts.pid or 0, environ, uid) if why else [])
    return with_unknown([*lines, *ways_lines(told)], found.unnumbered)


async def _end(job: Job, moves: bool) -> None:
    if moves:
        _say("It moves, so it was not ended")
        return
    ended, left = await asyncio.to_thread(end, job)
    _say(f"Ended: {', '.join(map(str, ended)) or 'nobody, they were gone'}")
    if left:
        _say(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    if job.notebook is not None:
        _say(f"The notebook's kernel ({job.notebook}) was left alone")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
