"""What the parts of the tool tell one another: frozen, typed, without behaviour.

What stands in verdict.json and isolation.json has its fields' comments in the schemas too, as
descriptions (docs/make_schemas.py).

Unless a field says otherwise, times are seconds, sizes are bytes, and `at` is a reading of the
machine's monotonic clock (CLOCK_MONOTONIC, the same in every process of one machine).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from .checkpoints import Checkpoint as Checkpoint
from .checkpoints import Phase as Phase
from .checkpoints import UserStep as UserStep
from .files import PACKAGE
from .identity import ProcessId as ProcessId
from .identity import RankId as RankId
from .lazy_dataclass import dataclass

# What a schema says beside the type, as its keywords.
Natural = Annotated[int, ("minimum", 0)]
Ordinal = Annotated[int, ("minimum", 1)]
Duration = Annotated[float, ("minimum", 0)]
Share = Annotated[float, ("minimum", 0), ("maximum", 1)]
RankSet = Annotated[tuple[RankId, ...], ("uniqueItems", True)]
Component = Annotated[str, "one that a table of steps names"]
INSIDE = {"json": False}  # metadata of a field that no file has

# "silent": it stands still, and nothing proves that it hangs.
Outcome = Literal["ok", "hang", "silent", "slow", "crash", "interrupted"]
Rung = Literal["py-spy", "pystack", "faulthandler", "proc"]
WaitKind = Literal[
    "rank",
    "absent_rank",
    "collective",
    "store",
    "process",
    "thread",
    "lock",
    "futex",
    "gil",
    "file",
    "pipe",
    "socket",
    "input",
    "device",
    "stopped",
    "kernel",
    "sleep",
    "itself",
    "unknown",
]
# What ranks wait for in ordinary life: for one another.
WAITS_FOR_RANKS: tuple[WaitKind, ...] = ("rank", "absent_rank", "collective", "store")


# ---- what a look at a process shows -----------------------------------------------------------


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
    # As the source shows: the lock that the line waits for, and those that it has taken before
    # (evidence/locks_in_source.py). Only where a thread of the process waits for such a lock.
    takes: CodeLock | None = field(default=None, compare=False)
    inside: tuple[CodeLock, ...] = field(default=(), compare=False)
    # The addresses of the objects that local variables are: ("self", "0x7fbafa84f6d0").
    objects: tuple[tuple[str, str], ...] = field(default=(), compare=False, metadata=INSIDE)
    # Short texts that local variables are, as they are: forgotten as soon as the path that a loop
    # polls is found in them (evidence/polled_paths.py).
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
    peer_pids: tuple[int, ...] = ()  # who holds the other end, on this machine
    peer_names: tuple[str, ...] = ()  # their names, in the same order
    peer_inode: int | None = None  # of the other end of a Unix socket
    # Who holds the other end on another machine that was looked at too (collect/nodes.py).
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
    build: Build | None = None  # what it compiles

    @property
    def main(self) -> Thread | None:
        """The thread whose id is the pid (py-spy's thread names are null until threading is
        imported), else the first one.
        """
        return next((t for t in self.threads if t.os_id == self.pid), None) or next(
            iter(self.threads), None
        )


# ---- what is known of the process groups, and of the machine -----------------------------------


BATCH_TO_PEERS = "batch_isend_irecv"  # the kind of several sends and receives at once


@dataclass(frozen=True)
class Collective:
    """One operation of a process group, as a rank entered it."""

    group: str  # torch's name for it; "0" is the default group
    kind: str  # "all_reduce", "broadcast", "barrier", ...; "new_group", "ddp", "fsdp", "backward"
    number: int  # of this rank's operations in this group, from 1
    site: str = ""  # where the job called it: "train.py:88 on_fit_start"
    shape: str = ""  # "float32[4, 8]"; of init_process_group its init_method
    at: float = 0.0
    done: bool | None = None  # None: not known
    between: str = ""  # frames of libraries between site and torch: "ddp.py:308 barrier < ..."
    origin: str = ""  # where the site is a library's: the job's own line
    file: str = ""  # the whole path of the job's own file
    condition: str = ""  # where the source shows that only some ranks come by: "if rank == 0"
    peer: RankId | None = None  # of a send or a receive: whom it is for
    # From where the job's own line was called, innermost first: "/home/ada/train.py:40 main",
    # "torch/nn/modules/module.py:1775 _call_impl".
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class CollectiveLog:
    """The last operations of each process group on one rank, oldest first."""

    # "watchdog": what NCCL's watchdog printed; "ras": what NCCL's RAS service counts. These two
    # have no list of operations, but how many each group has begun, and those that do not end.
    source: Literal["ring", "torch", "flight recorder", "watchdog", "ras"]
    operations: tuple[Collective, ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # their members
    # How many operations each group has begun, as torch counts them: it knows those that C++ makes,
    # and counts each part of one that consists of several.
    sequence: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML sees it. Shares are of 1; power in watts."""

    index: int
    name: str
    busy: float | None = None
    power: float | None = None
    power_limit: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class MachineFacts:
    """The machine (or container) of a node, when a clock ran out."""

    cores: int | None = None
    memory_available: int | None = None
    memory_total: int | None = None
    shm_free: int | None = None
    shm_total: int | None = None
    interfaces: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    missing: tuple[str, ...] = ()


