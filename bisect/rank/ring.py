"""A log in memory that another process reads, whatever state this one is in.

The memory is a memfd (memfd_create(2)), which the monitor opens by /proc/PID/fd as soon as it
hears of it: it can be read while this process is stopped, holds the GIL or sits in the kernel, and
when it is dead. Not a mapped file: on a full /dev/shm that kills a healthy rank by SIGBUS.

    header | texts | block | block | ...

A block is a ring of RECORDS records, one block a process group: a busy group pushes out nothing of
a quiet one. Texts (names, call sites, shapes) are written once and named by their offset.
"""

from __future__ import annotations

import os
import struct
import threading

MAGIC = b"HBRING\x001"
HEADER = struct.Struct("<8sIIII")  # magic, version, bytes of texts, blocks, records in a block
VERSION = 1
TEXTS = 64  # where they begin
TEXTS_SIZE = (1 << 18) - TEXTS
BLOCKS_AT = TEXTS + TEXTS_SIZE
BLOCKS = 64
RECORDS = 512
LONGEST_TEXT = 1000  # bytes
# Number in its group; texts: group, kind, site, shape; state; time; and the number once
# more, written last: where the two differ the record is half written. Number 0 is no record.
RECORD = struct.Struct("<IIIIIIdI4x")
STATE_AT = 20  # in a record
ENTERED, LEFT, HANDED_OUT = 0, 1, 2  # handed out: it returned a handle, and may still be on its way
BLOCK_SIZE = RECORDS * RECORD.size
SIZE = BLOCKS_AT + BLOCKS * BLOCK_SIZE  # under 2 MiB, of which only pages written to exist
NAME = "hangbisect-collectives"


class Ring:
    """The writer's end. Nothing here is fast; records are packed by whoever logs."""

    def __init__(self) -> None:
        """Raises OSError where there is no memory to be had."""
        import mmap

        self.fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, SIZE)
        self.memory = mmap.mmap(self.fd, SIZE)
        self._lock = threading.Lock()
        self._texts: dict[str, int] = {"": 0}
        self._texts_end = 4  # the empty one
        self._blocks = 0
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
            start = TEXTS + at
            self.memory[start : start + 4] = len(data).to_bytes(4, "little")
            self.memory[start + 4 : start + 4 + len(data)] = data
            self._texts_end = at + 4 + len(data)
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

    def _write_header(self) -> None:
        HEADER.pack_into(self.memory, 0, MAGIC, VERSION, self._texts_end, self._blocks, RECORDS)


def open_ring(pid: int, fd: int) -> int:
    """Return a descriptor of our own for the ring that `pid` has open as `fd`.

    It stays readable when that process is gone. Raises OSError.
    """
    path = f"/proc/{pid}/fd/{fd}"
    if not os.readlink(path).startswith(f"/memfd:{NAME}"):
        raise OSError(f"{path} is not the log of a rank")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
