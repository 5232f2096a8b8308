"""What is known of each rank, folded from what it said: the same live and from events.jsonl; and
whom a barrier lets go on.

Of the steps of a script of the user's own there is no table beforehand, and ranks need not do
the same ones. They are matched by name and occurrence, and ordered by when any rank first began
them: whoever ended a later one is further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base.checkpoints import Checkpoint, OwnStep
from ..base.startup_table import STARTUP_BY_NAME

if TYPE_CHECKING:
    from ..base.checkpoints import Phase
    from ..base.facts import Look


SCRIPT_RUNNING = "script"  # the name of what is between two steps
SCRIPT = STARTUP_BY_NAME["script"].number  # that a rank has reached with its first word
SILENT = OwnStep(SCRIPT_RUNNING, "Script", "", 0.0, number=SCRIPT, without_deadline=True)


@dataclass(frozen=True)
class OpenStep:
    """A step that a rank is in, and since when (monotonic)."""

    step: OwnStep
    k: int
    at: float


class OwnSteps:
    """The order of the steps so far, and what beginnings and ends make of a rank."""

    def __init__(self, table: tuple[Checkpoint, ...]) -> None:
        """`table` is that of the startup pipeline: what steps may correspond to."""
        self._rows = {row.name: row for row in table}
        self._first = len(table)
        self._steps: dict[tuple[str, int], OwnStep] = {}
        self._titles: dict[str, str] = {}  # as ranks say them

    def greet(self, member: RankState) -> None:
        """A rank says its first word."""
        self._moved(member, member.entered)
        member.steps_told = 0

    def begin(self, member: RankState, message: Mapping[str, Any], at: float) -> None:
        """A rank begins a step."""
        step, k = self._step(message), int(message["k"])
        member.open = (*member.open, OpenStep(step, k, at))
        member.last_step = str(message["title"])
        member.announced = str(message.get("call") or "")
        self._moved(member, at)

    def end(self, member: RankState, message: Mapping[str, Any], at: float) -> None:
        """A rank ends a step, and with it whatever it has begun inside and not ended."""
        key = str(message["step"]), int(message["k"])
        inside = [(one.step.step, one.k) for one in member.open]
        if key not in inside:
            return
        ended = member.open[inside.index(key)]
        member.open = member.open[: inside.index(key)]
        member.last_step = self._titles.get(key[0], ended.step.title)
        if not message.get("failed"):
            member.done = max(member.done, ended.step.number)
        took = member.took.get(ended.step.number, 0.0)
        member.took[ended.step.number] = max(took, at - ended.at)
        member.announced = ""
        self._moved(member, member.open[-1].at if member.open else at)

    def is_past(self, member: RankState, name: str) -> bool:
        """Return whether a rank is past the step, phase or checkpoint of that name: it has ended
        it, or a later one that it did instead.
        """
        numbers = [step.number for step in self._steps.values() if name in step.names]
        if not numbers or any(name in one.step.names for one in member.open):
            return False
        return member.quiet or member.done >= min(numbers)

    def title(self, number: int) -> str:
        """Return the title of the step of that number."""
        step = next((s.step for s in self._steps.values() if s.number == number), "")
        return self._titles.get(step, "")

    def _inside(self, member: RankState) -> OwnStep:
        if member.open:
            known = [one.step for one in member.open if one.step.startup is not None]
            return known[-1] if known else member.open[-1].step
        after = f"Script after {member.last_step}" if member.last_step else "Script"
        return OwnStep(SCRIPT_RUNNING, after, "", 0.0, number=member.step, without_deadline=True)

    def _moved(self, member: RankState, entered: float) -> None:
        member.entered, member.phase = entered, None
        member.steps_told += 1
        inside = member.open[-1].step.number - 1 if member.open else 0
        member.reached = max(SCRIPT, member.done, inside)
        member.step = member.reached + 1
        member.inside = self._inside(member)
        member.forget_looks()

    def _step(self, message: Mapping[str, Any]) -> OwnStep:
        key = str(message["step"]), int(message["k"])
        self._titles[key[0]] = str(message["title"])
        if key not in self._steps:
            row, deadline = self._rows.get(str(message.get("checkpoint"))), message.get("deadline")
            self._steps[key] = OwnStep(
                number=self._first + len(self._steps),
                name=row.name if row else key[0],
                title=row.title if row else str(message["title"]),
                component=str(message["component"]),
                deadline=float(deadline or 0.0),
                step=key[0],
                startup=row.number if row else None,
                phase=message.get("phase") if row else None,
                without_deadline=deadline is None,
            )
        return self._steps[key]


Message = dict[str, Any]
LOGGED_KEPT = 20
CONTRADICTIONS_SHOWN = 3
_MOST_LISTED = 1 << 16  # ranks of a node: a size beyond this is a typing error


@dataclass
class RankState:
    """One rank of this node. Times are monotonic."""

    rank: int
    local_rank: int
    pid: int
    host: str
    began: float
    attempt: int = 0
    error_file: str | None = None
    max_restarts: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    python: str = ""
    executable: str = ""
    contradictions: tuple[str, ...] = ()  # sentences: what launchers' variables say of it differs
    # where it is
    step: int = 1
    reached: int = 0
    arrivals: dict[int, float] = field(default_factory=dict)  # seconds after `began`
    took: dict[int, float] = field(default_factory=dict)  # seconds, by step
    imports: dict[int, float] = field(default_factory=dict)  # seconds of them spent importing
    entered: float = 0.0
    phase: str | None = None
    phase_at: float = 0.0
    held_at: int | None = None  # the checkpoint behind which it waits in our barrier
    awaits: tuple[int, ...] = ()
    awaits_what: str = ""
    waits_since: float = 0.0
    announced: str = ""
    last_line: str = ""
    last_line_at: float | None = None
    logged: tuple[str, ...] = ()  # the last warnings of its libraries
    pulse: int = 0
    pulsed_at: float = 0.0
    spoke: float = 0.0  # the last time it said anything
    # how it ended
    finished: bool = False  # all it had to do is done
    left: bool = False
    left_at: float | None = None
    status: int | None = None
    error: str = ""
    traceback: str = ""
    usage: bool = False  # the command line was wrong, and it has said so itself
    not_exercised: tuple[str, ...] = ()
    ring: int | None = None  # its log of collectives: the descriptor, as it has it
    # a script of the user's own
    open: tuple[OpenStep, ...] = ()  # the steps that it is in, the innermost last
    # The innermost that is a checkpoint of the startup pipeline as well, else the innermost;
    # between two what stands for the script.
    inside: OwnStep | None = None
    done: int = 0  # the furthest step that it has ended
    last_step: str = ""  # the title of the last one that it began or ended
    steps_told: int = 0  # how often a step began or ended
    quiet: bool = False  # past its first training steps: it is watched no more
    # what the watch saw of it
    moved_at: float = 0.0
    places: set[Any] = field(default_factory=set)
    stirred_at: float = 0.0  # cheap samples showed activity; looks decide what it is
    looks: list[Look] = field(default_factory=list)
    children: dict[int, list[Look]] = field(default_factory=dict)
    moving: str = ""  # what moved when it was last found slow
    asks_since: float = 0.0  # since when all that moves is that it asks a peer; 0.0: it does not
    seen_moving_at: float = 0.0  # by a look, in this step
    longest_pause: float = 0.0  # between two looks that saw it move, in this step
    said_slow_at: float = 0.0
    look_again_at: float = 0.0
    announced_late: object = None  # the step whose lateness was said
    longest_silence: float = 0.0  # between two words, in training
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def waits_for_us(self) -> bool:
        """It waits in a barrier of ours, or for a rank that it named."""
        return self.held_at is not None or bool(self.awaits)

    def forget_looks(self) -> None:
        """It got on: what earlier looks showed says nothing of where it is now."""
        self.looks, self.children, self.places = [], {}, set()
        self.asks_since = self.seen_moving_at = self.longest_pause = 0.0


class NodeRanks:
    """The ranks of this node by number, and what happened among them."""

    def __init__(self, table: tuple[Checkpoint, ...], own: bool = False) -> None:
        """`table` gives the phases their steps. `own`: ranks run a script of the user's own, and
        tell of its steps as they come.
        """
        self.table = table
        self.own = OwnSteps(table) if own else None
        self.by_rank: dict[int, RankState] = {}
        self.opened: dict[int, float] = {}  # when the barrier after a checkpoint opened
        self.done: set[str] = set()  # what rank 0 did for the others ("logs directory")
        self.world_size = 1
        # Local ranks' numbers: of those that said hello, and of those that the launcher lists.
        self.expected: set[int] = set()
        self.local_size = 0  # ranks of this node as its launcher counts them, 0: nobody says

    def __iter__(self) -> Any:
        """Iterate over the members, by rank."""
        return iter([self.by_rank[rank] for rank in sorted(self.by_rank)])

    def apply(self, rank: int, message: Message) -> None:
        """Take in one message of a rank."""
        kind, at = message["t"], float(message.get("at", 0.0))
        if kind == "hello":
            self._hello(message)
            return
        member = self.by_rank.get(rank)
        if member is None:
            return
        if kind != "logged":  # a library that warns at each of its endless tries gets nowhere
            member.spoke = max(member.spoke, at)
            member.moved_at = max(member.moved_at, at)
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(member, message, at)

    @property
    def unnamed(self) -> int:
        """How many ranks of this node are counted, and neither listed nor here."""
        return max(0, self.local_size - len(self.expected))

    @property
    def unstarted(self) -> str:
        """Of these in words, "" for none."""
        has = "has" if self.unnamed == 1 else "have"
        ranks = f"{self.size} rank{'s' if self.size > 1 else ''}"
        return f"{self.unnamed} of {ranks} of this node {has} not started" * bool(self.unnamed)

    @property
    def size(self) -> int:
        """How many ranks this node has, as far as that is known."""
        return len(self.expected) + self.unnamed

    @property
    def are_here(self) -> bool:
        """Whether every rank of this node has said hello."""
        return self.size == len(self.by_rank)

    def expect(self, world_size: int, ranks: set[int], local_size: int = 0) -> None:
        """Note which ranks this node has, or how many, of a job of that size."""
        self.world_size = max(self.world_size, world_size)
        self.expected |= ranks
        self.local_size = max(self.local_size, local_size)

    def _hello(self, message: Message) -> None:
        rank, at = int(message["rank"]), float(message["at"])
        self.expect(int(message["world_size"]), find_local_ranks(message), find_local_size(message))
        known = self.by_rank.get(rank)
        if known is not None and known.pid == message["pid"] and not known.left:
            return  # it greets a new monitor
        before = self.by_rank.get(message.get("instead_of", -1))
        if before is not None and before.pid == message["pid"]:
            del self.by_rank[before.rank]  # it knows better now which rank it is
            self.expected.discard(before.rank)
            self.expected |= find_local_ranks(message)
        self.by_rank[rank] = RankState(
            rank=rank,
            local_rank=int(message["local_rank"]),
            pid=int(message["pid"]),
            host=str(message["host"]),
            began=float(message["began"]),
            attempt=int(message["attempt"]),
            error_file=message.get("error_file"),
            max_restarts=int(message.get("max_restarts") or 0),
            environment=dict(message.get("environment", {})),
            python=str(message.get("python", "")),
            executable=str(message.get("executable", "")),
            contradictions=tuple(message.get("contradictions", ())),
            entered=at,
            moved_at=at,
            spoke=at,
        )
        if self.own is not None:
            self.own.greet(self.by_rank[rank])

    def _on_enter(self, member: RankState, message: Message, at: float) -> None:
        member.step, member.entered, member.phase = int(message["n"]), at, None
        member.held_at, member.announced = None, ""
        member.forget_looks()

    def _on_phase(self, member: RankState, message: Message, at: float) -> None:
        member.phase, member.phase_at = str(message["name"]), at
        member.pulsed_at = at
        member.forget_looks()

    def _on_call(self, member: RankState, message: Message, at: float) -> None:
        member.announced = str(message["call"])

    def _on_line(self, member: RankState, message: Message, at: float) -> None:
        member.last_line, member.last_line_at = str(message["text"]), at

    def _on_logged(self, member: RankState, message: Message, at: float) -> None:
        member.logged = (*member.logged[1 - LOGGED_KEPT :], str(message["text"]))

    def _on_import(self, member: RankState, message: Message, at: float) -> None:
        seconds = float(message["seconds"])
        member.imports[member.step] = member.imports.get(member.step, 0.0) + seconds
        if message.get("version"):
            member.versions[str(message["module"])] = str(message["version"])

    def _on_pulse(self, member: RankState, message: Message, at: float) -> None:
        member.pulse = int(message["step"])
        member.longest_silence = max(member.longest_silence, at - member.pulsed_at)
        member.pulsed_at = at
        member.forget_looks()

    def _on_reached(self, member: RankState, message: Message, at: float) -> None:
        member.reached = max(member.reached, int(message["n"]))
        member.arrivals[int(message["n"])] = at - member.began
        member.took[int(message["n"])] = at - member.entered
        member.step = member.reached + 1
        member.entered, member.phase, member.announced = at, None, ""

    def _on_begin(self, member: RankState, message: Message, at: float) -> None:
        if self.own is not None:
            self.own.begin(member, message, at)

    def _on_end(self, member: RankState, message: Message, at: float) -> None:
        if self.own is not None:
            self.own.end(member, message, at)

    def _on_toggle(self, member: RankState, message: Message, at: float) -> None:
        """Nothing: it is in the run folder for who searches, and the watch needs none of it."""

    def _on_quiet(self, member: RankState, message: Message, at: float) -> None:
        member.quiet = True

    def _on_arrive(self, member: RankState, message: Message, at: float) -> None:
        if message.get("held", True):
            member.held_at, member.waits_since = int(message["n"]), at

    def _on_await(self, member: RankState, message: Message, at: float) -> None:
        if message["what"] not in self.done:
            # A rank that cannot know the number of the first one here: nobody, if that is not here.
            first = [m.rank for m in self if m.local_rank == 0 and m is not member]
            member.awaits = tuple(message["ranks"] or first)
            member.awaits_what = str(message["what"])
            member.waits_since = at

    def _on_waits_no_more(self, member: RankState, message: Message, at: float) -> None:
        member.awaits, member.entered = (), at

    def _on_did(self, member: RankState, message: Message, at: float) -> None:
        self.done.add(str(message["what"]))

    def _on_exercised(self, member: RankState, message: Message, at: float) -> None:
        member.not_exercised = tuple(message["missing"])

    def _on_environ(self, member: RankState, message: Message, at: float) -> None:
        member.environment.update(message["changed"])

    def _on_ring(self, member: RankState, message: Message, at: float) -> None:
        member.ring = int(message["fd"])

    def _on_finished(self, member: RankState, message: Message, at: float) -> None:
        member.finished, member.entered = True, at

    def _on_bye(self, member: RankState, message: Message, at: float) -> None:
        status = message["status"]  # None: not known to the rank itself
        member.status = member.status if status is None else int(status)
        member.error = str(message.get("error", ""))
        member.traceback = str(message.get("traceback", ""))
        member.usage = bool(message.get("usage"))
        member.finished = bool(message.get("finished"))
        member.left_at = at

    # ---- what the monitor itself noted, so that a successor knows it ---------------------------

    def opens(self, number: int, at: float) -> None:
        """The barrier after a checkpoint opened."""
        self.opened[number] = at
        for member in self:
            if member.held_at is not None and member.held_at <= number:
                member.held_at = None
                member.entered = at

    def phase_of(self, member: RankState) -> Phase | None:
        """Return the phase that a member is in."""
        for checkpoint in self.table:
            if checkpoint.number == member.step:
                return next((p for p in checkpoint.phases if p.name == member.phase), None)
        return None

    def checkpoint_of(self, member: RankState) -> Checkpoint | None:
        """Return the checkpoint whose step a member is in; None after the last."""
        if self.own is not None:
            return member.open[-1].step if member.open else member.inside
        return next((c for c in self.table if c.number == member.step), None)


def describe_contradictions(members: NodeRanks) -> list[str]:
    """Return what ranks found contradictory in their variables, a few of them in words."""
    told = [f"rank {m.rank}: {sentence}" for m in members for sentence in m.contradictions]
    more = len(told) - CONTRADICTIONS_SHOWN
    return [*told[:CONTRADICTIONS_SHOWN], *([f"and {more} more such contradictions"] * (more > 0))]


def find_local_ranks(place: Message) -> set[int]:
    """Return the numbers of a node's ranks, as far as one of them knows them: all that its launcher
    lists, or numbers one after the other; else its own.
    """
    if place.get("neighbours"):
        return set(place["neighbours"])
    size = find_local_size(place)
    if not size or not place.get("in_order", True) or size > _MOST_LISTED:
        return {int(place["rank"])}
    first = int(place["rank"]) - int(place["local_rank"])
    return set(range(first, first + size))


def find_local_size(place: Message) -> int:
    """Return how many ranks a node has, as the launcher counts them; 0 where nobody does."""
    size = int(place["local_world_size"]) if place.get("counted", True) else 0
    return size if size <= _MOST_LISTED else 0


def find_opening_barriers(members: NodeRanks) -> list[int]:
    """Return the checkpoints whose barrier opens now: every rank of this node has reached them.

    A rank that left early cannot arrive any more: that is a finding of its own, and the barrier
    stays closed until it has been judged. One that had finished is waited for by nobody.
    """
    if not members.are_here:
        return []
    held = sorted({m.held_at for m in members if m.held_at is not None})
    return [n for n in held if all(m.reached >= n or (m.left and m.finished) for m in members)]


def find_released_ranks(members: NodeRanks) -> list[RankState]:
    """Return the members that waited for what rank 0 has done by now."""
    return [m for m in members if m.awaits and m.awaits_what in members.done]


def find_missing_ranks(members: NodeRanks, number: int) -> list[int]:
    """Return the ranks of this node that have not reached a checkpoint, as far as they have
    numbers (`NodeRanks.unnamed`).
    """
    arrived = {m.rank for m in members if m.reached >= number}
    return sorted(members.expected - arrived)
