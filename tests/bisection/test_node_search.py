"""The search for bad nodes and links names what is bad, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log2
from random import Random

import node_search
import pytest
from hangbisect.search.node_findings import find_bad
from hangbisect.search.node_search import NodeSearchEnd, search_nodes, summarize_nodes
from hangbisect.search.node_starts import NodeSet, NodeStarts, SetResult
from hypothesis import given
from hypothesis import strategies as st
from simulated_nodes import Cluster, name_nodes, search_cluster

ROWS = {row.name: row for row in node_search.ROWS}
FEW_SEEDS = 12


def named(*nodes: str) -> NodeSet:
    return frozenset(nodes)


def answered(nodes: Sequence[str], result: Callable[[NodeSet], SetResult]) -> NodeSearchEnd:
    """Return the end of a search whose starts end so."""
    search = search_nodes(nodes)
    asked = next(search)
    while True:
        try:
            asked = search.send([result(one) for one in asked])
        except StopIteration as end:
            found: NodeSearchEnd = end.value
            return found


@pytest.mark.parametrize("count", [4, 64, 1024])
@pytest.mark.parametrize("name", [row.name for row in node_search.ROWS if row.exact == 1.0])
def test_bad_nodes_are_named_and_no_others_within_four_rounds(name: str, count: int) -> None:
    row = ROWS[name]
    if count < row.least_nodes:
        pytest.skip("of so few nodes they cannot be told")
    for found in node_search.search_all(row.draw, count, FEW_SEEDS if count < 500 else 3):
        assert found.is_exact, found.cluster
        assert len(found.rounds) <= 4
        assert found.end.outcome == ("no_fault" if name == "nothing bad" else "found")


@pytest.mark.parametrize("count", [4, 5, 64, 1000])
def test_a_bad_link_is_named_and_not_its_ends(count: int) -> None:
    seeds = FEW_SEEDS if count < 500 else 3
    for found in node_search.search_all(ROWS["1 link"].draw, count, seeds):
        assert found.is_exact, found.cluster
        assert found.end.outcome == "found"
        assert len(found.rounds) <= 2 * log2(count) + 14


def test_two_bad_nodes_and_two_links_are_told_apart() -> None:
    found = node_search.search_all(ROWS["2 bad, 2 links"].draw, 64, FEW_SEEDS)
    assert sum(one.is_exact for one in found) >= 0.8 * len(found)
    assert not any(one.is_wrong for one in found)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("half: ")])
def test_a_fault_in_half_of_the_starts_is_found_with_repeats(name: str) -> None:
    found = node_search.search_all(ROWS[name].draw, 16, 40, repeats=8)
    assert sum(one.is_exact for one in found) >= 38
    assert not any(one.is_wrong for one in found)


@pytest.mark.parametrize("size", [2, 3, 9, 15, 16])
def test_what_fails_from_a_number_of_nodes_on_is_said_to_and_names_nobody(size: int) -> None:
    found = search_cluster(Cluster(name_nodes(16), size=size))
    assert found.end.outcome == "size"
    assert found.end.findings.size is not None
    assert found.end.findings.size.nodes == size
    assert not found.end.findings.bad


def test_three_nodes_that_fail_together_are_not_resolved_and_nobody_is_named() -> None:
    for seed in range(FEW_SEEDS):
        nodes = name_nodes(16)
        found = search_cluster(Cluster(nodes, together=named(*Random(seed).sample(nodes, 3))))
        assert found.end.outcome == "not_resolved"
        assert not found.end.findings.bad
        assert found.cluster.together <= found.end.findings.unexplained[0]


def test_of_two_nodes_that_fail_together_neither_is_named() -> None:
    """Each passes alone: the one, the other, or what is between them."""
    found = search_cluster(Cluster(("a", "b"), links=frozenset({named("a", "b")})))
    assert found.end.outcome == "not_resolved"
    assert not found.end.findings.bad
    assert found.end.findings.unexplained == (named("a", "b"),)


def test_where_no_node_passes_alone_and_none_in_company_nobody_is_named() -> None:
    """The command may not run on so few nodes at all."""
    nodes = name_nodes(4)
    found = search_cluster(Cluster(nodes, alone=frozenset(nodes)))
    assert found.end.outcome == "not_resolved"
    assert not found.end.findings.bad


def test_a_command_that_needs_two_nodes_is_searched_all_the_same() -> None:
    """Alone every node fails, which tells nothing about any of them."""
    cluster = Cluster(name_nodes(8), company=named("n0003"))

    def result(nodes: NodeSet) -> SetResult:
        return "fail" if len(nodes) < 2 else cluster.result(nodes, Random(0))

    found = answered(cluster.nodes, result)
    assert found.findings.bad_nodes == {"n0003"}
    assert found.outcome == "found"


def test_a_node_on_which_nothing_can_be_started_is_said_and_not_named() -> None:
    def result(nodes: NodeSet) -> SetResult:
        return "unknown" if "n0002" in nodes else "pass"

    found = answered(name_nodes(6), result)
    assert found.not_seen == ("n0002",)
    assert not found.findings.bad
    assert found.control == named(*name_nodes(6)) - {"n0002"}


def test_a_node_that_is_lost_in_the_midst_of_a_search_is_given_up() -> None:
    """It passed alone, and is gone since: no round is spent on it for ever, and it is not named."""
    asked: list[NodeSet] = []

    def result(nodes: NodeSet) -> SetResult:
        asked.append(nodes)
        return "unknown" if "n0002" in nodes and len(nodes) > 1 else "pass"

    found = answered(name_nodes(8), result)
    assert found.not_seen == ("n0002",)
    assert not found.findings.bad
    assert found.control == named(*name_nodes(8)) - {"n0002"}
    assert sum("n0002" in nodes for nodes in asked) <= 5


@given(st.data())
def test_no_two_sets_of_a_round_have_a_node_in_common(data: st.DataObject) -> None:
    """Whatever comes of the starts, the search ends and asks for what can be started."""
    count = data.draw(st.integers(2, 9))
    nodes = name_nodes(count)
    search = search_nodes(nodes, repeats=data.draw(st.integers(1, 3)))
    random = data.draw(st.randoms(use_true_random=False))
    results: Sequence[SetResult] = ("pass", "fail", "unknown")
    asked = next(search)
    for _ in range(5000):
        taken = [node for one in asked for node in one]
        assert taken
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(nodes)
        try:
            asked = search.send([random.choice(results) for _ in asked])
        except StopIteration:
            return
    raise AssertionError("no end")


@given(st.integers(4, 12), st.integers(0, 10**6))
def test_whatever_is_bad_nobody_else_is_named(count: int, seed: int) -> None:
    """Of faults that show in every start: nodes, links, both, many of them."""
    random = Random(seed)
    nodes = name_nodes(count)
    bad = random.sample(nodes, random.randint(0, count // 3))
    rest = [node for node in nodes if node not in bad]
    links = frozenset(
        named(*random.sample(rest, 2)) for _ in range(random.randint(0, 2)) if len(rest) > 3
    )
    alone = random.randint(0, len(bad))
    cluster = Cluster(nodes, frozenset(bad[:alone]), frozenset(bad[alone:]), links)
    found = search_cluster(cluster, seed)
    # A node all of whose links that were tried are bad cannot be told from a bad node.
    ends = [node for link in links for node in link]
    allowed = {node for node in ends if ends.count(node) > 1}
    assert found.nodes - set(allowed) <= set(bad)
    assert set(found.end.findings.links) <= links


def test_one_failure_names_nobody() -> None:
    starts = NodeStarts(name_nodes(4))
    for node in starts.nodes:
        starts.add(named(node), "fail" if node == "n0002" else "pass")
    assert not find_bad(starts, 3).bad
    assert summarize_nodes(starts).outcome == "not_resolved"


def test_without_a_control_that_passes_nobody_is_named() -> None:
    starts = NodeStarts(name_nodes(3))
    for _ in range(9):
        for node in starts.nodes:
            starts.add(named(node), "fail")
        starts.add(named("n0001", "n0002"), "fail")
        starts.add(named("n0001", "n0003"), "fail")
    assert not find_bad(starts, 3).bad


def test_how_likely_a_name_is_by_chance_is_said() -> None:
    """Three failures of the node alone, three other nodes that pass: 1 of 20 ways."""
    found = search_cluster(Cluster(name_nodes(4), alone=named("n0002")))
    (bad,) = found.end.findings.bad
    assert (bad.kind, bad.fails, bad.starts, bad.control_passes) == ("alone", 3, 3, 3)
    assert bad.p_value == pytest.approx(0.05)


def test_a_set_that_failed_and_passed_shows_a_fault_that_comes_and_goes() -> None:
    cluster = Cluster(name_nodes(8), company=named("n0005"), rate=0.5)
    found = [search_cluster(cluster, seed) for seed in range(20)]
    assert any(one.end.comes_and_goes for one in found)
    assert not search_cluster(replace(cluster, rate=1.0)).end.comes_and_goes


def test_a_search_is_the_same_where_the_results_are() -> None:
    """Who resumes one answers from what was recorded, and comes to the same place."""
    cluster = Cluster(name_nodes(40), links=frozenset({named("n0007", "n0031")}))
    assert search_cluster(cluster).rounds == search_cluster(cluster).rounds


@pytest.mark.parametrize("nodes", [(), ("a",), ("a", "a", "b")])
def test_two_different_nodes_are_the_least(nodes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="two at least"):
        next(search_nodes(nodes))
