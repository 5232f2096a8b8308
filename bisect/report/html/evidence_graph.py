"""The wait-for graph as it lies in evidence.json, of whatever shape that is by now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...facts import Verdict
from ..kept.fields import objects, text, whole
from ..kept.run import KeptRun
from .alike import Knot, Wait


def graph_of(run: KeptRun, verdict: Verdict) -> tuple[list[Knot], list[Wait]]:
    """Return nodes and edges of all nodes of the cluster; without evidence those of the chain that
    the verdict has. Every edge has both its ends.
    """
    knots: dict[str, Knot] = {}
    waits: dict[tuple[str, str], Wait] = {}
    for part in run.everywhere:
        graph = (part.evidence or {}).get("graph")
        for one in objects(graph, "nodes"):
            if knot := _knot(one):
                knots.setdefault(knot.name, knot)
        for one in objects(graph, "edges"):
            wait = Wait(*(text(one, name) for name in ("source", "target", "kind", "evidence")))
            waits.setdefault((wait.source, wait.target), wait)
    if not waits:
        for edge in verdict.chain:
            wait = Wait(edge.source, edge.target, edge.kind, edge.evidence)
            waits[edge.source, edge.target] = wait
    for ends in waits:
        for name in ends:
            knots.setdefault(name, Knot(name, *_by_name(name)))
    return list(knots.values()), [
        wait for wait in waits.values() if not _is_there(wait, knots, waits)
    ]


def _is_there(wait: Wait, knots: Mapping[str, Knot], waits: Mapping[tuple[str, str], Wait]) -> bool:
    """Return True if a meeting waits for a rank that is at the same meeting: it is not that."""
    meets = knots[wait.source].kind in ("collective", "store", "barrier")
    return meets and (wait.target, wait.source) in waits


def _knot(data: Mapping[str, Any]) -> Knot | None:
    return Knot(text(data, "name"), text(data, "kind"), text(data, "says"), whole(data, "rank"))


def _by_name(name: str) -> tuple[str, str, int | None]:
    """Return kind, words and rank of a node of which only the name is known."""
    word, _, number = name.partition(" ")
    if word == "rank" and number.isascii() and number.isdigit() and len(number) < 8:
        return "rank", "", int(number)
    known = word in ("process", "thread", "lock", "file", "device", "collective", "store")
    return (word if known else "other"), "", None
