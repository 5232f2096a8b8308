"""The jobs of this machine as a list: how long they run, and whether they move."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Mapping, Sequence

from ..base.deadline import aside
from ..base.facts import Sample
from ..base.launchers import RANK_VARIABLES
from ..base.words import format_seconds, join_lines
from ..evidence import movement
from ..evidence.lock_and_log_files import identify_files
from ..evidence.process import family, sample
from .answer import describe_ranks, format_age
from .jobs import FoundJobs, Job

SAMPLE_PAUSE = 1.0  # seconds between two samples
_SAMPLE_LIMIT = 1.0  # seconds for one of them
_TICKS = os.sysconf("SC_CLK_TCK")
_COMMAND_WIDTH = 46  # characters of it
NEXT_COMMANDS = (
    ("hangbisect attach {pid}", "what hangs, and why: it looks, and ends nothing"),
    ("hangbisect run -- COMMAND", "the next start, watched"),
    ("hangbisect doctor", "this machine, before anything hangs"),
)


async def list_jobs(found: FoundJobs) -> list[str]:
    """Return the jobs, a line each, and the next commands."""
    if not found.jobs:
        return [*no_job_lines(found), "", *_next_command_lines("PID")]
    last = await asyncio.gather(*(_describe_last_movement(job) for job in found.jobs))
    rows = [(_job_row(job), moves) for job, moves in zip(found.jobs, last, strict=True)]
    count = len(found.jobs)
    head = f"{count} job{'s' * (count != 1)} run{'s' * (count == 1)} here"
    pid = found.jobs[0].pid if count == 1 else "PID"
    return [head, *(f"{row}  {moves}" for row, moves in rows), "", *_next_command_lines(pid)]


def no_job_lines(found: FoundJobs) -> list[str]:
    """Return what was looked for, where no job was found."""
    others = (
        f" Of {found.others} Python processes of other users nothing may be read: ask as that user "
        "or as root."
        if found.others
        else ""
    )
    return [
        "No job runs here that can be seen: no process has a rank in its environment "
        f"({', '.join(RANK_VARIABLES)}), none of Lightning's or multiprocessing's "
        f"ranks, no launcher, and no Python that has loaded torch.{others}"
    ]


def choice_lines(found: FoundJobs, jobs: Sequence[Job]) -> list[str]:
    """Return several jobs, a line each, and how one is chosen."""
    return [
        f"{len(jobs)} jobs run here:",
        *map(_job_row, jobs),
        "",
        *_next_command_lines("PID")[:1],
    ]


def _job_row(job: Job) -> str:
    command = join_lines(" ".join(job.command)) or "?"
    command = command if len(command) <= _COMMAND_WIDTH else f"{command[: _COMMAND_WIDTH - 3]}..."
    ranks = describe_ranks([rank.number for rank in job.ranks], job.world)
    kind = ", notebook" if job.notebook is not None else ""
    kind += ", watched" if job.watched is not None else ""
    runs = f"{format_age(job.started, _TICKS)} old"
    return f"  {job.pid:<8} {command:<{_COMMAND_WIDTH}}  {ranks}{kind}, {runs}"


def _next_command_lines(pid: object) -> list[str]:
    lines = [(command.format(pid=pid), text) for command, text in NEXT_COMMANDS]
    return [
        f"{'next' if number == 0 else '':<6}{command:<26} {text}"
        for number, (command, text) in enumerate(lines)
    ]


async def _describe_last_movement(job: Job) -> str:
    """Return what moves right now, else when something of it was written last."""
    before = await _read_samples(job)
    await asyncio.sleep(SAMPLE_PAUSE)
    after = await _read_samples(job)
    for pid, new in after.items():
        old = before.get(pid)
        stirs = movement.compare_samples(old, new) if old is not None else "was started"
        if stirs:
            return f"moves: {_name_process(job, pid)} {stirs}"
    written = await _age_of_last_output(job)
    said = f", printed {format_seconds(written)} ago" if written is not None else ""
    return f"nothing moved in {format_seconds(SAMPLE_PAUSE)}{said}"


def _name_process(job: Job, pid: int) -> str:
    rank = next((r for r in job.ranks if r.pid == pid), None)
    if rank is None:
        return f"process {pid}"
    return f"rank {'?' if rank.number is None else rank.number}"


async def _read_samples(job: Job) -> Mapping[int, Sample]:
    def read() -> dict[int, Sample]:
        ranks = [rank.pid for rank in job.ranks] or list(job.launchers)
        pids = [*ranks, *sorted(family(ranks))]
        return {pid: one for pid in pids if (one := sample(pid)) is not None}

    try:
        return await aside(read, limit=_SAMPLE_LIMIT, key=("samples", job.pid))
    except TimeoutError:
        return {}


async def _age_of_last_output(job: Job) -> float | None:
    """Return how long ago the output of a job was written to, where that goes to a file, and not
    to the same one as ours.
    """

    def read() -> float | None:
        times, ours = [], identify_files((1, 2))
        for rank in job.ranks:
            for number in (1, 2):
                path = f"/proc/{rank.pid}/fd/{number}"
                try:
                    about = os.stat(path)
                    is_ours = (about.st_dev, about.st_ino) in ours
                    if stat.S_ISREG(about.st_mode) and not is_ours:
                        times.append(about.st_mtime)
                except OSError:
                    continue
        return max(0.0, time.time() - max(times)) if times else None

    try:
        return await aside(read, limit=_SAMPLE_LIMIT, key=("output", job.pid))
    except TimeoutError:
        return None
