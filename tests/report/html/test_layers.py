"""Where the nodes of a graph stand."""

from __future__ import annotations

from itertools import pairwise

from hangbisect.report.html.graph_picture import lay_out_graph
from hypothesis import given
from hypothesis import strategies as st

NODES = [f"n{i}" for i in range(9)]
LINKS = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=25)


def test_who_waits_stands_above_what_it_waits_for() -> None:
    found = lay_out_graph(["c", "b", "a"], [("a", "b"), ("b", "c"), ("a", "c")])
    assert {name: layer for name, (_, layer) in found.nodes.items()} == {"a": 0, "b": 1, "c": 2}


def test_a_link_over_a_layer_passes_beside_the_node_in_between() -> None:
    found = lay_out_graph(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    (passing,) = found.links["a", "c"][1:-1]
    assert passing != found.nodes["b"]
    assert passing[1] == found.nodes["b"][1]


def test_a_ring_is_drawn_with_one_link_upwards() -> None:
    found = lay_out_graph(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    upwards = [link for link, way in found.links.items() if way[0][1] > way[-1][1]]
    assert upwards == [("c", "a")]


def test_links_that_need_not_cross_do_not() -> None:
    links = [("a", "y"), ("b", "x"), ("c", "z")]
    found = lay_out_graph(["a", "b", "c", "x", "y", "z"], links)
    ways = sorted((found.links[link][0][0], found.links[link][1][0]) for link in links)
    assert ways == sorted(ways, key=lambda way: way[1])


def test_an_empty_graph_has_no_layers() -> None:
    assert lay_out_graph([], []).layers == 0


@given(LINKS)
def test_every_node_has_a_place_of_its_own_and_every_link_goes_from_layer_to_layer(
    links: list[tuple[str, str]],
) -> None:
    found = lay_out_graph(NODES, links)
    assert set(found.nodes) == set(NODES)
    assert set(found.links) == {link for link in links if link[0] != link[1]}
    stops = {place for way in found.links.values() for place in way[1:-1]}
    assert len(set(found.nodes.values())) == len(NODES)
    assert not stops & set(found.nodes.values())
    for (source, target), way in found.links.items():
        assert (way[0], way[-1]) == (found.nodes[source], found.nodes[target])
        steps = {b[1] - a[1] for a, b in pairwise(way)}
        assert steps in ({1}, {-1})
    assert {layer for _, layer in found.nodes.values()} == set(range(found.layers))
