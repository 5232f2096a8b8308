"""Who leads once the lead is lost, and how a node finds who does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from hangbisect.link import channel as channels
from hangbisect.link.channel import Credentials, Refused
from hangbisect.link.lead import Lead
from hangbisect.link.messages import encode
from hangbisect.link.node import open_lead
from hangbisect.link.peers import LEASE
from hangbisect.link.signposts import Signpost
from hangbisect.monitor import lead_address, next_lead
from hangbisect.monitor.next_lead import NextLead

from .test_star import OURS, Star, join_of, report_of, run, star, until


def test_who_leads_next_knows_who_was_there_and_takes_them_in() -> None:
    async def test() -> None:
        async with star() as first, star() as later:
            first.node(0)
            node = first.node(1)
            await until(lambda: {"0", "1"} == {*node.others})
            later.lead.remember(node.list_others(), 4)
            later.node(1)
            nodes = [later.node(2)]
            await until(lambda: all(one.is_led for one in nodes))
            nodes[0].report(report_of(join_of(2), asks=True), [])
            await nodes[0].wait_for_judgement()
            assert later.judged == [(["n2", "n3"], [("n1", "it is not heard any more")])]
            assert later.said == []  # whom the first lead lost need not be said again

    run(test())


def test_nodes_of_a_lead_that_gives_way_look_for_another_one() -> None:
    async def test() -> None:
        async with star() as made:
            node = made.node(0)
            await until(lambda: node.is_led and "0" in node.others)
            made.lead.abandon()
            await until(lambda: not node.is_led)
            assert node.was_led  # and is to be led again, as it is not by one that has left
            assert {*node.others} == {"0"}

    run(test())


def test_a_node_leaves_a_lead_and_finds_the_one_that_it_is_to_have() -> None:
    async def test() -> None:
        async with star() as made, star() as other:
            node = made.node(0)
            await until(lambda: node.is_led)
            made.port = other.port
            node.look_again()
            await until(lambda: node.is_led and "0" in other.lead._peers)

    run(test())


def test_the_first_of_several_leads_is_found_and_no_connection_stays() -> None:
    """A host that does not answer is passed over; what a lead without the token is refused for is
    told.
    """

    async def test() -> None:
        async with star() as made, star(Credentials("job")) as other:
            places = [("127.0.0.2", made.port), ("127.0.0.1", other.port), ("127.0.0.1", made.port)]
            found, refused = await open_lead(places, OURS)
            assert found is not None
            assert "token" in refused
            found.close()
            nobody, _ = await open_lead(places[:1], OURS)
            assert nobody is None
            await until(lambda: not made.lead._unknown)

    run(test())


def test_a_lead_is_found_by_the_other_name_of_the_job_too_and_by_no_third_one() -> None:
    """Nodes that do not agree about a port have no name in common that it is part of."""

    async def test() -> None:
        async with star(replace(OURS, also="without a port")) as made:
            place = [("127.0.0.1", made.port)]
            for name in (OURS.job, "without a port"):
                found, refused = await open_lead(place, replace(OURS, job=name))
                assert found is not None, refused
                assert found.is_trusted
                found.close()
            for other in (replace(OURS, job="third"), replace(OURS, job="", also="without a port")):
                nobody, _ = await open_lead(place, other)
                assert nobody is None

    run(test())


class First:
    """What a node knows of a first lead that is nowhere."""

    def __init__(self) -> None:
        self.made: list[Lead] = []

    async def find_first(self) -> tuple[list[tuple[str, int]], Credentials]:
        return [("127.0.0.9", 7)], OURS

    async def list_addresses(self) -> list[tuple[str, int]]:
        return []

    def list_ports(self) -> list[int]:
        return [7]

    def make_lead(self, credentials: Credentials) -> Lead:
        self.made.append(Lead(credentials, "n2", Star()._judge, print))
        return self.made[-1]


def test_whoever_is_first_of_those_left_leads_and_the_others_look_there() -> None:
    """The first look is for others alone; at the second, as nobody was found, it leads."""
    first = First()

    async def test() -> None:
        async with star() as made:
            links = [made.node(number) for number in range(3)]
            await until(lambda: all(len(one.others) == 3 for one in links))
            made.end()
            await until(lambda: not any(one.is_connected for one in links))
            for link in links:
                link.others = {
                    name: (heard, replace(word, address=f"127.0.0.{int(name) + 2}"))
                    for name, (heard, word) in link.others.items()
                }
                link.was_led, link._heard = True, time.monotonic() - LEASE - 1.0
            nexts = [NextLead(link, first, None, print) for link in links]
            known = [("127.0.0.9", 7), ("127.0.0.2", 7), ("127.0.0.3", 7)]
            assert await nexts[1].find() == (known[:2], OURS)
            assert await nexts[2].find() == (known, OURS)
            assert not first.made
            await nexts[1].find()
            assert len(first.made) == 1
            await nexts[2].find()
            assert len(first.made) == 1  # it is not its turn yet

    run(test())


async def lead_as_second(made: Star, first: First, port: int) -> NextLead:
    """Return the part of a node that has begun to lead, before which another one is to at a port of
    127.0.0.2.
    """
    link = made.node(1)
    other = made.node(0)
    await until(lambda: len(link.others) == 2 and other.is_led)
    made.lead.abandon()
    await until(lambda: not link.is_connected)
    places = {"0": "127.0.0.2", "1": "127.0.0.3"}
    link.others = {
        name: (heard, replace(word, address=places[name]))
        for name, (heard, word) in link.others.items()
    }
    link.was_led, link._heard = True, time.monotonic() - 3 * LEASE
    first.list_ports = lambda: [port]  # type: ignore[method-assign]
    second = NextLead(link, first, None, print)
    while not first.made:
        await second.find()
        await asyncio.sleep(0.05)
    return second


def test_who_leads_waits_longer_for_one_before_it_whose_host_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that refuses a connection lives: its monitor may be late, and leads then."""
    monkeypatch.setattr(lead_address, "is_loopback", lambda address: False)
    monkeypatch.setattr(next_lead, "_GATHER", 0.5)
    monkeypatch.setattr(next_lead, "_FOR_ONE_BEFORE", 3.0)
    monkeypatch.setattr(next_lead, "_GIVE_WAY_EVERY", 0.2)

    async def test() -> None:
        async with star() as made:
            with socket.socket() as reserved:  # nobody listens there
                reserved.bind(("127.0.0.2", 0))
                first = First()
                second = await lead_as_second(made, first, reserved.getsockname()[1])
                waits = asyncio.create_task(second.wait_for_others())
                await asyncio.sleep(1.0)
                assert not waits.done()
                await asyncio.wait_for(waits, 20.0)  # and not for ever
                await second.end()

    run(test())


