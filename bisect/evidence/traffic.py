"""Which bytes are progress: those of what is waited for, and those that nobody polls with.

Measured: a TCPStore master that waits for ever reads 3,816 bytes a second, and that for each rank
that asks it. It answers with as many: traffic that is asked for is as large in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import Descriptor, Look, Sample, Socket
from .syscalls import words

Awaited = tuple[tuple[str, Descriptor], ...]

ONE_WAY = 8  # so many times more in one direction than in the other is no polling
NET_BULK = 16 * 1024  # bytes a second, sent over a socket that is not waited for
NET_RECEIVED = 2 * 1024  # received; helpers report to servers in bursts, but are told little
MAIN_BULK = 64 * 1024  # of the main thread's own reading and writing
FILE_BULK = 4 * 1024 * 1024  # of the whole process: helpers that read /proc reach 1 MB/s
DISK_BULK = 4 * 1024  # really from storage
FAULTS = 2.0  # page faults a second that waited for storage

_SENDS = words("write writev pwrite64 pwritev pwritev2 sendto sendmsg sendmmsg sendfile splice")


def traffic(before: Look, after: Look, waited: Awaited, waits: Awaited) -> tuple[str, ...]:
    """Return the traffic between two looks that is progress, in words; () for none.

    `waited` and `waits` are the descriptors that the step waited for at the two looks.
    """
    seconds = max(after.at - before.at, 1e-3)
    found = [*_sockets(before, after, (*waited, *waits), seconds)]
    files = list(_files(waited, waits, seconds))
    if before.sample is not None and after.sample is not None:
        if before.sample.started != after.sample.started:
            return ()
        net = (_net(before, after, "received"), _net(before, after, "sent"))
        files = files or list(_counters(before.sample, after.sample, (*waited, *waits), net))
    return (*found, *files)


def _sockets(before: Look, after: Look, awaited: Awaited, seconds: float) -> Iterator[str]:
    old = {one.inode: one for one in before.sockets}
    calls = {one.socket.inode: name for name, one in awaited if one.socket is not None}
    for new in after.sockets:
        known = old.get(new.inode)
        received, sent = _grown(known, new)
        # One that was opened meanwhile may be a question asked again: only bulk counts.
        call = calls.get(new.inode) if known is not None else None
        much = received >= (NET_RECEIVED if known is not None else NET_BULK) * seconds
        if received > 0 and received >= ONE_WAY * sent and (call or much):
            yield f"receives {speed(received, seconds)} from {new.peer or 'a socket'}"
            continue
        much = sent >= NET_BULK * seconds
        if sent > 0 and sent >= ONE_WAY * received and (call in _SENDS or much):
            yield f"sends {speed(sent, seconds)} to {new.peer or 'a socket'}"


def _grown(old: Socket | None, new: Socket) -> tuple[int, int]:
    received = (new.received or 0) - ((old.received or 0) if old else 0)
    sent = (new.sent or 0) - ((old.sent or 0) if old else 0)
    return max(0, received), max(0, sent)


def _net(before: Look, after: Look, what: str) -> int:
    old = {one.inode: getattr(one, what) or 0 for one in before.sockets}
    return sum(max(0, (getattr(one, what) or 0) - old.get(one.inode, 0)) for one in after.sockets)


def _files(waited: Awaited, waits: Awaited, seconds: float) -> Iterator[str]:
    """Yield the files that are waited for at both looks, and whose offset moved on."""
    old = {(one.fd, one.path): one.position for _, one in waited}
    for name, one in waits:
        start = old.get((one.fd, one.path))
        if start is not None and one.position is not None and one.position > start:
            verb = "writes" if name in _SENDS else "reads"
            yield f"{verb} {speed(one.position - start, seconds)} ({one.path})"


def _counters(
    before: Sample, after: Sample, awaited: Awaited, net: tuple[int, int]
) -> Iterator[str]:
    seconds = max(after.at - before.at, 1e-3)
    pipes = [(name, one) for name, one in awaited if one.kind in ("pipe", "fifo", "tty")]
    reads_pipe = next((one for name, one in pipes if name not in _SENDS), None)
    writes_pipe = next((one for name, one in pipes if name in _SENDS), None)
    main_read = after.main_read - before.main_read
    main_written = after.main_written - before.main_written
    read = max(0, after.read - before.read - net[0])
    written = max(0, after.written - before.written - net[1])
    disk = after.disk_read - before.disk_read
    if reads_pipe is not None and main_read > 0:
        yield f"reads {speed(main_read, seconds)} from {reads_pipe.path}"
    elif disk >= DISK_BULK * seconds:
        yield f"reads {speed(disk, seconds)}"
    elif (after.faults - before.faults) >= FAULTS * seconds:
        yield "reads files that are mapped into memory"
    elif max(0, main_read - net[0]) >= MAIN_BULK * seconds:
        yield f"reads {speed(main_read, seconds)}"
    elif read >= FILE_BULK * seconds:
        yield f"reads {speed(read, seconds)}"
    if writes_pipe is not None and main_written > 0:
        yield f"writes {speed(main_written, seconds)} to {writes_pipe.path}"
    elif max(0, main_written - net[1]) >= MAIN_BULK * seconds:
        yield f"writes {speed(main_written, seconds)}"
    elif written >= FILE_BULK * seconds:
        yield f"writes {speed(written, seconds)}"


def speed(count: int, seconds: float) -> str:
    """Return a rate in words: "41 MB/s", "3 bytes/s", "1 byte in 5 s"."""
    rate = count / max(seconds, 1e-3)
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if rate >= size:
            value = rate / size
            return f"{value:.0f} {unit}/s" if value >= 10 else f"{value:.1f} {unit}/s"
    if rate >= 1:
        return "1 byte/s" if round(rate) == 1 else f"{rate:.0f} bytes/s"
    return f"{count} byte{'s' * (count != 1)} in {seconds:.0f} s"