# ---- what is known of a rank when the job is judged -------------------------------------------


@dataclass(frozen=True)
class RankFacts:
    """One rank, as the monitor knows it when it asks for a diagnosis."""

    rank: RankId
    local_rank: int = 0
    pid: int | None = None
    host: str = ""
    reached: int = 0  # number of the last checkpoint it finished; its step is the one after
    held: bool = False  # it waits in our own barrier, after `reached`
    phase: str | None = None  # of its step, the last one it announced
    entered: float | None = None  # when it entered its step or phase
    last_line: str = ""
    last_line_at: float | None = None
    announced: str = ""  # the call it said it was about to make ("wandb.init"), or ""
    alive: bool = True
    left: bool = False  # said goodbye, or its end was seen
    status: int | None = None  # exit status; negative: the signal that ended it
    error: str = ""  # one line: "ValueError: ...", from its goodbye
    finished: bool = False  # it left after all it had to do
    never_started: bool = False  # no process, or a process that never said hello
    awaits: tuple[RankId, ...] = ()  # ranks it told us it waits for (rank 0 makes the folder ...)
    looks: tuple[Look, ...] = ()  # of the rank itself, oldest first
    children: tuple[tuple[Look, ...], ...] = ()  # of each descendant, oldest first
    moved: str = ""  # what moved over the looks, "" if nothing
    busy: bool = False  # same places, CPU burning
    left_at: float | None = None  # when it left, or its end was seen
    environment: Mapping[str, str] = field(default_factory=dict)  # what matters of it: MASTER_PORT
    collectives: tuple[CollectiveLog, ...] = ()  # one a source
    traceback: str = ""  # of the exception that ended it
    step: UserStep | None = None  # of a script of the user's own: the one it is in
    output: tuple[str, ...] = ()  # the last warnings of its libraries, and what it printed


