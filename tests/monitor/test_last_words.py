"""What a rank said before it ended is read, whatever it was told meanwhile."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

from hangbisect.base.events import Written
from hangbisect.monitor.job import Job


def test_a_word_to_a_rank_that_is_gone_costs_none_of_its_last_words() -> None:
    async def test() -> list[bytes]:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        theirs.sendall(b"one\n")
        first = await reader.readline()
        theirs.sendall(b"two\nthree\n")  # it was killed then: nobody has read this yet
        theirs.close()
        Job.tell(cast("Any", SimpleNamespace(writers={0: writer})), 0, Written())
        found = [first, *[await reader.readline() for _ in range(2)]]
        writer.close()
        return found

    assert asyncio.run(test()) == [b"one\n", b"two\n", b"three\n"]
