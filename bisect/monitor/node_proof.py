"""By what one node proves to the others that it is of their job: the token in its environment,
munge, or the token that who leads has left in a folder; by nothing where there is none of these.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from ..base.variables import TOKEN_VARIABLE
from ..link.channel import Address, has_munge
from ..link.messages import Join
from .lead_address import are_on_one_machine, find_local_token, is_own_address, read_shared_token

_MOST_TRIES = 3  # with one token that is found later


class KnownPlaces(Protocol):
    """Where the first lead may be."""

    def list_places(self) -> Sequence[Address]:
        """Return the names and ports."""

    async def list_addresses(self) -> Sequence[Address]:
        """Return the addresses and ports."""


class NodeProof:
    """What one node has to prove itself, chosen anew for each try to find the lead."""

    def __init__(self, folder: Path | None, places: KnownPlaces) -> None:
        """`folder` may be shared with other nodes; None: none is."""
        self._folder, self._places = folder, places
        self.token = b""  # of the last try
        self._is_by_munge = False  # that try
        self._is_bare = False  # it had no token, though one was left
        self._is_led_from_here: bool | None = None  # None: not looked up yet
        self._tried = Counter[str]()  # tokens that were found while nothing was proved

    @property
    def may_be_found(self) -> bool:
        """Return whether a token may still come that is not here yet."""
        return self._folder is not None

    async def choose(self, job: str, was_refused: bool) -> None:
        """Choose what the next try is by. A token that was left is read anew, for it may be of a
        run before this one: where a lead `was_refused` each second try is without it, and where
        there is munge each second one is by that. `job` is the name of Credentials.
        """
        given = os.environ.get(TOKEN_VARIABLE, "")
        self._is_by_munge = has_munge() and not self._is_by_munge
        left = "" if given or self._is_by_munge else await self._read_left(job)
        self._is_bare = bool(left) and was_refused and not self._is_bare
        self.token = (given or ("" if self._is_bare else left)).encode()

    async def find_later(self, job: str) -> bytes:
        """Return a token that is there by now and is to be tried, b"" for none."""
        left = await self._read_left(job)
        if not left or self._tried[left] >= _MOST_TRIES:
            return b""
        self._tried[left] += 1
        return left.encode()

    async def _read_left(self, job: str) -> str:
        """Return the token that the lead has left for nodes that share its run folder, or that are
        started on its machine; "" where there is none.
        """
        token = "" if self._folder is None else await read_shared_token(self._folder)
        if not token and await self._may_be_led_from_here():
            token = await find_local_token(job)
        return token

    async def _may_be_led_from_here(self) -> bool:
        """Return whether the lead may be on this machine: by its name, or by its address."""
        places = self._places.list_places()
        if self._is_led_from_here is None and places:  # once: a name server is not asked each time
            here = are_on_one_machine(places)
            addresses = [] if here else await self._places.list_addresses()
            self._is_led_from_here = here or any(is_own_address(host) for host, _ in addresses)
        return bool(self._is_led_from_here)


def why_no_node(join: Join, world_size: int, own: Collection[int]) -> str:
    """Return why one that proves nothing is no other node of a job with so many ranks, `own` of
    which are here; "" if it may be one.
    """
    if join.world_size != world_size:
        return f"it is of a job of {join.world_size} ranks, and this one has {world_size}"
    if not join.ranks or not all(0 <= rank < world_size for rank in join.ranks):
        return "it speaks of no rank of this job"
    return "it speaks of ranks that are here" if {*join.ranks} & {*own} else ""
