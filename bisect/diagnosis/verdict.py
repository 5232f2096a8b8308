"""The verdict: which ranks, at which checkpoint, in which call, waiting for what, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import Ended, JobFacts, Outcome, RankFacts, Ranks, Verdict
from .bare import bare_verdict
from .graph import WaitGraph

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


def judge(job: JobFacts, ranks: Sequence[RankFacts]) -> Verdict:
    """Return the verdict on a job that ended, or that is called hung."""
    return judged(job, ranks)[0]


def judged(job: JobFacts, ranks: Sequence[RankFacts]) -> tuple[Verdict, WaitGraph]:
    """Return the verdict, and the graph that it rests on (empty if the job ended well)."""
    outcome = OUTCOMES[job.ended]
    if outcome == "ok":
        return bare_verdict(job, ranks, outcome, Ranks()), WaitGraph((), (), ())
    # Not at the top: nearly all jobs end well, and their ranks would wait for these imports.
    from .case import case_of
    from .explained import explained

    return explained(case_of(job, ranks), outcome)
