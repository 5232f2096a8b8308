"""The probe: a small program that does on a set of nodes what a job does at its start, and checks
what comes of it. It is started once a node, with MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.

1. Every two nodes connect, and send each other a small and a large message with a checksum. In each
   step every node has another partner: that of node r in step s is s - r, so all pairs have met
   after as many steps as there are nodes. NCCL's rings use some of these links only, and a job of
   other nodes uses others.
2. It multiplies, and compares with what has to come out.
3. With torch: a process group, a rank for each GPU (one without), all_reduce small and large, the
   sums compared with what they have to be, and a product of matrices on each device.

Each wait has a deadline. Exit status: 0 all is right, 1 something is not, which the last line says,
75 the port is taken: whoever starts it tries another.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..base.files import PACKAGE
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from .node_task import NODE_NAMES_VARIABLE, TRY_AGAIN, read_last_line

# Parts of the time that the probe has: for all nodes of a set to meet, as they are told to begin at
# once; for one exchange of messages; and for what is done with torch, whose import takes some.
MEETING, STEP, WITH_TORCH = 1 / 9, 1 / 11, 2 / 3
SMALL = 64  # bytes
LARGE, LARGE_IN_ALL = 4 << 20, 64 << 20  # bytes to one node, and to all together
_MATRIX = 24  # rows


@dataclass(frozen=True)
class ProbeOptions:
    """What of the probe is wanted, and of the ranks with torch, which it starts itself, which."""

    torch: bool = True
    limit: float = 90.0  # seconds that it has in all
    rank: int | None = None  # on this node: a rank with torch
    gpus: int = 0  # that each node uses
    port: int = 0  # of the process group's store


class ProbeFailed(Exception):
    """What is wrong, in a sentence."""


@dataclass(frozen=True)
class ProbePlace:
    """Which node this is, of which."""

    rank: int
    names: tuple[str, ...]
    address: str
    port: int
    limit: float  # seconds for all

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.names)


def run_probe(options: ProbeOptions) -> int:
    """Probe this node with the others of its set; print what is wrong, return the exit status."""
    place = _read_place(options.limit)
    try:
        if options.rank is not None:
            _run_torch_rank(place, options.rank, options)
            return 0
        mine = NodeAddress(place.address, 0, _count_gpus() if options.torch else 0, find_port())
        table = _exchange(place, mine) if place.size > 1 else [mine]
        _multiply()
        if options.torch and importlib.util.find_spec("torch"):
            gpus = min(one.gpus for one in table)
            _start_torch_ranks(place, replace(options, gpus=gpus, port=table[0].free_port))
    except ProbeFailed as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{place.names[place.rank]}: {error}", file=sys.stderr)
        return TRY_AGAIN if error.errno == errno.EADDRINUSE else 1
    return 0


def _read_place(limit: float) -> ProbePlace:
    of = os.environ
    names = tuple(of[NODE_NAMES_VARIABLE].split(","))
    return ProbePlace(int(of["RANK"]), names, of["MASTER_ADDR"], int(of["MASTER_PORT"]), limit)


# ---- every two nodes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeAddress:
    """Where the probe of a node is reached by the others, and what they have to know of it."""

    host: str
    port: int
    gpus: int
    free_port: int  # one more, which nobody had just now


def find_port() -> int:
    """Return a port that nobody has now."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _exchange(place: ProbePlace, mine: NodeAddress) -> list[NodeAddress]:
    """Exchange messages with every other node; return the addresses of all."""
    with socket.create_server(("", 0), backlog=1024) as listener:
        table = _meet(place, replace(mine, port=listener.getsockname()[1]))
        waiting: dict[int, socket.socket] = {}
        try:
            for step in range(place.size):
                other = (step - place.rank) % place.size
                if other != place.rank:
                    _exchange_with(place, other, table[other], listener, waiting)
        finally:
            for link in waiting.values():
                link.close()
    return table


