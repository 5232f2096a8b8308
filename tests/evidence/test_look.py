"""A look at processes, and who has the other ends where there is no time to ask them all."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Kernel, Socket, Syscall
from hangbisect.evidence import look
from hangbisect.evidence.look import PartialLook


def waits(mine: Socket, known: dict[int, Socket]) -> PartialLook:
    descriptor = Descriptor(3, "socket", f"socket:[{mine.inode}]", socket=mine)
    call = Syscall(0, "poll", (), descriptors=(descriptor,))
    links = {3: f"socket:[{mine.inode}]"}
    return PartialLook(
        1.0, kernel=(Kernel(1, "python", "S", "", call),), links=links, sockets=known
    )


def test_ranks_find_one_another_though_the_others_were_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Socket(7, "tcp", "127.0.0.1:5000", "127.0.0.1:6000", "ESTABLISHED")
    other = Socket(8, "tcp", "127.0.0.1:6000", "127.0.0.1:5000", "ESTABLISHED")
    found = [waits(one, {7: one, 8: other}), waits(other, {7: one, 8: other})]

    async def too_late(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(look, "aside", too_late)
    asyncio.run(look.find_other_ends([100, 101], found, time.monotonic()))
    sockets = [
        descriptor.socket for each in found for descriptor in look.list_descriptors_in_calls(each)
    ]
    assert [socket.peer_pids for socket in sockets if socket] == [(101,), (100,)]
    assert all("outside the job" in each.missing[-1] for each in found)