Ended = Literal[
    "done",  # every rank left after all it had to do
    "past",  # every rank was past what --past names; we ended it
    "late",  # a deadline passed, and nothing moved over several looks
    "still",  # nothing moved for --stall seconds
    "busy",  # the same places and CPU burning, past --slow-limit deadlines
    "left",  # a rank left early with status 0 while others go on or wait
    "crash",  # an exception, a fatal signal, or all ranks left early
    "interrupted",  # Ctrl-C, SIGTERM, or the launcher is gone
    "limit",  # --limit passed while it still made progress
]
NOTHING_MOVES: tuple[Ended, ...] = ("late", "still", "busy")  # a clock ran out


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The job, as far as who collects knows it when it asks for a diagnosis."""

    ended: Ended
    pipeline: str = ""
    command: tuple[str, ...] = ()
    attempt: int = 0
    world_size: int = 0
    local_ranks: tuple[RankId, ...] = ()  # the ranks of this node, whether they were seen or not
    table: tuple[Checkpoint, ...] = ()
    now: float = 0.0
    started: float = 0.0  # when the first rank of the job started
    package: str = PACKAGE  # the folder of our own code: its frames are the harness, not the job
    still: float | None = None
    past_deadline: float | None = None
    to_verdict: float | None = None
    slow_steps: tuple[SlowStep, ...] = ()
    barrier_opened: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences: "launcher torchrun (4711) was killed"
    machine: MachineFacts = MachineFacts()
    # How many ranks of this node its launcher counts, and does not list, that never said hello:
    # nobody knows their numbers. "1 of 2 ranks of this node has not started", "" for none.
    unstarted: str = ""
    # Who may start more ranks yet: "process 4711 (python), which starts the ranks, sleeps".
    starting: str = ""


@dataclass(frozen=True)
class Wait:
    """What one process waits for: one edge of the wait-for graph."""

    kind: WaitKind
    detail: str
    pid: Natural | None = None
    process: str | None = None
    # Where the other end is a rank of this job; and the object itself, by name alone: a path,
    # host:port, "pipe:[3]". Both stand in the detail too.
    rank: RankId | None = field(default=None, metadata=INSIDE)
    what: str = field(default="", metadata=INSIDE)
    # Where process `pid` runs, "" on the machine of whoever waits.
    host: str = field(default="", metadata=INSIDE)
    # Processes for which it may as well be: of several peers nothing says which one is meant.
    others: tuple[int, ...] = field(default=(), metadata=INSIDE)
    # For a file that is there as a lock, and that any process of the job may have made.
    is_for_a_file: bool = field(default=False, metadata=INSIDE)

    @property
    def has_no_owner(self) -> bool:
        """Whether it is for a lock of which nothing says which one it is, nor who has it."""
        return self.kind == "lock" and self.pid is None and not self.what


@dataclass(frozen=True)
class Where:
    """One culprit: its process, and what it printed last."""

    rank: RankId
    host: str
    pid: Natural | None
    gpu: Natural | None
    last_line: str
    last_line_age: Duration | None


# How much is known: the kernel or a log says so; the signs agree; there is little to go by.
Level = Literal["seen", "fits", "guess"]


@dataclass(frozen=True)
class Cause:
    """Why it hangs, as the catalogue of causes has it (docs/causes/ID.md)."""

    id: str
    title: str
    why: str
    level: Level = "guess"
    matched: tuple[str, ...] = ()  # the facts that speak for it
    avoid: tuple[str, ...] = ()  # what to change, in words or as commands, the best first
    # How far the signs agree, from 0 to 1: it puts causes in order, and says nothing of how often
    # they are right.
    agreement: float = field(default=0.0, metadata=INSIDE)
    # The process that it is about, where that is one below a rank.
    process: int | None = field(default=None, metadata=INSIDE)


@dataclass(frozen=True)
class Edge:
    """One edge of the wait-for graph: `source` waits for `target`, as `evidence` shows.

    Ends are named "rank 3", "process 4711", "lock PATH", "host:port", "collective all_reduce ...".
    """

    source: str
    target: str
    kind: WaitKind
    evidence: str


@dataclass(frozen=True)
class Candidate:
    """Ranks that may be to blame, and how likely."""

    ranks: RankSet
    component: Component | None
    level: Level = "guess"


@dataclass(frozen=True)
class Try:
    """A change to try, as a command."""

    toggle: str
    value: str
    command: str


@dataclass(frozen=True)
class CheckpointPlace:
    """The checkpoint (and phase) a verdict is about; of a script of the user's own, the one that
    its step corresponds to, or the step itself: that has no number.
    """

    number: Natural | None
    name: str
    title: str
    phase: str | None = None


@dataclass(frozen=True)
class Ranks:
    """The ranks by role; one rank may have several."""

    culprit: RankSet = ()  # whose fault it is; of a slow job who moves, which is none
    stuck: RankSet = ()  # those that do not move by themselves
    waiting: RankSet = ()  # those that only wait for others
    dead: RankSet = ()
    never_started: RankSet = ()


@dataclass(frozen=True)
class Seconds:
    """Durations of a verdict."""

    total: Duration
    still: Duration | None = None
    past_deadline: Duration | None = None
    to_verdict: Duration | None = None


@dataclass(frozen=True)
class SlowStep:
    """A step that took longer than its deadline."""

    checkpoint: Natural | None
    name: str
    phase: str | None
    ranks: RankSet
    seconds: Duration
    deadline: Duration
    moved: str


@dataclass(frozen=True)
class Verdict:
    """The answer. Field for field what verdict.json holds (docs/reference/verdict.md)."""

    outcome: Outcome
    pipeline: str
    command: tuple[str, ...]
    attempt: Natural
    world_size: Natural
    checkpoint: CheckpointPlace | None  # the first one that not every rank reached; null when ok
    ranks: Ranks
    seen_ranks: tuple[RankId, ...] = ()  # whom it speaks for: a node for those of its own
    where: tuple[Where, ...] = ()
    component: Component | None = None
    call: str | None = None
    frame: str | None = None
    waits_for: Wait | None = None
    cause: Cause | None = None
    candidates: tuple[Candidate, ...] = ()
    chain: tuple[Edge, ...] = ()  # from one who waits to what is waited for in the end
    try_: tuple[Try, ...] = ()
    seen_by: Rung = "proc"
    slow_steps: tuple[SlowStep, ...] = ()
    barrier_opened: str | None = None
    seconds: Seconds = Seconds(0.0)
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences: what happened besides, what could not be worked out
    guessed: bool = False  # only the places in which ranks stand tell who waits for whom
    # Training steps of the rank that did most, after the first ones (--steady) of a script of the
    # user's own. null: it was not past those. 0: none came, or none was counted.
    trained: Natural | None = None
    may_start_more: bool = field(default=False, metadata=INSIDE)  # a rank that is absent may come
    schema: Literal[1] = 1


# ---- what is known of a trial ------------------------------------------------------------------

# "pass": past the place in question. "hang": the hang in question, or the crash, where one is in
# question. "other": neither, so it accuses nobody: another crash, a hang elsewhere, a launcher that
# does not start.
Result = Literal["pass", "hang", "other"]

# Values by toggle; a toggle that is not named is as the user runs it.
Setting = Mapping[str, str]


@dataclass(frozen=True)
class HangPlace:
    """Where a hang is: what tells the hang in question from another one."""

    checkpoint: str | None  # its name
    phase: str | None = None
    call: str | None = None  # "wandb.init"
    component: str | None = None
    # Python frames of the ranks that are stuck, (file, function), innermost first; one entry a
    # different stack. Files as the interpreter names them.
    stacks: tuple[tuple[tuple[str, str], ...], ...] = ()
    crash: str = ""  # of a crash in the place of a hang: the kind of its error, "RuntimeError"
    trained: Natural | None = None  # after how many training steps beyond the first, null: before


@dataclass(frozen=True)
class Trial:
    """One launch under one setting of the toggles, and what came of it."""

    number: Ordinal  # from 1
    setting: Setting
    result: Result
    outcome: Outcome | None  # of its verdict; None: there is none
    seconds: Duration
    command: tuple[str, ...]
    environment: Mapping[str, str]  # set beside the user's own
    run_dir: str
    why: str = ""  # "hang at checkpoint 9 in wandb.init, rank 0", "crash: ValueError: ..."
    place: HangPlace | None = None  # where it hung
    at_place: Duration | None = None  # seconds that its slowest rank spent at the place in question
