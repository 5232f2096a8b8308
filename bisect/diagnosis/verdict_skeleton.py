"""What every verdict says, whatever happened."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.process_facts import Rung
from ..base.rank_facts import JobFacts, RankFacts, is_server_process
from ..base.verdict_facts import Outcome, Ranks, Seconds, Verdict

_RUNGS: tuple[Rung, ...] = ("py-spy", "pystack", "faulthandler", "proc")


def make_verdict_skeleton(
    job: JobFacts, looked_at: Sequence[RankFacts], outcome: Outcome, ranks: Ranks
) -> Verdict:
    """Return what every verdict says."""
    return Verdict(
        outcome=outcome,
        pipeline=job.pipeline,
        command=job.command,
        attempt=job.attempt,
        world_size=job.world_size,
        checkpoint=None,
        ranks=ranks,
        seen_by=best_rung(looked_at),
        slow_steps=job.slow_steps,
        barrier_opened=job.barrier_opened,
        seconds=Seconds(
            round(max(0.0, job.now - job.started), 3), job.still, job.past_deadline, job.to_verdict
        ),
        versions=dict(job.versions),
        notes=(*job.notes, *job.said, *filter(None, [job.starting])),
        said=job.said,
        may_start_more=bool(job.starting),
        seen_ranks=tuple(
            sorted(
                f.rank
                for f in looked_at
                if (not f.never_started or f.pid) and not is_server_process(f)
            )
        ),
    )


def best_rung(ranks: Sequence[RankFacts]) -> Rung:
    """Return by which of its means the tool saw most, of all that it looked at."""
    rungs = {look.rung for facts in ranks for look in facts.looks}
    return next((r for r in _RUNGS if r in rungs), "proc")
