"""The verdict: made, on disk and printed, and only then what --on-hang says."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..diagnosis.verdict import judge, judged
from ..facts import Ended, JobFacts, MachineFacts, RankFacts, Verdict
from ..report.as_json import as_json
from .announcing import print_verdict, say_outcome, tell_torchelastic
from .clocks import LEAVING_LIMIT
from .ending import has_ended, send
from .members import contradictions
from .newcomers import silent_ranks
from .on_disk import write_evidence

if TYPE_CHECKING:
    from .clocks import Overdue
    from .job import Job
    from .server import Server

# As ranks spell it, links and all: they start us by this path.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MACHINE_LIMIT = 0.5  # seconds to see what there is of GPUs and memory after a crash
LAUNCHER_LIMIT = 5.0  # seconds for a launcher to end the others after a crash
STRAY_LIMIT = 5.0  # seconds for what a healthy job leaves behind to end by itself


async def close(
    job: Job,
    server: Server,
    ended: Ended,
    ranks: Sequence[RankFacts],
    due: Overdue | None = None,
) -> None:
    """Judge, write, print, publish; then end the job, or leave it, as --on-hang says."""
    job.closing = True
    since = time.monotonic() if due is None else due.since
    if job.own and ended in ("late", "still", "busy"):
        known = {facts.rank for facts in ranks}
        ranks = [*ranks, *(f for f in await silent_ranks(job) if f.rank not in known)]
    if ended not in ("done", "past"):
        ranks = await _with_the_rest(job, ranks, ended)
    facts = _job_facts(job, ended, ranks, due)
    verdict, graph = judged(facts, ranks)
    job.verdict, job.closed_at = verdict, time.monotonic()
    write_evidence(job, facts, verdict, graph, ranks)
    facts, verdict = _timed(job, facts, ranks, since, verdict.ranks.culprit)
    job.verdict = verdict
    job.files.write_json("verdict.json", as_json(verdict))
    ending = _is_ending(job, verdict, ended)
    job.note(None, {"t": "verdict", "outcome": verdict.outcome, "ends": ending})
    published = await job.files.publish()
    lines = print_verdict(job, facts, verdict, ranks, published, ending)
    if not ending:
        _make_reports(job, verdict, published)
        return
    await job.live.close()
    server.let_signalled_go()
    say_outcome(job, verdict)
    if verdict.outcome in ("hang", "slow"):
        await tell_torchelastic(job, verdict, lines, since)
    job.was_ended = True
    if verdict.outcome == "ok":
        # Before the ranks leave: were we killed after that, nobody would remove it.
        job.hush()
        job.remove_folder()
        job.remove_temporary_files()
    for member in job.members:
        job.tell(member.rank, "written")
    await _end(job, verdict, ended)
    _make_reports(job, verdict, published)


def _make_reports(job: Job, verdict: Verdict, published: bool) -> None:
    if verdict.outcome != "ok" or job.reports.were_made:
        job.reports.begin(str(job.files.path if published else job.files.stage))


async def _with_the_rest(job: Job, ranks: Sequence[RankFacts], ended: Ended) -> list[RankFacts]:
    """Return the ranks with what only a job that went wrong is asked for."""
    from ..evidence.machine import machine
    from .log_reading import with_logs

    read = await with_logs(job, ranks, ended)
    if job.machine is None:
        job.machine = await machine(MACHINE_LIMIT)
    return read


def reopen(job: Job) -> None:
    """Take a verdict back: what was called hung moves again."""
    assert job.verdict is not None
    ranks = ", ".join(map(str, job.verdict.ranks.culprit))
    job.say(f"Taken back: rank {ranks} moves again; watching on")
    job.note(None, {"t": "taken back"})
    job.verdict, job.closing = None, False


def _is_ending(job: Job, verdict: Verdict, ended: Ended) -> bool:
    if job.own:
        return job.ends_it and ended != "done"
    return job.ends_it or verdict.outcome in ("ok", "crash", "interrupted")


def _job_facts(job: Job, ended: Ended, ranks: Sequence[RankFacts], due: Overdue | None) -> JobFacts:
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
        package=PACKAGE,
        still=_still(job, now, [m.rank for m in job.members if not m.waits_for_us]),
        past_deadline=round(now - due.since, 3) if due and due.clock == "late" else None,
        slow_steps=tuple(job.slow_steps.values()),
        barrier_opened=job.barrier_opened,
        versions=job.versions(),
        notes=(*job.notes, *contradictions(job.members)),
        machine=job.machine or MachineFacts(),
    )


def _timed(
    job: Job, facts: JobFacts, ranks: Sequence[RankFacts], since: float, culprits: Sequence[int]
) -> tuple[JobFacts, Verdict]:
    """Judge again with the time that it took until everything but the verdict was on disk."""
    now = time.monotonic()
    still = _still(job, now, culprits) if culprits else facts.still
    facts = replace(facts, to_verdict=round(now - since, 3), still=still)
    return facts, judge(facts, ranks)


def _still(job: Job, now: float, ranks: Iterable[int]) -> float | None:
    """Return for how long nothing of these ranks has moved, None if they are gone."""
    members = [m for m in job.members if m.rank in set(ranks) and not m.left]
    return round(now - max(m.moved_at for m in members), 3) if members else None


# ---- ending --------------------------------------------------------------------------------------


async def _end(job: Job, verdict: Verdict, ended: Ended) -> None:
    """End the ranks and all that belongs to them, and account for what is left."""
    if ended == "done":
        await _wait_for_ranks(job, LEAVING_LIMIT)
        await _wait_until_gone(job, STRAY_LIMIT)
    elif verdict.outcome == "crash":
        await _wait_until_gone(job, LAUNCHER_LIMIT)
    left = await asyncio.to_thread(job.family.end_for_good)
    if left:
        job.say(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    was_cut_short = verdict.outcome in ("hang", "slow") or ended == "past"
    if was_cut_short and any(m.max_restarts > m.attempt for m in job.members):
        await _end_launcher(job)


async def _wait_for_ranks(job: Job, limit: float) -> None:
    """Wait for the interpreters of ranks that have nothing more to do to end."""
    until = time.monotonic() + limit
    while time.monotonic() < until and not all(map(has_ended, job.pidfds.values())):
        await asyncio.sleep(0.02)


async def _wait_until_gone(job: Job, limit: float) -> None:
    until = time.monotonic() + limit
    while time.monotonic() < until:
        job.family.refresh()
        if not job.family.living():
            return
        await asyncio.sleep(0.02)


async def _end_launcher(job: Job) -> None:
    """End an agent that has restarts left: it would start the hang again."""
    from ..evidence.sample import started

    pid = int(job.place["launcher_pid"])
    for number, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 1.0)):
        ticks = started(pid)
        if ticks is None or not send(pid, ticks, number):
            return
        until = time.monotonic() + seconds
        while started(pid) == ticks and time.monotonic() < until:
            await asyncio.sleep(0.05)
