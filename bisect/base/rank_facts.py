"""Facts of the ranks and of their job, as a diagnosis takes them: the looks at each rank, its
operations in process groups, the machine, and how the job ended.

Unless a field says otherwise, times are seconds, sizes are bytes, and `at` is a reading of the
machine's monotonic clock (CLOCK_MONOTONIC, the same in every process of one machine).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from .addresses import is_loopback
from .checkpoints import Checkpoint, UserStep
from .files import PACKAGE
from .identity import RankId, UnknownRank
from .lazy_dataclass import dataclass
from .process_facts import Look
from .schema_types import Duration, Natural, RankSet

THREAD_ENDED = "Exception in thread "  # and its name: what threading.excepthook begins with
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
    raised: bool = False  # it is over because it raised an exception
    between: str = ""  # frames of libraries between site and torch: "ddp.py:308 barrier < ..."
    origin: str = ""  # where the site is a library's: the job's own line
    file: str = ""  # the whole path of the job's own file
    condition: str = ""  # where the source shows that only some ranks come by: "if rank == 0"
    peer: RankId | None = None  # of a send or a receive: whom it is for
    root: RankId | None = None  # of a broadcast, a gather, ...: where it goes out or comes together
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
class UnreachedAddress:
    """Where NCCL could not connect to, as NCCL writes it."""

    address: str  # "10.0.0.1<45763>"; "" where its line does not say
    reason: str  # "Connection refused"


@dataclass(frozen=True)
class NcclFacts:
    """What NCCL printed in the process of a rank, where that goes to a file."""

    version: str = ""  # "2.21.5"
    interface: str = ""  # by which its first connections are made: "eth0"
    address: str = ""  # of that interface
    unreached: tuple[UnreachedAddress, ...] = ()  # none once a communicator was made after it
    warnings: tuple[str, ...] = ()  # oldest first, secrets masked


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML sees it, or as the kernel tells of AMD's. Shares are of 1; power in watts."""

    index: int
    name: str
    busy: float | None = None
    power: float | None = None
    power_limit: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    pids: tuple[int, ...] = ()  # who computes on it, as this machine or container numbers processes
    # The same as the host numbers them, where that is another's numbering: nobody here is meant.
    host_pids: tuple[int, ...] = ()
    bus: str = ""  # its place on the PCI bus: "0000:3b:00.0"
    uuid: str = ""
    # "lost", "reset required", "no handle" as NVML says; "silent": it did not answer in time
    state: str = ""
    said: str = ""  # in words, what is wrong with it or what it did not answer
    compute_mode: str = ""  # "default", "exclusive process", "prohibited"
    mig: bool | None = None  # divided into several
    slowed_by: tuple[str, ...] = ()
    memory_errors: int | None = None  # not corrected, since the last reset
    rows: tuple[str, ...] = ()  # what is amiss with rows of its memory
    links_down: tuple[int, ...] = ()  # NVLinks that are down while others are up
    pcie_width: int | None = None  # lanes that it uses, and that it can use
    pcie_width_most: int | None = None
    persistence: bool | None = None  # the driver stays loaded for it
    fabric: str = ""  # what is amiss with its place in the NVLink fabric: "in progress"
    recovery: str = ""  # what the driver asks for after errors: "a reset of the GPU"
    moments: tuple[tuple[float, float], ...] = ()  # busy and power, some tenths of a second later
    driver: str = ""  # version

    @property
    def least_busy(self) -> float | None:
        """Return the least share of the time in which it computed, at any of the moments."""
        known = [] if self.busy is None else [self.busy]
        return min([*known, *(busy for busy, _ in self.moments)], default=None)

    @property
    def most_power(self) -> float | None:
        """Return the most power at any of the moments."""
        known = [] if self.power is None else [self.power]
        return max([*known, *(power for _, power in self.moments)], default=None)


GpuErrorKind = Literal[
    "lost",  # it is off the bus, or did not start
    "stopped",  # it, or its firmware, does not answer any more
    "memory",  # errors of its memory
    "link",  # between GPUs: NVLink, a switch
    "access",  # what a program did: an address that is not its own
    "other",
]


@dataclass(frozen=True)
class GpuError:
    """An error of a GPU (Xid) or of a switch between GPUs (SXid), as its driver reported it."""

    bus: str  # its place on the PCI bus, without the function: "0000:65:00"
    code: int  # 0: its driver has no numbers (AMD's)
    kind: GpuErrorKind
    meaning: str  # in words
    at: float
    pid: int | None = None  # whose work it was, as the host numbers processes
    says: str = ""  # the rest of the driver's line
    of_switch: bool = False
    mild: bool = False  # the GPU recovers from it by itself, or at its next reset

    @property
    def title(self) -> str:
        """Return its number and what that means: "Xid 79, GPU has fallen off the bus"."""
        name = "SXid" if self.of_switch else "Xid"
        return f"{name} {self.code}, {self.meaning}" if self.code else self.meaning


