"""Who holds the other ends of the pipes and sockets that processes wait for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..facts import Descriptor, Socket, Syscall
from . import descriptors
from .aside import aside
from .reading import Found
from .sample import stat


async def name_other_ends(pids: Sequence[int], found: Sequence[Found], end: float) -> None:
    """Fill in, until `end`, who holds the other ends of what the threads of `pids` wait for."""
    wanted: set[str] = set()
    for one in found:
        for descriptor in waited_for(one):
            wanted |= _links_of_other_end(descriptor, one.sockets)
    if not wanted:
        return
    limit = max(0.05, end + 0.3 - time.monotonic())
    try:
        ends = await aside(descriptors.holders, wanted, limit=limit, key="holders")
    except TimeoutError:
        for one in found:
            one.missing.append(
                "Other ends of pipes and sockets outside the job were not looked for."
            )
        ends = _among(pids, found)
    for pid, one in zip(pids, found, strict=True):
        one.kernel = tuple(
            replace(thread, syscall=_with_ends(pid, thread.syscall, one, ends))
            if thread.syscall is not None
            else thread
            for thread in one.kernel
        )


def _among(pids: Sequence[int], found: Sequence[Found]) -> dict[str, list[descriptors.End]]:
    """Return who has each socket open, of the processes that were looked at: they are known. Of a
    pipe that would not tell who reads and who writes.
    """
    ends: dict[str, list[descriptors.End]] = {}
    for pid, one in zip(pids, found, strict=True):
        for fd, link in one.links.items():
            if link.startswith("socket:"):
                ends.setdefault(link, []).append(descriptors.End(pid, fd, reads=True, writes=True))
    return ends


def waited_for(found: Found) -> list[Descriptor]:
    """Return the descriptors in the system calls of all threads."""
    calls = [thread.syscall for thread in found.kernel if thread.syscall is not None]
    return [descriptor for call in calls for descriptor in call.descriptors]


def _links_of_other_end(descriptor: Descriptor, known: Mapping[int, Socket]) -> set[str]:
    if descriptor.kind in ("pipe", "fifo"):
        return {descriptor.path}
    if descriptor.socket is not None:
        return {f"socket:[{inode}]" for inode in _other_inodes(descriptor.socket, known)}
    return set()


def _other_inodes(one: Socket, known: Mapping[int, Socket]) -> list[int]:
    """Return the socket at the other end, if it is on this machine."""
    if one.family == "unix":
        return [one.peer_inode] if one.peer_inode is not None else []
    if not one.peer:
        return []
    return [
        inode
        for inode, other in known.items()
        if (other.local, other.peer) == (one.peer, one.local)
        or (
            other.state == "LISTEN"
            and other.local.endswith(":" + one.peer.rpartition(":")[2])
            and one.state == "SYN_SENT"
        )
    ]


def _with_ends(
    pid: int,
    call: Syscall,
    found: Found,
    ends: Mapping[str, Sequence[descriptors.End]],
) -> Syscall:
    return replace(
        call, descriptors=tuple(_with_end(pid, one, found, ends) for one in call.descriptors)
    )


def _with_end(
    pid: int,
    one: Descriptor,
    found: Found,
    ends: Mapping[str, Sequence[descriptors.End]],
) -> Descriptor:
    if one.kind in ("pipe", "fifo"):
        others = descriptors.other_ends(pid, one.fd, ends.get(one.path, ()))
        return replace(one, other_ends=others)
    if one.socket is None:
        return one
    links = _links_of_other_end(one, found.sockets)
    pids = tuple(dict.fromkeys(end.pid for link in links for end in ends.get(link, ())))
    names = tuple(about.comm if (about := stat(other)) else "" for other in pids)
    return replace(one, socket=replace(one.socket, peer_pids=pids, peer_names=names))
