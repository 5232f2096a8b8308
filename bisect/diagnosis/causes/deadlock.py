"""Rings: each waits for the next, and the last one for the first."""

from __future__ import annotations

from ...base.identity import name_rank
from ...base.library_functions import Role, find_role
from ..process.process_snapshot import merge_looks
from ..process.public_calls import awaits_server_of_store
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


def _asks_who_waits_for_it(scene: Scene) -> Found | None:
    """A rank waits for the answer to a request by HTTP, and the server, or a worker of it, waits
    for what this rank is to send it over another connection.
    """
    ring = find_ring(scene)
    asks = find_role(scene.frames, Role.ASKS_BY_HTTP) if ring is not None else None
    if ring is None or asks is None or scene.graph is None or scene.subject is None:
        return None
    own = name_rank(scene.subject.rank)
    peers = [edge for edge in ring.edges if scene.graph.nodes[edge.target].kind == "peer"]
    asked = next((edge.target for edge in peers if edge.source == own), None)
    heard = {edge.source for edge in ring.edges if edge.target == own} - {asked}
    back = next((edge for edge in peers if edge.target in heard), None)
    if asked is None or back is None or not _waits_for_weights(scene, back.source):
        return None
    trust = 1.0 if ring.sure else _TRUST_IN_FRAMES
    words = f"it waits for the answer of {asked}, and {back.source} for what it is to send over"
    return Found(f"{words} {back.target}", {"server": asked, "who": back.source}, trust)


def _waits_for_weights(scene: Scene, name: str) -> bool:
    """Return whether a process of the graph waits for what the first of a small group sends."""
    process = scene.graph.nodes[name].process if scene.graph is not None else None
    rank = scene.graph.nodes[name].rank if scene.graph is not None else None
    for facts in scene.ranks:
        for looks in (facts.looks, *facts.children):
            is_it = bool(looks) and process is not None and looks[-1].pid == process.pid
            is_rank = looks is facts.looks and facts.rank == rank and process is None
            view = merge_looks(looks) if is_it or is_rank else None
            if view is not None and awaits_server_of_store(view):
                return True
    return False


CAUSES = (
    KnownCause(
        id="answer-after-weights",
        title="a trainer and its server wait for one another",
        signs=(need(_waits_in_a_ring, 0.9), need(_asks_who_waits_for_it, 0.8)),
        why="The server at {server} answers once it has what the trainer sends next, and the "
        "trainer sends it once the server has answered: {who} waits for that. Requests that make "
        "the engine join a group, or receive weights, take part in it.",
        avoid=(
            "make the request in a thread, and send meanwhile, as TRL's `update_named_params` and "
            "vLLM's `run_trainer_rendezvous` do",
            "have all ranks of the trainer do their own collectives before the request or after "
            "it, not between the request and what is sent",
        ),
        references=("huggingface/trl#6797", "huggingface/trl#7103"),
    ),
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
