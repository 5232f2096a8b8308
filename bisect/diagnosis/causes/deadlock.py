"""Rings: each waits for the next, and the last one for the first."""

from __future__ import annotations

from ..wait_graph import Ring
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .network import serves_one_connection
from .pipes import pipe_is_full
from .preloaded import in_a_preloaded_library

# What a ring is worth where frames say who has a lock: no proof, and less than the family of causes
# that it is one of.
_TRUST_IN_FRAMES = 0.85


def find_ring(scene: Scene) -> Ring | None:
    """Return the ring that a culprit is part of."""
    if scene.graph is None:
        return None
    culprits = frozenset(scene.verdict.ranks.culprit)
    return next((ring for ring in scene.graph.deadlocks if ring.ranks & culprits), None)


def _waits_in_a_ring(scene: Scene) -> Found | None:
    """A rank waits, over locks, pipes, threads, children or ranks, for what waits for it; the
    kernel says of each who has it, or frames show it.
    """
    ring = find_ring(scene)
    if ring is None:
        return None
    links = [f"{edge.source} -> {edge.target} ({edge.evidence})" for edge in ring.edges]
    way = " -> ".join([*(edge.source for edge in ring.edges), ring.edges[-1].target])
    trust = 1.0 if ring.sure else _TRUST_IN_FRAMES
    return Found("; ".join(links), {"ring": way}, trust)


def _the_kernel_says_so(scene: Scene) -> Found | None:
    """The kernel says of each lock, pipe, thread and child of the ring who has it."""
    ring = find_ring(scene)
    return Found("the kernel says so of each of them") if ring is not None and ring.sure else None


def _closed_by_a_preloaded_library(scene: Scene) -> Found | None:
    """The ring is one rank's own, which stands in a library that is preloaded: that is its lock."""
    ring, subject = find_ring(scene), scene.subject
    own = ring is not None and subject is not None and ring.ranks == {subject.rank}
    return in_a_preloaded_library(scene) if own else None


def _closed_by_a_full_pipe(scene: Scene) -> Found | None:
    """The ring is a process that waits for the end of its child, which writes into a full pipe: an
    output that nobody reads.
    """
    ring = find_ring(scene)
    if ring is None or len(ring.ranks) != 1:
        return None
    if {edge.kind for edge in ring.edges} != {"process", "pipe"}:
        return None
    return pipe_is_full(scene)


def _closed_by_a_pipe_of_its_own(scene: Scene) -> Found | None:
    """The ring is one process that reads a pipe of which only it has the writing end."""
    ring = find_ring(scene)
    if ring is None or scene.graph is None or {edge.kind for edge in ring.edges} != {"pipe"}:
        return None
    around = {node for edge in ring.edges for node in (edge.source, edge.target)}
    beyond = {edge.target for edge in scene.graph.edges if edge.source in around} - around
    kinds = [scene.graph.nodes[node].kind for node in around]
    alone = sum(kind in ("rank", "process", "thread") for kind in kinds) == 1
    others = any(scene.graph.nodes[node].kind in ("rank", "process", "thread") for node in beyond)
    return Found("it alone has the writing end") if alone and not others else None


def _closed_by_a_child(scene: Scene) -> Found | None:
    """A child is part of the ring: its parent waits for its end and reads nothing meanwhile."""
    ring = find_ring(scene)
    if ring is None or not any(edge.kind == "process" for edge in ring.edges):
        return None
    pipes = [edge.target for edge in ring.edges if edge.kind == "pipe"]
    return Found(f"the child uses {pipes[0]}, whose other end is in the ring") if pipes else None


CAUSES = (
    KnownCause(
        id="deadlock",
        title="a deadlock: each waits for the next, the last one for the first",
        signs=(
            need(_waits_in_a_ring, 0.9),
            also(_the_kernel_says_so, 0.3, proves=True),
            also(_closed_by_a_child, 0.3),
            unless(_closed_by_a_preloaded_library),
            unless(_closed_by_a_full_pipe),
            unless(_closed_by_a_pipe_of_its_own),
            unless(serves_one_connection),
        ),
        why="Each waits for the next: {ring}. None goes on before the next does, so none ever "
        "will.",
        avoid=(
            "break the ring: hold no lock across a collective, take locks in the same order "
            "everywhere, and read a child's output (subprocess.run, Popen.communicate) before "
            "waiting for its end",
        ),
        references=("https://docs.python.org/3/library/subprocess.html#subprocess.Popen.wait",),
    ),
)
