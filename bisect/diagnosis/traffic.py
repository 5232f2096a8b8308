"""What a connection that a process waits for has carried while it was looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..facts import Look, Socket, Wait
from .causes.addresses import host_of, may_be, port_of, proxies


def carried(looks: Sequence[Look], wait: Wait, environment: Mapping[str, str]) -> str:
    """Return in words what the connection that `wait` is about is, and how many bytes came over
    it between the first look and the last: "(https_proxy) ESTABLISHED, 0 bytes in 12 s".
    """
    proxy = _proxy(wait.what, environment)
    state = _state(looks, wait)
    return f"({proxy}) {state}" if proxy else state


def _proxy(address: str, environment: Mapping[str, str]) -> str:
    """Return the variable that names `address` as a proxy, "" if none does."""
    for name, (host, port) in proxies(environment).items():
        if port == port_of(address) and may_be(host, host_of(address), port):
            return name
    return ""


def _state(looks: Sequence[Look], wait: Wait) -> str:
    found = [(look.at, s) for look in looks for s in _sockets(look) if _meant(s, wait)]
    if not found:
        return wait.detail.removeprefix(wait.what).strip()
    at, last = found[-1]
    same = [(then, s) for then, s in found if s.inode == last.inode and s.received is not None]
    state = last.state or last.family
    if last.received is None or not same:
        return state
    began, first = same[0]
    grown = last.received - (first.received or 0)
    if at - began < 1.0:  # one look: all that it ever got, if that is nothing
        return f"{state}, 0 bytes received" if last.received == 0 else state
    return f"{state}, {grown} byte{'' if grown == 1 else 's'} in {at - began:.0f} s"


def _sockets(look: Look) -> Iterator[Socket]:
    """Yield the sockets that a look shows; those that a system call names may be in no list."""
    yield from look.sockets
    for thread in look.kernel[:1]:
        for descriptor in thread.syscall.descriptors if thread.syscall else ():
            if descriptor.socket is not None:
                yield descriptor.socket


def _meant(socket: Socket, wait: Wait) -> bool:
    return bool(wait.what) and wait.what in (socket.peer, socket.local)
