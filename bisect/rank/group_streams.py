"""The process groups of torch, each with a counter of its operations and a block of the ring."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .ring import Ring

Streams = dict[int, "Stream"]  # by id(group)


class Stream(NamedTuple):
    """The operations of one group."""

    next_number: Callable[[], int]
    base: int  # of its block in the ring
    group: int  # text: name, members, description, each on a line


class NotAMember(Exception):
    """The group is one that this rank does not belong to: torch makes nothing of such a call."""


class GroupStreams:
    """Streams by the id of their group. Sends and receives, which pair with one rank only and are
    counted apart by torch too, have streams of their own.
    """

    def __init__(self, ring: Ring) -> None:
        """There is only the stream of what belongs to no group until torch is there."""
        self.c10d: Any = None
        self.collective: Streams = {}
        self.to_peers: Streams = {}
        self._ring = ring
        self.outside = self._new("")

    def meet(self, group: Any, streams: Streams) -> Stream:
        """Return the stream of a group that is met for the first time; raises NotAMember."""
        world = self.c10d.GroupMember.WORLD
        # FSDP takes a tuple of two groups for hybrid sharding.
        real = world if group is None or isinstance(group, tuple) else group
        if real is None:
            return self.outside  # no group yet
        if isinstance(real, int):  # GroupMember.NON_GROUP_MEMBER
            raise NotAMember
        stream = streams.get(id(real))
        if stream is None:
            prefix = "p2p " if streams is self.to_peers else ""
            stream = self._new(prefix + self._described(real))
        streams[id(real)] = stream
        if real is world:
            streams[id(None)] = stream
        return stream

    def forget(self, group: Any = None) -> None:
        """Forget a group that is destroyed, or all: others may get their ids and names."""
        for streams in (self.collective, self.to_peers):
            if group is None or group is self.c10d.GroupMember.WORLD:
                streams.clear()
            else:
                streams.pop(id(group), None)

    def _new(self, group: str) -> Stream:
        return Stream(itertools.count(1).__next__, self._ring.block(), self._ring.text(group))

    def _described(self, group: Any) -> str:
        name = description = members = ""
        with contextlib.suppress(Exception):  # groups of other makes need not have all of it
            name = str(group.group_name)
            members = ranges(self.c10d.get_process_group_ranks(group))
            description = str(group.group_desc)
        return "\n".join([name or "?", members, description])


def ranges(numbers: Iterable[int]) -> str:
    """Return "0-3,8" for [0, 1, 2, 3, 8]."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
