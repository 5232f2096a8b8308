"""What the machines of one job have told, put together: no rank twice, and of torchrun's agents
that wait for one another one, with what they do not agree about. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.identity import RankId
from ..base.rank_facts import RankFacts
from ..diagnosis.node_rendezvous import compare_agents, find_node_rendezvous
from ..diagnosis.process_snapshot import merge_looks
from .node_facts import NodeFacts, make_absent_rank


def merge_nodes(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without ranks that an earlier one has too: of these a note says so. Of
    agents that wait for one another, each in the place of a rank, the one that serves is kept.
    """
    nodes = _drop_found_ranks(_keep_one_agent(nodes))
    seen: dict[RankId, str] = {}
    return [_drop_double_ranks(node, seen) for node in nodes]


def add_ranks_of_idle_hosts(nodes: Sequence[NodeFacts], idle: Sequence[str]) -> list[NodeFacts]:
    """Return the machines with the ranks that are to be on the hosts `idle`, on which nothing of
    the job runs any more, where as many are missing as the launcher counts on each.
    """
    there = [facts for node in nodes for facts in node.ranks]
    sizes = {facts.environment.get("LOCAL_WORLD_SIZE", "") for facts in there if facts.pid}
    size = next(iter(sizes)) if len(sizes) == 1 else ""
    numbers = {facts.rank for facts in there}
    missing = [n for n in range(max(node.world for node in nodes)) if n not in numbers]
    have_ranks = all(isinstance(n, int) for n in numbers) and not any(n.launcher for n in nodes)
    if not idle or not have_ranks or not size.isdecimal() or len(missing) != int(size) * len(idle):
        return [*nodes]
    host = idle[0] if len(idle) == 1 else ""  # of several nothing says which had which
    absent = (make_absent_rank(n, None, None, host) for n in missing)
    return [replace(nodes[0], ranks=(*nodes[0].ranks, *absent)), *nodes[1:]]


def _keep_one_agent(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines; where launchers stand in for ranks, that one has its process alone that
    tells most: one that stands still before it meets the others comes before those that wait.
    """
    waiting = {node.host for node in nodes if any(map(_waits_for_nodes, node.ranks))}
    agents = {
        node.host: node.ranks[0].looks
        for node in nodes
        if node.ranks and (node.launcher is not None or node.host in waiting)
    }
    if len(agents) < 2 or not waiting or not all(agents.values()):
        return [*nodes]
    kept, disagreements = compare_agents(agents)
    return [
        node
        if node.host not in agents
        else replace(node, notes=(*node.notes, *disagreements))
        if node.host == kept
        else replace(node, ranks=())
        for node in nodes
    ]


def _waits_for_nodes(facts: RankFacts) -> bool:
    view = merge_looks(facts.looks)
    return view is not None and find_node_rendezvous(view) is not None


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
