"""One look at many processes, side by side, that ends in time whatever state they are in.

What /proc says of a process is read in the order of what can block. Then whoever holds the other
ends of the pipes and sockets that the processes wait for is named.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from ..base.deadline import call_with_limit
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import POLLING_THREADS
from ..base.masking import mask_command
from ..base.proc import Stat, is_forked_only, read_stat
from ..base.process_facts import (
    AskedServer,
    AwaitedFile,
    Build,
    Descriptor,
    FileLock,
    Kernel,
    LogTail,
    Look,
    RayCluster,
    Rung,
    Sample,
    Socket,
    TakenPort,
    Thread,
)
from ..base.process_roles import name_server_process
from . import builds, descriptors, kernel, lock_and_log_files, stacks, syscall_arguments
from .asked_servers import find_asked_servers
from .awaited_files import find_awaited_files
from .event_loops import LIMIT, LoopTasks, read_loop_tasks, runs_readable_loop
from .native_callers import find_caller, read_code_maps
from .other_ends import find_other_ends, list_descriptors_in_calls, read_unserved_addresses
from .process import (
    ProcessMemory,
    exit_code,
    read_preloaded,
    runs_python,
    sample,
    started,
    words_of,
)
from .ray_cluster import read_ray_cluster
from .stacks import read_faulthandler, read_stacks_by_pystack
from .syscall_arguments import renumber_threads

NO_TASKS = LoopTasks()
NO_STATUS = kernel.ProcessStatus(0, ())


@dataclass(frozen=True)
class SharedTables:
    """What is read once for all the targets of a look."""

    sockets: Mapping[int, Socket] = field(default_factory=dict)
    locks: tuple[lock_and_log_files.LockEntry, ...] = ()
    missing: tuple[str, ...] = ()
    left: tuple[Socket, ...] = ()  # sockets that no process has any more


@dataclass
class PartialLook:
    """What is known of a target so far; what came too late is simply not in it."""

    at: float
    stat: Stat | None = None
    status: kernel.ProcessStatus = NO_STATUS
    kernel: tuple[Kernel, ...] = ()
    links: dict[int, str] = field(default_factory=dict)
    sockets: Mapping[int, Socket] = field(default_factory=dict)
    left: tuple[Socket, ...] = ()
    locks: tuple[FileLock, ...] = ()
    holds: tuple[FileLock, ...] = ()
    stale_locks: tuple[FileLock, ...] = ()
    awaited_files: tuple[AwaitedFile, ...] = ()
    logs: tuple[LogTail, ...] = ()
    network: str = ""
    frozen: str = ""
    unserved: tuple[str, ...] = ()
    preloaded: tuple[str, ...] = ()
    loop: LoopTasks = NO_TASKS
    sample: Sample | None = None
    command: tuple[str, ...] = ()
    threads: tuple[Thread, ...] = ()
    rung: Rung = "proc"
    dump: str = ""
    build: Build | None = None
    ray: RayCluster | None = None
    taken_ports: tuple[TakenPort, ...] = ()
    asked_server: AskedServer | None = None
    missing: list[str] = field(default_factory=list)


def read_safe(pid: int, found: PartialLook, machine: SharedTables) -> None:
    """Read what cannot block."""
    found.kernel = kernel.read_threads(pid, found.missing)
    found.status = kernel.read_status(pid)
    found.network = descriptors.read_network_namespace(pid)
    own_network = descriptors.read_sockets_of_process(pid, found.missing)
    found.sockets = machine.sockets if own_network is None else own_network
    found.left = machine.left if own_network is None else ()
    try:
        found.links = descriptors.read_links(pid)
    except OSError:
        kernel.note_once(
            found.missing, f"The open files of {pid} could not be read (not permitted)."
        )
    polling = [one.tid for one in found.kernel if one.comm in POLLING_THREADS]
    found.sample = sample(pid, net=found.sockets, polling=polling)
    found.kernel = tuple(_describe_syscall(pid, thread, found, None) for thread in found.kernel)
    here = lock_and_log_files.read_open_files(pid, found.links)
    found.locks, found.holds = lock_and_log_files.find_locks_of_process(pid, machine.locks, here)


def read_risky(pid: int, found: PartialLook, machine: SharedTables) -> None:
    """Read the command line and the memory, which a process in the kernel may block."""
    found.frozen = kernel.find_frozen_group(pid)
    found.command = tuple(mask_command(words_of(pid)))
    found.preloaded = read_preloaded(pid)
    with ProcessMemory(pid) as memory:
        if memory.refused:
            kernel.note_once(
                found.missing, f"The memory of {pid} could not be read (not permitted)."
            )
        found.kernel = tuple(
            _describe_syscall(pid, thread, found, memory) for thread in found.kernel
        )
        found.kernel = _add_callers(pid, found, memory)
        found.unserved = read_unserved_addresses(pid, memory, found.kernel, found.sockets)


def read_files(pid: int, found: PartialLook, logs: bool) -> None:
    """Read what the files that the process uses tell, for which their disk may let us wait."""
    found.locks = lock_and_log_files.add_lock_ages(pid, found.locks)
    held, found.stale_locks = lock_and_log_files.find_awaited_locks(pid, found.threads)
    found.locks = tuple(dict.fromkeys([*found.locks, *held]))
    found.awaited_files = find_awaited_files(pid, found.threads, found.kernel)
    if logs:
        found.logs = lock_and_log_files.read_wandb_logs(pid, found.links)
        found.ray = read_ray_cluster(pid, found.links)
    if not found.locks:
        found.locks = lock_and_log_files.find_polled_locks(pid, found.threads)
    if found.stat is not None:
        found.build = _read_build(pid, found, found.stat)


def _read_build(pid: int, found: PartialLook, about: Stat) -> Build | None:
    main = next((one for one in found.threads if one.os_id == pid), None)
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - about.started / _TICKS
    frames = main.frames if main is not None else ()
    return builds.read_build(builds.SeenProcess(pid, about.comm, found.command, age, frames))


def _describe_syscall(
    pid: int, thread: Kernel, found: PartialLook, memory: ProcessMemory | None
) -> Kernel:
    """Return the thread with its system call decoded; without `memory` only what registers tell."""
    call = thread.syscall
    if call is None:
        return thread

    def describe(fd: int) -> Descriptor:
        link = found.links.get(fd)
        polled = call.name in ("poll", "ppoll", "select", "pselect6") or (
            call.name.startswith("epoll_")
            and fd != syscall_arguments.find_descriptor_numbers(call, pid)[0]
        )
        return descriptors.describe_descriptor(
            pid, fd, link, found.sockets, wchan=thread.wchan, polled=polled
        )

    if memory is None:
        fds = dict.fromkeys(syscall_arguments.find_descriptor_numbers(call, pid))
        return replace(thread, syscall=replace(call, descriptors=tuple(describe(fd) for fd in fds)))
    return replace(thread, syscall=syscall_arguments.decode_syscall(call, memory, describe, pid))


def _add_callers(pid: int, found: PartialLook, memory: ProcessMemory) -> tuple[Kernel, ...]:
    """Return the threads, those in a call about a socket with whose code made the call."""
    if not any(map(_is_about_a_socket, found.kernel)):
        return found.kernel
    maps = read_code_maps(pid)
    return tuple(
        replace(
            one,
            syscall=replace(
                one.syscall, caller=find_caller(maps, memory, one.syscall.stack, found.preloaded)
            ),
        )
        if maps and one.syscall is not None and _is_about_a_socket(one)
        else one
        for one in found.kernel
    )


def _is_about_a_socket(thread: Kernel) -> bool:
    call = thread.syscall
    return call is not None and any(one.kind == "socket" for one in call.descriptors)


_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_AT_ONCE = 2 * (os.cpu_count() or 1)
_RISKY = 0.5  # seconds for what may wait for a process in state D
_SHARED = 0.6  # of the time that is left, for what others of the same look need or do meanwhile


@dataclass(frozen=True)
class Target:
    """A process to look at. `python`: None asks what it runs; a rank is always tried."""

    pid: int
    role: Literal["rank", "child"] = "rank"
    faulthandler_file: str | None = None
    python: bool | None = None


async def take_looks(
    targets: Sequence[Target],
    *,
    native: bool = False,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> list[Look]:
    """Return one Look for each target, in their order, within `limit` + 0.5 seconds.

    A target that is gone has the state "" and no threads. `native` pauses the ranks and the other
    Python processes for 20 to 400 ms: see `kernel.reason_not_to_pause`; `resume` as in
    `stacks.read_stacks`. Locals come with every look but that one: they cost a millisecond, and it
    would pause for longer (`successive_looks.complete_look` takes them from the look before).
    """
    end = time.monotonic() + limit
    # Their time is that of the stacks, so that a machine with much to do has enough for either.
    machine = asyncio.create_task(_read_shared_tables(limit * _SHARED))
    slots = asyncio.Semaphore(_MOST_AT_ONCE)
    found = await asyncio.gather(
        *(_look_at_process(target, machine, native, end, slots, resume) for target in targets)
    )
    await machine
    pids = [target.pid for target in targets]
    await find_other_ends(pids, found, end)
    await find_asked_servers(pids, found, end)
    return [_build_look(target, one) for target, one in zip(targets, found, strict=True)]


_TABLES_LAST = 30.0  # seconds for which it is likely enough that a connection is the same
_LATEST: list[tuple[float, SharedTables]] = []  # when these were read, and what they said


async def _read_shared_tables(limit: float) -> SharedTables:
    """Return the tables; where they do not come in time, those that came last, if that is not long
    ago: who is at the other end of a connection stays the same.
    """
    missing: list[str] = []
    left: list[Socket] = []

    def read() -> SharedTables:
        at, table = time.monotonic(), descriptors.read_sockets(missing, left)
        locks = tuple(lock_and_log_files.read_kernel_locks())
        tables = SharedTables(table, locks, tuple(missing), tuple(left))
        _LATEST[:] = [(at, tables)]
        return tables

    try:
        return await call_with_limit(read, limit=limit, key="machine")
    except TimeoutError:
        late = "The sockets and locks could not be listed in time"
        for at, tables in tuple(_LATEST):
            age = time.monotonic() - at
            if age < _TABLES_LAST:
                return replace(tables, missing=(f"{late}: these are {age:.0f} s old.",))
        return SharedTables(missing=(f"{late}.",))


async def _look_at_process(
    target: Target,
    machine: Awaitable[SharedTables],
    native: bool,
    end: float,
    slots: asyncio.Semaphore,
    resume: Callable[[int], object] | None,
) -> PartialLook:
    found = PartialLook(time.monotonic())
    found.stat = read_stat(target.pid)
    if found.stat is None:
        return PartialLook(found.at, missing=[f"{target.pid} is gone."])
    kernel = _guard_part(target, found, _see_kernel(target, found, machine, end))
    python = _guard_part(target, found, _see_python(target, found, native, end, slots, resume))
    if native:  # a process that py-spy pauses is in state t, and py-spy its tracer
        await kernel
        await python
    else:
        await asyncio.gather(kernel, python)
    await _guard_part(target, found, _see_files(target, found, end))
    if started(target.pid) not in (found.stat.started, None):
        # Its number went to another process: what was read may be of either.
        return PartialLook(found.at, missing=[f"{target.pid} ended while it was looked at."])
    return found


async def _guard_part(target: Target, found: PartialLook, part: Awaitable[None]) -> None:
    """See to it that whatever goes wrong in a part of a look costs that part alone."""
    try:
        await part
    except Exception as error:
        found.missing.append(f"Not all of {target.pid} could be read ({error!r}).")


async def _see_kernel(
    target: Target, found: PartialLook, machine: Awaitable[SharedTables], end: float
) -> None:
    """First what cannot block, then what can, each kept even if the next does not come."""
    pid = target.pid
    tables = await machine
    found.missing += tables.missing
    left = end - time.monotonic()
    try:
        await call_with_limit(read_safe, pid, found, tables, limit=left, key=("proc", pid))
    except TimeoutError:
        found.missing.append(f"Not all of /proc could be read of {pid} in time.")
    is_blocked = any(one.state == "D" for one in found.kernel)
    left = _RISKY if is_blocked else max(_RISKY, (end - time.monotonic()) * _SHARED)
    try:
        await call_with_limit(read_risky, pid, found, tables, limit=left, key=("memory", pid))
    except TimeoutError:
        why = " (a process in the kernel blocks it)" if is_blocked else ""
        lost = f"The command line and the memory could not be read of {pid}"
        found.missing.append(f"{lost} in time{why}.")


async def _see_files(target: Target, found: PartialLook, end: float) -> None:
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
        await call_with_limit(read_files, pid, found, logs, limit=limit, key=("files", pid))
    except TimeoutError:
        found.missing.append(f"The lock files and logs of {pid} did not answer in time.")


async def _see_python(
    target: Target,
    found: PartialLook,
    native: bool,
    end: float,
    slots: asyncio.Semaphore,
    resume: Callable[[int], object] | None,
) -> None:
    """Read the Python stacks: by py-spy, else pystack, else the file of faulthandler."""
    pid = target.pid
    if found.stat is None or found.stat.state in "ZX" or not _is_python(target):
        return
    async with slots:
        left = end - time.monotonic()
        if left < 0.05:
            found.missing.append(f"No time was left for the Python stacks of {pid}.")
            return
        seen = await stacks.read_stacks(
            pid, native=native, with_locals=not native, limit=left, resume=resume
        )
        found.missing.append(seen.missing)
        if seen.threads:
            found.threads, found.rung = renumber_threads(pid, seen.threads), "py-spy"
            await _see_tasks(pid, found, end)
            return
        left = end - time.monotonic()
        if not seen.hopeless and left > 0.2:
            seen = await read_stacks_by_pystack(pid, left)
            found.missing.append(seen.missing)
            if seen.threads:
                found.threads, found.rung = renumber_threads(pid, seen.threads), "pystack"
                return
    if target.faulthandler_file is not None:
        await _see_faulthandler(target.faulthandler_file, pid, found)


async def _see_tasks(pid: int, found: PartialLook, end: float) -> None:
    """Read which tasks of its event loops await what, where its Python has a tool for that."""
    left = end - time.monotonic()
    if left > 0.2 and runs_readable_loop(found.threads):
        found.loop = await read_loop_tasks(pid, min(LIMIT, left))
        found.missing.append(found.loop.missing)


async def _see_faulthandler(path: str, pid: int, found: PartialLook) -> None:
    try:
        threads, dump = await call_with_limit(read_faulthandler, path, pid, limit=_RISKY)
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


def _build_look(target: Target, found: PartialLook) -> Look:
    about = found.stat
    if about is None:
        missing = tuple(found.missing)
        return Look(found.at, target.pid, 0, "", (), 0.0, "", "proc", missing=missing)
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    status = exit_code(target.pid) if about.state == "Z" else None
    was_killed = status == -signal.SIGKILL
    named = {
        d.socket.inode: d.socket for d in list_descriptors_in_calls(found) if d.socket is not None
    }
    inodes = dict.fromkeys(descriptors.parse_socket_inode(link) for link in found.links.values())
    open_sockets = [
        named.get(inode) or found.sockets[inode]
        for inode in inodes
        if inode is not None and inode in found.sockets
    ]
    return Look(
        at=found.at,
        pid=target.pid,
        ppid=about.ppid,
        name=name_server_process(found.command, about.comm),
        command=found.command,
        age=max(0.0, uptime - about.started / _TICKS),
        state=found.kernel[0].state if found.kernel else about.state,
        rung=found.rung,
        threads=stacks.forget_texts(found.threads),
        kernel=found.kernel,
        locks=found.locks,
        holds=found.holds,
        sockets=tuple(open_sockets),
        closed_here=_find_closed_ends(open_sockets, found.left),
        sample=found.sample,
        signals_pending=found.status.signals_pending,
        timer_signals=found.status.timer_signals,
        waits=found.status.waits,
        traced_by=found.status.tracer,
        dump=found.dump
        or stacks.format_stacks(target.pid, found.command or (about.comm,), found.threads),
        missing=tuple(dict.fromkeys(sentence for sentence in found.missing if sentence)),
        memory=found.status.memory,
        swapped=found.status.swapped,
        network=found.network,
        logs=found.logs,
        stale_locks=found.stale_locks,
        awaited_files=found.awaited_files,
        frozen=found.frozen,
        unserved=found.unserved,
        preloaded=found.preloaded,
        tasks=found.loop.tasks,
        task_ring=found.loop.ring,
        status=status,
        oom_kills=kernel.count_oom_kills_beside(target.pid) if was_killed else None,
        build=found.build,
        ray=found.ray,
        taken_ports=found.taken_ports,
        asked_server=found.asked_server,
        gpus=descriptors.list_gpus(found.links),
        is_forked=is_forked_only(about),
    )


def _find_closed_ends(open_sockets: Sequence[Socket], left: Sequence[Socket]) -> tuple[Socket, ...]:
    """Return the ends of earlier connections to the same peers: who closes first has one left."""
    peers = {one.peer for one in open_sockets}
    return tuple(one for one in left if one.peer in peers)
