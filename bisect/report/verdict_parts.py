"""The lines that verdicts consist of: the culprit, the ranks that only wait, the chain of waits,
and the few lines at the end of a job that ended well.

The whole verdict of a hang is in terminal.py, which needs a diagnosis. The ranks of a job that
ends well wait for `ok_lines`, so this module imports no diagnosis.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.facts import Edge, RankFacts, Verdict
from ..base.identity import name_rank
from ..base.words import (
    cut_line,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    name_awaited,
    printable,
)

LABEL = 10  # columns


def label_line(label: str, text: str) -> list[str]:
    """Return a line with its label, none if there is nothing to say."""
    return [f"{label:<{LABEL}}{join_lines(text)}"] if text else []


def line_below(text: str) -> list[str]:
    """Return a line below a labelled one, none if there is nothing to say."""
    return label_line("", text)


def culprit_lines(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[str]:
    """Return whose fault it is, in which call, and what that rank waits for."""
    blamed = verdict.ranks.culprit
    if not blamed and not verdict.world_size and verdict.where:
        return _launcher_lines(verdict)
    if not blamed:
        words = "none seen" if verdict.outcome == "interrupted" else "none that can be named"
        return label_line("culprit", words)
    if verdict.outcome == "crash" or set(blamed) <= set(verdict.ranks.dead):
        return _dead_rank_lines([r for r in ranks if r.rank in blamed])
    who = format_ranks(blamed)
    first = verdict.where[0] if verdict.where else None
    if first is not None and first.pid is not None:
        gpu = f" gpu {first.gpu}" if first.gpu is not None else ""
        who += f"   {first.host} pid {first.pid}{gpu}"
        who += f" and {len(blamed) - 1} more" if len(blamed) > 1 else ""
    if set(blamed) <= set(verdict.ranks.never_started):
        return label_line("culprit", f"{who}   never started")
    does = [f"in {verdict.call}" if verdict.call else ""]
    if verdict.waits_for is not None:
        does.append(f"waits for {name_awaited(verdict.waits_for)}")
    return label_line("culprit", f"{who}       {', '.join(d for d in does if d)}")


def _launcher_lines(verdict: Verdict) -> list[str]:
    """Return what a launcher does that has not started any rank."""
    where = verdict.where[0]
    does = [f"in {verdict.call}" if verdict.call else "", "no rank has started"]
    if verdict.waits_for is not None:
        does.insert(1, f"waits for {name_awaited(verdict.waits_for)}")
    text = ", ".join(part for part in does if part)
    return label_line("culprit", f"the launcher   {where.host} pid {where.pid}   {text}")


def _dead_rank_lines(facts: Sequence[RankFacts]) -> list[str]:
    lines = []
    for one in facts[:2]:
        where = f"{one.host} pid {one.pid}   " if one.pid is not None else ""
        lines += label_line("culprit", f"rank {one.rank}   {where}{describe_exit(one)}")
    if len(facts) > 2:
        lines += line_below(f"and {format_ranks(r.rank for r in facts[2:])}")
    return lines


def describe_exit(facts: RankFacts) -> str:
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


def other_rank_lines(verdict: Verdict, ranks: Sequence[RankFacts]) -> list[str]:
    """Return who only waits, and what became of the rest."""
    found = verdict.ranks
    lines = []
    if found.waiting:
        lines += label_line("waiting", f"{_describe_waiting_ranks(verdict, ranks)}: not at fault")
    stuck = sorted(set(found.stuck) - set(found.culprit))
    if stuck:
        lines += label_line("also", f"{format_ranks(stuck)} stuck")
    dead = sorted(set(found.dead) - set(found.culprit))
    if dead:
        lines += label_line("ended", f"{format_ranks(dead)}, afterwards or because of it")
    absent = sorted(set(found.never_started) - set(found.culprit))
    if absent:
        lines += label_line("missing", f"{format_ranks(absent)} never started")
    return lines


def _describe_waiting_ranks(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Return who waits and where: "ranks 0-2 at our barrier", "rank 0 in all_reduce for rank 1"."""
    waiting = frozenset(verdict.ranks.waiting)
    who = format_ranks(waiting)
    if all(r.held for r in ranks if r.rank in waiting):
        return f"{who} at our barrier"
    first = verdict.chain[0] if verdict.chain else None
    if first is None or not first.target.startswith("collective "):
        return who
    where = f"in {first.target.removeprefix('collective ')}"
    if verdict.ranks.culprit:
        where += f" for {format_ranks(verdict.ranks.culprit)}"
    return f"{who} {where}" if len(waiting) == 1 else f"{who}, {first.source} {where}"


