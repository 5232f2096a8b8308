"""Who leads once the lead is lost, or where none has come: the first of the nodes that are there,
by their ranks.

Each node finds that by itself, from what the lead had told of the others, or from what they left in
a run folder (lead_address.py). It looks for the first lead and for the nodes before it, and leads
where none of them answers. Who leads so looks on, and gives way to one before it. Groups of nodes
that do not see each other have a lead each.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..link.channel import Address, Channel, Credentials, open_channel
from ..link.lead import Lead
from ..link.messages import NodeWord
from ..link.node import NodeLink, open_lead
from ..link.peers import LEASE
from .lead_address import AFTER, WaitingNodes, listen_at

MOST = 16  # nodes that may come to lead: once the first so many are lost, each is on its own
LIMIT = 24.0  # seconds from the lead's last word for another one to be found
_TURN = 4.0  # seconds left to each node before this one: two looks at a host that is dead
_MOST_TURNS = 4
_GATHER = 6.0  # seconds for the others to have found us: two looks, as for a turn, and load
_FOR_ONE_BEFORE = 12.0  # seconds more, where one before us is there: three turns that it is late
_GIVE_WAY_EVERY = 2.0
_ANSWER_LIMIT = 1.0  # seconds


class FirstLead(Protocol):
    """What one node knows of the lead that is to be the first, and how it would lead itself."""

    async def find_first(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the first lead, and what to prove to any; no place where nothing
        can be proved.
        """

    async def list_addresses(self) -> Sequence[Address]:
        """Return where the first lead may be."""

    def list_ports(self) -> Sequence[int]:
        """Return the ports at which a lead may listen."""

    def make_lead(self, credentials: Credentials) -> Lead:
        """Return a lead that hears nobody yet."""


class NextLead:
    """One node's part in finding who leads, if the first lead does not: it may be itself."""

    def __init__(
        self,
        link: NodeLink,
        first: FirstLead,
        waiting: WaitingNodes | None,
        say: Callable[[str], None],
    ) -> None:
        """`waiting`: of the nodes that share a run folder, None where none may."""
        self._link, self._first = link, first
        self._say, self._waiting = say, waiting
        self._made = time.monotonic()
        self._waits_since = 0.0  # with others, for a first lead
        self._lead: Lead | None = None
        self._began = float("-inf")
        self._is_one_before_there = False  # and does not lead
        self._found_nobody = float("-inf")  # the lead's last word, where we looked in our turn
        self._giving_way: asyncio.Task[None] | None = None

    @property
    def waits_with_others(self) -> bool:
        """Return whether nodes of the job are known, of which none leads."""
        return self._waiting is not None and len(self._waiting.found) > 1

    @property
    def lead(self) -> Lead | None:
        """Return the lead that this node is, where the first is lost, or did not come."""
        return self._lead

    async def find(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the lead, and what to prove: at the places of the first one;
        once that is lost, or has not come for some seconds, at the nodes before this one too, and
        then at this one, which begins to lead where a look since its turn came found nobody.
        """
        places, credentials = await self._first.find_first()
        link, waiting = self._link, self._waiting
        if waiting is not None and not link.was_led and time.monotonic() > self._made + AFTER:
            toward = places or await self._first.list_addresses()
            await waiting.exchange(credentials.job, toward, not credentials.can_prove)
        if not credentials.can_prove:
            return places, credentials
        found = waiting.found if waiting is not None else []
        known = link.list_others() if link.was_led else found
        return [*places, *await self._list_places(known, credentials)], credentials

    async def _list_places(
        self, known: Sequence[NodeWord], credentials: Credentials
    ) -> list[Address]:
        """Return where other nodes lead that are known, and this one if it does."""
        link, ports = self._link, self._first.list_ports()
        words = sorted(known, key=_order)[:MOST]
        names = [word.node for word in words]
        if link.node not in names:
            return _list_ports(words, ports)
        before, own = words[: names.index(link.node)], words[names.index(link.node)]
        self._waits_since = self._waits_since or time.monotonic() - LEASE
        lost_at = link.heard if link.was_led else self._waits_since
        if self._lead is None and self._found_nobody == lost_at and len(words) > 1:
            await self._begin(own, before, ports, credentials)
        turns = min(max(0, len(before) - link.was_led), _MOST_TURNS)  # not to the lead that is lost
        if time.monotonic() > lost_at + link.lease + _TURN * turns:
            self._found_nobody = lost_at
        return _list_ports([*before, *([own] if self._lead else [])], ports)

    async def wait_for_others(self) -> None:
        """Wait, where this node has just begun to lead, until the others can have joined it, or one
        before it, which may be late, leads; where it has given way, until it is led itself.
        """
        while self._lead is not None:
            more = _FOR_ONE_BEFORE if self._is_one_before_there else 0.0
            if time.monotonic() > self._began + _GATHER + more:
                return
            await asyncio.sleep(0.1)
        if self._giving_way is not None:
            await self._link.wait_until_led(_GATHER)

    async def end(self) -> None:
        """Lead no longer, and leave nothing behind."""
        if self._giving_way is not None:
            self._giving_way.cancel()
        if self._lead is not None:
            self._lead.close()
        if self._waiting is not None:
            await self._waiting.end()

    async def _begin(
        self,
        own: NodeWord,
        before: Sequence[NodeWord],
        ports: Sequence[int],
        credentials: Credentials,
    ) -> None:
        lead, link = self._first.make_lead(credentials), self._link
        if await listen_at(lead, [(own.address, port) for port in ports]):
            return  # on no port: this node is on its own
        why = "No monitor of rank 0's node is found"
        if link.was_led:
            lead.remember(link.list_others(), link.world_size)
            why = "Who led the nodes is not heard any more"
        self._lead, self._began = lead, time.monotonic()
        self._say(f"{why}: this one leads the nodes that are there")
        others = [word for word in before if word.address != own.address]
        self._giving_way = asyncio.create_task(self._give_way(_list_ports(others, ports)))

    async def _give_way(self, places: Sequence[Address]) -> None:
        """Lead until a node before this one does, or the first lead is there."""
        found = None
        while found is None:
            await asyncio.sleep(_GIVE_WAY_EVERY)
            with contextlib.suppress(OSError, TimeoutError):
                first, credentials = await self._first.find_first()
                found, _ = await open_lead([*first, *places], credentials, follows=False)
                self._is_one_before_there = found is None and await _is_one_there(places)
        found.close()
        if self._lead is not None:
            self._lead.abandon()
        self._lead = None


async def _is_one_there(places: Sequence[Address]) -> bool:
    """Return whether the host of one of these places answers, by a refusal: nobody leads there."""
    firsts = dict(reversed(places))
    tries = [open_channel(host, port, _ANSWER_LIMIT) for host, port in firsts.items()]
    found = await asyncio.gather(*tries, return_exceptions=True)
    for one in found:
        if isinstance(one, Channel):
            one.close()
    return any(isinstance(one, ConnectionRefusedError) for one in found)


def _list_ports(words: Sequence[NodeWord], ports: Sequence[int]) -> list[Address]:
    return [(word.address, port) for word in words if word.address for port in ports]


def _order(word: NodeWord) -> tuple[tuple[int, ...], str]:
    return word.ranks, word.node
