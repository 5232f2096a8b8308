"""One look at many processes, side by side, that ends in time whatever state they are in."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..facts import Look, Socket
from . import locks, sockets, stacks
from .aside import aside
from .ends import name_other_ends, waited_for
from .further_stacks import by_pystack, read_faulthandler
from .reading import Found, Machine, read_files, read_risky, read_safe
from .sample import started, stat
from .thread_ids import as_seen

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_AT_ONCE = 2 * (os.cpu_count() or 1)
_RISKY = 0.5  # seconds for what may wait for a process in state D


@dataclass(frozen=True)
class Target:
    """A process to look at. `python`: None asks what it runs; a rank is always tried."""

    pid: int
    role: Literal["rank", "child"] = "rank"
    faulthandler_file: str | None = None
    python: bool | None = None


async def look(
    targets: Sequence[Target],
    *,
    native: bool = False,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> list[Look]:
    """Return one Look for each target, in their order, within `limit` + 0.5 seconds.

    A target that is gone has the state "" and no threads. `native` pauses the ranks and the other
    Python processes for 20 to 400 ms: see `kernel.cut_by_a_pause`; `resume` as in `stacks.look`.
    Locals come with every look but that one: they cost a millisecond, and it would pause for longer
    (`carrying.carried_over` takes them from the look before).
    """
    end = time.monotonic() + limit
    machine = await _machine(min(limit, 1.0))
    slots = asyncio.Semaphore(_MOST_AT_ONCE)
    found = await asyncio.gather(
        *(_one(target, machine, native, end, slots, resume) for target in targets)
    )
    await name_other_ends([target.pid for target in targets], found, end)
    return [_look(target, one) for target, one in zip(targets, found, strict=True)]


async def _machine(limit: float) -> Machine:
    missing: list[str] = []
    left: list[Socket] = []

    def read() -> Machine:
        table = sockets.table(missing, left)
        return Machine(table, tuple(locks.entries()), tuple(missing), tuple(left))

    try:
        return await aside(read, limit=limit, key="machine")
    except TimeoutError:
        return Machine(missing=("The sockets and locks could not be listed in time.",))


async def _one(
    target: Target,
    machine: Machine,
    native: bool,
    end: float,
    slots: asyncio.Semaphore,
    resume: Callable[[int], object] | None,
) -> Found:
    found = Found(time.monotonic(), missing=list(machine.missing))
    found.stat = stat(target.pid)
    if found.stat is None:
        return Found(found.at, missing=[f"{target.pid} is gone."])
    kernel = _part(target, found, _see_kernel(target, found, machine, end))
    python = _part(target, found, _see_python(target, found, native, end, slots, resume))
    if native:  # a process that py-spy pauses is in state t, and py-spy its tracer
        await kernel
        await python
    else:
        await asyncio.gather(kernel, python)
    await _part(target, found, _see_files(target, found, end))
    if started(target.pid) not in (found.stat.started, None):
        # Its number went to another process: what was read may be of either.
        return Found(found.at, missing=[f"{target.pid} ended while it was looked at."])
    return found


async def _part(target: Target, found: Found, part: Awaitable[None]) -> None:
    """See to it that whatever goes wrong in a part of a look costs that part alone."""
    try:
        await part
    except Exception as error:
        found.missing.append(f"Not all of {target.pid} could be read ({error!r}).")


async def _see_kernel(target: Target, found: Found, machine: Machine, end: float) -> None:
    """First what cannot block, then what can, each kept even if the next does not come."""
    pid = target.pid
    for read, key, seconds, lost in (
        (read_safe, "proc", end - time.monotonic(), "Not all of /proc could be read"),
        (read_risky, "memory", _RISKY, "The command line and the memory could not be read"),
    ):
        try:
            await aside(read, pid, found, machine, limit=seconds, key=(key, pid))
        except TimeoutError:
            found.missing.append(f"{lost} of {pid} in time (a process in the kernel blocks it).")


async def _see_files(target: Target, found: Found, end: float) -> None:
    pid, about = target.pid, found.stat
    state = found.kernel[0].state if found.kernel else ""
    if about is None or state in ("", "Z", "X"):
        return
    if state == "D":  # the disk of these files may be what it is stuck on
        if found.locks:
            found.missing.append(f"The lock files of {pid} were not looked at: it is in state D.")
        return
    limit = min(_RISKY, end + 0.2 - time.monotonic())
    if limit < 0.05:
        found.missing.append(f"No time was left for the lock files and logs of {pid}.")
        return
    logs = target.role == "rank" or about.comm.startswith("wandb")
    try:
        await aside(read_files, pid, found, logs, limit=limit, key=("files", pid))
    except TimeoutError:
        found.missing.append(f"The lock files and logs of {pid} did not answer in time.")


async def _see_python(
    target: Target,
    found: Found,
    native: bool,
    end: float,
    slots: asyncio.Semaphore,
    resume: Callable[[int], object] | None,
) -> None:
    """Climb down the ladder: py-spy, pystack, what faulthandler wrote; the first that answers."""
    pid = target.pid
    if found.stat is None or found.stat.state in "ZX" or not _is_python(target):
        return
    async with slots:
        left = end - time.monotonic()
        if left < 0.05:
            found.missing.append(f"No time was left for the Python stacks of {pid}.")
            return
        seen = await stacks.look(
            pid, native=native, with_locals=not native, limit=left, resume=resume
        )
        found.missing.append(seen.missing)
        if seen.threads:
            found.threads, found.rung = as_seen(pid, seen.threads), "py-spy"
            return
        left = end - time.monotonic()
        if not seen.hopeless and left > 0.2:
            seen = await by_pystack(pid, left)
            found.missing.append(seen.missing)
            if seen.threads:
                found.threads, found.rung = as_seen(pid, seen.threads), "pystack"
                return
    if target.faulthandler_file is not None:
        await _see_faulthandler(target.faulthandler_file, pid, found)


async def _see_faulthandler(path: str, pid: int, found: Found) -> None:
    try:
        threads, dump = await aside(read_faulthandler, path, pid, limit=_RISKY)
    except TimeoutError:
        found.missing.append("The file with faulthandler's stacks could not be read in time.")
        return
    if threads:
        found.threads, found.rung, found.dump = threads, "faulthandler", dump


def _is_python(target: Target) -> bool:
    """Return True for a rank, and for a child that runs a Python: others give only noise."""
    if target.python is not None:
        return target.python
    return target.role == "rank" or runs_python(target.pid)


def runs_python(pid: int) -> bool:
    """Return whether the program that a process runs is a Python."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    return name.startswith(("python", "pypy"))