# What there is no more to say of than how it is waited for.
_KINDS_WITHOUT_DETAIL = (
    "sleep",
    "itself",
    "kernel",
    "stopped",
    "input",
    "unknown",
    "thread",
    "futex",
    "gil",
)
_MOST_HOPS = 4


def chain_lines(verdict: Verdict, room: int) -> list[str]:
    """Return what the culprit waits for over all hops: "4899 -> 10.0.0.1:443 ESTABLISHED, 0 bytes
    in 12 s". At most `room` lines, the last hops if they are too many.
    """
    edges = _edges_from_culprit(verdict)
    ring = bool(edges) and edges[-1].target == edges[0].source
    if not ring and edges and edges[0].kind == "process":
        edges = edges[1:]  # its child, which the line above names
    told = _join_hops(edges)
    if not told or (len(told) == 1 and edges[-1].kind in _KINDS_WITHOUT_DETAIL and not ring):
        told = [verdict.waits_for.detail] if verdict.waits_for is not None else []
    return [line for text in told[-max(1, min(room, _MOST_HOPS)) :] for line in line_below(text)]


def _edges_from_culprit(verdict: Verdict) -> tuple[Edge, ...]:
    names = [*map(name_rank, verdict.ranks.culprit)]
    begin = next((i for i, edge in enumerate(verdict.chain) if edge.source in names), None)
    return () if begin is None else verdict.chain[begin:]


def _join_hops(edges: Sequence[Edge]) -> list[str]:
    """Return a line for each hop from one process to the next, over whatever lies between."""
    lines: list[str] = []
    for edge, before in zip(edges, [None, *edges], strict=False):
        if before is not None and _is_between(edge.source) and before.target == edge.source:
            lines[-1] += f", {edge.evidence}"
        else:
            lines.append(f"{_short_name(edge.source)} -> {edge.target} {_format_evidence(edge)}")
    return lines


def _is_between(name: str) -> bool:
    """Return True for a thing or a place that processes meet over."""
    return not name.startswith(("rank ", "process ", "thread "))


def _short_name(name: str) -> str:
    return name.removeprefix("process ")


def _format_evidence(edge: Edge) -> str:
    """Return the evidence behind the name: of a peer as it is, of all else in brackets."""
    if edge.kind in ("socket", "store") or not edge.evidence:
        return edge.evidence
    return f"({edge.evidence})"


def ok_lines(
    verdict: Verdict,
    not_exercised: Sequence[str],
    slowest: str,
    run_dir: str,
    width: int | None = None,
    own: bool = False,
) -> list[str]:
    """Return what is said of a good run. `slowest` is which step took longest, in words; `width` is
    the terminal's, None for a pipe: nothing is cut. `own`: it was a script of the user's own.
    """
    parts = [verdict.pipeline, *_count_ranks(verdict), format_seconds(verdict.seconds.total)]
    line = f"OK  {', '.join(p for p in parts if p)}"
    lines = [line + (f"; slowest step {slowest}" if slowest else "")]
    for late in verdict.slow_steps[:3]:
        phase = f" ({late.phase})" if late.phase else ""
        number = f"{late.checkpoint} " if late.checkpoint is not None else ""
        lines.append(
            f"    late: step {number}{late.name}{phase} took {format_seconds(late.seconds)}, "
            f"allowed {format_seconds(late.deadline)}, {format_ranks(late.ranks)}"
        )
    if verdict.barrier_opened:
        lines.append(f"    barrier opened: {join_lines(verdict.barrier_opened)}")
    if not_exercised:
        lines.append(f"    not exercised: {', '.join(map(join_lines, not_exercised))}")
    lines += [f"    report: {run_dir}"] if run_dir else []
    if not own:
        lines.append("    your own job: hangbisect run -- <the command you use today>")
    return [cut_line(printable(line), width) for line in lines]


def _count_ranks(verdict: Verdict) -> list[str]:
    """Return of how many ranks it is said: no more than were seen."""
    seen = len(verdict.seen_ranks)
    if not seen or seen >= verdict.world_size:
        return [format_count(verdict.world_size, "rank")]
    return [f"{seen} of {format_count(verdict.world_size, 'rank')}", "those of this node"]
