"""The wait-for graph: nodes and edges, rings, and the chain that a verdict shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hangbisect.base.process_facts import Descriptor, FileLock, Futex, Kernel, Look, Syscall
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.base.verdict_facts import Edge
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.diagnosis.wait_graph import Node, WaitGraph, WeightedEdge
from hypothesis import given
from hypothesis import strategies as st

from .made_up import (
    ALL_REDUCE,
    GROUP,
    RECV,
    SLEEP,
    WANDB,
    gone,
    held,
    job,
    look,
    rank,
    silent_peer,
    wandb_core,
)


def chain(facts: JobFacts, ranks: Sequence[RankFacts]) -> list[str]:
    """The names along the verdict's chain."""
    edges = judge_job_with_graph(facts, ranks)[0].chain
    return [*(edge.source for edge in edges), *(edge.target for edge in edges[-1:])]


def edge(facts: JobFacts, ranks: Sequence[RankFacts], source: str, target: str) -> Edge:
    """The edge between two nodes of the graph."""
    graph = judge_job_with_graph(facts, ranks)[1]
    return graph.links[source, target].edge


# ---- the chain ------------------------------------------------------------------------------


def test_it_leads_from_one_who_waits_over_the_culprit_and_its_child_to_the_server() -> None:
    ranks = [rank(0, WANDB, children=(wandb_core(0),)), held(1)]
    assert chain(job(), ranks) == [
        "rank 1",
        "our barrier after checkpoint 9",
        "rank 0",
        "process 4899",
        "127.0.0.1:18080",
    ]


def test_ranks_in_a_collective_wait_for_the_one_outside() -> None:
    ranks = [rank(r, SLEEP if r == 4 else ALL_REDUCE, reached=11) for r in range(8)]
    found = chain(job(world=8), ranks)
    assert found == ["rank 0", "collective all_reduce", "rank 4", "the end of a sleep"]


def test_it_ends_at_a_collective_that_all_are_in() -> None:
    ranks = [rank(r, ALL_REDUCE, reached=11) for r in range(3)]
    assert chain(job(world=3), ranks) == ["rank 0", "collective all_reduce"]


def test_ranks_of_other_nodes_are_its_end_if_only_they_can_be_missing() -> None:
    facts = job(world=16, local_ranks=(0, 1))
    found = chain(facts, [rank(r, ALL_REDUCE, reached=11) for r in range(2)])
    assert found[-1] == "ranks of other nodes, which this watch does not see"


def test_a_rank_that_nobody_started_and_one_that_left_are_its_end() -> None:
    groups = [rank(r, GROUP, reached=11, environment={"WORLD_SIZE": "3"}) for r in range(2)]
    assert chain(job(), groups) == ["rank 0", "collective init_process_group", "rank 2"]
    left = [rank(0, GROUP, reached=11), gone(1, 0, reached=3)]
    shown = judge_job_with_graph(job("left"), left)[0].chain[-1]
    assert (shown.target, shown.evidence) == ("rank 1", "rank 1 has left, with status 0")


def test_a_lock_is_between_who_wants_it_and_who_has_it() -> None:
    wants = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 999, "rsync"),))
    found = chain(job(), [rank(0, wants), held(1)])
    assert found[-3:] == ["rank 0", "lock /x.lock", "process 999"]
    evidence = edge(job(), [rank(0, wants), held(1)], "lock /x.lock", "process 999").evidence
    assert evidence == "rsync (999) has it"


def test_a_rank_answers_for_the_lock_that_its_child_has() -> None:
    polls = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "step train.py:5",
        call="clock_nanosleep",
    )
    child = look("f train.py:1", pid=555, ppid=101, holds=(FileLock("/hub/x.lock", 5, 555),))
    ranks = [rank(0, polls), rank(1, RECV, children=((child,),))]
    assert chain(job(), ranks) == [
        *("rank 0", "lock /hub/x.lock", "process 555", "rank 1", "10.0.0.1:443"),
    ]


def test_a_lock_that_only_a_child_waits_for_is_followed_to_its_owner() -> None:
    lock = FileLock("/x.lock", 5, 101, "python")
    child = look("f x.py:1", pid=901, ppid=100, call="flock", locks=(lock,))
    waits = look("Popen.wait STD/subprocess.py:9", call="wait4", args=(901, 0, 0, 0))
    verdict = judge_job_with_graph(job(), [rank(0, waits, children=((child,),)), rank(1, RECV)])[0]
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)


# ---- edges ----------------------------------------------------------------------------------


def test_bytes_that_came_between_two_looks_are_the_evidence_of_a_peer() -> None:
    def at(when: float, received: int) -> Look:
        peer = silent_peer(received=received)
        return replace(RECV, at=when, kernel=look(call="recvfrom", descriptors=(peer,)).kernel)

    for grown, words in ((0, "0 bytes in 12 s"), (1, "1 byte in 12 s")):
        ranks = [rank(0, at(100, 7), at(112, 7 + grown)), held(1)]
        found = edge(job(), ranks, "rank 0", "10.0.0.1:443")
        assert found.evidence == f"ESTABLISHED, {words}"


