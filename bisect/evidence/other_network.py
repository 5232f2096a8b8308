"""A connection to a service in the network of another process: in a container localhost is another
one, and at its ports may be somebody else's service.

A thread of its own enters the other network namespace (setns(2)) and makes the socket, which stays
there whoever uses it; the thread ends with that, and our process never leaves its own. It needs
CAP_SYS_ADMIN: who has it not is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time

from .descriptors import read_network_namespace

_LARGEST = 1 << 20  # characters of a list of addresses
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, linux/sched.h


class OtherNetwork(OSError):
    """The network of a process cannot be entered."""


def is_elsewhere(pid: int) -> bool:
    """Return whether a process is known to be in another network than ours."""
    return read_network_namespace(pid) not in ("", read_network_namespace(os.getpid()))


def read_local_addresses(pid: int | None) -> frozenset[str]:
    """Return the addresses of the machine, or the container, in whose network a process is (None:
    ours), as the kernel lists them; none where it cannot be read.
    """
    folder = "/proc/self/net" if pid is None else f"/proc/{pid}/net"
    return parse_local_addresses(_read(f"{folder}/fib_trie"), _read(f"{folder}/if_inet6"))


def parse_local_addresses(routes: str, interfaces: str) -> frozenset[str]:
    """Return the addresses in the texts of fib_trie (net/ipv4/fib_trie.c: a leaf, and below it
    "/32 host LOCAL") and if_inet6 (net/ipv6/addrconf.c: 32 digits first).
    """
    found: set[str] = set()
    leaf = ""
    for line in routes.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "|--":
            leaf = words[1]
        elif words == ["/32", "host", "LOCAL"] and leaf:
            found.add(leaf)
    for line in interfaces.splitlines():
        digits = line.partition(" ")[0]
        with contextlib.suppress(ValueError):
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return frozenset(found)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(_LARGEST)
    except OSError:
        return ""


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
