"""Where it hangs: the checkpoint, the process, what it waits for, and how that was seen."""

from __future__ import annotations

from ..facts import Checkpoint, JobFacts, Place, RankFacts, Ranks, Wait, Where
from .case import Case, reached
from .graph import WaitGraph


def place_of(case: Case, culprit: RankFacts | None) -> tuple[Place | None, Checkpoint | None]:
    """Return the first checkpoint that not every rank reached, with the culprit's phase."""
    unfinished = [r for r in case.ranks if not r.finished]
    if not unfinished or not case.job.table:
        return None, None
    if any(r.step for r in unfinished):
        return _own_place(case, unfinished, culprit)
    last = max(c.number for c in case.job.table)
    number = min(min(reached(r) for r in unfinished) + 1, last)
    checkpoint = next((c for c in case.job.table if c.number == number), None)
    if checkpoint is None:
        return None, None
    there = culprit if culprit and reached(culprit) + 1 == number else None
    if there is None:  # nobody known is to blame: the phase of those that are there
        there = next((r for r in unfinished if reached(r) + 1 == number), None)
    phase = there.phase if there else None
    if phase not in {p.name for p in checkpoint.phases}:
        phase = None
    return Place(number, checkpoint.name, checkpoint.title, phase), checkpoint


def _own_place(
    case: Case, unfinished: list[RankFacts], culprit: RankFacts | None
) -> tuple[Place | None, Checkpoint | None]:
    """Return the step of a script of the user's own that the culprit is in; where nobody is to
    blame, or it never came so far as to speak, that of the rank that came least far.
    """
    there = culprit
    if there is None or there.step is None:
        there = min((r for r in unfinished if r.step), key=reached)
    step = there.step
    assert step is not None
    return Place(step.shown, step.name, step.title, step.phase), step


def where(facts: RankFacts, job: JobFacts) -> Where:
    """Return which process a rank is, and what it said last."""
    age = None if facts.last_line_at is None else round(max(0.0, job.now - facts.last_line_at), 1)
    gpu = next((g.index for g in job.machine.gpus if facts.pid in g.pids), None)
    return Where(facts.rank, facts.host, facts.pid, gpu, facts.last_line, age)


def waits_for(case: Case, ranks: Ranks, graph: WaitGraph) -> Wait | None:
    """Return what the first culprit waits for; of one that is to blame for a process of its own,
    that process; where the culprit is a rank that never came, what the others wait for.
    """
    for rank in ranks.culprit:
        if rank in case.found and case.found[rank].wait is not None:
            waits_itself = case.found[rank].needs and rank in graph.answering
            return _answered_for(graph, rank) if waits_itself else case.found[rank].wait
    never_came = frozenset(ranks.never_started)
    others = ranks.culprit and all(rank in never_came for rank in ranks.culprit)
    waiting = ranks.waiting if others or not ranks.culprit else ()
    return next((w for r in waiting if (w := case.found[r].wait) is not None), None)


def _answered_for(graph: WaitGraph, rank: int) -> Wait:
    """Return the process that others wait for and that `rank` answers for, as what it waits for."""
    process = graph.answering[rank]
    about = next((edge for edge in graph.edges if edge.source == process.name), None)
    detail = f"{about.kind}: {about.evidence}" if about else ""
    return Wait(
        "process", detail, int(process.name.split()[1]), process.says.partition(",")[0] or None
    )
