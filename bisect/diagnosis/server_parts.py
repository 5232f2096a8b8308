"""Who is to blame where ranks of an inference server wait for a part of it that is no rank: the
engine, or the API server, that stands still itself. Pure.

A graph has a rank answer for each process, and what stands beside the ranks is seen with the first
of them. That one is innocent where all that it waits for is such a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.identity import ProcessId, RankId, UnknownRank
from ..base.process_facts import Look
from ..base.server_processes import find_server_process
from ..base.verdict_facts import Edge, Verdict, Where
from .call_site import find_call
from .case import Case
from .frames import format_innermost_frame
from .process_snapshot import merge_looks
from .wait_graph import WaitGraph

_LONGEST_CHAIN = 8  # edges from the part on


def blame_part_of_server(case: Case, graph: WaitGraph, verdict: Verdict) -> Verdict:
    """Return the verdict; where its culprits wait for a part of their server that is no rank, with
    that in their place, as a process without a number.
    """
    part = _find_awaited_part(case, verdict)
    if part is None:
        return verdict
    rank, looks = part
    facts, view = case.by_rank[rank], merge_looks(looks)
    role = find_server_process(looks[-1].command)
    if view is None or role is None:
        return verdict
    pid, innocent = looks[-1].pid, verdict.ranks.culprit
    who = UnknownRank(facts.host, pid)
    call, wait = find_call(view, case.job) or None, graph.waits.get((rank, pid))
    ranks = replace(
        verdict.ranks,
        culprit=(who,),
        stuck=(*(r for r in verdict.ranks.stuck if r not in innocent), who),
        waiting=tuple(sorted({*verdict.ranks.waiting, *innocent})),
    )
    return replace(
        verdict,
        ranks=ranks,
        where=(Where(who, facts.host, pid, None, "", None, call, wait, role.name),),
        call=call,
        frame=format_innermost_frame(view.frames) or None,
        waits_for=wait or verdict.waits_for,
        candidates=(),
        chain=_make_chain(graph, verdict, ProcessId(facts.host, pid)),
    )


def _find_awaited_part(case: Case, verdict: Verdict) -> tuple[RankId, Sequence[Look]] | None:
    """Return the one part of a server that all culprits wait for: with which rank it was seen, and
    the looks at it.
    """
    awaited = {one.waits_for.pid if one.waits_for is not None else None for one in verdict.where}
    if len(awaited) != 1 or len(verdict.where) != len(verdict.ranks.culprit):
        return None
    (pid,) = awaited
    for facts in case.ranks:
        for looks in facts.children:
            if looks and looks[-1].pid == pid:
                role = find_server_process(looks[-1].command)
                is_part = role is not None and role.is_spawned and not role.is_rank
                return (facts.rank, looks) if is_part else None
    return None


def _make_chain(graph: WaitGraph, verdict: Verdict, part: ProcessId) -> tuple[Edge, ...]:
    """Return the way from who waits to the part of the server, and on from there."""
    name = next((node.name for node in graph.nodes.values() if node.process == part), "")
    begin = next((n for n, edge in enumerate(graph.edges) if edge.target == name), None)
    way: list[Edge] = []
    if begin is not None:
        thing = graph.edges[begin].source
        way = [*[edge for edge in graph.edges if edge.target == thing][:1], graph.edges[begin]]
    for _ in range(_LONGEST_CHAIN):
        following = next((edge for edge in graph.edges if edge.source == name), None)
        if following is None or following in way:
            break
        way.append(following)
        name = following.target
    return tuple(way) or verdict.chain
