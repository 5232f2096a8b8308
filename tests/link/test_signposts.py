"""A lead that is found on the networks of a machine, without its address."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from hangbisect.link.channel import Address
from hangbisect.link.signposts import (
    GROUP,
    Beacon,
    FoundLead,
    _list_interfaces,
    _read_answer,
    ask_neighbours,
)

PLACE = ("10.0.0.1", 29408)


def find_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


async def found(job: str, leads: tuple[str, Address] | None = ("n1 18", PLACE)) -> list[FoundLead]:
    """Return what is heard of `job` where somebody leads the job "a"."""
    port, asked = find_free_port(), list[str]()

    def where(asker: str) -> tuple[str, Address] | None:
        asked.append(asker)
        return leads

    beacon = Beacon("a", where)
    if not await beacon.listen(port):
        pytest.skip("no interface here has a group")
    try:
        return await ask_neighbours(job, port, limit=0.5)
    finally:
        beacon.close()
        await asyncio.sleep(0)  # asyncio closes its socket then


def test_who_leads_the_job_answers_where_it_listens() -> None:
    (answer,) = {one.name: one for one in asyncio.run(found("a"))}.values()
    assert answer.name == "n1 18"
    assert answer.places[0] == PLACE
    assert all(port == PLACE[1] for _, port in answer.places)


def test_who_leads_another_job_or_none_does_not_answer() -> None:
    assert asyncio.run(found("b")) == []
    assert asyncio.run(found("a", None)) == []


def test_what_is_no_answer_is_none() -> None:
    right: dict[str, object] = {
        "t": "here",
        "job": "a",
        "name": "n1",
        "host": "10.0.0.1",
        "port": 29408,
    }
    wrong: list[dict[str, object]] = [
        {"job": "b"},
        {"t": "where"},
        {"port": 0},
        {"port": "1"},
        {"host": None},
    ]
    assert _read_answer(json.dumps(right).encode(), "a", "10.0.0.9") is not None
    for change in wrong:
        assert _read_answer(json.dumps(right | change).encode(), "a", "10.0.0.9") is None
    for data in (b"", b"[]", b"\xff", b"{", b"[" * 1024):
        assert _read_answer(data, "a", "10.0.0.9") is None


def test_a_beacon_hears_what_is_no_question_and_goes_on() -> None:
    async def talk() -> list[FoundLead]:
        port = find_free_port()
        beacon = Beacon("a", lambda asker: ("n1", PLACE))
        if not (await beacon.listen(port) and _list_interfaces()):
            pytest.skip("no interface here has a group")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            for data in (b"", b"\xff\xfe", b"{}", b'{"t": "where"}'):
                try:
                    one.sendto(data, (GROUP, port))
                except OSError:
                    break
        found = await ask_neighbours("a", port, limit=0.5)
        beacon.close()
        await asyncio.sleep(0)
        return found

    assert {one.name for one in asyncio.run(talk())} == {"n1"}