def _meet(place: ProbePlace, mine: NodeAddress) -> list[NodeAddress]:
    """Return the address of each node: the first one hears and tells all."""
    until = time.monotonic() + place.limit * MEETING
    if place.rank:
        with _connect(place, 0, (place.address, place.port), until) as link:
            _send(link, json.dumps([place.rank, to_json(mine)]).encode())
            link.settimeout(place.limit * (MEETING + STEP))  # it tells all once the last has come
            return [from_json(NodeAddress, one) for one in json.loads(_receive(place, 0, link))]
    table = [mine] * place.size
    links: dict[int, socket.socket] = {}
    try:
        with socket.create_server(("", place.port), backlog=1024) as listener:
            while len(links) < place.size - 1:
                listener.settimeout(max(0.01, until - time.monotonic()))
                try:
                    link, address = listener.accept()
                except TimeoutError:
                    missing = [n for r, n in enumerate(place.names) if r and r not in links]
                    raise _failure(place, f"nothing came from {_list_some(missing)}") from None
                link.settimeout(place.limit * STEP)
                rank, address_of_peer = json.loads(_receive(place, None, link))
                links[rank] = link
                table[rank] = replace(from_json(NodeAddress, address_of_peer), host=address[0])
        for link in links.values():
            _send(link, json.dumps(to_json(table)).encode())
    finally:
        for link in links.values():
            link.close()
    return table


