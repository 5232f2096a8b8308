"""All that was seen, as the object that evidence.json holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..diagnosis.graph import WaitGraph
from ..facts import MachineFacts, RankFacts


def evidence_json(
    ranks: Sequence[RankFacts], graph: WaitGraph, machine: MachineFacts
) -> dict[str, Any]:
    """Return every look at every process, the whole graph of who waits for what, the machine."""
    return {
        "ranks": [asdict(one) for one in ranks],
        "graph": {
            "nodes": [asdict(node) for node in graph.nodes.values()],
            "edges": [asdict(edge) for edge in graph.edges],
        },
        "machine": asdict(machine),
    }
