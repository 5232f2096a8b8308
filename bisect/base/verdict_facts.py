"""Facts of the answer: the verdict and what it is made of (waits, causes, edges, candidates), and
what came of one trial of a search.

What stands in verdict.json and isolation.json has its fields' comments in the schemas too, as
descriptions (docs/make_schemas.py).

Unless a field says otherwise, times are seconds, sizes are bytes, and `at` is a reading of the
machine's monotonic clock (CLOCK_MONOTONIC, the same in every process of one machine).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from .identity import RankId
from .lazy_dataclass import dataclass
from .process_facts import Rung
from .rank_facts import SlowStep
from .schema_types import INSIDE, Component, Duration, Natural, Ordinal, RankSet

# "silent": it stands still, and nothing proves that it hangs.
Outcome = Literal["ok", "hang", "silent", "slow", "crash", "interrupted"]
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
    # It hears several at once, and nothing says which of them is to wake it: the one that is named,
    # or one of `others`, or somebody who has not connected yet.
    is_for_any: bool = field(default=False, metadata=INSIDE)
    # For a file that is there as a lock, and that any process of the job may have made.
    is_for_a_file: bool = field(default=False, metadata=INSIDE)

    @property
    def has_no_owner(self) -> bool:
        """Whether it is for a lock of which nothing says which one it is, nor who has it."""
        return self.kind == "lock" and self.pid is None and not self.what


@dataclass(frozen=True)
class Where:
    """One culprit: its process, what it printed last, and what it is in and waits for itself."""

    rank: RankId
    host: str
    pid: Natural | None
    gpu: Natural | None
    last_line: str
    last_line_age: Duration | None
    call: str | None = None
    waits_for: Wait | None = None
    # What it is in an inference server: "Worker_TP1 of EngineCore_DP0", "" in any other job.
    role: str = ""
    ended: str = ""  # how, where it has: "ended by signal 9"


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

    # Whose fault it is; of a slow job, which is none, who moves or stands still beside busy ranks.
    culprit: RankSet = ()
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
class NodeSeen:
    """One node of a job whose nodes were judged as one while it ran."""

    name: str  # its host
    seen: bool
    ranks: RankSet
    why_not: str = ""  # in a sentence, where it was not seen: since when, and its last word
    # How far its clock, as times of it are told, may be off: half of the shortest way there and
    # back, in milliseconds.
    clock_error_ms: Duration | None = None
    # By how much its wall clock is ahead of that of the node that judged; below 0: behind it.
    clock_ahead_ms: float | None = None


@dataclass(frozen=True)
class NodesWithValue:
    """The nodes of a job that have the same of something."""

    value: str  # "": it is not there, or not set
    nodes: tuple[str, ...]  # hosts; of many the first
    count: Natural  # how many nodes these are


@dataclass(frozen=True)
class NodeDifference:
    """Something that is not the same on all nodes of a job."""

    name: str  # "torch", "driver", "NCCL_IB_DISABLE"
    values: tuple[NodesWithValue, ...]  # that of most nodes first


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
    # Of the notes: what NCCL, torch, vLLM or a GPU tells, and why nobody is named.
    said: tuple[str, ...] = ()
    limit: str = ""  # by which time limit a culprit gives up that is only silent, in words
    guessed: bool = False  # only the places in which ranks stand tell who waits for whom
    # Training steps of the rank that did most, after the first ones (--steady) of a script of the
    # user's own. null: it was not past those. 0: none came, or none was counted.
    trained: Natural | None = None
    may_start_more: bool = field(default=False, metadata=INSIDE)  # a rank that is absent may come
    # Of a job on several nodes that talked to each other: each node that is known of.
    nodes: tuple[NodeSeen, ...] = ()
    partial: bool = False  # of some of its nodes nothing is known
    # What is not the same on all of them: versions, drivers, variables by which ranks talk.
    differences: tuple[NodeDifference, ...] = ()
    schema: Literal[1, 2] = 2  # 1: of a version without `nodes`


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
