"""Reads a rank's own log of its collectives from outside, whatever it is in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..base.rank_facts import Collective, CollectiveLog
from ..rank.collective_records import (
    BLOCKS_AT,
    ENTERED,
    LEFT,
    PULSE,
    PULSE_AT,
    RAISED,
    RECORD,
    RING_HEADER,
    RING_MAGIC,
    RING_SIZE,
    RING_VERSION,
    TEXTS,
    TEXTS_SIZE,
    open_ring,
)

_PEERS = "p2p "  # before the name of a group: its sends and receives
_MOST_MEMBERS = 1 << 20


class Pulse(NamedTuple):
    """The training steps that a rank has done since it was watched closely, 0 where it has done
    none: then time and pause are those of the steps before.
    """

    at: float  # when the last one ended (monotonic)
    longest: float  # seconds between two of them
    steps: int


def read_pulse(descriptor: int) -> Pulse | None:
    """Return the pulse in a rank's ring, None if there is none yet. Raises OSError."""
    data = os.pread(descriptor, PULSE.size, PULSE_AT)
    if len(data) < PULSE.size:
        return None
    pulse = Pulse(*PULSE.unpack(data))
    return pulse if pulse.at else None


class RingRead(NamedTuple):
    """What was read of a ring."""

    data: bytes
    log: CollectiveLog | None  # None: it is no ring


def read_ring(descriptor: int, before: RingRead | None = None) -> RingRead:
    """Return what the ring holds. Raises OSError.

    `before` is what was read last: where nothing is new it is returned, and its log with it.
    """
    data = os.pread(descriptor, _written_size(descriptor), 0)
    if before is not None and data == before.data:
        return before
    return RingRead(data, parse_ring(data))


def read_ring_of(pid: int) -> CollectiveLog | None:
    """Return what a process logs of its operations, None for one that is not watched. Raises
    OSError where it cannot be read.
    """
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            descriptor = open_ring(pid, int(fd))
        except OSError:
            continue  # another file, or closed meanwhile
        try:
            return read_ring(descriptor).log
        finally:
            os.close(descriptor)
    return None


def _written_size(descriptor: int) -> int:
    """Return how much of a ring is in use, by its header."""
    header = os.pread(descriptor, RING_HEADER.size, 0)
    if len(header) < RING_HEADER.size:
        return 0
    *_, blocks, records = RING_HEADER.unpack(header)
    return min(RING_SIZE, BLOCKS_AT + int(blocks) * int(records) * RECORD.size)


def parse_ring(data: bytes) -> CollectiveLog | None:
    """Return the log in a ring's memory, None for anything else; never raises.

    A record that was being written is left out.
    """
    if len(data) < RING_HEADER.size:
        return None
    magic, version, texts_end, blocks, records = RING_HEADER.unpack_from(data)
    if magic != RING_MAGIC or version != RING_VERSION:
        return None
    texts = _RingTexts(data[TEXTS : TEXTS + min(texts_end, TEXTS_SIZE)])
    end = min(len(data), BLOCKS_AT + blocks * records * RECORD.size)
    found: dict[str, list[Collective]] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for group, members, one in _parse_records(data, BLOCKS_AT, end, texts):
        found.setdefault(group, []).append(one)
        groups[one.group] = members
    operations = [one for ops in found.values() for one in _drop_earlier_groups(ops)]
    operations.sort(key=lambda one: (one.at, one.number))
    return CollectiveLog("ring", tuple(operations), groups)


def _parse_records(
    data: bytes, start: int, end: int, texts: _RingTexts
) -> Iterator[tuple[str, tuple[int, ...], Collective]]:
    """Yield each record with its group's text and members."""
    for at in range(start, end - RECORD.size + 1, RECORD.size):
        number, group, kind, site, shape, state, when, peer, check = RECORD.unpack_from(data, at)
        if not number or number != check:
            continue
        described = texts.of(group)
        name, members, _ = (*described.split("\n"), "", "")[:3]
        where, between, file, far, path = (*texts.of(site).split("\n"), *[""] * 5)[:5]
        other = peer - 1 if peer else None
        is_to_peer = name.startswith(_PEERS)
        yield (
            described,
            _parse_ranges(members),
            Collective(
                group=name.removeprefix(_PEERS),
                kind=texts.of(kind),
                number=number,
                site=where,
                shape=texts.of(shape),
                at=when,
                done={ENTERED: False, LEFT: True, RAISED: True}.get(state),
                raised=state == RAISED,
                between=between,
                origin=far,
                file=file,
                peer=other if is_to_peer else None,
                root=None if is_to_peer else other,
                path=tuple(path.split(" < ")) if path else (),
            ),
        )


class _RingTexts:
    """The texts of a ring, by their offset."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, str] = {}

    def of(self, at: int) -> str:
        known = self._known.get(at)
        if known is None:
            length = int.from_bytes(self._data[at : at + 4], "little")
            text = self._data[at + 4 : at + 4 + min(length, 1 << 12)]
            known = self._known[at] = text.decode(errors="replace")
        return known


def _drop_earlier_groups(operations: list[Collective]) -> list[Collective]:
    """Leave out what belongs to an earlier group of the same name: there numbers begin again."""
    ordered = sorted(operations, key=lambda one: one.at)
    starts = [i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if b.number < a.number]
    # Threads may write out of order by a few; a new group begins with 1.
    starts = [i for i in starts if ordered[i].number == 1]
    return ordered[starts[-1] :] if starts else ordered


def _parse_ranges(ranges: str) -> tuple[int, ...]:
    """Return (0, 1, 2, 8) for "0-2,8", () for anything else."""
    found: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        if int(last or first) - int(first) > _MOST_MEMBERS:
            return ()
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