def _exchange_with(
    place: ProbePlace,
    other: int,
    address: NodeAddress,
    listener: socket.socket,
    waiting: dict[int, socket.socket],
) -> None:
    until = time.monotonic() + place.limit * STEP
    if place.rank > other:
        link = _connect(place, other, (address.host, address.port), until)
        _send(link, struct.pack("!I", place.rank))
    else:
        link = _accept(place, other, listener, waiting, until)
    with link:
        link.settimeout(place.limit * STEP)
        for size in (SMALL, min(LARGE, max(1 << 16, LARGE_IN_ALL // place.size))):
            if place.rank < other:
                _send_message(place, other, link, size)
                _check_message(place, other, link, size)
            else:
                _check_message(place, other, link, size)
                _send_message(place, other, link, size)


def _connect(
    place: ProbePlace, other: int, address: tuple[str, int], until: float
) -> socket.socket:
    """Return a connection to another node, which may not listen yet."""
    why = ""
    while (left := until - time.monotonic()) > 0:
        try:
            return socket.create_connection(address, timeout=left)
        except OSError as error:
            why = str(error)
            time.sleep(0.05)
    where = f"{place.names[other]} ({address[0]} port {address[1]})"
    raise _failure(place, f"no connection to {where}: {why}")


def _accept(
    place: ProbePlace,
    other: int,
    listener: socket.socket,
    waiting: dict[int, socket.socket],
    until: float,
) -> socket.socket:
    """Return the connection from `other`; those that come earlier than their step wait."""
    while other not in waiting:
        listener.settimeout(max(0.01, until - time.monotonic()))
        try:
            link, _ = listener.accept()
        except TimeoutError:
            raise _failure(place, f"no connection from {place.names[other]}") from None
        link.settimeout(place.limit * STEP)
        (rank,) = struct.unpack("!I", _receive(place, None, link))
        waiting[rank] = link
    return waiting.pop(other)


def _send(link: socket.socket, data: bytes) -> None:
    link.sendall(struct.pack("!Q", len(data)) + data)


def _receive(place: ProbePlace, other: int | None, link: socket.socket) -> bytes:
    (size,) = struct.unpack("!Q", _read_bytes(place, other, link, 8))
    if size > 2 * LARGE:
        raise _failure(place, f"{size} bytes are announced by {_name(place, other)}")
    return _read_bytes(place, other, link, size)


def _read_bytes(place: ProbePlace, other: int | None, link: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            block = link.recv(min(size - len(found), 1 << 20))
        except OSError as error:
            raise _failure(place, f"nothing more from {_name(place, other)}: {error}") from None
        if not block:
            raise _failure(place, f"{_name(place, other)} closed the connection")
        found += block
    return bytes(found)


def _send_message(place: ProbePlace, other: int, link: socket.socket, size: int) -> None:
    data = random.Random(place.rank).randbytes(size)
    try:
        _send(link, hashlib.sha256(data).digest() + data)
    except OSError as error:
        what = f"{size} bytes could not be sent to {_name(place, other)}: {error}"
        raise _failure(place, what) from None


def _check_message(place: ProbePlace, other: int, link: socket.socket, size: int) -> None:
    message = _receive(place, other, link)
    digest, data = message[:32], message[32:]
    if len(data) != size or hashlib.sha256(data).digest() != digest:
        raise _failure(place, f"what {_name(place, other)} sent came changed ({size} bytes)")


def _failure(place: ProbePlace, what: str) -> ProbeFailed:
    return ProbeFailed(f"{place.names[place.rank]}: {what}")


def _name(place: ProbePlace, other: int | None) -> str:
    return "a node" if other is None else place.names[other]


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


# ---- arithmetic ----------------------------------------------------------------------------------


def _multiply() -> None:
    """Multiply a matrix with its inverse. Raises ProbeFailed where that is not the unit matrix."""
    rows = range(_MATRIX)
    ones = [[int(column <= row) for column in rows] for row in rows]  # its inverse: differences
    inverse = [[(c == r) - (c == r - 1) for c in rows] for r in rows]
    product = [[sum(ones[r][k] * inverse[k][c] for k in rows) for c in rows] for r in rows]
    if product != [[int(c == r) for c in rows] for r in rows]:
        raise ProbeFailed("a product of matrices is wrong")


# ---- torch ---------------------------------------------------------------------------------------


def _count_gpus() -> int:
    """Return how many GPUs the driver has here, without torch, which takes seconds to import."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() not in ("", "-1")])
    try:
        return len([one for one in os.listdir("/dev") if one[:6] == "nvidia" and one[6:].isdigit()])
    except OSError:
        return 0


def _start_torch_ranks(place: ProbePlace, options: ProbeOptions) -> None:
    """Run a rank for each GPU, one where there is none, and wait for all of them."""
    orders = [json.dumps(to_json(replace(options, rank=r))) for r in range(max(1, options.gpus))]
    until = time.monotonic() + place.limit * WITH_TORCH
    with ExitStack() as files:
        errors = [files.enter_context(tempfile.TemporaryFile()) for _ in orders]
        ranks = [
            subprocess.Popen([sys.executable, PACKAGE, "node_probe", one], stderr=file)
            for one, file in zip(orders, errors, strict=True)
        ]
        for number, (rank, file) in enumerate(zip(ranks, errors, strict=True)):
            who = f"the rank with torch, device {number}"
            try:
                status = rank.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:  # whoever started us ends all
                raise _failure(place, f"{who}, is not over: {read_last_line(file)}") from None
            if status:
                raise _failure(place, f"{who}: {read_last_line(file) or f'status {status}'}")


def _run_torch_rank(place: ProbePlace, local: int, options: ProbeOptions) -> None:
    """Make a process group with all others, sum and multiply in it, and compare."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    gpus, each = options.gpus, max(1, options.gpus)
    rank, size = place.rank * each + local, place.size * each
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    host = f"[{place.address}]" if ":" in place.address else place.address
    dist.init_process_group(
        "nccl" if gpus else "gloo",
        init_method=f"tcp://{host}:{options.port}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=place.limit * WITH_TORCH / 2),
    )
    for count in (8, LARGE // 8):
        given = torch.arange(count, device=device) % 997 + rank
        wanted = (torch.arange(count, device=device) % 997) * size + size * (size - 1) // 2
        dist.all_reduce(given)
        if not torch.equal(given, wanted):
            raise _failure(place, f"a sum of {count} numbers over all nodes is wrong on {device}")
    side = 1024 if gpus else 256
    product = torch.full((side, side), 2.0, device=device) @ torch.full(
        (side, side), 3.0, device=device
    )
    if not bool((product == 6.0 * side).all()):
        raise _failure(place, f"a product of matrices is wrong on {device}")
    dist.destroy_process_group()
