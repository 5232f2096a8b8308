"""Facts of one process: what a look at it shows, its message queues among it, and the cheap samples
between looks.

Unless a field says otherwise, times are seconds, sizes are bytes, and `at` is a reading of the
machine's monotonic clock (CLOCK_MONOTONIC, the same in every process of one machine).

libzmq keeps the connections of a process in threads of its own, named "ZMQbg/IO/N" (src/ctx.cpp);
whoever sends or receives sleeps at an eventfd that such a thread writes to (src/signaler.cpp). So
what the caller's system call names is nobody's. A connection that fails is tried again by the
thread, which sleeps until then: 100 ms, and as much again by chance (ZMQ_RECONNECT_IVL; man 3
zmq_setsockopt; src/stream_connecter_base.cpp).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Literal

from .identity import ProcessId
from .lazy_dataclass import dataclass
from .schema_types import INSIDE

Rung = Literal["py-spy", "pystack", "faulthandler", "proc"]
FILE_LOCK = "a lock on a file"  # the identity of one: which file it is, no source tells


@dataclass(frozen=True)
class CodeLock:
    """A lock as the source of a frame has it."""

    name: str  # "self._lock", "device(0)"
    # Equal for what is one lock in a process: an address and an attribute, or where its name is
    # defined; "" where that is not known.
    identity: str = ""


@dataclass(frozen=True)
class Frame:
    """One stack frame; `native` for C and C++."""

    name: str
    file: str
    line: int
    native: bool = False
    # Of a native frame whose source is known, and is its `file`: the library that has its code.
    library: str = field(default="", compare=False)
    # Of an allowlist of frames (base/library_functions.py), as py-spy words them, secrets masked:
    # (("timeout", "90"), ("build_directory", '"/home/me/x"')). No part of what a frame is: the
    # same place on two ranks is equal.
    locals: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    # Where the source shows that the line stands below an `except`: "except OSError".
    handler: str = field(default="", compare=False)
    # Where the source shows that only some ranks come by the line: "if rank == 0".
    condition: str = field(default="", compare=False)
    # As the source shows: what the line calls ("os.read", "one.stdout.readline"), and the texts
    # that it gives to what it calls, secrets masked.
    calls: tuple[str, ...] = field(default=(), compare=False, metadata=INSIDE)
    given: tuple[str, ...] = field(default=(), compare=False, metadata=INSIDE)
    # As the source shows: the methods of Ray's actors for whose answers the line waits:
    # "Buffer.add", "add" where it is not known of which class.
    asks: tuple[str, ...] = field(default=(), compare=False, metadata=INSIDE)
    # As the source shows: the lock that the line waits for, and those that it has taken before
    # (evidence/locks_in_source.py). Only where a thread of the process waits for such a lock.
    takes: CodeLock | None = field(default=None, compare=False)
    inside: tuple[CodeLock, ...] = field(default=(), compare=False)
    # As the source shows: the counters of the loops of the job's own around the line, and what they
    # are: (("epoch", 3), ("step", 41)).
    counters: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    # As the source shows: the first and the last line of the innermost loop around the line.
    loop: tuple[int, ...] = field(default=(), compare=False)
    # As the source shows: the root that the line gives to a collective is another one in another
    # round of the loops around it (`src=owners[name]`).
    turns: bool = field(default=False, compare=False, metadata=INSIDE)
    # As the source shows: how that loop catches whatever one of its rounds raises, and goes on with
    # the next one: "except Exception".
    catches: str = field(default="", compare=False, metadata=INSIDE)
    # As the source shows: the loop in which the line sleeps is left only when a child has ended.
    awaits_ends: bool = field(default=False, compare=False, metadata=INSIDE)
    # The whole numbers that local variables of the job's own functions are.
    numbers: tuple[tuple[str, int], ...] = field(default=(), compare=False, metadata=INSIDE)
    # Where the line waits for a handle: the sends and receives that its function hands out, and for
    # which rank, as the source and these numbers show: (("irecv", 3), ("isend", 0)).
    handed_out: tuple[tuple[str, int], ...] = field(default=(), compare=False, metadata=INSIDE)
    # The addresses of the objects that local variables are: ("self", "0x7fbafa84f6d0").
    objects: tuple[tuple[str, str], ...] = field(default=(), compare=False, metadata=INSIDE)
    # Short texts that local variables are, as they are: forgotten as soon as the path that a loop
    # polls is found in them (evidence/awaited_files.py).
    texts: tuple[tuple[str, str], ...] = field(
        default=(), compare=False, repr=False, metadata=INSIDE
    )


@dataclass(frozen=True)
class Thread:
    """One thread as Python sees it; `frames` innermost first."""

    os_id: int | None
    name: str | None
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class AsyncTask:
    """A task of an event loop that waits; `frames` of its coroutines, innermost first."""

    name: str
    frames: tuple[Frame, ...] = ()
    awaits: tuple[str, ...] = ()  # the names of the tasks that it awaits


@dataclass(frozen=True)
class Socket:
    """A socket. `received` and `sent` count payload since it was opened (TCP_INFO), if known."""

    inode: int
    family: str  # "tcp", "tcp6", "unix", "udp", ...
    local: str = ""  # host:port, or the path of a Unix socket
    peer: str = ""
    state: str = ""  # ESTABLISHED, SYN_SENT, LISTEN, ...
    received: int | None = None
    sent: int | None = None
    # Times in a row that the kernel has tried again to send data, and nothing came back (TCP).
    resent: int = 0
    # Bytes that have come and that nobody has read; of one that listens, connections that nobody
    # has accepted (TCP).
    unread: int = field(default=0, compare=False)
    peer_pids: tuple[int, ...] = ()  # who holds the other end, on this machine
    peer_names: tuple[str, ...] = ()  # their names, in the same order
    peer_inode: int | None = None  # of the other end of a Unix socket
    # Who holds the other end on another machine that was looked at too; pid 0: some process of a
    # node that is not heard any more (collect/node_connections.py).
    remote: ProcessId | None = None


@dataclass(frozen=True)
class PipeEnd:
    """One end of a pipe, as a process has it open."""

    pid: int
    fd: int
    name: str = ""  # of the process
    ppid: int = 0  # its parent, 0 if not known


@dataclass(frozen=True)
class Descriptor:
    """What an open descriptor of a process is."""

    fd: int
    kind: Literal["file", "pipe", "fifo", "socket", "tty", "device", "anon", "unknown"]
    path: str  # what /proc/PID/fd/N points to
    other_ends: tuple[int, ...] = ()  # pids with the other end of a pipe or fifo
    socket: Socket | None = None
    position: int | None = None  # offset in a file, if known: it grows while the file is read
    ends: tuple[PipeEnd, ...] = ()  # of a pipe: the other end, wherever it is open


@dataclass(frozen=True)
class Futex:
    """What a thread in futex() waits on: a word of its memory."""

    address: int
    value: int | None = None  # of the word; None: not readable
    # Where the word looks like a locked pthread mutex: who has it, and whether that thread exists
    # in this process. A fork copies locks but not the threads that hold them.
    owner: int | None = None
    owner_exists: bool | None = None
    # The file in shared memory that the word is in, "" for none: of a semaphore that processes
    # share it is /dev/shm/sem.NAME (sem_overview(7)).
    file: str = ""
    # The other processes that have this file mapped; None: not known, or no such file.
    sharers: tuple[int, ...] | None = None

    @property
    def is_shared_semaphore(self) -> bool:
        """Whether it is the semaphore of several processes, as every lock of multiprocessing is."""
        return self.file.startswith("/dev/shm/sem.")


@dataclass(frozen=True)
class Syscall:
    """The system call a thread is in, its raw arguments, and what could be decoded of them."""

    number: int
    name: str
    args: tuple[int, ...]
    timeout: float | None = None  # seconds; None: no time limit, or not known; of an absolute
    # time (Python's time.sleep, waits for locks) it is what is left of it
    path: str | None = None  # of open, openat, mkdir, ...
    descriptors: tuple[Descriptor, ...] = ()  # the one of read(), all of poll()
    stack: int = 0  # the stack pointer: with the number, a place in the code, also without py-spy
    futex: Futex | None = None
    signals: tuple[int, ...] = ()  # by number, those that sigwait() waits for
    # The path of the library, or of the program, whose code called the C library for it (of a call
    # about a socket); "" if that is not known. No part of what a call is.
    caller: str = field(default="", compare=False)


@dataclass(frozen=True)
class Kernel:
    """One thread as the kernel sees it."""

    tid: int
    comm: str
    state: str  # one letter: R S D T t Z X I
    wchan: str  # "" when not readable or not waiting
    syscall: Syscall | None
    # Times that it has waited for something, of a thread that waits for input; else None. Of the
    # main thread a look has it in any case (`waits`).
    waits: int | None = None
    written: int | None = None  # bytes; of threads but the main one, whose `Sample` has it


@dataclass(frozen=True)
class FileLock:
    """A lock on a file that this process waits for, or polls for."""

    path: str
    inode: int
    holder: int | None  # pid, None if the kernel does not tell
    holder_name: str = ""
    waiting: bool = True  # False: the file is open here and another process has the lock
    age: float | None = None  # seconds since the file was last changed


@dataclass(frozen=True)
class AwaitedFile:
    """A file that a thread waits to disappear: that it is there is the lock."""

    path: str
    age: float | None  # seconds since it was made, or last changed
    thread: int  # the id of the thread that waits
    place: str  # where it waits: "FileBaton.wait (file_baton.py:49)"
    holder: int | None = None  # pid of who has it open
    holder_name: str = ""
    maker: int | None = None  # the pid that stands in it
    maker_lives: bool | None = None  # whether that process does; None: it names none
    maker_name: str = ""
    file_system: str = ""  # its kind, where other machines may see the file too: "nfs4"

    @property
    def owner(self) -> int | None:
        """Who has it, as far as that is known: a living process of this machine."""
        return self.holder or (self.maker if self.maker_lives else None)

    @property
    def owner_name(self) -> str:
        return self.holder_name if self.holder else self.maker_name


@dataclass(frozen=True)
class Sample:
    """A cheap reading of one process: counters that only grow."""

    at: float
    pid: int
    started: int  # clock ticks after boot: tells a pid used again from the same process
    state: str
    cpu: float  # user + system seconds
    read: int  # rchar + read_bytes where larger
    written: int
    received: int | None = None  # net payload over all TCP sockets it has open, if asked for
    disk_read: int = 0  # what really came from storage, page faults in mapped files included
    faults: int = 0  # page faults that had to wait for storage
    delayed: float = 0.0  # seconds that the main thread was ready and waited for a core
    main_read: int = 0  # the main thread's own part of `read`
    main_written: int = 0
    polling: tuple[tuple[int, float], ...] = ()  # threads that only poll: tid, their part of `cpu`


@dataclass(frozen=True)
class LogTail:
    """The last lines of a log that a process has open, secrets masked."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Build:
    """What a process compiles, as its command line, its stack and its files show it."""

    program: str  # "ninja", "cicc"; of what compiles inside of Python the library: "Triton"
    what: str = ""  # the file, the name of the extension, or the place in the library
    folder: str = ""  # that it builds in, or in which the library keeps what it has compiled
    # Of a build by ninja: the steps of this build that are done, and all that were to be done.
    done: int | None = None
    steps: int | None = None
    files: int | None = None  # in `folder` and below it
    size: int | None = None


