"""Barriers of all nodes: a node's ranks go on once those of all others are there too, and at once
where that cannot be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hangbisect.link.channel import Credentials
from hangbisect.link.messages import AtBarrier, Join
from hangbisect.link.node import NodeLink
from hangbisect.link.node_barriers import NodeBarriers
from hypothesis import given
from hypothesis import strategies as st

from .test_star import OURS, Star, run, star, until

NODES = ("0", "1", "2")


@given(st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 5)), max_size=30))
def test_a_barrier_opens_once_the_last_node_has_come_and_never_before(
    arrivals: list[tuple[str, int]],
) -> None:
    """In whatever order: told is each time how far the slowest one is."""
    barriers, reached = NodeBarriers(), dict.fromkeys(NODES, 0)
    for node in NODES:
        barriers.note(node, AtBarrier(0))
    barriers.move(NODES)
    for node, number in arrivals:
        reached[node] = max(reached[node], number)
        if barriers.note(node, AtBarrier(reached[node])):
            barriers.move(NODES)
        assert barriers.opened == min(reached.values())
        behind = barriers.list_behind({node: f"n{node}" for node in NODES})
        waits = {node for node, number in reached.items() if number > barriers.opened}
        assert set(behind) == ({f"n{node}" for node in {*NODES} - waits} if waits else set())


def test_nobody_waits_where_a_node_has_no_barriers_or_is_not_there() -> None:
    barriers = NodeBarriers()
    barriers.note("0", AtBarrier(2))
    assert not barriers.move(["0"])  # it is alone
    assert not barriers.move(["0", "1"])
    barriers.note("1", AtBarrier(0))
    assert barriers.move(["0", "1"])
    assert (barriers.opened, barriers.list_behind({"0": "a", "1": "b"})) == (0, ("b",))
    assert barriers.move([])
    assert (barriers.opened, barriers.list_behind({"0": "a", "1": "b"})) == (-1, ())
    barriers.move(["0", "1"])
    assert barriers.note("1", AtBarrier(-1))  # it holds its ranks no more
    assert barriers.move(["0", "1"])
    assert barriers.opened == -1


async def all_at(made: Star, number: int) -> list[NodeLink]:
    """Return the nodes of four ranks, all of which have reached a checkpoint."""
    links = [made.node(one) for one in range(4)]
    for link in links:
        link.pass_barrier(AtBarrier(number))
    await until(lambda: all(link.spans_barriers for link in links))
    return links


def test_nodes_are_held_until_the_last_one_is_there() -> None:
    async def test() -> None:
        async with star() as made:
            links = await all_at(made, 0)
            assert [link.pass_barrier(AtBarrier(1, 2.0, 3.0)) for link in links[:3]] == 3 * [False]
            await until(lambda: links[0].behind == ("n4",))  # a beat tells
            said: list[Sequence[tuple[Join, AtBarrier]]] = []
            made.lead.on_opened = said.append
            links[3].pass_barrier(AtBarrier(1, 1.0, 9.0))
            await until(lambda: all(link.pass_barrier(AtBarrier(1)) for link in links))
            (arrived,) = said
            assert [join.host for join, _ in arrived] == ["n1", "n2", "n3", "n4"]
            assert max(at.last for _, at in arrived) == 9.0
            await until(lambda: links[0].behind == ())

    run(test())


@pytest.mark.parametrize("how", ["leaves", "has no barriers", "is cut off", "the lead ends"])
def test_nodes_go_on_where_one_is_not_waited_for_any_more(how: str) -> None:
    async def test() -> None:
        async with star() as made:
            links = await all_at(made, 0)
            freed = list[int]()
            for number, link in enumerate(links[:3]):
                link.on_barriers = lambda number=number: freed.append(number)
                assert not link.pass_barrier(AtBarrier(1))
            if how == "leaves":
                await links[3].leave("its ranks have ended")
            elif how == "has no barriers":
                links[3].pass_barrier(AtBarrier(-1))
            elif how == "is cut off":
                made._tasks[3].cancel()
            else:
                made.lead.close()
            await until(lambda: all(link.pass_barrier(AtBarrier(1)) for link in links[:3]))
            assert {*freed} == {0, 1, 2}

    run(test())


def test_a_node_that_comes_again_is_waited_for_again() -> None:
    async def test() -> None:
        async with star() as made:
            links = await all_at(made, 0)
            links[3].look_again()
            await until(lambda: not links[0].spans_barriers)
            await until(lambda: all(link.spans_barriers for link in links))
            assert not links[0].pass_barrier(AtBarrier(1))

    run(test())


def test_who_has_no_token_is_ordered_nothing() -> None:
    async def test() -> None:
        async with star(Credentials("job")) as made:
            links = [made.node(one) for one in range(4)]
            for link in links:
                link.pass_barrier(AtBarrier(0))
            await asyncio.sleep(1.0)
            assert all(link.pass_barrier(AtBarrier(1)) for link in links)

    run(test())


def test_what_rank_0_is_through_with_is_told_to_all_and_to_who_comes_later() -> None:
    async def test() -> None:
        async with star() as made:
            links = [made.node(one) for one in range(2)]
            links[0].tell_done("saving the module")
            await until(lambda: links[1].done == {"saving the module"})
            later = made.node(2)
            await until(lambda: later.done == {"saving the module"})
            assert OURS.can_prove

    run(test())