@dataclass(frozen=True)
class MachineFacts:
    """The machine (or container) of a node, when a clock ran out."""

    cores: int | None = None
    memory_available: int | None = None
    memory_total: int | None = None
    # Processes of our own control group that the kernel has ended for want of memory.
    oom_kills: int | None = None
    shm_free: int | None = None
    shm_total: int | None = None
    interfaces: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_errors: tuple[GpuError, ...] = ()  # since the job started, oldest first
    driver: str = ""  # of the GPUs: "570.158.01"
    installed: Mapping[str, str] = field(default_factory=dict)  # versions by name: "torch", "NCCL"
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankFacts:
    """One rank, as the monitor knows it when it asks for a diagnosis."""

    rank: RankId
    local_rank: int = 0
    pid: int | None = None
    host: str = ""
    twin: int | None = None  # pid of another process that says that it is this rank
    twin_host: str = ""  # where that is, "" on its own node
    reached: int = 0  # number of the last checkpoint it finished; its step is the one after
    held: bool = False  # it waits in our own barrier, after `reached`
    phase: str | None = None  # of its step, the last one it announced
    entered: float | None = None  # when it entered its step or phase
    last_line: str = ""
    last_line_at: float | None = None
    announced: str = ""  # the call it said it was about to make ("wandb.init"), or ""
    raised: str = ""  # the call of its last step that raised, if none has ended well since
    alive: bool = True
    left: bool = False  # said goodbye, or its end was seen
    status: int | None = None  # exit status; negative: the signal that ended it
    error: str = ""  # one line: "ValueError: ...", from its goodbye
    finished: bool = False  # it left after all it had to do
    never_started: bool = False  # no process, or a process that never said hello
    awaits: tuple[RankId, ...] = ()  # ranks it told us it waits for (rank 0 makes the folder ...)
    looks: tuple[Look, ...] = ()  # of the rank itself, oldest first
    children: tuple[tuple[Look, ...], ...] = ()  # of each descendant, oldest first
    # Of these, what was started beside the ranks and by none of them: a server that this one asks.
    beside: tuple[int, ...] = ()
    moved: str = ""  # what moved over the looks, "" if nothing
    busy: bool = False  # same places, CPU burning
    left_at: float | None = None  # when it left, or its end was seen
    environment: Mapping[str, str] = field(default_factory=dict)  # what matters of it: MASTER_PORT
    collectives: tuple[CollectiveLog, ...] = ()  # one a source
    traceback: str = ""  # of the exception that ended it
    step: UserStep | None = None  # of a script of the user's own: the one it is in
    output: tuple[str, ...] = ()  # the last warnings of its libraries, and what it printed
    nccl: NcclFacts = NcclFacts()
    # Of a rank that NCCL's RAS service has no answer from, in words: "communicator 0x1f of 8 ..."
    unheard: str = ""
    # What its GPU runs, where that was asked for: "spin_kernel <<<(1,1,1),(1,1,1)>>>".
    gpu_kernels: tuple[str, ...] = ()
    # All its threads with native frames, as pystack or gdb prints them, where that was asked for.
    native_threads: str = ""
    # What it is in its server, by the last title of its process ("scheduler TP1"). Where its number
    # is not known either it is no rank, but a process above the ranks that has failed.
    title: str = ""
    # Of a rank whose looks were left out, in evidence.json or by a node of a large job: they showed
    # it and what it had started in the same places as this rank.
    same_looks_as: RankId | None = None

    @property
    def parent(self) -> int:
        """The pid of who has started its process, 0 where nothing tells."""
        return self.looks[-1].ppid if self.looks else 0

    def looks_at(self, pid: int | None) -> tuple[Look, ...]:
        """Return the looks at one of its `children`, () if it is none of these."""
        return next((looks for looks in self.children if looks and looks[-1].pid == pid), ())


def is_server_process(facts: RankFacts) -> bool:
    """Return whether this is none of the ranks, but a process of their server that has failed."""
    return bool(facts.title) and isinstance(facts.rank, UnknownRank)


_LOOKS_OF_ANOTHER = 2  # the last ones: they are made anew for each of thousands of ranks


def fill_in_same_looks(ranks: Sequence[RankFacts]) -> tuple[RankFacts, ...]:
    """Return the ranks; one whose looks were left out has the last of the rank that it is like, and
    nothing of what that rank has started, or is connected to. Its log of collectives, where it was
    left out too, is the same as well.
    """
    whole = {facts.rank: facts for facts in ranks if facts.looks}
    shared: dict[RankId, tuple[Look, ...]] = {}

    def fill_in(facts: RankFacts) -> RankFacts:
        other = whole.get(facts.same_looks_as) if facts.same_looks_as is not None else None
        if other is None or facts.looks:
            return facts
        if other.rank not in shared:
            last = other.looks[-_LOOKS_OF_ANOTHER:]
            shared[other.rank] = tuple(_leave_out_connections(one, other) for one in last)
        looks = tuple(replace(one, pid=facts.pid or 0) for one in shared[other.rank])
        return replace(facts, looks=looks, collectives=facts.collectives or other.collectives)

    return tuple(map(fill_in, ranks))