@dataclass(frozen=True)
class TakenPort:
    """A port that a process waits to become free, and who listens there."""

    port: int
    holder: int | None  # pid, None if that is not known
    holder_name: str = ""


@dataclass(frozen=True)
class AskedServer:
    """A server that a process asks again and again until it answers."""

    url: str
    is_here: bool  # its address is one of this machine; else nothing more is known
    listens: bool = False  # somebody does at its port
    # Who listens there; where nobody does, who was started to do so, as its command line says.
    process: int | None = None
    name: str = ""


@dataclass(frozen=True)
class DeadWorker:
    """A process of Ray that ended and was not told to, as Ray's log has it: who reaped it keeps its
    exit status to itself.
    """

    worker: str  # Ray's id of it
    kind: str  # SYSTEM_ERROR, NODE_OUT_OF_MEMORY, ...
    detail: str  # in Ray's words
    pid: int | None = None
    actor: str = ""  # the class of the actor that it ran
    comes_again: bool = False  # Ray starts another one in its place


@dataclass(frozen=True)
class ResourceHolder:
    """A worker of Ray that has resources of its node, as the raylet wrote."""

    pid: int
    name: str  # the class of an actor, or a task
    resources: tuple[tuple[str, float], ...] = ()  # those of a placement group by their plain names


