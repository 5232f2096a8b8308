"""Who holds the other ends of the pipes and sockets that processes wait for, and who listens at the
ports that they wait for: filled in once all of them were looked at.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.addresses import host_of, port_of
from ..base.deadline import call_with_limit
from ..base.proc import read_stat
from ..base.process_facts import Descriptor, Socket, Syscall, TakenPort
from . import descriptors
from .process_names import name_of
from .taken_ports import find_awaited_ports

if TYPE_CHECKING:
    from .look import PartialLook

_MOST_ENDS = 64  # of a pipe, which are named


async def find_other_ends(pids: Sequence[int], found: Sequence[PartialLook], end: float) -> None:
    """Fill in, until `end`, who holds the other ends of what the threads of `pids` wait for."""
    wanted: set[str] = set()
    ports = [find_awaited_ports(one.threads, one.sockets) for one in found]
    wanted.update(f"socket:[{inode}]" for awaited in ports for inode in awaited.values())
    for one in found:
        for descriptor in list_descriptors_in_calls(one):
            wanted |= _links_of_other_end(descriptor, one.sockets)
    if not wanted:
        return
    limit = max(0.05, end + 0.3 - time.monotonic())
    try:
        ends = await call_with_limit(descriptors.find_holders, wanted, limit=limit, key="holders")
    except TimeoutError:
        for one in found:
            one.missing.append(descriptors.ENDS_UNKNOWN)
        ends = _find_sockets_looked_at(pids, found)
    for pid, one, awaited in zip(pids, found, ports, strict=True):
        one.taken_ports = tuple(
            _make_taken_port(port, ends.get(f"socket:[{inode}]", ()))
            for port, inode in sorted(awaited.items())
        )
        one.kernel = tuple(
            replace(thread, syscall=_add_ends_to_call(pid, thread.syscall, one, ends))
            if thread.syscall is not None
            else thread
            for thread in one.kernel
        )


def _make_taken_port(port: int, holders: Sequence[descriptors.DescriptorHolder]) -> TakenPort:
    holder = min((one.pid for one in holders), default=None)
    return TakenPort(port, holder, name_of(holder) if holder is not None else "")


def _find_sockets_looked_at(
    pids: Sequence[int], found: Sequence[PartialLook]
) -> dict[str, list[descriptors.DescriptorHolder]]:
    """Return who has each socket open, of the processes that were looked at: they are known. Of a
    pipe that would not tell who reads and who writes.
    """
    ends: dict[str, list[descriptors.DescriptorHolder]] = {}
    for pid, one in zip(pids, found, strict=True):
        for fd, link in one.links.items():
            if link.startswith("socket:"):
                ends.setdefault(link, []).append(
                    descriptors.DescriptorHolder(pid, fd, reads=True, writes=True)
                )
    return ends


def list_descriptors_in_calls(found: PartialLook) -> list[Descriptor]:
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
    ends = [n for n, other in known.items() if (other.local, other.peer) == (one.peer, one.local)]
    # Until it is accepted (listen(2)) no process has the other end: whoever listens will have it.
    may_be_queued = one.state == "ESTABLISHED" and host_of(one.local) == host_of(one.peer)
    if ends or not (one.state == "SYN_SENT" or may_be_queued):
        return ends
    port = ":" + port_of(one.peer)
    there = {
        n: other.local for n, other in known.items() if other.state == "LISTEN" and other.local
    }
    found = {n: local for n, local in there.items() if local.endswith(port)}
    return [n for n, local in found.items() if local == one.peer] or list(found)


def _add_ends_to_call(
    pid: int,
    call: Syscall,
    found: PartialLook,
    ends: Mapping[str, Sequence[descriptors.DescriptorHolder]],
) -> Syscall:
    return replace(
        call,
        descriptors=tuple(
            _add_ends_to_descriptor(pid, one, found, ends) for one in call.descriptors
        ),
    )


def _sort_by_descent(pids: Collection[int]) -> tuple[int, ...]:
    """Return processes that have the same socket, those last that have handed it to others of them:
    who makes a pair of sockets for two processes that it spawns has both ends too. A copy of a
    process (fork) has all that this had, handed to it or not.
    """
    if len(pids) < 2:
        return tuple(pids)
    known = {pid: about for pid in pids if (about := read_stat(pid)) is not None}
    spawned = (
        one for one in known.values() if one.ppid in known and one.stack != known[one.ppid].stack
    )
    parents = {one.ppid for one in spawned}
    return tuple(sorted(pids, key=lambda pid: (pid in parents, pid)))


def _add_ends_to_descriptor(
    pid: int,
    one: Descriptor,
    found: PartialLook,
    ends: Mapping[str, Sequence[descriptors.DescriptorHolder]],
) -> Descriptor:
    if one.kind in ("pipe", "fifo"):
        known = ends.get(one.path, ())
        others = descriptors.find_pipe_peers(pid, one.fd, known)
        named = descriptors.name_ends(descriptors.find_other_ends(pid, one.fd, known)[:_MOST_ENDS])
        return replace(one, other_ends=others, ends=named)
    if one.socket is None:
        return one
    links = _links_of_other_end(one, found.sockets)
    pids = _sort_by_descent({end.pid for link in links for end in ends.get(link, ())})
    names = tuple(name_of(other) for other in pids)
    return replace(one, socket=replace(one.socket, peer_pids=pids, peer_names=names))
