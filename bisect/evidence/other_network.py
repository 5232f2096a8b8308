"""A connection to a service in the network of another process: in a container localhost is another
one, and at its ports may be somebody else's service.

A thread of its own enters the other network namespace (setns(2)) and makes the socket, which stays
there whoever uses it; the thread ends with that, and our process never leaves its own. It needs
CAP_SYS_ADMIN: who has it not is told.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time

from .descriptors import read_network_namespace

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, linux/sched.h


class OtherNetwork(OSError):
    """The network of a process cannot be entered."""


def is_elsewhere(pid: int) -> bool:
    """Return whether a process is known to be in another network than ours."""
    return read_network_namespace(pid) not in ("", read_network_namespace(os.getpid()))


def connect_beside(pid: int | None, host: str, port: int, limit: float) -> socket.socket:
    """Return a connection to a port in the network of a process, None: in ours. Blocks for `limit`
    seconds at most, beside the time to look a name up. Raises OSError, OtherNetwork among them.
    """
    if pid is None:
        return socket.create_connection((host, port), limit)
    theirs = read_network_namespace(pid)
    if not theirs:
        raise OtherNetwork(f"the network of process {pid} is not known")
    if theirs == read_network_namespace(os.getpid()):
        return socket.create_connection((host, port), limit)
    return _connect_in_thread(pid, host, port, limit)


def _connect_in_thread(pid: int, host: str, port: int, limit: float) -> socket.socket:
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def connect() -> None:
        try:
            _enter_network(pid)
            made.append(socket.create_connection((host, port), limit))
        except OSError as error:
            failed.append(error)

    # A thread that is left behind in a name that is looked up holds nobody up at our end.
    thread = threading.Thread(target=connect, name="other network", daemon=True)
    until = time.monotonic() + limit
    thread.start()
    thread.join(max(0.0, until - time.monotonic()) + 1.0)
    if failed:
        raise failed[0]
    if not made:
        raise TimeoutError(f"no connection to {host}:{port} beside process {pid}")
    return made[0]


def _enter_network(pid: int) -> None:
    """Have this thread, and it alone, be in the network of a process. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.setns(descriptor, _NEW_NETWORK):
            number = ctypes.get_errno()
            raise OtherNetwork(number, os.strerror(number))
    finally:
        os.close(descriptor)