@dataclass(frozen=True)
class RetriedTask:
    """A task that a driver has handed in again, as its log has it."""

    name: str
    times: int
    is_for_lost: bool = False  # what it had given was lost, as with its node
    resources: str = ""  # that it asks for, in Ray's words


@dataclass(frozen=True)
class RayCluster:
    """What Ray's logs on this machine say of the cluster that a process belongs to."""

    folder: str = ""  # of the logs
    nodes: int | None = None  # how many are active, where the head is on this machine
    # Name of a resource, how much of it is used, and how much there is, in Ray's words.
    usage: tuple[tuple[str, str, str], ...] = ()
    demands: tuple[str, ...] = ()  # what is asked for and not had, in Ray's words
    node: str = ""  # the name of this one
    has: tuple[tuple[str, float], ...] = ()  # its resources
    dead: tuple[DeadWorker, ...] = ()
    holders: tuple[ResourceHolder, ...] = ()
    retried: tuple[RetriedTask, ...] = ()


@dataclass(frozen=True)
class Look:
    """Everything one look at one process found; what could not be had is said in `missing`."""

    at: float
    pid: int
    ppid: int
    name: str  # comm
    command: tuple[str, ...]  # may be empty: not readable
    age: float  # seconds since the process started
    state: str  # of the main thread; "" if the process is gone
    rung: Rung
    threads: tuple[Thread, ...] = ()  # Python's; main thread first
    kernel: tuple[Kernel, ...] = ()  # the kernel's; main thread first
    locks: tuple[FileLock, ...] = ()
    holds: tuple[FileLock, ...] = ()  # the locks on files that this process has
    sockets: tuple[Socket, ...] = ()
    # Earlier connections to the peers of `sockets` that were closed on this side first.
    closed_here: tuple[Socket, ...] = ()
    waits: int | None = None  # times that the main thread has waited for something so far
    sample: Sample | None = None
    signals_pending: tuple[int, ...] = ()
    timer_signals: tuple[int, ...] = ()  # those of interval timers that it catches
    traced_by: int = 0  # pid of a tracer (gdb, strace), 0 if none
    dump: str = ""  # the stacks as text, ready to attach (py-spy's, or faulthandler's)
    missing: tuple[str, ...] = ()  # sentences
    memory: int | None = None  # resident
    swapped: int | None = None
    network: str = ""  # the network namespace, "" if not known
    logs: tuple[LogTail, ...] = ()
    stale_locks: tuple[FileLock, ...] = ()  # lock files that it waits to disappear; nobody's
    # Addresses to which its message queues try to connect and that nobody serves ("ipc:///tmp/x"),
    # where they have no connection at all.
    unserved: tuple[str, ...] = ()
    # What the loader was told to load before all else (LD_PRELOAD, /etc/ld.so.preload): paths, or
    # names that it looks for.
    preloaded: tuple[str, ...] = ()
    # The tasks of its event loops, and those that await one another, as far as its Python tells
    # (3.14 and later).
    tasks: tuple[AsyncTask, ...] = ()
    task_ring: tuple[str, ...] = ()
    # Those that a loop of its source waits to disappear, whoever has them.
    awaited_files: tuple[AwaitedFile, ...] = ()
    frozen: str = ""  # the cgroup that is frozen and it with it (a paused container), "" if none
    # Of a zombie the exit status (negative: the signal that ended it), as far as the kernel tells.
    status: int | None = None
    # Of one that SIGKILL ended: how many of its control group the kernel has ended for want of
    # memory.
    oom_kills: int | None = None
    build: Build | None = None  # what it compiles
    taken_ports: tuple[TakenPort, ...] = ()
    asked_server: AskedServer | None = None  # by its main thread
    ray: RayCluster | None = None  # of a rank that belongs to a cluster of Ray
    gpus: tuple[str, ...] = ()  # the device files of GPUs that it has open
    is_forked: bool = False  # and has begun no program since

    @property
    def main(self) -> Thread | None:
        """The thread whose id is the pid (py-spy's thread names are null until threading is
        imported), else the first one.
        """
        return next((t for t in self.threads if t.os_id == self.pid), None) or next(
            iter(self.threads), None
        )


