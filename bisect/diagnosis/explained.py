"""A verdict on a job that did not end well: located, then explained."""

from __future__ import annotations

from dataclasses import replace

from ..facts import Cause, Outcome, Verdict
from .bare import bare_verdict
from .calls import call_in, component_of, innermost
from .candidates import candidates
from .case import Case
from .causes.catalogue import by_id, explain
from .causes.scene import Scene
from .edges import graph_of
from .graph import WaitGraph
from .remedies import tries
from .view import seen
from .where import place_of, waits_for, where
from .who import first_culprit, shown, sorted_out


def explained(case: Case, outcome: Outcome) -> tuple[Verdict, WaitGraph]:
    """Return the verdict on a case, and the graph that it rests on."""
    graph = graph_of(case)
    verdict = _located(case, outcome, graph)
    verdict = replace(
        verdict,
        candidates=candidates(case, graph, verdict.ranks, outcome, verdict.component),
        chain=graph.chain(verdict.ranks.waiting, verdict.ranks.culprit),
    )
    return _with_cause(case, graph, verdict), graph


def _located(case: Case, outcome: Outcome, graph: WaitGraph) -> Verdict:
    """Return which ranks, where, in which call and waiting for what."""
    job, people = case.job, sorted_out(case, graph)
    culprit = first_culprit(case, people)
    place, checkpoint = place_of(case, culprit)
    subject = shown(case, people)
    view = seen(subject.looks) if subject else None
    call = subject.announced if subject else ""
    if view is not None:
        call = call_in(view, job, call)
    known = bool(people.culprit) or subject is not None
    verdict = bare_verdict(job, case.ranks, outcome, people)
    return replace(
        verdict,
        checkpoint=place,
        where=tuple(where(f, job) for r in people.culprit if (f := case.facts(r))),
        component=component_of(view, subject or culprit, job, checkpoint) if known else None,
        call=call or None,
        frame=innermost(view.frames) if view else None,
        waits_for=waits_for(case, people, graph),
        seen_by=view.look.rung if view else verdict.seen_by,
    )


def _with_cause(case: Case, graph: WaitGraph, verdict: Verdict) -> Verdict:
    """Return `verdict` with its cause, and what to try: what avoids the cause before all else."""
    failed: list[str] = []
    cause = explain(Scene(case.job, case.ranks, verdict, case.found, graph), failed)
    avoiding = _toggles(cause)
    component = verdict.component if verdict.outcome in ("hang", "slow") else None
    return replace(
        verdict,
        cause=cause,
        try_=tries(component, case.job.command, avoiding, ours=bool(case.job.pipeline)),
        notes=(*verdict.notes, *failed),
    )


def _toggles(cause: Cause | None) -> tuple[tuple[str, str], ...]:
    known = by_id(cause.id) if cause else None
    return known.toggles if known else ()
