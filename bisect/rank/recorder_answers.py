"""Answers the monitor when it asks for what torch's own recorder holds.

The main thread hangs in that moment, so a thread of its own answers, as long as threads can run at
all: it waits in recv() and costs nothing until it is asked. It is started once there is a process
group (before, the recorder is empty), and forked children do not have it.

The recorder (torch's flight recorder, on by default, also for gloo) knows the collectives that C++
makes and Python never sees. It is asked without stacks: with them it may wait for the GIL while it
holds the lock that the next collective needs (pytorch/pytorch#167023).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

THREAD = "hangbisect-recorder"
CONNECT_LIMIT = 1.0  # seconds
# Of torch._C._distributed_c10d: for gloo and others; for NCCL, where torch is built with it.
_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


class RecorderAnswers:
    """The connection on which the monitor asks, and the thread that answers."""

    def __init__(self, rank: int) -> None:
        """Nothing runs before there is a group and a monitor."""
        self._rank = rank
        self._folder: str | None = None
        self._is_wanted = False
        self._connection: socket.socket | None = None
        os.register_at_fork(after_in_child=self._leave_to_child)

    def connect(self, folder: str) -> None:
        """Answer the monitor in `folder`, the first one or its successor."""
        self._folder = folder
        if self._is_wanted:
            self._start()

    def begin(self) -> None:
        """There is a process group: from now on there is something to be asked for."""
        if not self._is_wanted:
            self._is_wanted = True
            self._start()

    def _start(self) -> None:
        if self._folder is None:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_LIMIT)
            connection.connect(os.path.join(self._folder, "socket"))
            hello = {"t": "recorder", "rank": self._rank, "pid": os.getpid()}
            connection.sendall(json.dumps(hello).encode() + b"\n")
            connection.settimeout(None)
        except OSError:
            connection.close()
            return
        self._connection = connection
        threading.Thread(target=serve, args=(connection,), name=THREAD, daemon=True).start()

    def _leave_to_child(self) -> None:
        self._folder, self._is_wanted = None, False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def serve(connection: socket.socket, dumps: Callable[[], list[bytes]] | None = None) -> None:
    """Answer every question on `connection` until its other end is closed.

    An answer is a line of JSON that says how long each dump is that follows it, and the time on
    both clocks; `dumps` are those of torch unless others are given.
    """
    with contextlib.suppress(OSError), connection:
        while connection.recv(64):
            found = (dumps or _dumps)()
            about = {
                "t": "recorded",
                "at": time.monotonic(),
                "wall": time.time(),
                "sequence": _sequence_numbers(),
                "lengths": [len(one) for one in found],
            }
            connection.sendall(b"".join([json.dumps(about).encode(), b"\n", *found]))


def _dumps() -> list[bytes]:
    return list(_from_torch())


def _from_torch() -> Iterator[bytes]:
    torch = sys.modules.get("torch")
    c10d = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    for name in _RECORDERS:
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        with contextlib.suppress(Exception):  # a recorder may fail in any way
            found = dump()
            yield found if isinstance(found, bytes) else str(found).encode()


def _sequence_numbers() -> dict[str, int]:
    """Return how many collectives each group has begun, as torch counts them."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    found: dict[str, int] = {}
    with contextlib.suppress(Exception):  # a private table of torch
        for group, name in list(c10d._world.pg_names.items()):
            found[str(name)] = int(group._get_sequence_number_for_group())
    return found