_THREADS = "ZMQbg/IO"  # how their names begin
_EVENTS = "anon_inode:[eventfd]"


def list_queue_threads(kernel: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """Return the threads that have the connections of message queues."""
    return tuple(task for task in kernel if task.comm.startswith(_THREADS))


def list_queue_sockets(kernel: Iterable[Kernel]) -> tuple[Socket, ...]:
    """Return the sockets of message queues, those that listen included."""
    calls = [task.syscall for task in list_queue_threads(kernel) if task.syscall is not None]
    return tuple(d.socket for call in calls for d in call.descriptors if d.socket is not None)


def waits_at_queue(call: Syscall | None, kernel: Collection[Kernel]) -> bool:
    """Return whether a system call waits for what a message queue brings."""
    events = call is not None and any(one.path == _EVENTS for one in call.descriptors)
    return events and bool(list_queue_threads(kernel))


def tries_to_connect(kernel: Collection[Kernel]) -> bool:
    """Return whether the message queues of a process have no connection, and one of them is about
    to try again.
    """
    calls = [task.syscall for task in list_queue_threads(kernel) if task.syscall is not None]
    again = any(call.name.startswith("epoll_") and call.timeout is not None for call in calls)
    return again and not any(one.kind == "socket" for c in calls for one in c.descriptors)
