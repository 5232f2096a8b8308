"""The jobs of this machine as a list: how long they run, and whether they move."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from ..evidence import movement
from ..evidence.aside import aside
from ..evidence.sample import family, sample
from ..facts import Sample
from ..report.words import one_line, seconds
from .finding import Found
from .jobs import Job
from .words import age, size

MOMENT = 1.0  # seconds between two samples
_LIMIT = 1.0  # seconds for one of them
_TICKS = os.sysconf("SC_CLK_TCK")
_COMMAND = 46  # characters of it
NEXT = (
    ("hangbisect attach {pid}", "what hangs, and why: it looks, and ends nothing"),
    ("hangbisect run -- COMMAND", "the next start, watched"),
    ("hangbisect doctor", "this machine, before anything hangs"),
)


async def listed(found: Found) -> list[str]:
    """Return the jobs, a line each, and the next commands."""
    if not found.jobs:
        return [*nothing(found), "", *_next("PID")]
    last = await asyncio.gather(*(_last_movement(job) for job in found.jobs))
    rows = [(_row(job), moves) for job, moves in zip(found.jobs, last, strict=True)]
    count = len(found.jobs)
    head = f"{count} job{'s' * (count != 1)} run{'s' * (count == 1)} here"
    pid = found.jobs[0].pid if count == 1 else "PID"
    return [head, *(f"{row}  {moves}" for row, moves in rows), "", *_next(pid)]


def nothing(found: Found) -> list[str]:
    """Return what was looked for, where no job was found."""
    others = (
        f" Of {found.others} Python processes of other users nothing may be read: ask as that user "
        "or as root."
        if found.others
        else ""
    )
    return [
        "No job runs here that can be seen: no process has a rank in its environment (RANK, "
        "SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK), none of Lightning's or multiprocessing's "
        f"ranks, no launcher, and no Python that has loaded torch.{others}"
    ]


def choices(found: Found, jobs: Sequence[Job]) -> list[str]:
    """Return several jobs, a line each, and how one is chosen."""
    return [f"{len(jobs)} jobs run here:", *map(_row, jobs), "", *_next("PID")[:1]]


def _row(job: Job) -> str:
    command = one_line(" ".join(job.command)) or "?"
    command = command if len(command) <= _COMMAND else f"{command[: _COMMAND - 3]}..."
    ranks = size([rank.number for rank in job.ranks], job.world)
    kind = ", notebook" if job.notebook is not None else ""
    kind += ", watched" if job.watched is not None else ""
    runs = f"{age(job.started, _TICKS)} old"
    return f"  {job.pid:<8} {command:<{_COMMAND}}  {ranks}{kind}, {runs}"


def _next(pid: object) -> list[str]:
    lines = [(command.format(pid=pid), text) for command, text in NEXT]
    return [
        f"{'next' if number == 0 else '':<6}{command:<26} {text}"
        for number, (command, text) in enumerate(lines)
    ]


async def _last_movement(job: Job) -> str:
    """Return what moves right now, else when something of it was written last."""
    before = await _samples(job)
    await asyncio.sleep(MOMENT)
    after = await _samples(job)
    for pid, new in after.items():
        old = before.get(pid)
        stirs = movement.stirred(old, new) if old is not None else "was started"
        if stirs:
            return f"moves: {_who(job, pid)} {stirs}"
    written = await _last_written(job)
    said = f", printed {seconds(written)} ago" if written is not None else ""
    return f"nothing moved in {seconds(MOMENT)}{said}"


def _who(job: Job, pid: int) -> str:
    rank = next((r for r in job.ranks if r.pid == pid), None)
    if rank is None:
        return f"process {pid}"
    return f"rank {'?' if rank.number is None else rank.number}"


async def _samples(job: Job) -> Mapping[int, Sample]:
    def read() -> dict[int, Sample]:
        ranks = [rank.pid for rank in job.ranks] or list(job.launchers)
        pids = [*ranks, *sorted(family(ranks))]
        return {pid: one for pid in pids if (one := sample(pid)) is not None}

    try:
        return await aside(read, limit=_LIMIT, key=("samples", job.pid))
    except TimeoutError:
        return {}


async def _last_written(job: Job) -> float | None:
    """Return how long ago the output of a job was written to, where that goes to a file."""

    def read() -> float | None:
        times = []
        for rank in job.ranks:
            for number in (1, 2):
                path = f"/proc/{rank.pid}/fd/{number}"
                try:
                    if os.readlink(path).startswith("/") and os.path.isfile(path):
                        times.append(os.stat(path).st_mtime)
                except OSError:
                    continue
        return max(0.0, time.time() - max(times)) if times else None

    try:
        return await aside(read, limit=_LIMIT, key=("output", job.pid))
    except TimeoutError:
        return None
