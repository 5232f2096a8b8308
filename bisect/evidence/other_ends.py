"""Who holds the other ends of the pipes and sockets that processes wait for, who listens at the
addresses that are asked, and which of these nobody serves or somebody has taken.

No descriptor shows a connection that fails at once, and no system call lasts long enough to be
seen. What remains is the address, which libzmq keeps as a text in what it has from malloc(): in
one of glibc's heaps (malloc/arena.c: each begins at a multiple of 64 MiB, the first one is
"[heap]"). It may be there for long after its last use, so nothing is read unless the queues of the
process have no connection at all, and an address that a socket listens at is none of these.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ..base.addresses import host_of, is_loopback, port_of
from ..base.deadline import call_with_limit
from ..base.library_functions import Role, has_role
from ..base.masking import mask_text
from ..base.proc import LARGEST, read_stat
from ..base.process_facts import (
    Descriptor,
    Kernel,
    Socket,
    Syscall,
    TakenPort,
    Thread,
    tries_to_connect,
)
from . import descriptors
from .descriptors import name_of
from .syscall_arguments import ReadsBytes
from .tried_ports import list_tried_ports, names_a_port

if TYPE_CHECKING:
    from .look import PartialLook


_MOST_ENDS = 64  # of a pipe, which are named


async def find_other_ends(pids: Sequence[int], found: Sequence[PartialLook], end: float) -> None:
    """Fill in, until `end`, who holds the other ends of what the threads of `pids` wait for."""
    wanted: set[str] = set()
    tried = await _find_tried_ports(found, end)
    ports = [
        find_awaited_ports(one.threads, one.sockets, also)
        for one, also in zip(found, tried, strict=True)
    ]
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
        holders = {port: ends.get(f"socket:[{inode}]", ()) for port, inode in awaited.items()}
        one.taken_ports = tuple(
            _make_taken_port(port, there)
            for port, there in sorted(holders.items())
            if all(holder.pid != pid for holder in there)
        )
        one.kernel = tuple(
            replace(thread, syscall=_add_ends_to_call(pid, thread.syscall, one, ends))
            if thread.syscall is not None
            else thread
            for thread in one.kernel
        )


async def _find_tried_ports(found: Sequence[PartialLook], end: float) -> list[frozenset[int]]:
    """Return, until `end`, which ports the loops of each process try to bind."""
    none = [frozenset[int]() for _ in found]
    if not any(names_a_port(one.threads) for one in found):
        return none

    def read() -> list[frozenset[int]]:
        return [list_tried_ports(one.threads) for one in found]

    limit = max(0.05, end + 0.3 - time.monotonic())
    try:
        return await call_with_limit(read, limit=limit, key="sources of ports")
    except TimeoutError:
        return none


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


_HEAP_SIZE = 64 << 20  # HEAP_MAX_SIZE of 64-bit glibc
_MOST_READ = 32 << 20  # bytes of all heaps: 10 ms
_PART = 1 << 20
_OVERLAP = 256  # an address may lie across the end of a part
_MOST_SHOWN = 3
_ADDRESS = re.compile(rb"((?:ipc|tcp)://[\x21-\x7e]{1,200})\0")


def read_unserved_addresses(
    pid: int, memory: ReadsBytes, kernel: tuple[Kernel, ...], known: Mapping[int, Socket]
) -> tuple[str, ...]:
    """Return the addresses that the queues of a process try to connect to and that none of the
    sockets `known` listens at, secrets masked; () for one that has a connection. May block with
    the process.
    """
    if not tries_to_connect(kernel):
        return ()
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            heaps = parse_heaps(file.read(LARGEST))
    except OSError:
        return ()
    named = dict.fromkeys(a for part in _read_parts(memory, heaps) for a in find_addresses(part))
    return tuple(mask_text(one) for one in select_unserved(named, known)[:_MOST_SHOWN])


def _read_parts(memory: ReadsBytes, heaps: Iterable[tuple[int, int]]) -> Iterable[bytes]:
    """Yield what the heaps hold, in parts that overlap, until that is enough."""
    starts = (
        (at, start + size) for start, size in heaps for at in range(start, start + size, _PART)
    )
    for at, end in islice(starts, _MOST_READ // _PART):
        yield memory.read(at, min(_PART + _OVERLAP, end - at)) or b""


def parse_heaps(maps: str) -> list[tuple[int, int]]:
    """Return start and size of the heaps in the text of a /proc/PID/maps, those of threads before
    the main one, which may be large.
    """
    heaps: list[tuple[int, int]] = []
    first: list[tuple[int, int]] = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        start, _, end = fields[0].partition("-") if len(fields) > 4 else ("", "", "")
        try:
            at, size = int(start, 16), int(end, 16) - int(start, 16)
        except ValueError:
            continue
        name = fields[5].strip() if len(fields) > 5 else ""
        if name == "[heap]":
            first.append((at, size))
        elif not name and fields[1].startswith("rw") and at % _HEAP_SIZE == 0 and size > 0:
            heaps.append((at, min(size, _HEAP_SIZE)))
    return heaps + first


def find_addresses(data: bytes) -> tuple[str, ...]:
    """Return the addresses of message queues in a piece of memory, each once."""
    found = (match[1].decode("ascii") for match in _ADDRESS.finditer(data))
    return tuple(dict.fromkeys(found))


def select_unserved(addresses: Iterable[str], known: Mapping[int, Socket]) -> tuple[str, ...]:
    """Return those of `addresses` on this machine at which no socket listens; nothing of paths
    where Unix sockets are not `known`, as in another network namespace.
    """
    listens = [one for one in known.values() if one.state == "LISTEN"]
    paths = {one.local for one in listens if one.family == "unix"}
    ports = {port_of(one.local) for one in listens if one.family.startswith("tcp")}
    tells_paths = any(one.family == "unix" for one in known.values())
    found = []
    for address in addresses:
        scheme, _, place = address.partition("://")
        if scheme == "ipc":
            unserved = tells_paths and place not in paths and place.startswith(("/", "@"))
        else:
            local = is_loopback(host_of(place)) and port_of(place).isdecimal()
            unserved = local and port_of(place) not in ports
        if unserved:
            found.append(address)
    return tuple(found)


_LOCALS = ("port",)


def find_awaited_ports(
    threads: Iterable[Thread], known: Mapping[int, Socket], tried: Collection[int] = ()
) -> dict[int, int]:
    """Return the ports that threads wait for, or have `tried` to bind, and at which one of the
    sockets `known` (by inode) listens, each with the inode of that.
    """
    wanted = {
        int(value)
        for thread in threads
        for frame in thread.frames
        if has_role(frame.file, frame.name, Role.AWAITS_PORT)
        for name, value in frame.locals
        if name in _LOCALS and value.isascii() and value.isdigit()
    }
    wanted.update(tried)
    return {
        int(port_of(one.local)): inode
        for inode, one in known.items()
        if one.state == "LISTEN"
        and one.family.startswith("tcp")
        and port_of(one.local).isdigit()
        and int(port_of(one.local)) in wanted
    }
