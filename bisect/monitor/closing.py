"""The verdict: made, on disk and printed, and only then what --on-hang says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnosis.verdict import judge
from ..facts import Ended, JobFacts, Look, RankFacts, Verdict
from ..report.as_json import as_json
from ..report.stacks import merged, stack_text
from ..report.terminal import culprit_stack, verdict_lines
from .clocks import LEAVING_LIMIT
from .departures import STATES_AFTER
from .ending import has_ended, send

if TYPE_CHECKING:
    from .clocks import Overdue
    from .job import Job
    from .server import Server

# As ranks spell it, links and all: they start us by this path.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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
    facts = _job_facts(job, ended, ranks, due)
    verdict = judge(facts, ranks)
    job.verdict, job.closed_at = verdict, time.monotonic()
    _write_evidence(job, verdict, ranks)
    facts, verdict = _timed(job, facts, ranks, since, verdict.ranks.culprit)
    job.verdict = verdict
    job.files.write_json("verdict.json", as_json(verdict))
    job.note(None, {"t": "verdict", "outcome": verdict.outcome})
    published = await job.files.publish()
    ending = _is_ending(job, verdict)
    lines = _print(job, facts, verdict, ranks, published, ending)
    if not ending:
        return
    server.let_signalled_go()
    _say_outcome(job, verdict)
    if verdict.outcome in ("hang", "slow"):
        await _tell_torchelastic(job, verdict, lines, since)
    job.was_ended = True
    if verdict.outcome == "ok":
        # Before the ranks leave: were we killed after that, nobody would remove it.
        job.hush()
        job.remove_folder()
        job.remove_temporary_files()
    for member in job.members:
        job.tell(member.rank, "written")
    await _end(job, verdict)


def reopen(job: Job) -> None:
    """Take a verdict back: what was called hung moves again."""
    assert job.verdict is not None
    ranks = ", ".join(map(str, job.verdict.ranks.culprit))
    job.say(f"Taken back: rank {ranks} moves again; watching on")
    job.note(None, {"t": "taken back"})
    job.verdict, job.closing = None, False


def _is_ending(job: Job, verdict: Verdict) -> bool:
    mode = job.settings["on_hang"]
    return mode == "end" or verdict.outcome in ("ok", "crash", "interrupted")


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
        notes=tuple(job.notes),
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


# ---- files ---------------------------------------------------------------------------------------


def _write_evidence(job: Job, verdict: Verdict, ranks: Sequence[RankFacts]) -> None:
    job.files.write_json("environment.json", _environment(job))
    if verdict.outcome == "ok":
        return
    job.files.write_json("evidence.json", [asdict(r) for r in ranks])
    for rank in ranks:
        if rank.looks:
            name = f"stacks/rank-{rank.rank}.txt"
            job.files.write(name, stack_text(best(rank.looks), rank.rank, "rank"))
        for looks in rank.children:
            one = best(looks)
            name = f"stacks/rank-{rank.rank}-{_plain(one.name)}-{one.pid}.txt"
            job.files.write(name, stack_text(one, rank.rank, "child"))
    for member in job.members:
        if member.traceback:
            job.files.write(f"stacks/rank-{member.rank}.txt", member.traceback)
    job.files.write("stacks/merged.txt", merged(ranks))


def best(looks: Sequence[Look]) -> Look:
    """Return the last look that shows a stack, else the last."""
    return next((one for one in reversed(looks) if one.threads), looks[-1])


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def _environment(job: Job) -> dict[str, object]:
    return {
        "versions": job.versions(),
        "host": job.place["host"],
        "processors": os.cpu_count(),
        "kernel": os.uname().release,
        "ranks": {str(m.rank): m.environment for m in job.members},
    }


# ---- saying it -----------------------------------------------------------------------------------


def _print(
    job: Job,
    facts: JobFacts,
    verdict: Verdict,
    ranks: Sequence[RankFacts],
    published: bool,
    ending: bool,
) -> list[str]:
    folder = str(job.files.path if published else job.files.stage)
    if not published:
        job.say(f"The run folder could not be written: {job.files.trouble}; files are in {folder}")
    first = next(iter(job.members), None)
    missing = sorted(first.not_exercised) if first else []
    width = _terminal_width()
    lines = verdict_lines(
        verdict,
        facts,
        ranks,
        run_dir=folder,
        state=_state(job, verdict, ending),
        not_exercised=missing,
        slowest=_slowest(job),
        width=width,
    )
    if any(m.usage for m in job.members):
        return lines
    if job.settings["json"]:
        job.print_answer(json.dumps(as_json(verdict), ensure_ascii=False))
    elif width is None and verdict.outcome not in ("ok", "interrupted"):
        job.print_answer("\n".join([*lines, *culprit_stack(ranks, verdict)]))
    else:
        job.print_answer("\n".join(lines))
    return lines


def _slowest(job: Job) -> str:
    """Return which step took longest, in words: "4 Tokenizer loaded 3.4 s (imports 3.3 s)"."""
    steps = [(took, n, m) for m in job.members for n, took in m.took.items()]
    if not steps:
        return ""
    took, number, member = max(steps, key=lambda step: step[0])
    title = next((c.title for c in job.table if c.number == number), "")
    importing = member.imports.get(number, 0.0)
    inside = f" (imports {importing:.1f} s)" if importing >= 0.1 else ""
    return f"{number} {title} {took:.1f} s{inside}"


def _state(job: Job, verdict: Verdict, ending: bool) -> str:
    if verdict.outcome == "ok":
        return ""
    if ending:
        return STATES_AFTER["end"]
    pids = ", ".join(f"{m.pid} (rank {m.rank})" for m in job.members if not m.left)
    return STATES_AFTER[job.settings["on_hang"]].format(pids=pids)


def _terminal_width() -> int | None:
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return None


def _say_outcome(job: Job, verdict: Verdict) -> None:
    """Tell the process in front of a lone rank, which gives the exit status."""
    pipe = job.settings.get("outcome_pipe")
    if pipe is not None:
        with contextlib.suppress(OSError):
            os.write(pipe, verdict.outcome.encode())
            os.close(pipe)
        job.settings["outcome_pipe"] = None


async def _tell_torchelastic(
    job: Job, verdict: Verdict, lines: Sequence[str], since: float
) -> None:
    """Fill the culprit's error file, so that torchrun's own last words carry the verdict.

    The form is that of torch/distributed/elastic/multiprocessing/errors/error_handler.py; the
    agent shows `py_callstack` of the failure with the earliest timestamp.
    """
    became_overdue = int(time.time() - (time.monotonic() - since))
    extra = {"py_callstack": "\n".join(lines), "timestamp": str(became_overdue)}
    content = json.dumps({"message": {"message": lines[0], "extraInfo": extra}})
    files = [m.error_file for m in job.members if m.rank in verdict.ranks.culprit and m.error_file]

    def write() -> None:
        for name in files[:1]:
            aside = Path(f"{name}.new")
            aside.write_text(content, encoding="utf-8")
            aside.replace(name)

    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(write), 1.0)


# ---- ending --------------------------------------------------------------------------------------


async def _end(job: Job, verdict: Verdict) -> None:
    """End the ranks and all that belongs to them, and account for what is left."""
    if verdict.outcome == "ok":
        await _wait_for_ranks(job, LEAVING_LIMIT)
        await _wait_until_gone(job, STRAY_LIMIT)
    elif verdict.outcome == "crash":
        await _wait_until_gone(job, LAUNCHER_LIMIT)
    left = await asyncio.to_thread(job.family.end_for_good)
    if left:
        job.say(f"Still there, in the kernel (state D): {', '.join(map(str, left))}")
    if verdict.outcome in ("hang", "slow") and any(m.max_restarts > m.attempt for m in job.members):
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
