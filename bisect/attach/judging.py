"""Does a job move, or hang, and why: from what its machines tell to one answer. Touches nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..diagnosis.graph import WaitGraph
from ..diagnosis.verdict import judged
from ..diagnosis.view import seen
from ..facts import Ended, JobFacts, MachineFacts, Place, RankFacts, Ranks, Verdict
from ..version import VERSION
from .checkpoint import place_of_call
from .node_facts import NodeFacts
from .spinning import spins

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUSY_IS_HUNG = 60.0  # seconds in the same few places that make a rank that computes one that hangs


@dataclass(frozen=True)
class Judgement:
    """The answer, and what it rests on. The outcome is ok for a job that moves, hang, or slow for
    one that computes in the same few places: it may be at work.
    """

    verdict: Verdict
    facts: JobFacts
    ranks: tuple[RankFacts, ...]
    graph: WaitGraph
    moving: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    unnumbered: tuple[int, ...] = ()


def judge(nodes: Sequence[NodeFacts], notes: Sequence[str] = (), now: float = 0.0) -> Judgement:
    """Return what the machines of a job tell together. `now` is our own clock's time; `notes` are
    sentences for the verdict.
    """
    first = nodes[0]
    ranks = sorted((r for node in nodes for r in _on_our_clock(node, now)), key=lambda r: r.rank)
    moving = tuple(sorted(r for node in nodes for r in node.moving))
    busy = tuple(sorted(r for node in nodes for r in node.busy))
    span = min(node.span for node in nodes)
    facts = JobFacts(
        ended=_ended(ranks, moving, busy, span),
        pipeline="",
        command=first.command,
        attempt=_attempt(ranks),
        world_size=max([*(node.world for node in nodes), len(ranks)]),
        local_ranks=tuple(r.rank for r in ranks),
        table=(),
        now=now,
        started=now - max(node.age for node in nodes),
        package=PACKAGE,
        still=None if moving else round(span, 3),
        to_verdict=None,
        versions={"hangbisect": VERSION},
        notes=(*notes, *_of_numbers(nodes), *_of_nodes(nodes)),
        machine=_machine(nodes),
    )
    verdict, graph = judged(facts, ranks)
    if moving:
        verdict = replace(verdict, notes=(*verdict.notes, *moves_in_words(ranks, moving)))
    else:
        verdict = _without_a_guess(verdict)
        verdict = replace(verdict, checkpoint=_checkpoint(verdict, ranks))
        if _computes(ranks, busy, span):
            verdict = replace(verdict, outcome="slow")
    if first.launcher is not None:
        verdict, facts = _of_the_launcher(verdict), replace(facts, world_size=0)
    unnumbered = tuple(r for node in nodes for r in node.unnumbered)
    quiet = tuple(sorted(r for node in nodes for r in node.quiet))
    return Judgement(verdict, facts, tuple(ranks), graph, moving, quiet, unnumbered)


def _checkpoint(verdict: Verdict, ranks: Sequence[RankFacts]) -> Place | None:
    """Return the checkpoint that the culprit is on its way to, as far as its stack tells; where it
    is not there, one of those that wait for it.
    """
    people = [r for r in ranks if r.rank in verdict.ranks.culprit and r.looks]
    people = people or [r for r in ranks if r.rank in verdict.ranks.waiting and r.looks]
    view = seen(people[0].looks) if people else None
    return place_of_call(verdict.call, view.frames if view is not None else ())


def _without_a_guess(verdict: Verdict) -> Verdict:
    """Return the verdict without culprits where of none of several ranks is known what it does."""
    culprit, wait = verdict.ranks.culprit, verdict.waits_for
    nothing_known = wait is None or wait.kind == "unknown"
    if len(culprit) < 2 or len(culprit) < verdict.world_size or verdict.call or not nothing_known:
        return verdict
    return replace(
        verdict,
        ranks=replace(verdict.ranks, culprit=()),
        where=(),
        waits_for=None,
        candidates=(),
    )


def moves_in_words(ranks: Sequence[RankFacts], moving: Sequence[int]) -> list[str]:
    """Return what moves, a sentence a rank."""
    return [f"moving: rank {r.rank} {r.moved}" for r in ranks if r.rank in moving and r.moved]


def _ended(
    ranks: Sequence[RankFacts], moving: Sequence[int], busy: Sequence[int], span: float
) -> Ended:
    if moving:
        return "past"  # nothing is to be said of who hangs
    return "busy" if busy else "still"


def _computes(ranks: Sequence[RankFacts], busy: Sequence[int], span: float) -> bool:
    """Return whether a job may be at work: too short a look to call it a loop without end, unless
    it is plainly one.
    """
    loops = [facts.rank for facts in ranks if spins(facts, PACKAGE)]
    return bool(set(busy) - set(loops)) and span < BUSY_IS_HUNG


def _on_our_clock(node: NodeFacts, now: float) -> list[RankFacts]:
    """Return a machine's ranks with the time of what they printed on our clock."""
    return [
        facts
        if facts.last_line_at is None
        else replace(facts, last_line_at=now - (node.at - facts.last_line_at))
        for facts in node.ranks
    ]


def _attempt(ranks: Sequence[RankFacts]) -> int:
    counts = [r.environment.get("TORCHELASTIC_RESTART_COUNT", "") for r in ranks]
    return max((int(c) for c in counts if c.isascii() and c.isdecimal()), default=0)


def _of_numbers(nodes: Sequence[NodeFacts]) -> list[str]:
    unknown = [
        str(facts.pid) for node in nodes for facts in node.ranks if facts.rank in node.unnumbered
    ]
    if not unknown:
        return []
    return [
        f"which ranks the processes {', '.join(unknown)} are could not be read: their numbers here "
        "are ours"
    ]


def _of_nodes(nodes: Sequence[NodeFacts]) -> list[str]:
    """Return what else the machines say: their notes, and the downloads that are not complete."""
    found = [note for node in nodes for note in node.notes]
    for file in (file for node in nodes for file in node.downloads):
        grows = "grows" if file.grew else "does not grow"
        found.append(f"download {file.path} of process {file.pid}: {file.size} bytes, {grows}")
    return found


def _machine(nodes: Sequence[NodeFacts]) -> MachineFacts:
    return nodes[0].machine if len(nodes) == 1 else MachineFacts()


def _of_the_launcher(verdict: Verdict) -> Verdict:
    """Return the verdict where it is the launcher that hangs: no rank is there to be blamed."""
    return replace(
        verdict,
        world_size=0,
        ranks=Ranks(),
        checkpoint=Place(0, "launcher", "Ranks started"),
        component="launcher",
        try_=(),
        candidates=(),
        chain=(),
    )