def _leave_out_connections(look: Look, rank: RankFacts) -> Look:
    sentence = f"left out: it is like that at rank {rank.rank}, which is shown here"
    missing = (*look.missing, sentence)
    return replace(look, dump="", missing=missing, sockets=(), closed_here=(), holds=())


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


def describe_exit(facts: RankFacts) -> str:
    """Return in words how a rank left."""
    if facts.error:
        return f"ended by {facts.error}"
    if facts.status is None:
        return "is gone"
    if facts.status < 0:
        return f"ended by signal {-facts.status}"
    if facts.status == 0:
        return "left early, with status 0"
    return f"ended with status {facts.status}"


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
class LongestStep:
    """The step that took longest, though it may not have been late: "4 Tokenizer loaded"."""

    seconds: Duration
    words: str


@dataclass(frozen=True)
class LostNode:
    """A node of the job that was heard and is not heard any more."""

    host: str
    ranks: tuple[RankId, ...]
    silent: float | None  # for so long, in seconds; None: it was not heard at all
    last_word: str  # where its ranks were, in words
    address: str = ""  # by which it was reached


@dataclass(frozen=True)
class ClockOffset:
    """By how much a node's wall clock is ahead of that of the node that judges, in seconds, and by
    how much that may be wrong.
    """

    host: str
    ahead: float
    error: float


@dataclass(frozen=True)
class RestartedProcess:
    """Processes of one kind that ended one after another, each started in place of the one before,
    and at least one of them by an error.
    """

    name: str  # of the last one; "": nobody has seen it, only the log is known that it has left
    pid: int
    times: int  # that one has ended
    seconds: float  # from when the first was seen, or the job started, to the end of the last
    status: int | None = None  # of one that was seen before its parent asked; negative: a signal
    file: str = ""  # a log that the last one wrote, and its last line where that names an error
    error: str = ""
    is_sure: bool = False  # it was no program that only says no by its status


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
    said: tuple[str, ...] = ()  # what NCCL, torch, vLLM or a GPU tells of the job, in sentences
    machine: MachineFacts = MachineFacts()
    # Of a job on several nodes, by host; `machine` is then none of them.
    machines: Mapping[str, MachineFacts] = field(default_factory=dict)
    # How many ranks of this node its launcher counts, and does not list, that never said hello:
    # nobody knows their numbers. "1 of 2 ranks of this node has not started", "" for none.
    unstarted: str = ""
    # Who may start more ranks yet: "process 4711 (python), which starts the ranks, sleeps".
    starting: str = ""
    # "process 4711 (python), which starts the ranks, waits for what process 4712 is to tell it"
    starter_hears: str = ""
    restarted: RestartedProcess | None = None  # as the watch around the command has seen it
    lost_nodes: tuple[LostNode, ...] = ()
    paused: str = ""  # why nothing of it is to run on this node: it was stopped, or frozen
    # Where no rank has started: hosts that a launcher reaches by ssh, and that do not answer us so
    # either, by name: what came instead.
    silent_hosts: Mapping[str, str] = field(default_factory=dict)
    # Where ranks are absent: hosts that Slurm has for them, and of which no node has told.
    absent_hosts: tuple[str, ...] = ()
    clocks: tuple[ClockOffset, ...] = ()  # of the nodes that were judged as one while the job ran
    master_addresses: tuple[str, ...] = ()  # what MASTER_ADDR means here, where that was looked up

    def machine_of(self, host: str) -> MachineFacts:
        """Return the machine of a host; the only one there is where the job has one node."""
        return self.machines.get(host, self.machine)


def mark_twin(first: RankFacts, second: RankFacts) -> RankFacts:
    """Return the first of two processes with one number, with the other as its twin where both are
    of one job: their variables name one master, which is no loopback address.
    """
    mine, other = first.environment, second.environment
    master = mine.get("MASTER_ADDR", "")
    is_one = all(mine.get(name) == other.get(name) for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not master or is_loopback(master) or not is_one or None in (first.pid, second.pid):
        return first
    return (
        first if first.twin is not None else replace(first, twin=second.pid, twin_host=second.host)
    )


def gather_machines(nodes: Iterable[tuple[str, MachineFacts]]) -> dict[str, MachineFacts]:
    """Return the machines of a job's nodes by host, without hosts of which there are several: whose
    GPUs those are nobody can tell.
    """
    found: dict[str, MachineFacts] = {}
    doubles: set[str] = set()
    for host, machine in nodes:
        if host in found:
            doubles.add(host)
        found[host] = machine
    return {host: machine for host, machine in found.items() if host not in doubles}


def shift_gpu_errors(machine: MachineFacts, offset: float) -> MachineFacts:
    """Return a machine with the times of its GPUs' errors on a clock that is `offset` seconds
    ahead of its own.
    """
    errors = tuple(replace(error, at=error.at + offset) for error in machine.gpu_errors)
    return replace(machine, gpu_errors=errors)
