"""Who leads once the lead is lost: the first of the nodes that are left, by their ranks.

Each node finds that by itself, from what the lead had told of the others. It looks for the first
lead and for the nodes before it, and leads where none of them answers. Who leads so looks on, and
gives way to one before it. Groups of nodes that do not see each other have a lead each.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

from ..link.handshake import Credentials
from ..link.lead import LEASE, Lead
from ..link.messages import NodeWord
from ..link.node import Address, NodeLink, open_lead
from .lead_address import listen_at

MOST = 16  # nodes that may come to lead: once the first so many are lost, each is on its own
LIMIT = 24.0  # seconds from the lead's last word for another one to be found
_TURN = (
    4.0  # seconds that a node leaves to each before it: two looks at a host that does not answer
)
_MOST_TURNS = 4
_GATHER = 6.0  # seconds for the others to have found us: two looks, as for a turn, and load
_GIVE_WAY_EVERY = 2.0

ListFirst = Callable[[], Awaitable[Sequence[Address]]]


class NextLead:
    """One node's part in finding the next lead, which may be itself."""

    def __init__(
        self,
        link: NodeLink,
        list_first: ListFirst,
        make_lead: Callable[[], tuple[Lead, Credentials]],
        say: Callable[[str], None],
    ) -> None:
        """`list_first` returns where the first lead may be, `make_lead` one that hears nobody yet,
        and what is to be proved to it.
        """
        self._link, self._list_first = link, list_first
        self._make_lead, self._say = make_lead, say
        self._lead: Lead | None = None
        self._began = float("-inf")
        self._found_nobody = float("-inf")  # the lead's last word, where we looked in our turn
        self._giving_way: asyncio.Task[None] | None = None

    async def list_places(self, ports: Sequence[int]) -> list[Address]:
        """Return where to look for the next lead: at the nodes before this one, then at this one,
        which begins to lead where a look since its turn came found nobody. Nothing while none was
        lost.
        """
        link = self._link
        if not link.was_led:
            return []
        words = sorted(link.list_others(), key=_order)[:MOST]
        names = [word.node for word in words]
        own = words[names.index(link.node)] if link.node in names else None
        before = words if own is None else words[: names.index(link.node)]
        if own is not None and self._lead is None and self._found_nobody == link.heard:
            await self._begin(own, before, ports)
        turns = min(max(0, len(before) - 1), _MOST_TURNS)
        if time.monotonic() > link.heard + LEASE + _TURN * turns:
            self._found_nobody = link.heard
        hosts = [word.address for word in (*before, *([own] if own and self._lead else []))]
        return [(host, port) for host in filter(None, hosts) for port in ports]

    async def wait_for_others(self) -> None:
        """Wait, where this node has just begun to lead, until the others can have joined it."""
        lead, until = self._lead, self._began + _GATHER
        while lead is not None and time.monotonic() < until:
            await asyncio.sleep(0.1)

    def end(self) -> None:
        """Lead no longer."""
        if self._giving_way is not None:
            self._giving_way.cancel()
        if self._lead is not None:
            self._lead.close()

    async def _begin(self, own: NodeWord, before: Sequence[NodeWord], ports: Sequence[int]) -> None:
        lead, credentials = self._make_lead()
        if await listen_at(lead, [(own.address, port) for port in ports]):
            return  # on no port: this node is on its own
        lead.remember(self._link.list_others(), self._link.world_size)
        self._lead, self._began = lead, time.monotonic()
        self._say("Who led the nodes is not heard any more: this one leads the nodes that are left")
        hosts = {word.address for word in before} - {own.address, ""}
        places = [(host, port) for host in sorted(hosts) for port in ports]
        self._giving_way = asyncio.create_task(self._give_way(places, credentials))

    async def _give_way(self, places: Sequence[Address], credentials: Credentials) -> None:
        """Lead until a node before this one does, or the first lead is there again."""
        found = None
        while found is None:
            await asyncio.sleep(_GIVE_WAY_EVERY)
            with contextlib.suppress(OSError, TimeoutError):
                found, _ = await open_lead([*await self._list_first(), *places], credentials)
        found.close()
        if self._lead is not None:
            self._lead.abandon()
        self._lead = None


def _order(word: NodeWord) -> tuple[tuple[int, ...], str]:
    return word.ranks, word.node
