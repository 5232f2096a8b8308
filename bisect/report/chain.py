"""The chain of a verdict in words: from the culprit to what is waited for in the end."""

from __future__ import annotations

from collections.abc import Sequence

from ..facts import Edge, Verdict
from .people_lines import more

# What there is no more to say of than how it is waited for.
_AT_HOME = ("sleep", "itself", "kernel", "stopped", "input", "unknown", "thread", "futex", "gil")
_MOST = 4


def chain_lines(verdict: Verdict, room: int) -> list[str]:
    """Return what the culprit waits for over all hops: "4899 -> 10.0.0.1:443 ESTABLISHED, 0 bytes
    in 12 s". At most `room` lines, the last hops if they are too many.
    """
    edges = _from_the_culprit(verdict)
    ring = bool(edges) and edges[-1].target == edges[0].source
    if not ring and edges and edges[0].kind == "process":
        edges = edges[1:]  # its child, which the line above names
    told = _joined(edges)
    if not told or (len(told) == 1 and edges[-1].kind in _AT_HOME and not ring):
        told = [verdict.waits_for.detail] if verdict.waits_for is not None else []
    return [line for text in told[-max(1, min(room, _MOST)) :] for line in more(text)]


def _from_the_culprit(verdict: Verdict) -> tuple[Edge, ...]:
    names = [f"rank {rank}" for rank in verdict.ranks.culprit]
    begin = next((i for i, edge in enumerate(verdict.chain) if edge.source in names), None)
    return () if begin is None else verdict.chain[begin:]


def _joined(edges: Sequence[Edge]) -> list[str]:
    """Return a line for each hop from one process to the next, over whatever lies between."""
    lines: list[str] = []
    for edge, before in zip(edges, [None, *edges], strict=False):
        if before is not None and _is_between(edge.source) and before.target == edge.source:
            lines[-1] += f", {edge.evidence}"
        else:
            lines.append(f"{_short(edge.source)} -> {edge.target} {_shown(edge)}")
    return lines


def _is_between(name: str) -> bool:
    """Return True for a thing or a place that processes meet over."""
    return not name.startswith(("rank ", "process ", "thread "))


def _short(name: str) -> str:
    return name.removeprefix("process ")


def _shown(edge: Edge) -> str:
    """Return the evidence behind the name: of a peer as it is, of all else in brackets."""
    if edge.kind in ("socket", "store") or not edge.evidence:
        return edge.evidence
    return f"({edge.evidence})"
