"""The job and its ranks as a diagnosis takes them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..base.facts import Ended, JobFacts, MachineFacts, RankFacts, RankId
from ..base.rank_state import NodeRanks, RankState

if TYPE_CHECKING:
    from .clocks import Overdue
    from .job import Job


def make_rank_facts(member: RankState, moved: str = "", busy: bool = False) -> RankFacts:
    """Return a member as a diagnosis takes it."""
    return RankFacts(
        rank=member.rank,
        local_rank=member.local_rank,
        pid=member.pid,
        host=member.host,
        reached=member.reached,
        held=member.held_at is not None,
        phase=member.phase,
        entered=member.entered,
        last_line=member.last_line,
        last_line_at=member.last_line_at,
        announced=member.announced,
        output=member.logged,
        alive=not member.left,
        left=member.left or member.left_at is not None,
        status=member.status,
        error=member.error,
        traceback=member.traceback,
        finished=member.finished,
        awaits=member.awaits,
        step=member.inside,
        left_at=member.left_at,
        environment=dict(member.environment),
        looks=tuple(member.looks),
        children=tuple(tuple(looks) for looks in member.children.values()),
        moved=moved,
        busy=busy,
    )


def make_job_facts(job: Job, ended: Ended, due: Overdue | None) -> JobFacts:
    """Return the job as it is now, when it `ended` or its clock ran out."""
    now = time.monotonic()
    return JobFacts(
        ended=ended,
        pipeline=str(job.settings["pipeline"]),
        command=tuple(job.settings["command"]),
        attempt=job.attempt,
        world_size=job.members.world_size,
        local_ranks=tuple(sorted(job.members.expected)),
        table=job.table,
        now=now,
        started=job.started,
        still=seconds_still(job, now, [m.rank for m in job.members if not m.waits_for_us]),
        past_deadline=round(now - due.since, 3) if due and due.clock == "late" else None,
        slow_steps=tuple(job.slow_steps.values()),
        barrier_opened=job.barrier_opened,
        versions=job.versions(),
        notes=(*job.notes, *describe_contradictions(job.members)),
        machine=job.machine or MachineFacts(),
        unstarted=job.members.unstarted,
    )


def seconds_still(job: Job, now: float, ranks: Iterable[RankId]) -> float | None:
    """Return for how long nothing of these ranks has moved, None if they are gone."""
    members = [m for m in job.members if m.rank in set(ranks) and not m.left]
    return round(now - max(m.moved_at for m in members), 3) if members else None


CONTRADICTIONS_SHOWN = 3


def describe_contradictions(members: NodeRanks) -> list[str]:
    """Return what ranks found contradictory in their variables, a few of them in words."""
    told = [f"rank {m.rank}: {sentence}" for m in members for sentence in m.contradictions]
    more = len(told) - CONTRADICTIONS_SHOWN
    return [*told[:CONTRADICTIONS_SHOWN], *([f"and {more} more such contradictions"] * (more > 0))]
