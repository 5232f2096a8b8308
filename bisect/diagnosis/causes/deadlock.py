"""Rings: each waits for the next, and the last one for the first."""

from __future__ import annotations

from ..graph import Ring
from .known import Found, KnownCause, also, need
from .scene import Scene


def _ring(scene: Scene) -> Ring | None:
    """Return the ring that a culprit is part of."""
    if scene.graph is None:
        return None
    culprits = frozenset(scene.verdict.ranks.culprit)
    return next((ring for ring in scene.graph.deadlocks if ring.ranks & culprits), None)


def _waits_in_a_ring(scene: Scene) -> Found | None:
    """A rank waits, over locks, pipes, threads, children or ranks, for what waits for it; the
    kernel says of each lock, pipe, thread and child who has it.
    """
    ring = _ring(scene)
    if ring is None:
        return None
    links = [f"{edge.source} -> {edge.target} ({edge.evidence})" for edge in ring.edges]
    way = " -> ".join([*(edge.source for edge in ring.edges), ring.edges[-1].target])
    return Found("; ".join(links), {"ring": way})


def _closed_by_a_child(scene: Scene) -> Found | None:
    """A child is part of the ring: its parent waits for its end and reads nothing meanwhile."""
    ring = _ring(scene)
    if ring is None or not any(edge.kind == "process" for edge in ring.edges):
        return None
    pipes = [edge.target for edge in ring.edges if edge.kind == "pipe"]
    return Found(f"the child uses {pipes[0]}, whose other end is in the ring") if pipes else None


DEADLOCK = KnownCause(
    id="deadlock",
    title="a deadlock: each waits for the next, the last one for the first",
    signs=(
        need(_waits_in_a_ring, 0.9),
        also(_closed_by_a_child, 0.3),
    ),
    why="Each waits for the next: {ring}. None goes on before the next does, so none ever will.",
    avoid=(
        "break the ring: hold no lock across a collective, take locks in the same order everywhere,"
        " and read a child's output (subprocess.run, Popen.communicate) before waiting for its end",
    ),
    references=("https://docs.python.org/3/library/subprocess.html#subprocess.Popen.wait",),
)

CAUSES = (DEADLOCK,)
