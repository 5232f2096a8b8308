"""What the monitor reads of this rank's collectives, whatever state the rank is in: a log in shared
memory, and the answers of torch's own recorder.

The memory of the log is a memfd (memfd_create(2)), which the monitor opens by /proc/PID/fd as
soon as it hears of it: it can be read while this process is stopped, holds the GIL or sits in
the kernel, and when it is dead. It is not a mapped file: on a full /dev/shm that kills a healthy
rank by SIGBUS. Its layout is header | pulse | texts | block | block | ...

A block is a ring of RECORDS records, one block a process group: a busy group pushes out nothing
of a quiet one. Texts (names, call sites, shapes) are written once and named by their offset.

The recorder (torch's flight recorder, on by default, also for gloo) knows the collectives that
C++ makes and Python never sees. When the monitor asks for what it holds, the main thread hangs,
so a thread of its own answers, as long as threads can run at all: it waits in recv() and costs
nothing until it is asked. It is started once there is a process group (before, the recorder is
empty), and forked children do not have it. The recorder is asked without stacks: with them it
may wait for the GIL while it holds the lock that the next collective needs
(pytorch/pytorch#167023).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..base.error_guard import ignore_our_errors

RING_MAGIC = b"HBRING\x001"
RING_HEADER = struct.Struct("<8sIIII")  # magic, version, bytes of texts, blocks, records in a block
RING_VERSION = 2
# When the last training step ended (monotonic), the longest pause between two, and how many there
# were after the first ones: between the header and the texts.
PULSE = struct.Struct("<ddI")
PULSE_AT = 32
TEXTS = 64  # where they begin
TEXTS_SIZE = (1 << 20) - TEXTS
BLOCKS_AT = TEXTS + TEXTS_SIZE
BLOCKS = 64
RECORDS = 512
LONGEST_TEXT = 3000  # bytes
# Number in its group; texts: group, kind, site, shape; state; time; one more than the rank that a
# send or a receive is for, or that is the root of a collective; and the number once more, written
# last: where the two differ the record is half written. Number 0 is no record.
RECORD = struct.Struct("<IIIIIIdII")
STATE_AT = 20  # in a record
# Handed out: it returned, with a handle or once it was in a queue, and may still be on its way.
ENTERED, LEFT, HANDED_OUT, RAISED = 0, 1, 2, 3
BLOCK_SIZE = RECORDS * RECORD.size
RING_SIZE = BLOCKS_AT + BLOCKS * BLOCK_SIZE  # under 3 MiB, of which only pages written to exist
RING_NAME = "hangbisect-collectives"


class StepPace(NamedTuple):
    """The pace of the first training steps, known from the second one on."""

    at: float  # when the last of them ended (monotonic)
    longest: float  # seconds between the ends of two


class RecordRing:
    """The writer's end. Nothing here is fast; the code that logs packs the records."""

    def __init__(self) -> None:
        """Raises OSError where there is no memory to be had."""
        import mmap

        self.fd = os.memfd_create(RING_NAME, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, RING_SIZE)
        self.memory = mmap.mmap(self.fd, RING_SIZE)
        # A handler of a signal may call a collective while one is noted, in the same thread.
        self._lock = threading.RLock()
        self._texts: dict[str, int] = {"": 0}
        self._texts_end = 4  # the empty one
        self._blocks, self._is_over = 0, False
        self._write_header()

    def text(self, text: str) -> int:
        """Return the id of a text, 0 (that of the empty one) if there is no room left for it."""
        known = self._texts.get(text)
        if known is not None:
            return known
        data = text.encode(errors="replace")[:LONGEST_TEXT]
        with self._lock:
            at = self._texts_end
            if at + 4 + len(data) > TEXTS_SIZE:
                return 0
            self._texts_end = at + 4 + len(data)
            start = TEXTS + at
            self.memory[start : start + 4] = len(data).to_bytes(4, "little")
            self.memory[start + 4 : start + 4 + len(data)] = data
            self._texts[text] = at
            self._write_header()
        return at

    def block(self) -> int:
        """Return where a new block begins; the last one is shared by all that come too late."""
        with self._lock:
            number = min(self._blocks, BLOCKS - 1)
            self._blocks = number + 1
            self._write_header()
        return BLOCKS_AT + number * BLOCK_SIZE

    def note_step(self, at: float, longest: float, count: int) -> None:
        """Write that a training step ended `at` (monotonic); see PULSE."""
        PULSE.pack_into(self.memory, PULSE_AT, at, longest, count)

    def count_operations(self) -> int:
        """Return how many operations were noted so far."""
        total = 0
        for block in range(self._blocks):
            start = BLOCKS_AT + block * BLOCK_SIZE
            data = self.memory[start : start + BLOCK_SIZE]
            total += max(record[0] for record in RECORD.iter_unpack(data))
        return total

    def clear(self) -> None:
        """Leave no log to its reader, only the pulse: nothing is noted any more."""
        with self._lock:
            self._blocks, self._is_over = 0, True
            self._write_header()

    def _write_header(self) -> None:
        magic = bytes(len(RING_MAGIC)) if self._is_over else RING_MAGIC
        RING_HEADER.pack_into(
            self.memory, 0, magic, RING_VERSION, self._texts_end, self._blocks, RECORDS
        )


def open_ring(pid: int, fd: int) -> int:
    """Return a descriptor of our own for the ring that `pid` has open as `fd`.

    It stays readable when that process is gone. Raises OSError.
    """
    path = f"/proc/{pid}/fd/{fd}"
    if not os.readlink(path).startswith(f"/memfd:{RING_NAME}"):
        raise OSError(f"{path} is not the log of a rank")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


