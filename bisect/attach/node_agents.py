"""Agents of torchrun that wait for one another, before there is a rank: each stands in the place of
rank 0 on its machine, and the one that serves the rendezvous knows who has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..diagnosis.node_rendezvous import find_node_rendezvous, list_disagreements
from ..diagnosis.process_snapshot import merge_looks
from .node_facts import NodeFacts


def keep_one_agent(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines; of several agents only the one that serves the rendezvous is kept, with
    notes of what they do not agree about.
    """
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
