"""Who has the other ends, where there is no time to ask every process of the machine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hangbisect.evidence import ends
from hangbisect.evidence.reading import Found
from hangbisect.facts import Descriptor, Kernel, Socket, Syscall


def waits(mine: Socket, known: dict[int, Socket]) -> Found:
    descriptor = Descriptor(3, "socket", f"socket:[{mine.inode}]", socket=mine)
    call = Syscall(0, "poll", (), descriptors=(descriptor,))
    links = {3: f"socket:[{mine.inode}]"}
    return Found(1.0, kernel=(Kernel(1, "python", "S", "", call),), links=links, sockets=known)


def test_ranks_find_one_another_though_the_others_were_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Socket(7, "tcp", "127.0.0.1:5000", "127.0.0.1:6000", "ESTABLISHED")
    other = Socket(8, "tcp", "127.0.0.1:6000", "127.0.0.1:5000", "ESTABLISHED")
    found = [waits(one, {7: one, 8: other}), waits(other, {7: one, 8: other})]

    async def too_late(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(ends, "aside", too_late)
    asyncio.run(ends.name_other_ends([100, 101], found, time.monotonic()))
    sockets = [descriptor.socket for each in found for descriptor in ends.waited_for(each)]
    assert [socket.peer_pids for socket in sockets if socket] == [(101,), (100,)]
    assert all("outside the job" in each.missing[-1] for each in found)
