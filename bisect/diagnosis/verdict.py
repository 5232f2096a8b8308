"""The verdict: which ranks, at which checkpoint, in which call, waiting for what, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.rank_facts import Ended, JobFacts, RankFacts
from ..base.verdict_facts import Outcome, Ranks, Verdict
from .snapshot import Snapshot
from .verdict_skeleton import make_verdict_skeleton
from .wait_graph import WaitGraph

OUTCOMES: dict[Ended, Outcome] = {
    "done": "ok",
    "past": "ok",
    "late": "hang",
    "still": "hang",
    "busy": "hang",
    "left": "hang",
    "crash": "crash",
    "interrupted": "interrupted",
    "limit": "slow",
}


def judge_job(job: JobFacts, ranks: Sequence[RankFacts]) -> Verdict:
    """Return the verdict on a job that ended, or that is called hung."""
    return judge_job_with_graph(job, ranks)[0]


def judge_job_with_graph(job: JobFacts, ranks: Sequence[RankFacts]) -> tuple[Verdict, WaitGraph]:
    """Return the verdict, and the graph that it rests on (empty if the job ended well)."""
    return judge_snapshot(job, Snapshot(ranks))


def judge_snapshot(job: JobFacts, snapshot: Snapshot) -> tuple[Verdict, WaitGraph]:
    """Return the verdict on these ranks, and its wait-for graph (empty if the job ended well)."""
    outcome = OUTCOMES[job.ended]
    if outcome == "ok":
        return make_verdict_skeleton(job, snapshot.ranks, outcome, Ranks()), WaitGraph((), (), ())
    # Not at the top: nearly all jobs end well, and their ranks would wait for these imports.
    from .case import make_case
    from .failure_verdict import explain_case

    return explain_case(make_case(job, snapshot), outcome)