def _look(target: Target, found: Found) -> Look:
    about = found.stat
    if about is None:
        missing = tuple(found.missing)
        return Look(found.at, target.pid, 0, "", (), 0.0, "", "proc", missing=missing)
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    named = {d.socket.inode: d.socket for d in waited_for(found) if d.socket is not None}
    inodes = dict.fromkeys(sockets.inode_of(link) for link in found.links.values())
    open_sockets = [
        named.get(inode) or found.sockets[inode]
        for inode in inodes
        if inode is not None and inode in found.sockets
    ]
    return Look(
        at=found.at,
        pid=target.pid,
        ppid=about.ppid,
        name=about.comm,
        command=found.command,
        age=max(0.0, uptime - about.started / _TICKS),
        state=found.kernel[0].state if found.kernel else about.state,
        rung=found.rung,
        threads=found.threads,
        kernel=found.kernel,
        locks=found.locks,
        holds=found.holds,
        sockets=tuple(open_sockets),
        closed_here=_closed_here(open_sockets, found.left),
        sample=found.sample,
        signals_pending=found.status.signals_pending,
        waits=found.status.waits,
        traced_by=found.status.tracer,
        dump=found.dump or stacks.text(target.pid, found.command or (about.comm,), found.threads),
        missing=tuple(dict.fromkeys(sentence for sentence in found.missing if sentence)),
        memory=found.status.memory,
        swapped=found.status.swapped,
        network=found.network,
        logs=found.logs,
        stale_locks=found.stale_locks,
        frozen=found.frozen,
    )


def _closed_here(open_sockets: Sequence[Socket], left: Sequence[Socket]) -> tuple[Socket, ...]:
    """Return the ends of earlier connections to the same peers: who closes first has one left."""
    peers = {one.peer for one in open_sockets}
    return tuple(one for one in left if one.peer in peers)
