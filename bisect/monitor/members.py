"""What is known of each rank, folded from what it said: the same live and from events.jsonl."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .own_steps import Open, OwnSteps

if TYPE_CHECKING:
    from ..checkpoints import Checkpoint, OwnStep, Phase
    from ..facts import Look

Message = dict[str, Any]
LOGGED_KEPT = 20
CONTRADICTIONS_SHOWN = 3


@dataclass
class Member:
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
    open: tuple[Open, ...] = ()  # the steps that it is in, the innermost last
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


class Members:
    """The ranks of this node by number, and what happened among them."""

    def __init__(self, table: tuple[Checkpoint, ...], own: bool = False) -> None:
        """`table` gives the phases their steps. `own`: ranks run a script of the user's own, and
        tell of its steps as they come.
        """
        self.table = table
        self.own = OwnSteps(table) if own else None
        self.by_rank: dict[int, Member] = {}
        self.opened: dict[int, float] = {}  # when the barrier after a checkpoint opened
        self.done: set[str] = set()  # what rank 0 did for the others ("logs directory")
        self.world_size = 1
        self.expected: set[int] = set()  # local ranks' numbers

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

    def expect(self, world_size: int, ranks: set[int]) -> None:
        """Note which ranks this node has, of a job of that size."""
        self.world_size = max(self.world_size, world_size)
        self.expected |= ranks

    def _hello(self, message: Message) -> None:
        rank, at = int(message["rank"]), float(message["at"])
        self.expect(int(message["world_size"]), local_ranks(message))
        known = self.by_rank.get(rank)
        if known is not None and known.pid == message["pid"] and not known.left:
            return  # it greets a new monitor
        before = self.by_rank.get(message.get("instead_of", -1))
        if before is not None and before.pid == message["pid"]:
            del self.by_rank[before.rank]  # it knows better now which rank it is
        self.by_rank[rank] = Member(
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

    def _on_enter(self, member: Member, message: Message, at: float) -> None:
        member.step, member.entered, member.phase = int(message["n"]), at, None
        member.held_at, member.announced = None, ""
        member.forget_looks()

    def _on_phase(self, member: Member, message: Message, at: float) -> None:
        member.phase, member.phase_at = str(message["name"]), at
        member.pulsed_at = at
        member.forget_looks()

    def _on_call(self, member: Member, message: Message, at: float) -> None:
        member.announced = str(message["call"])

    def _on_line(self, member: Member, message: Message, at: float) -> None:
        member.last_line, member.last_line_at = str(message["text"]), at

    def _on_logged(self, member: Member, message: Message, at: float) -> None:
        member.logged = (*member.logged[1 - LOGGED_KEPT :], str(message["text"]))

    def _on_import(self, member: Member, message: Message, at: float) -> None:
        seconds = float(message["seconds"])
        member.imports[member.step] = member.imports.get(member.step, 0.0) + seconds
        if message.get("version"):
            member.versions[str(message["module"])] = str(message["version"])

    def _on_pulse(self, member: Member, message: Message, at: float) -> None:
        member.pulse = int(message["step"])
        member.longest_silence = max(member.longest_silence, at - member.pulsed_at)
        member.pulsed_at = at
        member.forget_looks()

    def _on_reached(self, member: Member, message: Message, at: float) -> None:
        member.reached = max(member.reached, int(message["n"]))
        member.arrivals[int(message["n"])] = at - member.began
        member.took[int(message["n"])] = at - member.entered
        member.step = member.reached + 1
        member.entered, member.phase, member.announced = at, None, ""

    def _on_begin(self, member: Member, message: Message, at: float) -> None:
        if self.own is not None:
            self.own.begin(member, message, at)

    def _on_end(self, member: Member, message: Message, at: float) -> None:
        if self.own is not None:
            self.own.end(member, message, at)

    def _on_toggle(self, member: Member, message: Message, at: float) -> None:
        """Nothing: it is in the run folder for who searches, and the watch needs none of it."""

    def _on_quiet(self, member: Member, message: Message, at: float) -> None:
        member.quiet = True

    def _on_arrive(self, member: Member, message: Message, at: float) -> None:
        if message.get("held", True):
            member.held_at, member.waits_since = int(message["n"]), at

    def _on_await(self, member: Member, message: Message, at: float) -> None:
        if message["what"] not in self.done:
            member.awaits = tuple(message["ranks"])
            member.awaits_what = str(message["what"])
            member.waits_since = at

    def _on_did(self, member: Member, message: Message, at: float) -> None:
        self.done.add(str(message["what"]))

    def _on_exercised(self, member: Member, message: Message, at: float) -> None:
        member.not_exercised = tuple(message["missing"])

    def _on_environ(self, member: Member, message: Message, at: float) -> None:
        member.environment.update(message["changed"])

    def _on_ring(self, member: Member, message: Message, at: float) -> None:
        member.ring = int(message["fd"])

    def _on_finished(self, member: Member, message: Message, at: float) -> None:
        member.finished, member.entered = True, at

    def _on_bye(self, member: Member, message: Message, at: float) -> None:
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

    def phase_of(self, member: Member) -> Phase | None:
        """Return the phase that a member is in."""
        for checkpoint in self.table:
            if checkpoint.number == member.step:
                return next((p for p in checkpoint.phases if p.name == member.phase), None)
        return None

    def checkpoint_of(self, member: Member) -> Checkpoint | None:
        """Return the checkpoint whose step a member is in; None after the last."""
        if self.own is not None:
            return member.open[-1].step if member.open else member.inside
        return next((c for c in self.table if c.number == member.step), None)


def contradictions(members: Members) -> list[str]:
    """Return what ranks found contradictory in their variables, a few of them in words."""
    told = [f"rank {m.rank}: {sentence}" for m in members for sentence in m.contradictions]
    more = len(told) - CONTRADICTIONS_SHOWN
    return [*told[:CONTRADICTIONS_SHOWN], *([f"and {more} more such contradictions"] * (more > 0))]


def local_ranks(place: Message) -> set[int]:
    """Return the numbers of a node's ranks, from what one of them knows of its place.

    Where the launcher does not name them, it numbers those of a node one after the other.
    """
    if place.get("neighbours"):
        return set(place["neighbours"])
    first = int(place["rank"]) - int(place["local_rank"])
    return set(range(first, first + int(place["local_world_size"])))