def test_a_peer_that_a_variable_names_as_proxy_is_called_so() -> None:
    environment = {"https_proxy": "http://10.0.0.1:443"}
    ranks = [rank(0, RECV, environment=environment), held(1)]
    assert edge(job(), ranks, "rank 0", "10.0.0.1:443").evidence.startswith("(https_proxy) ")


def test_a_mutex_whose_owner_was_not_copied_by_a_fork_is_nobodys() -> None:
    futex = Futex(0x7F00, 77, 77, owner_exists=False)
    kernel = (Kernel(100, "python", "S", "", Syscall(202, "futex", (0,) * 6, futex=futex)),)
    one = rank(0, look("step train.py:5"))
    one = replace(one, looks=(replace(one.looks[0], kernel=kernel),))
    assert chain(job(), [one, held(1)])[-1] == "thread 77, which rank 0 does not have"


def test_a_job_that_ended_well_has_no_graph() -> None:
    ranks = [gone(r, 0, reached=12, finished=True) for r in range(2)]
    verdict, graph = judge_job_with_graph(job("done"), ranks)
    assert (verdict.chain, graph.edges, dict(graph.nodes)) == ((), (), {})


def test_every_rank_is_a_node_and_every_edge_has_its_ends() -> None:
    ranks = [rank(0, WANDB, children=(wandb_core(0),)), held(1), gone(2, 1), rank(3, SLEEP)]
    graph = judge_job_with_graph(job(world=4), ranks)[1]
    assert {f"rank {n}" for n in range(4)} <= graph.nodes.keys()
    assert {name for e in graph.edges for name in (e.source, e.target)} <= graph.nodes.keys()
    assert graph.nodes["process 4899"].says == "wandb-core, of rank 0"


# ---- rings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("far", "culprit", "waiting"), [(8, (0, 1), ()), (7, (0,), (1,))])
def test_in_a_deadlock_the_least_advanced_is_the_culprit(
    far: int, culprit: tuple[int, ...], waiting: tuple[int, ...]
) -> None:
    wants = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 101, "python"),))
    ranks = [rank(0, wants, reached=far), rank(1, ALL_REDUCE, reached=8), held(2)]
    verdict, graph = judge_job_with_graph(job(world=3), ranks)
    assert verdict.ranks.culprit == culprit
    assert verdict.ranks.waiting == (*waiting, 2)
    assert [ring.ranks for ring in graph.deadlocks] == [{0, 1}]
    assert [e.source for e in verdict.chain][-4:] == [
        *("rank 0", "lock /x.lock", "rank 1", "collective all_reduce"),
    ]
    assert verdict.chain[-1].target == "rank 0"


def test_a_child_that_waits_for_a_word_of_its_rank_closes_no_ring() -> None:
    idle = look(
        pid=901, ppid=100, call="read", descriptors=(Descriptor(0, "pipe", "pipe:[3]", (100,)),)
    )
    wants = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 901, "python"),))
    waits = look("Popen.wait STD/subprocess.py:9", call="wait4", args=(901, 0, 0, 0))
    for one in (wants, waits):
        verdict, graph = judge_job_with_graph(job(), [rank(0, one, children=((idle,),)), held(1)])
        assert graph.deadlocks == ()
        assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((0,), (1,))
        assert verdict.chain[-1].target == "pipe:[3]"


@pytest.mark.parametrize("state", ["T", "t", "D"])
def test_a_rank_answers_for_its_process_that_cannot_go_on_wherever_it_is_itself(state: str) -> None:
    child = look(pid=555, ppid=101, state=state, holds=(FileLock("/x.lock", 5, 555),))
    wants = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 555, "sh"),))
    for owner in (held(1), rank(1, ALL_REDUCE, reached=9)):
        ranks = [rank(0, wants), replace(owner, children=((child,),)), held(2)]
        verdict = judge_job_with_graph(job(world=3), ranks)[0]
        assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((1,), (0, 2))
        assert verdict.waits_for is not None
        assert (verdict.waits_for.kind, verdict.waits_for.pid) == ("process", 555)
        assert [edge.source for edge in verdict.chain][-1] == "process 555"


LINKS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans(), st.booleans()), max_size=16
)


@given(LINKS)
def test_every_ring_is_closed_and_has_an_edge_that_the_kernel_vouches_for(
    links: list[tuple[int, int, bool, bool]],
) -> None:
    nodes = [Node(f"rank {n}", "rank", rank=n) for n in range(8)]
    made = [
        WeightedEdge(Edge(f"rank {a}", f"rank {b}", "lock" if hard else "rank", ""), firm, hard)
        for a, b, firm, hard in links
    ]
    graph = WaitGraph(nodes, made, range(8))
    for ring in graph.deadlocks:
        ends = [(e.source, e.target) for e in ring.edges]
        assert [target for _, target in ends] == [*(source for source, _ in ends[1:]), ends[0][0]]
        assert any(graph.links[pair].hard for pair in ends)
        assert len(set(ends)) == len(ends)
    for start in range(8):
        found = graph.chain([start], [(start + 3) % 8])
        assert all(a.target == b.source for a, b in pairwise(found))
