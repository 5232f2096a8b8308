"""Cheap readings of a process: counters, family, start and end.

Own reading of /proc/PID/stat and io: psutil, as fast for one process, has no counters of the main
thread alone, no start in clock ticks and no exit status of a zombie that is not its child, and
finding the families of n processes costs it n passes over /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .aside import within

if TYPE_CHECKING:
    from ..facts import Sample, Socket

_TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are of use here."""

    comm: str
    state: str
    ppid: int
    faults: int
    ticks: int  # user + system
    started: int  # clock ticks after boot
    status: int  # of a zombie, as wait() gives it; 0 where the kernel does not tell


def parse_stat(text: str) -> Stat | None:
    """Return the fields of a line of /proc/PID/stat, None if it is not one."""
    # The name may hold spaces and brackets: it ends at the last one.
    first, _, rest = text.rpartition(")")
    fields = rest.split()
    _, bracket, comm = first.partition("(")
    try:
        return (
            Stat(
                comm,
                fields[0],
                int(fields[1]),
                int(fields[9]),
                int(fields[11]) + int(fields[12]),
                int(fields[19]),
                int(fields[49]) if len(fields) > 49 else 0,
            )
            if bracket
            else None
        )
    except (IndexError, ValueError):
        return None


def stat(pid: int, tid: int | None = None) -> Stat | None:
    """Return what /proc says of a process (or of one thread of it), None if it is gone."""
    path = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    try:
        with open(path, errors="replace") as file:
            return parse_stat(file.read())
    except OSError:
        return None


def started(pid: int) -> int | None:
    """Return when a process started (clock ticks after boot): tells a pid that was used again."""
    found = stat(pid)
    return found.started if found else None


def exit_code(pid: int) -> int | None:
    """Return the exit status of a zombie (negative: the signal that ended it), else None.

    The kernel tells it to the same user without being the parent. It says 0 to another user.
    """
    found = stat(pid)
    if found is None or found.state not in "ZX":
        return None
    try:
        return os.waitstatus_to_exitcode(found.status)
    except (ValueError, OverflowError):
        return None


def sample(
    pid: int, *, net: bool | Mapping[int, Socket] = False, limit: float = 0.2
) -> Sample | None:
    """Return the counters of a process, None if it is gone (a zombie is gone).

    With `net`, the net payload it received over all its TCP sockets, too; give the table of
    `sockets.table()` instead of True to sample many processes at one time.
    """
    from ..facts import Sample  # of many classes: a monitor starts without them

    found = stat(pid)
    if found is None or found.state in "ZX":
        return None
    now = time.monotonic()
    # /proc/PID/io waits for a process in the middle of exec, which may be stuck there; then it
    # is in state D.
    try:
        whole, main = within(limit, _both_io, pid) if found.state == "D" else _both_io(pid)
    except TimeoutError:
        whole, main = {}, {}
    return Sample(
        at=now,
        pid=pid,
        started=found.started,
        state=found.state,
        cpu=found.ticks / _TICKS,
        read=max(whole.get("rchar", 0), whole.get("read_bytes", 0)),
        written=max(whole.get("wchar", 0), whole.get("write_bytes", 0)),
        received=_received(pid, net) if net is not False else None,
        disk_read=whole.get("read_bytes", 0),
        faults=found.faults,
        delayed=_delayed(pid),
        main_read=main.get("rchar", 0),
        main_written=main.get("wchar", 0),
    )


def _both_io(pid: int) -> tuple[dict[str, int], dict[str, int]]:
    return _io(f"/proc/{pid}/io"), _io(f"/proc/{pid}/task/{pid}/io")


def _delayed(pid: int) -> float:
    """Return the second field of /proc/PID/schedstat in seconds, 0.0 where there is none."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _io(path: str) -> dict[str, int]:
    try:
        with open(path) as file:
            lines = [line.split() for line in file]
        return {name[:-1]: int(value) for name, value in lines}
    except (OSError, ValueError):
        return {}


def _received(pid: int, net: bool | Mapping[int, Socket]) -> int | None:
    from .descriptors import links
    from .sockets import inode_of, table

    known = table() if isinstance(net, bool) else net
    try:
        inodes = {inode_of(link) for link in links(pid).values()}
    except OSError:
        return None
    counts = [known[i].received for i in inodes if i is not None and i in known]
    return sum(count for count in counts if count is not None)


def family(roots: Iterable[int]) -> dict[int, int]:
    """Return the descendants of `roots`, each with the nearest root above it, in one pass.

    Roots are not in it, unless they are gone. A child whose parent ended is no descendant any
    more (see `marked`).
    """
    parents = {pid: found.ppid for pid in pids() if (found := stat(pid))}
    tops = set(roots)
    found_in: dict[int, int] = {}
    for pid in parents:
        path, at = [], pid
        while at not in tops and at not in found_in and at in parents and at not in path:
            path.append(at)
            at = parents[at]
        root = at if at in tops else found_in.get(at)
        if root is not None:
            found_in.update(dict.fromkeys(path, root))
    return found_in


def pids() -> list[int]:
    """Return the pids of all processes."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def marked(variable: str, value: str, limit: float = 0.5) -> set[int]:
    """Return the processes whose environment (as they were started) has variable=value.

    Finds children whose parent ended or that have a session of their own. Reading an environment
    may block: those that do are left out, and all of it takes `limit` seconds at most.
    """
    wanted = b"\0" + f"{variable}={value}".encode() + b"\0"
    hits: set[int] = set()

    def body() -> None:
        for pid in pids():
            found = stat(pid)
            if found is None or found.state in "ZXD":
                continue
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if wanted in b"\0" + file.read() + b"\0":
                        hits.add(pid)
            except OSError:
                continue

    try:
        within(limit, body)
    except TimeoutError:
        return set(hits)
    return hits
