"""Ranks that never say hello: look for them among the launcher's children."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from ..evidence.aside import within
from ..evidence.sample import family
from ..rank.claims import DIALECTS

if TYPE_CHECKING:
    from ..facts import RankFacts
    from .job import Job

RANK_VARIABLES = tuple(variables[0] for variables in DIALECTS.values())


def look_for_absent(job: Job, now: float) -> Awaitable[list[RankFacts]] | None:
    """Return what becomes facts about the ranks that should be here by now, None if none is late.

    A rank is late when the deadline of checkpoint 0, "Ranks started", is over, counted from the
    job's first rank.
    """
    absent = sorted(job.members.expected - set(job.members.by_rank))
    first = job.table[0]
    allowed = job.limits.timeouts.get(first.name, job.limits.timeouts.get("", first.deadline))
    if not absent or now < job.started + allowed:
        return None
    return _facts(job, absent)


async def _facts(job: Job, absent: list[int]) -> list[RankFacts]:
    from ..evidence.look import Target, look
    from ..facts import RankFacts

    try:
        pids = within(1.0, _find, int(job.place["launcher_pid"]), _variable(job), absent)
    except TimeoutError:
        pids = {}
    looks = await look([Target(chain[-1], "rank") for chain in pids.values()])
    by_pid = {one.pid: one for one in looks}
    for chain in pids.values():
        # All of it: a wrapper whose child alone is ended goes on and starts the rank.
        job.family.add_rank(chain[0])
    found = []
    for rank in absent:
        pid = pids[rank][-1] if rank in pids else None
        found.append(
            RankFacts(
                rank=rank,
                local_rank=rank - int(job.place["rank"]) + int(job.place["local_rank"]),
                pid=pid,
                host=str(job.place["host"]),
                alive=pid is not None,
                never_started=True,
                looks=(by_pid[pid],) if pid in by_pid else (),
            )
        )
    return found


def _variable(job: Job) -> str:
    """Return the variable by which the launcher tells ranks apart: others may be there as well."""
    dialect = job.place["launcher"]
    return DIALECTS[dialect if dialect in DIALECTS else "torchrun"][0]


def _find(launcher: int, variable: str, absent: list[int]) -> dict[int, list[int]]:
    """Return the processes of each absent rank below the launcher, in the order of their pids: a
    wrapper, and what it has started.
    """
    found: dict[int, list[int]] = {}
    for pid in sorted(family([launcher])):
        with contextlib.suppress(OSError, ValueError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            prefix = f"{variable}=".encode()
            numbers = [int(w[len(prefix) :]) for w in words if w.startswith(prefix)]
            if numbers and numbers[0] in absent:
                found.setdefault(numbers[0], []).append(pid)
    return found
