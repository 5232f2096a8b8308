"""The ranks' logs of their collectives: got hold of while ranks live, and asked for later."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..rank.ring import open_ring
from .members import Message

if TYPE_CHECKING:
    from ..facts import CollectiveLog

LARGEST_ANSWER = 1 << 26  # bytes
Answer = tuple[Message, list[bytes]]  # what the rank says of its dumps, and the dumps


@dataclass
class _Recorder:
    """A connection on which a rank answers."""

    writer: asyncio.StreamWriter
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue)


class RankLogs:
    """What the monitor holds of each rank's logs."""

    def __init__(self) -> None:
        self._rings: dict[int, int] = {}  # descriptors, by rank
        self._recorders: dict[int, _Recorder] = {}

    def open(self, rank: int, pid: int, fd: int) -> None:
        """Get hold of a rank's ring: from here on it can be read, whatever becomes of the rank."""
        with contextlib.suppress(OSError):
            opened = open_ring(pid, fd)
            before = self._rings.pop(rank, None)
            if before is not None:
                os.close(before)
            self._rings[rank] = opened

    async def serve(
        self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take a rank's answers until it closes the connection. Raises ValueError for garbage."""
        recorder = self._recorders[int(hello["rank"])] = _Recorder(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):  # it was ended meanwhile
            while line := await reader.readline():
                about: Message = json.loads(line)
                lengths = [int(length) for length in about["lengths"]]
                if sum(lengths) > LARGEST_ANSWER or min(lengths, default=0) < 0:
                    raise ValueError(f"an answer of {sum(lengths)} bytes")
                dumps = [await reader.readexactly(length) for length in lengths]
                recorder.answers.put_nowait((about, dumps))

    async def ask(self, ranks: Iterable[int], limit: float) -> dict[int, Answer]:
        """Ask these ranks for torch's own log; return what came within `limit` seconds."""
        asked = {rank: self._recorders[rank] for rank in ranks if rank in self._recorders}
        answers = await asyncio.gather(*(_ask(one, limit) for one in asked.values()))
        found = zip(asked, answers, strict=True)
        return {rank: answer for rank, answer in found if answer is not None}

    def read(self, rank: int) -> CollectiveLog | None:
        """Return what a rank's ring holds, None if there is none."""
        descriptor = self._rings.get(rank)
        if descriptor is None:
            return None
        from ..evidence.collectives import read_ring

        with contextlib.suppress(OSError):
            return read_ring(descriptor)
        return None


async def _ask(recorder: _Recorder, limit: float) -> Answer | None:
    while not recorder.answers.empty():  # of a question before, answered too late
        recorder.answers.get_nowait()
    if recorder.writer.is_closing():
        return None
    recorder.writer.write(b"?")
    try:
        return await asyncio.wait_for(recorder.answers.get(), limit)
    except TimeoutError:
        return None
