"""Who it was and who only waits, as lines of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import RankFacts, Verdict
from .words import of_ranks, one_line, waited_for

LABEL = 10  # columns


def labelled(label: str, text: str) -> list[str]:
    """Return a line with its label, none if there is nothing to say."""
    return [f"{label:<{LABEL}}{one_line(text)}"] if text else []


def more(text: str) -> list[str]:
    """Return a line below a labelled one, none if there is nothing to say."""
    return labelled("", text)


def culprit(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[str]:
    """Return whose fault it is, in which call, and what that rank waits for."""
    blamed = verdict.ranks.culprit
    if not blamed and not verdict.world_size and verdict.where:
        return _of_the_launcher(verdict)
    if not blamed:
        words = "none seen" if verdict.outcome == "interrupted" else "none that can be named"
        return labelled("culprit", words)
    if verdict.outcome == "crash" or set(blamed) <= set(verdict.ranks.dead):
        return _of_the_dead([r for r in ranks if r.rank in blamed])
    who = of_ranks(blamed)
    first = verdict.where[0] if verdict.where else None
    if first is not None and first.pid is not None:
        gpu = f" gpu {first.gpu}" if first.gpu is not None else ""
        who += f"   {first.host} pid {first.pid}{gpu}"
        who += f" and {len(blamed) - 1} more" if len(blamed) > 1 else ""
    if set(blamed) <= set(verdict.ranks.never_started):
        return labelled("culprit", f"{who}   never started")
    does = [f"in {verdict.call}" if verdict.call else ""]
    if verdict.waits_for is not None:
        does.append(f"waits for {waited_for(verdict.waits_for)}")
    return labelled("culprit", f"{who}       {', '.join(d for d in does if d)}")


def _of_the_launcher(verdict: Verdict) -> list[str]:
    """Return what a launcher does that has not started any rank."""
    where = verdict.where[0]
    does = [f"in {verdict.call}" if verdict.call else "", "no rank has started"]
    if verdict.waits_for is not None:
        does.insert(1, f"waits for {waited_for(verdict.waits_for)}")
    text = ", ".join(part for part in does if part)
    return labelled("culprit", f"the launcher   {where.host} pid {where.pid}   {text}")


def _of_the_dead(facts: Sequence[RankFacts]) -> list[str]:
    lines = []
    for one in facts[:2]:
        where = f"{one.host} pid {one.pid}   " if one.pid is not None else ""
        lines += labelled("culprit", f"rank {one.rank}   {where}{how_it_ended(one)}")
    if len(facts) > 2:
        lines += more(f"and {of_ranks(r.rank for r in facts[2:])}")
    return lines


def how_it_ended(facts: RankFacts) -> str:
    """Return in words how a rank left."""
    if facts.error:
        return f"ended by {facts.error}"
    if facts.status is None:
        return "is gone"
    if facts.status < 0:
        return f"ended by signal {-facts.status}"
    if facts.status == 0:
        return "left early, with status 0"
    return f"ended with status {facts.status}"


def others(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[str]:
    """Return who only waits, and what became of the rest."""
    found = verdict.ranks
    lines = []
    if found.waiting:
        lines += labelled("waiting", f"{_waiting(verdict, ranks)}: not at fault")
    stuck = sorted(set(found.stuck) - set(found.culprit))
    if stuck:
        lines += labelled("also", f"{of_ranks(stuck)} stuck")
    dead = sorted(set(found.dead) - set(found.culprit))
    if dead:
        lines += labelled("ended", f"{of_ranks(dead)}, afterwards or because of it")
    absent = sorted(set(found.never_started) - set(found.culprit))
    if absent:
        lines += labelled("missing", f"{of_ranks(absent)} never started")
    return lines


def _waiting(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Return who waits and where: "ranks 0-2 at our barrier", "rank 0 in all_reduce for rank 1"."""
    waiting = frozenset(verdict.ranks.waiting)
    who = of_ranks(waiting)
    if all(r.held for r in ranks if r.rank in waiting):
        return f"{who} at our barrier"
    first = verdict.chain[0] if verdict.chain else None
    if first is None or not first.target.startswith("collective "):
        return who
    where = f"in {first.target.removeprefix('collective ')}"
    if verdict.ranks.culprit:
        where += f" for {of_ranks(verdict.ranks.culprit)}"
    return f"{who} {where}" if len(waiting) == 1 else f"{who}, {first.source} {where}"
