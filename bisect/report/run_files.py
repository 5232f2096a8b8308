"""What the files of a run hold: verdict.json, evidence.json, environment.json, node.json. Those of
an isolation and of a matrix are in `search`: `Isolation` and `RecordedMatrix`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, get_args

from ..base.facts import Edge, MachineFacts, Outcome, RankFacts, Verdict
from ..base.json_codec import Misfit, fit_json, from_json
from ..base.lazy_dataclass import dataclass
from ..base.node_record import NodeRecord
from ..collect.nodes import JointJudgement, RecordedNode, judge_recorded_nodes
from ..diagnosis.wait_graph import Node, WaitGraph


@dataclass(frozen=True)
class RecordedGraph:
    """Who waits for whom."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on: every look at every process, the whole graph, the machine."""

    ranks: tuple[RankFacts, ...] = ()
    graph: RecordedGraph = field(default_factory=RecordedGraph)
    machine: MachineFacts = field(default_factory=MachineFacts)


@dataclass(frozen=True)
class JobEnvironment:
    """What the ranks of a node ran in."""

    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    processors: int | None = None
    kernel: str = ""
    ranks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the variables of each


def read_verdict(data: Any) -> tuple[Verdict | None, str]:
    """Return the verdict that `data`, of verdict.json, is, None if it is none; and in a sentence
    what is wrong with it, "" if nothing is.
    """
    if not isinstance(data, dict):
        return None, "verdict.json is no verdict: it holds no object"
    if data.get("schema") != 1:
        return None, f"verdict.json has schema {data.get('schema')!r:.40}, and 1 can be read"
    if data.get("outcome") not in get_args(Outcome):
        return None, f"verdict.json is no verdict: its outcome is {data.get('outcome')!r:.40}"
    verdict, wrong = fit_json(Verdict, data)
    return verdict, f"verdict.json: {wrong}" if wrong else ""


def make_evidence(ranks: Sequence[RankFacts], graph: WaitGraph, machine: MachineFacts) -> Evidence:
    """Return what is written of a verdict's grounds."""
    drawn = RecordedGraph(tuple(graph.nodes.values()), graph.edges)
    return Evidence(tuple(ranks), drawn, machine)


def read_evidence(data: Any) -> Evidence:
    """Return what `data`, of evidence.json, says; without the ranks of which it says what cannot
    be.
    """
    try:
        return from_json(Evidence, data)
    except Misfit:
        held = data if isinstance(data, dict) else {}
        told = held.get("ranks")
        ranks = [one for one in told if _are_facts(one)] if isinstance(told, list) else []
        return fit_json(Evidence, {**held, "ranks": ranks})[0]


def _are_facts(data: Any) -> bool:
    try:
        from_json(RankFacts, data)
    except Misfit:
        return False
    return True


@dataclass(frozen=True)
class NodeFiles:
    """What one node has left of one attempt, as far as it could be read."""

    verdict: Verdict | None
    record: NodeRecord | None
    ranks: tuple[RankFacts, ...]


def judge_node_files(files: Sequence[NodeFiles]) -> JointJudgement | None:
    """Return the verdict on the nodes of one attempt together. None where they are to be taken one
    by one: there are not several, or one of them has not told what it takes.
    """
    having = [one for one in files if one.verdict is not None]
    nodes = [
        RecordedNode(one.record, one.ranks, one.verdict)
        for one in having
        if one.record is not None and one.verdict is not None
    ]
    return judge_recorded_nodes(nodes) if len(nodes) == len(having) else None
