"""A machine that is asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..node_facts import NodeFacts


@dataclass(frozen=True)
class Node:
    """A machine (a pod), and how it is asked."""

    name: str
    ways: tuple[tuple[str, ...], ...]  # commands, the best first: the next where one fails
    paste: str  # what a person can type to see what there is


@dataclass(frozen=True)
class Answer:
    """What a machine said. Without facts `trouble` says why, in a sentence."""

    node: Node
    facts: NodeFacts | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Elsewhere:
    """A job on other machines."""

    nodes: tuple[Node, ...]
    says: str  # which job it is: "Slurm's job 4711"
    end_it: str  # how to end it
    is_slurms: bool = False  # srun started what its nodes show as the job's command
