"""The evidence of a verdict, as files of the run folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..diagnosis.graph import WaitGraph
    from ..facts import JobFacts, Look, RankFacts, Verdict
    from .job import Job
    from .run_folder import RunFolder


def write_evidence(
    job: Job, facts: JobFacts, verdict: Verdict, graph: WaitGraph, ranks: Sequence[RankFacts]
) -> None:
    """Write what a verdict rests on; of a job that ended well, only the environment."""
    of_ranks = {m.rank: m.environment for m in job.members}
    write_environment(job.files, job.versions(), str(job.place["host"]), of_ranks)
    if verdict.outcome == "ok":
        return
    write_looks(job.files, facts, graph, ranks)
    for member in job.members:
        if member.traceback:
            job.files.write(f"stacks/rank-{member.rank}.txt", member.traceback)


def write_looks(
    files: RunFolder, facts: JobFacts, graph: WaitGraph, ranks: Sequence[RankFacts]
) -> None:
    """Write all looks, and the stacks of each process as text."""
    from ..report.evidence import evidence_json
    from ..report.stacks import stack_text
    from ..report.tree import merged

    files.write_json("evidence.json", evidence_json(ranks, graph, facts.machine))
    for rank in ranks:
        if rank.looks:
            name = f"stacks/rank-{rank.rank}.txt"
            files.write(name, stack_text(best(rank.looks), rank.rank, "rank"))
        for looks in rank.children:
            one = best(looks)
            name = f"stacks/rank-{rank.rank}-{_plain(one.name)}-{one.pid}.txt"
            files.write(name, stack_text(one, rank.rank, "child"))
    files.write("stacks/merged.txt", merged(ranks))


def write_environment(
    files: RunFolder,
    versions: Mapping[str, str],
    host: str,
    of_ranks: Mapping[int, Mapping[str, str]],
) -> None:
    """Write what the ranks ran in, and their variables."""
    environment = {
        "versions": versions,
        "host": host,
        "processors": os.cpu_count(),
        "kernel": os.uname().release,
        "ranks": {str(rank): dict(variables) for rank, variables in of_ranks.items()},
    }
    files.write_json("environment.json", environment)


def best(looks: Sequence[Look]) -> Look:
    """Return the last look that shows a stack, else the last."""
    return next((one for one in reversed(looks) if one.threads), looks[-1])


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
