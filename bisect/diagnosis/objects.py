"""What the object is that a blocked system call names: a file, a pipe, a peer, a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import digits

from ..facts import Descriptor, Look, Socket, Wait, WaitKind

_SILENT = ("LISTEN", "CLOSE", "CLOSED", "")
_KINDS: dict[str, WaitKind] = {"tty": "input", "device": "device", "file": "file"}


def in_words(socket: Socket) -> str:
    """Return a socket as the verdict spells it: "127.0.0.1:18080 ESTABLISHED"."""
    where = socket.peer or socket.local or socket.family
    counted = f", {socket.received} bytes received" if socket.received == 0 else ""
    return f"{where} {socket.state}".strip() + counted


def of_socket(socket: Socket, own_pid: int) -> Wait:
    """Return the wait for the other end of `socket`."""
    others = [
        (pid, name) for pid, name in _padded(socket.peer_pids, socket.peer_names) if pid != own_pid
    ]
    pid, name = others[0] if others else (None, None)
    return Wait("socket", in_words(socket), pid, name or None, what=socket.peer or socket.local)


def _padded(pids: Sequence[int], names: Sequence[str]) -> Iterable[tuple[int, str]]:
    return zip(pids, [*names, *[""] * max(0, len(pids) - len(names))], strict=False)


def of_descriptor(descriptor: Descriptor, look: Look, family: Sequence[int]) -> Wait | None:
    """Return the wait for what `descriptor` is, None if that says nothing.

    `family` are the descendants of the process: at the other end of a pipe they are what is
    waited for, and the pipe only the way.
    """
    if descriptor.kind == "socket":
        socket = descriptor.socket or socket_by_inode(descriptor, look)
        if socket is None:
            return Wait("socket", descriptor.path, what=descriptor.path)
        if socket.peer_pids and set(socket.peer_pids) == {look.pid}:
            return None  # both ends are its own, as those of an event loop
        if socket.family == "unix":
            child = next((p for p in socket.peer_pids if p in family), None)
            if child is not None:
                return Wait("process", in_words(socket), child, what=descriptor.path)
        return of_socket(socket, look.pid)
    path = descriptor.path
    if descriptor.kind in ("pipe", "fifo"):
        child = next((p for p in descriptor.other_ends if p in family and p != look.pid), None)
        if child is not None:
            return Wait("process", path, child, what=path)
        other = next((p for p in descriptor.other_ends if p != look.pid), None)
        if other is None and descriptor.other_ends and descriptor.kind == "pipe":
            return Wait("pipe", f"{path}, both ends are its own", what=path)
        return Wait("pipe", path, other, what=path)
    kind = _KINDS.get(descriptor.kind)
    if kind == "device" and path.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        kind = "input"
    return Wait(kind, path, what=path) if kind else None


def socket_by_inode(descriptor: Descriptor, look: Look) -> Socket | None:
    """Return the socket of a look whose inode is in a descriptor's path ("socket:[4711]")."""
    inode = "".join(c for c in descriptor.path if c in digits)
    return next((s for s in look.sockets if str(s.inode) == inode), None)


# Of several descriptors that are polled, the one that says most.
_ORDER = ("process", "socket", "pipe", "input", "device", "file")


def of_descriptors(
    descriptors: Iterable[Descriptor], look: Look, family: Sequence[int]
) -> Wait | None:
    """Return the wait that says most of those for `descriptors`."""
    waits = [w for d in descriptors if (w := of_descriptor(d, look, family)) is not None]
    return min(waits, key=lambda w: (_ORDER.index(w.kind), w.pid is None), default=None)


def outward(look: Look, inside: Iterable[int]) -> Socket | None:
    """Return the socket by which a process talks to the world outside of the pids `inside`."""
    known = {look.pid, *inside}
    talking = [
        s
        for s in look.sockets
        if s.family != "unix" and s.state not in _SILENT and not (set(s.peer_pids) & known)
    ]
    opening = [s for s in talking if s.state == "SYN_SENT"]
    return next(iter(opening or talking), None)