def test_who_gives_way_waits_until_it_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would tell a verdict of its own beside that of the lead to which it gave way."""
    monkeypatch.setattr(lead_address, "is_loopback", lambda address: False)
    monkeypatch.setattr(next_lead, "_GIVE_WAY_EVERY", 0.2)

    async def test() -> None:
        async with star() as made, star() as other:
            post = await asyncio.start_server(
                lambda reader, writer: forward(reader, writer, other.port), "127.0.0.2", 0
            )
            port = post.sockets[0].getsockname()[1]
            second = await lead_as_second(made, First(), port)
            await until(lambda: second._lead is None)
            made.port = other.port
            await asyncio.wait_for(second.wait_for_others(), 20.0)
            assert second._link.is_led
            await second.end()
            post.close()

    run(test())


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Hand on what comes, both ways."""
    there, back = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
        target.close()

    await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)


def test_what_is_said_on_the_link_goes_in_short_segments() -> None:
    """Longer ones are lost where a link on the way has a smaller MTU and nobody may say so."""

    async def test() -> None:
        async with star() as made:
            places = [("127.0.0.1", made.port)]
            found, _ = await open_lead(places, OURS)
            assert found is not None
            (other,) = made.lead._unknown
            for one in (found, other):
                end = one._writer.get_extra_info("socket")
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= 536
            found.close()

    run(test())


# ---- who is asked and does not lead --------------------------------------------------------------


@contextlib.asynccontextmanager
async def signpost(where: Callable[[], tuple[str, int] | None]) -> AsyncIterator[int]:
    post = Signpost(OURS, where)
    port = await post.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        post.close()


def test_a_node_that_asks_where_nobody_leads_is_told_where_who_does_is() -> None:
    async def test() -> None:
        async with star() as made, signpost(lambda: ("127.0.0.1", made.port)) as port:
            found, refused = await open_lead([("127.0.0.1", port)], OURS)
            assert (found is not None, refused) == (True, "")
            assert found is not None
            found.send(encode(join_of(0)))
            await until(lambda: made.lead.are_all_there or bool(made.lead._peers))
            found.close()
            assert await open_lead([("127.0.0.1", port)], OURS, follows=False) == (None, "")

    run(test())


def test_who_cannot_prove_itself_is_told_nothing_and_nobody_is_sent_around() -> None:
    async def test() -> None:
        async with signpost(lambda: None) as lost, signpost(lambda: ("127.0.0.1", lost)) as port:
            assert await open_lead([("127.0.0.1", port)], OURS) == (None, "")
            assert await open_lead([("127.0.0.1", lost)], OURS) == (None, "")
            stranger = Credentials("job", b"x" * 16)
            found, _ = await open_lead([("127.0.0.1", port)], stranger)
            assert found is None

    run(test())


@pytest.mark.parametrize("told", [["127.0.0.1", 0], ["127.0.0.1", True], "127.0.0.1:7", [7, 7]])
def test_what_is_no_address_is_refused(told: object) -> None:
    with pytest.raises(Refused):
        channels._read_address(told)
    assert channels._read_address(["127.0.0.1", 7]) == ("127.0.0.1", 7)


def test_a_node_knows_both_ends_of_the_connection_by_which_it_is_led() -> None:
    async def test() -> None:
        async with star() as made:
            node = made.node(0)
            assert node.ends is None
            await until(lambda: node.is_led and "0" in node.others)
            assert node.ends is not None
            assert node.ends[1] == ("127.0.0.1", made.port)
            assert not node.knows_all_ranks
            others = [made.node(number) for number in (1, 2, 3)]
            await until(lambda: node.knows_all_ranks)
            assert len(others) == 3

    run(test())
