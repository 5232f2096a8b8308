"""The messages about a job while it runs, a type for each kind: what ranks send their monitor, what
the monitor notes beside it in events.jsonl, and what it sends to the process around the launcher.

JSON in between (docs/reference/events.md). `encode` makes it, `decode` reads it: whatever it reads,
it raises nothing, because a line may be cut short, of another version, or not ours. What a
monitor answers its ranks is read by `decode_answer`, and written down nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .typed_messages import Rank, TypedMessage, decode_as, fields_of, read_fields

KINDS: dict[str, type[Event]] = {}  # by "t" in JSON
ANSWERS: dict[str, type[Answer]] = {}


class Event(TypedMessage):
    """What happened, and when. A field whose default is None is left out where it is that; every
    other one is always written.
    """

    at: float = 0.0  # seconds, monotonic, the same for all ranks of a node; 0.0: not stamped yet
    rank: Rank | None = None  # whose it is, as its monitor knows
    wall: float | None = None  # seconds since 1970, when it was noted; of `hello` when it began

    def __init_subclass__(cls, kind: str = "", outer: tuple[str, ...] | None = None) -> None:
        """`kind` is its "t" in JSON; `outer` the fields that are sent outside, None: nothing is."""
        cls.kind, cls.outer = kind, outer
        if kind:
            KINDS[kind] = cls


class Unknown(Event):
    """An event of a kind, or with values, that we do not know: kept as it was said."""

    def __init__(self, said: Mapping[str, Any] = {}, **values: Any) -> None:
        super().__init__(**values)
        self.__dict__["said"] = said  # without the fields above


# ---- what a rank says ------------------------------------------------------------------------


class Hello(Event, kind="hello", outer=("rank", "pid", "at")):
    """It came to the monitor. Most of it is its place in the job (base/place.py)."""

    pid: int = 0
    began: float = 0.0  # seconds, monotonic
    host: str = ""
    local_rank: Rank = -1
    world_size: int = -1
    local_world_size: int = -1
    node: int = -1
    attempt: int = 0
    launcher: str | None
    launcher_pid: int = 0
    job: str = ""
    joined: bool = False
    neighbours: tuple[Rank, ...] = ()
    counted: bool = True
    in_order: bool = True
    node_name: str = ""
    master: str | None
    contradictions: tuple[str, ...] = ()  # sentences
    impossible: str = ""
    error_file: str | None
    max_restarts: int = 0
    environment: Mapping[str, str] = {}  # secrets masked
    python: str = ""
    executable: str = ""
    own: bool | None = None  # it runs a script of the user's own
    plain: bool | None = None  # its number is not known from anything
    instead_of: Rank | None = None  # the rank that it was before it knew better
    above: tuple[int, ...] | None = None  # of a spawned one: pids of who started it, nearest first


class Enter(Event, kind="enter", outer=("rank", "n", "at")):
    """A step begins."""

    n: Rank  # of the checkpoint


class World(Event, kind="world"):
    """It has joined a group by the number that it had taken for its own."""

    size: int = 0  # ranks of the group, where some may be on other nodes


class RingOpened(Event, kind="ring"):
    """It has a log of its collectives."""

    fd: int  # as the rank has it


class Environ(Event, kind="environ"):
    """Its environment is another one than at the step before."""

    changed: Mapping[str, str]  # secrets masked


class Phase(Event, kind="phase", outer=("rank", "n", "name", "at")):
    """A phase begins."""

    name: str
    n: Rank | None  # of the checkpoint


class Call(Event, kind="call"):
    """It is about to make a call that can block, or to import."""

    call: str


class Import(Event, kind="import"):
    """An import is done."""

    module: str
    seconds: float
    version: str | None


class Line(Event, kind="line"):
    """It prints a line."""

    text: str


class Logged(Event, kind="logged"):
    """A library of it logged a warning or worse: no sign that the rank moves."""

    text: str


class Pulse(Event, kind="pulse"):
    """Training goes on."""

    step: int


class Reached(Event, kind="reached", outer=("rank", "n", "at")):
    """A checkpoint is reached."""

    n: Rank


class Begin(Event, kind="begin", outer=("rank", "step", "k", "title", "at")):
    """In a script of the user's own: a step begins."""

    step: str
    k: int  # which time it is, from 1
    depth: int = 0  # steps around it
    call: str = ""
    title: str = ""
    component: str = ""
    deadline: float | None  # seconds; None: never late
    checkpoint: str | None  # of the startup pipeline
    phase: str | None  # of that


class End(Event, kind="end", outer=("rank", "step", "k", "at")):
    """That step is over."""

    step: str
    k: int
    failed: bool = False  # it raised an exception
    error: str | None = None  # which, in a line; None: an interruption, or an exit


class Toggle(Event, kind="toggle"):
    """In a script of the user's own: it came to a call that a toggle changes."""

    name: str


class StartsRanks(Event, kind="starts", outer=("rank", "at")):
    """It is a launcher, and no rank: an agent of torch's elastic runs in it."""


class Quiet(Event, kind="quiet", outer=("rank",)):
    """In a script of the user's own: it is past its first training steps."""


class Ready(Event, kind="ready"):
    """A server said that it is ready: the start of its ranks is over."""

    text: str  # "Ready after 83 s: API server (pid 4711) answers GET /health with 200 at port 8000"


class Arrive(Event, kind="arrive", outer=("rank", "n", "held")):
    """It is at the barrier after a checkpoint."""

    n: Rank
    held: bool = True  # it waits there


class Await(Event, kind="await"):
    """It waits for what another rank does first."""

    what: str
    ranks: tuple[Rank, ...] = ()  # none: the first of its node, whichever that is


