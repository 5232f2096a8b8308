"""What every verdict says, whatever happened."""

from __future__ import annotations

from ..facts import Outcome, Ranks, Seconds, Verdict
from .case import Case
from .where import best_rung


def bare_verdict(case: Case, outcome: Outcome, ranks: Ranks) -> Verdict:
    """Return what every verdict says."""
    job = case.job
    return Verdict(
        outcome=outcome,
        pipeline=job.pipeline,
        command=job.command,
        attempt=job.attempt,
        world_size=job.world_size,
        checkpoint=None,
        ranks=ranks,
        seen_by=best_rung(case.ranks),
        slow_steps=job.slow_steps,
        barrier_opened=job.barrier_opened,
        seconds=Seconds(
            round(max(0.0, job.now - job.started), 3), job.still, job.past_deadline, job.to_verdict
        ),
        versions=dict(job.versions),
        notes=job.notes,
    )
