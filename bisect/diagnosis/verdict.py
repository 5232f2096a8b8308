"""The verdict: which ranks, at which checkpoint, in which call, waiting for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..facts import (
    Checkpoint,
    Ended,
    JobFacts,
    Outcome,
    Place,
    RankFacts,
    Ranks,
    Rung,
    Seconds,
    Verdict,
    Wait,
    Where,
)
from .blame import Progress, least_advanced, sinks
from .calls import call_in, component_of, innermost
from .crash import first_to_fail
from .peers import Situation, claimed_world, is_gone, situations
from .remedies import tries
from .view import seen

OUTCOMES: dict[Ended, Outcome] = {
    "done": "ok",
    "late": "hang",
    "still": "hang",
    "busy": "hang",
    "left": "hang",
    "crash": "crash",
    "interrupted": "interrupted",
    "limit": "slow",
}
# A healthy rank is found in these as well: on being interrupted they alone accuse nobody.
_ORDINARY = frozenset(["itself", "unknown", "kernel", "file", "futex", "device", "collective"])
_RUNGS: tuple[Rung, ...] = ("py-spy", "faulthandler", "proc")
_QUIET = 5.0  # seconds without progress that make an interrupted job suspect


@dataclass(frozen=True)
class Case:
    """A job and its ranks, worked out as far as all verdicts need it."""

    job: JobFacts
    ranks: tuple[RankFacts, ...]  # every rank of this node, those never seen included
    absent: tuple[int, ...]  # ranks that a process group counts on and that nobody started
    found: dict[int, Situation]

    def facts(self, rank: int) -> RankFacts | None:
        return next((r for r in self.ranks if r.rank == rank), None)


def judge(job: JobFacts, ranks: Sequence[RankFacts]) -> Verdict:
    """Return the verdict on a job that ended, or that is called hung."""
    case = _case(job, ranks)
    outcome = OUTCOMES[job.ended]
    sorted_out = _sorted_out(case) if outcome != "ok" else Ranks()
    culprit = next((f for r in sorted_out.culprit if (f := case.facts(r))), None)
    place, checkpoint = _place(case, culprit) if outcome != "ok" else (None, None)
    shown = _shown(case, sorted_out, culprit)
    view = seen(shown.looks) if shown else None
    call = shown.announced if shown else ""
    if view is not None:
        call = call_in(view, job, call)
    known = bool(sorted_out.culprit) or shown is not None
    component = component_of(view, shown or culprit, job, checkpoint) if known else None
    return Verdict(
        outcome=outcome,
        pipeline=job.pipeline,
        command=job.command,
        attempt=job.attempt,
        world_size=job.world_size,
        checkpoint=place,
        ranks=sorted_out,
        where=tuple(_where(f, job) for r in sorted_out.culprit if (f := case.facts(r))),
        component=component,
        call=call or None,
        frame=innermost(view.frames) if view else None,
        waits_for=_waits_for(case, sorted_out),
        try_=tries(component, job.command) if outcome in ("hang", "slow") else (),
        seen_by=view.look.rung if view else _best_rung(case.ranks),
        slow_steps=job.slow_steps,
        barrier_opened=job.barrier_opened,
        seconds=Seconds(
            round(max(0.0, job.now - job.started), 3), job.still, job.past_deadline, job.to_verdict
        ),
        versions=dict(job.versions),
    )


def _case(job: JobFacts, ranks: Sequence[RankFacts]) -> Case:
    known = {r.rank: r for r in ranks}
    for rank in job.local_ranks:
        known.setdefault(rank, _never_seen(rank))
    everyone = tuple(known[rank] for rank in sorted(known))
    claimed = claimed_world(everyone)
    alone = any(r.environment.get("GROUP_WORLD_SIZE") == "1" for r in everyone)
    first = 0 if alone else job.world_size
    absent = tuple(r for r in range(first, claimed) if r not in known)
    remote = [r for r in range(job.world_size) if r not in known and r not in absent]
    found = situations(everyone, absent, remote)
    lonely = [r for r, s in found.items() if s.wait and s.wait.kind == "absent_rank" and s.meets]
    if not absent and not remote and lonely and len(everyone) == 1:
        # A process group of one waits for nobody: at least one more rank was counted on.
        absent = (1 if everyone[0].rank == 0 else 0,)
        found = situations(everyone, absent, remote)
    return Case(job, everyone, absent, found)


def _never_seen(rank: int) -> RankFacts:
    return RankFacts(rank, rank, reached=-1, alive=False, never_started=True)


def reached(facts: RankFacts) -> int:
    """Return the last checkpoint of a rank: none at all without a process, 0 without a hello."""
    if facts.never_started:
        return -1 if facts.pid is None else 0
    return facts.reached


def _step(case: Case, facts: RankFacts) -> Checkpoint | None:
    return next((c for c in case.job.table if c.number == reached(facts) + 1), None)


def _progress(case: Case, facts: RankFacts) -> Progress:
    step = _step(case, facts)
    names = [phase.name for phase in step.phases] if step else []
    return reached(facts), names.index(facts.phase) + 1 if facts.phase in names else 0


# ---- who -----------------------------------------------------------------------------------


def _sorted_out(case: Case) -> Ranks:
    """Return the ranks by what became of them."""
    culprit = _culprits(case)
    living = [r for r in case.ranks if not is_gone(r)]
    waiting = {r.rank for r in living if _waits(case, r)} - set(culprit)
    stuck: set[int] = set()
    if case.job.ended != "limit":
        # Where nobody looked for long, one look cannot tell slow from hung.
        enough = 1 if case.job.ended in ("late", "still", "busy") else 2
        stuck = {
            r.rank
            for r in living
            if len(r.looks) >= enough and not r.moved and not _unsure(case, r)
        }
        stuck = (stuck - waiting) | {r.rank for r in living if r.rank in culprit}
    return Ranks(
        culprit=culprit,
        stuck=tuple(sorted(stuck)),
        waiting=tuple(sorted(waiting)),
        dead=tuple(r.rank for r in case.ranks if r.left and not r.finished),
        never_started=tuple(
            sorted({r.rank for r in case.ranks if r.never_started} | set(case.absent))
        ),
    )


def _waits(case: Case, facts: RankFacts) -> bool:
    found = case.found[facts.rank]
    return facts.held or bool(facts.awaits) or bool(found.needs) or found.away


def _culprits(case: Case) -> tuple[int, ...]:
    """Return the ranks whose fault it is, none if that cannot be told."""
    job = case.job
    if job.ended == "crash":
        return first_to_fail(case.ranks)
    if job.ended == "left":
        early = [r for r in case.ranks if r.left and not r.finished]
        return tuple(r.rank for r in early if r.status == 0) or tuple(r.rank for r in early)
    at_an_end = [r for r in case.ranks if not r.finished]
    needs = {r.rank: case.found[r.rank].needs for r in at_an_end}
    needs |= {rank: frozenset() for rank in case.absent}
    progress = {r.rank: _progress(case, r) for r in at_an_end}
    progress |= dict.fromkeys(case.absent, (-1, 0))
    candidates = [r for r in sinks(needs) if _may_be_blamed(case, r)]
    if not candidates and job.ended != "interrupted":
        # Whoever the others wait for moves, or is on another node; what is left are those
        # that stand still by themselves.
        candidates = [
            r.rank
            for r in at_an_end
            if not needs[r.rank] and not r.held and not r.awaits and not case.found[r.rank].away
        ]
    return least_advanced(candidates, progress)


def _may_be_blamed(case: Case, rank: int) -> bool:
    facts = case.facts(rank)
    if facts is None:  # absent
        return True
    if facts.held or case.found[rank].away:
        return False
    if case.job.ended == "limit":
        return bool(facts.moved) or facts.busy
    return not facts.moved and not _unsure(case, facts)


def _unsure(case: Case, facts: RankFacts) -> bool:
    """Return True if a rank of an interrupted job may have been at work."""
    job = case.job
    if job.ended != "interrupted":
        return False
    quiet = (job.still or 0.0) >= _QUIET or (job.past_deadline or 0.0) > 0.0
    wait = case.found[facts.rank].wait
    return not quiet and not is_gone(facts) and (wait is None or wait.kind in _ORDINARY)


def _shown(case: Case, ranks: Ranks, culprit: RankFacts | None) -> RankFacts | None:
    """Return the living rank whose stack tells where it hangs.

    That is the culprit; for a rank that never came, or is on another node, one that waits.
    """
    if culprit is not None and not is_gone(culprit):
        return culprit
    if case.job.ended not in ("late", "still", "busy") or set(ranks.culprit) & set(ranks.dead):
        return None
    waiting = [r for r in case.ranks if r.rank in ranks.waiting and case.found[r.rank].meets]
    return next(iter(waiting), None)


# ---- where ---------------------------------------------------------------------------------


def _place(case: Case, culprit: RankFacts | None) -> tuple[Place | None, Checkpoint | None]:
    """Return the first checkpoint that not every rank reached, with the culprit's phase."""
    unfinished = [r for r in case.ranks if not r.finished]
    if not unfinished or not case.job.table:
        return None, None
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


def _where(facts: RankFacts, job: JobFacts) -> Where:
    age = None if facts.last_line_at is None else round(max(0.0, job.now - facts.last_line_at), 1)
    return Where(facts.rank, facts.host, facts.pid, None, facts.last_line, age)


def _waits_for(case: Case, ranks: Ranks) -> Wait | None:
    """Return what the first culprit waits for; where the culprit is a rank that never came,
    what the others wait for.
    """
    for rank in ranks.culprit:
        if rank in case.found and case.found[rank].wait is not None:
            return case.found[rank].wait
    others = ranks.culprit and all(rank in ranks.never_started for rank in ranks.culprit)
    waiting = ranks.waiting if others or not ranks.culprit else ()
    return next((w for r in waiting if (w := case.found[r].wait) is not None), None)


def _best_rung(ranks: Sequence[RankFacts]) -> Rung:
    rungs = [look.rung for facts in ranks for look in facts.looks]
    return next((r for r in _RUNGS if r in rungs), "proc")
