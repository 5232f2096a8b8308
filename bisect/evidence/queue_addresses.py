"""The addresses that a message queue of a process tries to connect to and that nobody serves.

No descriptor shows a connection that fails at once, and no system call lasts long enough to be
seen. What remains is the address, which libzmq keeps as a text in what it has from malloc(): in
one of glibc's heaps (malloc/arena.c: each begins at a multiple of 64 MiB, the first one is
"[heap]"). It may be there for long after its last use, so nothing is read unless the queues of the
process have no connection at all, and an address that a socket listens at is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

from ..base.addresses import host_of, is_loopback, port_of
from ..base.masking import mask_text
from ..base.message_queues import tries_to_connect
from ..base.proc import LARGEST
from ..base.process_facts import Kernel, Socket
from .syscall_arguments import ReadsBytes

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
