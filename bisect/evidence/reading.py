"""What /proc says of one process, in the order of what can block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..facts import Descriptor, FileLock, Kernel, LogTail, Rung, Sample, Socket, Thread
from ..rank.masking import mask_command
from . import arguments, descriptors, freezer, its_files, kernel, locks, sockets
from .command import words_of
from .memory import Memory
from .sample import Stat, sample

NO_STATUS = kernel.Status(0, ())


@dataclass(frozen=True)
class Machine:
    """What is read once for all the targets of a look."""

    sockets: Mapping[int, Socket] = field(default_factory=dict)
    locks: tuple[locks.Entry, ...] = ()
    missing: tuple[str, ...] = ()
    left: tuple[Socket, ...] = ()  # sockets that no process has any more


@dataclass
class Found:
    """What is known of a target so far; what came too late is simply not in it."""

    at: float
    stat: Stat | None = None
    status: kernel.Status = NO_STATUS
    kernel: tuple[Kernel, ...] = ()
    links: dict[int, str] = field(default_factory=dict)
    sockets: Mapping[int, Socket] = field(default_factory=dict)
    left: tuple[Socket, ...] = ()
    locks: tuple[FileLock, ...] = ()
    holds: tuple[FileLock, ...] = ()
    stale_locks: tuple[FileLock, ...] = ()
    logs: tuple[LogTail, ...] = ()
    network: str = ""
    frozen: str = ""
    sample: Sample | None = None
    command: tuple[str, ...] = ()
    threads: tuple[Thread, ...] = ()
    rung: Rung = "proc"
    dump: str = ""
    missing: list[str] = field(default_factory=list)


def read_safe(pid: int, found: Found, machine: Machine) -> None:
    """Read all that waits for nobody."""
    found.kernel = kernel.threads(pid, found.missing)
    found.status = kernel.status(pid)
    found.network = sockets.network_of(pid)
    own_network = sockets.table_of(pid, found.missing)
    found.sockets = machine.sockets if own_network is None else own_network
    found.left = machine.left if own_network is None else ()
    try:
        found.links = descriptors.links(pid)
    except OSError:
        kernel.note(found.missing, f"The open files of {pid} could not be read (not permitted).")
    found.sample = sample(pid, net=found.sockets)
    found.kernel = tuple(_described(pid, thread, found, None) for thread in found.kernel)
    here = locks.opened(pid, found.links)
    found.locks, found.holds = locks.of_process(pid, machine.locks, here)


def read_risky(pid: int, found: Found, machine: Machine) -> None:
    """Read the command line and the memory, which a process in the kernel may block."""
    found.frozen = freezer.frozen(pid)
    found.command = tuple(mask_command(words_of(pid)))
    with Memory(pid) as memory:
        if memory.refused:
            kernel.note(found.missing, f"The memory of {pid} could not be read (not permitted).")
        found.kernel = tuple(_described(pid, thread, found, memory) for thread in found.kernel)


def read_files(pid: int, found: Found, logs: bool) -> None:
    """Read what the files that the process uses tell, for which their disk may let us wait."""
    found.locks = its_files.with_ages(pid, found.locks)
    held, found.stale_locks = its_files.awaited(pid, found.threads)
    found.locks = tuple(dict.fromkeys([*found.locks, *held]))
    if logs:
        found.logs = its_files.wandb_logs(pid, found.links)
    if not found.locks:
        found.locks = its_files.polled(pid, found.threads)


def _described(pid: int, thread: Kernel, found: Found, memory: Memory | None) -> Kernel:
    """Return the thread with its system call decoded; without `memory` only what registers tell."""
    call = thread.syscall
    if call is None:
        return thread

    def describe(fd: int) -> Descriptor:
        link = found.links.get(fd)
        polled = call.name in ("poll", "ppoll", "select", "pselect6") or (
            call.name.startswith("epoll_") and fd != arguments.numbers(call, pid)[0]
        )
        return descriptors.describe(pid, fd, link, found.sockets, wchan=thread.wchan, polled=polled)

    if memory is None:
        fds = dict.fromkeys(arguments.numbers(call, pid))
        return replace(thread, syscall=replace(call, descriptors=tuple(describe(fd) for fd in fds)))
    return replace(thread, syscall=arguments.decode(call, memory, describe, pid))
