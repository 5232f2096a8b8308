"""What the machines of one job have told, put together: no rank twice, and of torchrun's agents
that wait for one another one, with what they do not agree about. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.identity import RankId
from ..diagnosis.node_rendezvous import find_node_rendezvous, list_disagreements
from ..diagnosis.process_snapshot import merge_looks
from .node_facts import NodeFacts


def merge_nodes(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without ranks that an earlier one has too: of these a note says so. Of
    agents that wait for one another, each in the place of a rank, the one that serves is kept.
    """
    nodes = _drop_found_ranks(_keep_one_agent(nodes))
    seen: dict[RankId, str] = {}
    return [_drop_double_ranks(node, seen) for node in nodes]


def _keep_one_agent(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    meetings = {
        node.host: meeting
        for node in nodes
        for facts in node.ranks
        if (view := merge_looks(facts.looks)) and (meeting := find_node_rendezvous(view))
    }
    agents = [node for node in nodes if node.host in meetings]
    if len(agents) < 2:
        return [*nodes]
    kept = next((one for one in agents if meetings[one.host].others is not None), agents[0])
    commands = {one.host: one.ranks[0].looks[-1].command for one in agents}
    notes = (*kept.notes, *list_disagreements(commands))
    return [
        node
        if node not in agents
        else replace(kept, notes=notes)
        if node is kept
        else replace(node, ranks=())
        for node in nodes
    ]


def _drop_found_ranks(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without the ranks that one misses and another has."""
    there = {facts.rank for node in nodes for facts in node.ranks if facts.pid is not None}
    return [
        replace(
            node, ranks=tuple(r for r in node.ranks if r.pid is not None or r.rank not in there)
        )
        for node in nodes
    ]


def _drop_double_ranks(node: NodeFacts, seen: dict[RankId, str]) -> NodeFacts:
    doubles = sorted({r.rank for r in node.ranks} & seen.keys())
    for facts in node.ranks:
        seen.setdefault(facts.rank, node.host)
    if not doubles:
        return node
    first = doubles[0]
    note = (
        f"rank {first} runs on {seen[first]} and on {node.host}: two jobs, or two starts of one; "
        f"{len(doubles)} ranks of {node.host} were left out"
    )
    return replace(
        node,
        ranks=tuple(r for r in node.ranks if r.rank not in doubles),
        notes=(*node.notes, note),
    )