Streams = dict[int, "Stream"]  # by id(group)
_WAITS = frozenset(["gloo", "mpi", "fake", "threaded"])  # backends whose calls return when done


class Stream(NamedTuple):
    """The operations of one group."""

    next_number: Callable[[], int]
    base: int  # of its block in the ring
    group: int  # text: name, members, description, each on a line
    # Types of the devices whose operations return as soon as they are in a queue, as NCCL's do.
    queued_on: frozenset[str] = frozenset()


class NotAMember(Exception):
    """The group is one that this rank does not belong to: torch makes nothing of such a call."""


class GroupStreams:
    """Streams by the id of their group. Sends and receives, which pair with one rank only and are
    counted apart by torch too, have streams of their own.
    """

    def __init__(self, ring: RecordRing) -> None:
        """There is only the stream of what belongs to no group until torch is there."""
        self.c10d: Any = None
        self.collective: Streams = {}
        self.to_peers: Streams = {}
        self._ring = ring
        self.outside = self._new("")

    def has_any(self) -> bool:
        """Return whether there is a process group now."""
        with ignore_our_errors():
            return self.c10d is not None and self.c10d.GroupMember.WORLD is not None
        return False

    def meet(self, group: Any, streams: Streams) -> Stream:
        """Return the stream of a group that is met for the first time; raises NotAMember."""
        world = self.c10d.GroupMember.WORLD
        # FSDP takes a tuple of two groups for hybrid sharding.
        real = world if group is None or isinstance(group, tuple) else group
        if real is None:
            return self.outside  # no group yet
        if isinstance(real, int):  # GroupMember.NON_GROUP_MEMBER
            raise NotAMember
        stream = streams.get(id(real))
        if stream is None:
            prefix = "p2p " if streams is self.to_peers else ""
            stream = self._new(prefix + self._described(real), self._find_queued(real))
        streams[id(real)] = stream
        if real is world:
            streams[id(None)] = stream
        return stream

    def find_peer(
        self,
        parameters: tuple[tuple[str, int, bool], ...],
        group: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> int:
        """Return the rank that a send or a receive is for, or that is the root of a collective, -1
        if the call does not say.

        `parameters` may say it: the name of each, its place, and whether it is a number within the
        group.
        """
        for name, at, within in parameters:
            number = args[at] if len(args) > at else kwargs.get(name)
            if type(number) is int:
                real = group if within and group is not None else None
                return number if real is None else int(self.c10d.get_global_rank(real, number))
        return -1

    def forget(self, group: Any = None) -> None:
        """Forget a group that is destroyed, or all: others may get their ids and names."""
        for streams in (self.collective, self.to_peers):
            if group is None or group is self.c10d.GroupMember.WORLD:
                streams.clear()
            else:
                streams.pop(id(group), None)

    def _new(self, group: str, queued_on: frozenset[str] = frozenset()) -> Stream:
        next_number = itertools.count(1).__next__
        return Stream(next_number, self._ring.block(), self._ring.text(group), queued_on)

    def _find_queued(self, group: Any) -> frozenset[str]:
        """Return the types of devices for which a backend of the group returns before it is done.

        torch says which it has for which: "cpu:gloo,cuda:nccl" (distributed_c10d.BackendConfig).
        """
        with ignore_our_errors():
            pairs = str(self.c10d.get_backend_config(group)).split(",")
            found = (pair.partition(":") for pair in pairs)
            return frozenset(device for device, _, name in found if name and name not in _WAITS)
        return frozenset()

    def _described(self, group: Any) -> str:
        name = description = members = ""
        with ignore_our_errors():  # groups of other makes need not have all of it
            name = str(group.group_name)
            from ..base.words import format_ranges  # not at the top: few jobs have groups

            members = format_ranges(self.c10d.get_process_group_ranks(group))
            description = str(group.group_desc)
        return "\n".join([name or "?", members, description])


RECORDER_THREAD = "hangbisect-recorder"
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
        threading.Thread(
            target=serve_recorder, args=(connection,), name=RECORDER_THREAD, daemon=True
        ).start()

    def _leave_to_child(self) -> None:
        self._folder, self._is_wanted = None, False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def serve_recorder(
    connection: socket.socket, dumps: Callable[[], list[bytes]] | None = None
) -> None:
    """Answer every question on `connection` until its other end is closed.

    An answer is a line of JSON that says how long each dump is that follows it, and the time on
    both clocks; `dumps` are those of torch unless others are given.
    """
    with contextlib.suppress(OSError), connection:
        while connection.recv(64):
            found = (dumps or _list_dumps)()
            about = {
                "t": "recorded",
                "at": time.monotonic(),
                "wall": time.time(),
                "sequence": _read_sequence_numbers(),
                "lengths": [len(one) for one in found],
            }
            connection.sendall(b"".join([json.dumps(about).encode(), b"\n", *found]))


def _list_dumps() -> list[bytes]:
    return list(_dump_recorders())


def _dump_recorders() -> Iterator[bytes]:
    torch = sys.modules.get("torch")
    c10d = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    for name in _RECORDERS:
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        with contextlib.suppress(Exception):  # a recorder may fail in any way
            found = dump()
            yield found if isinstance(found, bytes) else str(found).encode()


def _read_sequence_numbers() -> dict[str, int]:
    """Return how many collectives each group has begun, as torch counts them."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    found: dict[str, int] = {}
    with contextlib.suppress(Exception):  # a private table of torch
        for group, name in list(c10d._world.pg_names.items()):
            found[str(name)] = int(group._get_sequence_number_for_group())
    return found
