"""What a node's monitor writes of its part of a job that spans several nodes: node.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from .lazy_dataclass import dataclass
from .rank_facts import JobFacts, RankFacts


@dataclass(frozen=True)
class NodeClock:
    """One moment on both clocks of a machine, in seconds."""

    monotonic: float
    wall: float


@dataclass(frozen=True)
class NodeRecord:
    """What a node's monitor knew of the job when it gave its verdict."""

    host: str
    clock: NodeClock  # when the verdict was made
    job: JobFacts
    ranks: tuple[RankFacts, ...]  # without looks and logs: these are in evidence.json
    schema: Literal[1] = 1


def make_node_record(
    host: str, job: JobFacts, ranks: Sequence[RankFacts], clock: NodeClock
) -> NodeRecord:
    """Return what a node writes of a job and its ranks."""
    return NodeRecord(
        host,
        clock,
        job,
        tuple(replace(r, looks=(), children=(), collectives=(), output=()) for r in ranks),
    )