class WaitsNoMore(Event, kind="waits_no_more"):
    """It has waited for that as long as its step may take, or for a rank of another node, and goes
    on.
    """

    what: str


class Did(Event, kind="did"):
    """Rank 0, or the first of the node, did what others wait for."""

    what: str


class Exercised(Event, kind="exercised"):
    """At the end: what this run did not try."""

    missing: tuple[str, ...]


class Finished(Event, kind="finished"):
    """It did all it had to do."""


class Bye(Event, kind="bye"):
    """It leaves."""

    status: int | None  # None: not known to the rank itself
    error: str = ""
    finished: bool = False
    traceback: str | None = None
    usage: bool | None = None  # the command line was wrong, and it has said so itself


# ---- what the monitor notes ------------------------------------------------------------------


class Table(Event, kind="table"):
    """It begins to watch."""

    numbers: Mapping[str, Rank]  # of the checkpoints, by name


class Opened(Event, kind="opened", outer=("n", "at")):
    """The barrier after a checkpoint opens."""

    n: Rank


class BarriersOff(Event, kind="barriers off"):
    """There are no barriers from here on."""

    why: str


class Overdue(Event, kind="overdue"):
    """A clock of a rank ran out, and the monitor looks."""

    clock: str
    since: float | None  # seconds, monotonic


class Said(Event, kind="said"):
    """The monitor prints a line."""

    text: str


class Ended(Event, kind="ended"):
    """A rank's process has ended."""

    status: int | None  # negative for a signal


class Verdict(Event, kind="verdict", outer=("outcome", "ends")):
    """The verdict was made."""

    outcome: str
    ends: bool = False  # the job is ended for it
    proof: str = ""
    run_dir: str = ""
    job: str | None = None  # outside alone: which of several


class HeldBack(Event, kind="held back", outer=()):
    """Nothing moves on this node, and what ranks of other nodes do is not seen: judged later."""


class OtherHosts(Event, kind="hosts", outer=("hosts",)):
    """Monitors of other nodes are joined, or were until now."""

    hosts: Mapping[str, str] = {}  # by name the address by which it reached the lead


class Paused(Event, kind="paused"):
    """The launcher, or all ranks, are stopped or frozen: no clock counts."""

    why: str


class GoesOn(Event, kind="goes on"):
    """All clocks begin anew."""


class TakenBack(Event, kind="taken back", outer=()):
    """What was called hung moves again."""

    job: str | None = None  # outside alone: which of several


class Garbled(Event, kind="garbled"):
    """A connection broke, or sent what is no message."""

    why: str


class Failed(Event, kind="failed", outer=()):
    """Something failed in the monitor itself: all of it, if no `part` is named."""

    traceback: str = ""
    part: str | None = None


class WatchEnds(Event, kind="watch ends"):
    """The monitor leaves."""


class Watches(Event, kind="watches", outer=("pid", "run_dir", "folder", "titles")):
    """A monitor begins to watch. Told outside, and not noted."""

    pid: int
    run_dir: str
    folder: str = ""  # of its socket
    titles: Mapping[Rank, str] = {}  # of the checkpoints, by number


class Answered(Event, kind="answered", outer=("text",)):
    """What a monitor says of a verdict, where its own words go elsewhere than those of who watches
    the launcher. Told outside, and not noted.
    """

    text: str


# ---- what a monitor answers its ranks ----------------------------------------------------------


class Answer(TypedMessage):
    """What a monitor tells a rank of its node."""

    def __init_subclass__(cls, kind: str = "") -> None:
        """`kind` is its "t" in JSON."""
        cls.kind = kind
        if kind:
            ANSWERS[kind] = cls


class Places(Answer, kind="places"):
    """Where things are; what is None was sent before, or is sent later."""

    run_dir: str | None = None
    temporary: str | None = None  # the job's folder for temporary files
    stacks_file: str | None = None  # for the rank's own timer, where py-spy may not look


class Go(Answer, kind="go"):
    """What it waited for is there; or, not `done`, there is no sense in waiting for it."""

    done: bool = True


class Say(Answer, kind="say"):
    """It is to print a line."""

    text: str


class Alive(Answer, kind="alive"):
    """The monitor is there, and what the rank waits for is not."""


class Observe(Answer, kind="observe"):
    """Barriers hold no rank from here on."""


class Written(Answer, kind="written"):
    """All that the rank's goodbye was waited for is written: it may end."""


# ---- JSON ------------------------------------------------------------------------------------


def decode(data: object) -> Event:
    """Return the event that an object of JSON says. What is missing, or is no value of its field,
    is the field's default; where there is none, or the kind is not known, it is Unknown.
    """
    said: dict[str, Any] = data if isinstance(data, dict) else {}
    event = decode_as(KINDS, said)
    if event is not None:
        return event
    values = read_fields(Event, said) or {}
    rest = {name: v for name, v in said.items() if name not in values or values[name] != v}
    return Unknown(rest, **values)


def decode_answer(data: object) -> Answer | None:
    """Return the answer that an object of JSON says, None where it says none that we know."""
    return decode_as(ANSWERS, data) if isinstance(data, dict) else None


def encode(event: TypedMessage) -> dict[str, Any]:
    """Return an event, or an answer, as JSON has it."""
    said = dict(event.__dict__["said"]) if isinstance(event, Unknown) else {"t": event.kind}
    for name, field in fields_of(type(event)).items():
        value = event.__dict__[name]
        is_left_out = value is None and field.default is None
        if not is_left_out and (value or name != "at"):
            said[name] = value
    return said


def encode_outer(event: Event) -> dict[str, Any] | None:
    """Return what is sent of an event to the process around the launcher, None for nothing."""
    if event.outer is None:
        return None
    message = encode(event)
    return {name: message[name] for name in ("t", *event.outer) if name in message}
