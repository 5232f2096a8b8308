"""The state of each rank, computed from the job's events: live, from events.jsonl, and in the
watcher. Also which barriers may open.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from . import events
from .events import Event
from .lazy_dataclass import dataclass
from .process_roles import RANK_STEPS
from .rank_history import OpenStep, Silences, Stay, Stays, UserSteps

if TYPE_CHECKING:
    from .checkpoints import Checkpoint, Phase, UserStep
    from .process_facts import Look


# What the live table says of a rank.
TableState = Literal["works", "trains", "waits", "ends", "left"]
LOGGED_KEPT = 20
# Signals that nobody sends: the process itself has done wrong.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
# Seconds from what a rank caught to its goodbye: it writes that down, and ends what it has started.
_NOTES_AND_LEAVES = 10.0
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
    above: tuple[int, ...] = ()  # of a spawned one: pids of who started it, nearest first
    twin: int | None = None  # pid of another local rank here that said, living, that it is this one
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
    stays: Stays = field(default_factory=Stays)  # what it is in, one inside the other
    since: float = 0.0  # when it last began, reached or ended anything
    # how it ended
    finished: bool = False  # all it had to do is done
    left: bool = False
    said_goodbye: bool = False  # as a Python does that comes to its end
    left_at: float | None = None
    ended_at: float | None = None  # as its goodbye says, or else its monitor
    status: int | None = None
    error: str = ""
    traceback: str = ""
    is_actor: bool = False  # of Ray, which ends it as it likes when nobody needs it any more
    title: str = ""  # what it is in its server, once its process says so
    is_of_server: bool = False  # which ends it as it likes, once it is ready
    usage: bool = False  # the command line was wrong, and it has said so itself
    not_exercised: tuple[str, ...] = ()
    ring: int | None = None  # its log of collectives: the descriptor, as it has it
    # a script of the user's own
    open: tuple[OpenStep, ...] = ()  # the steps that it is in, the innermost last
    # The innermost that is a checkpoint of the startup pipeline as well, else the innermost;
    # between two what stands for the script.
    inside: UserStep | None = None
    done: int = 0  # the furthest step that it has ended
    last_step: str = ""  # the title of the last one that it began or ended
    raised: str = ""  # the call of the last step that raised, if none has ended well since
    caught: str = ""  # the error that this step raised, in a line
    caught_at: float = 0.0
    steps_told: int = 0  # how often a step began or ended
    tells_steps: bool = False
    plain: bool = False  # its number is not known from anything
    starts_ranks: bool = False  # it is a launcher, and none itself
    quiet: bool = False  # past its first training steps: it tells of none
    quiet_at: float = 0.0
    trained: int | None = None  # training steps since then; None: it is not past the first
    # what the watch saw of it
    moved_at: float = 0.0
    places: set[Any] = field(default_factory=set)
    stirred_at: float = 0.0  # cheap samples showed activity; looks decide what it is
    looks: list[Look] = field(default_factory=list)
    children: dict[int, list[Look]] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)  # of these, what no rank has started (its pids)
    helpers: Any = None  # its helper threads, look after look (evidence/periodic_threads.py)
    moving: str = ""  # what moved when it was last found slow
    asks_since: float = 0.0  # since when all that moves is that it asks a peer; 0.0: it does not
    seen_moving_at: float = 0.0  # by a look, in this step
    longest_pause: float = 0.0  # between two looks that saw it move, in this step
    silences: Silences = field(default_factory=Silences)  # in this step
    said_slow_at: float = 0.0
    look_again_at: float = 0.0
    announced_late: object = None  # the step whose lateness was said
    longest_silence: float = 0.0  # between two words, in training
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def last_error(self) -> str:
        """The error by which it ended, in a line: the one of its goodbye; else the one of its last
        step, if it left right after that: a script may note what it catches, and end with a status
        of its own. "" for none.
        """
        if self.error or self.left_at is None or self.left_at > self.caught_at + _NOTES_AND_LEAVES:
            return self.error
        if self.is_of_server:  # which ends it by a signal, or has it end with 0
            ends_by_it = self.status is None or -self.status not in FAULTS
        else:
            ends_by_it = self.status is not None and self.status > 0
        return self.caught if ends_by_it else ""

    @property
    def has_left(self) -> bool:
        """Whether it said goodbye or its process has ended."""
        return self.left or self.left_at is not None

    @property
    def waits_for_us(self) -> bool:
        """It waits in a barrier of ours, or for a rank that it named."""
        return self.held_at is not None or bool(self.awaits)

    @property
    def doing(self) -> tuple[str, ...] | None:
        """The titles of the steps of a script of the user's own that it is in, the innermost last;
        None if it tells of none.
        """
        if self.quiet:
            return ("trains",)
        titles = tuple(stay.title for stay in self.stays.open if stay.kind == "own step")
        return titles if self.tells_steps else None

    def forget_looks(self) -> None:
        """It got on: what earlier looks showed says nothing of where it is now."""
        self.looks, self.children, self.places, self.helpers = [], {}, set(), None
        self.beside = set()
        self.asks_since = self.seen_moving_at = self.longest_pause = 0.0
        self.silences = Silences()


# What says nothing of whether an import goes on.
_BESIDE_IMPORTS = (
    events.Line,
    events.Logged,
    events.RingOpened,
    events.World,
    events.Environ,
    events.Toggle,
    events.Exercised,
    events.WaitsNoMore,
    events.Overdue,
    events.Unknown,
)


class NodeRanks:
    """The ranks of this node by number, and what happened among them."""

    def __init__(
        self, table: tuple[Checkpoint, ...] = (), runs_script: bool = False, remembers: bool = False
    ) -> None:
        """`table` gives the phases their steps. `runs_script`: ranks run a script of the user's
        own, and tell of its steps as they come. `remembers`: what they were in is kept, also of
        ranks whose first word is not there.
        """
        self.table = table
        self.user_steps = UserSteps(table) if runs_script else None
        self.by_rank: dict[int, RankState] = {}
        self.opened: dict[int, float] = {}  # when the barrier after a checkpoint opened
        self.numbers: dict[str, int] = {}  # of the checkpoints by name, as the monitor noted them
        self.done: set[str] = set()  # what rank 0 did for the others ("logs directory")
        self.world_size = 1
        # Local ranks' numbers: of those that said hello, and of those that the launcher lists.
        self.expected: set[int] = set()
        self.local_size = 0  # ranks of this node as its launcher counts them, 0: not known
        self._remembers = remembers

    def __iter__(self) -> Iterator[RankState]:
        """Iterate over the members, by rank."""
        return iter([self.by_rank[rank] for rank in sorted(self.by_rank)])

    def apply(self, event: Event) -> None:
        """Take in one event."""
        if event.rank is not None:
            self._hear(event.rank, event)
        elif isinstance(event, events.Opened):
            self.opens(event.n, event.at)
        elif isinstance(event, events.Table):
            self.numbers = self.numbers or dict(event.numbers)

    def _hear(self, rank: int, event: Event) -> None:
        if isinstance(event, events.Hello):
            self._hello(rank, event)
            return
        if rank not in self.by_rank:
            if not self._remembers:
                return
            self.by_rank[rank] = RankState(rank, -1, 0, "", event.at, stays=Stays([]))
        member = self.by_rank[rank]
        # A library that warns at each of its endless tries gets nowhere.
        if not isinstance(event, events.Logged | events.Ended | events.Overdue):
            member.spoke = max(member.spoke, event.at)
            member.moved_at = max(member.moved_at, event.at)
        if not isinstance(event, _BESIDE_IMPORTS):
            member.stays.importing = None
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler is not None:
            handler(member, event)

    def lived_after(self, moment: float) -> bool:
        """Return whether one of these ranks had not ended by then (monotonic)."""
        return any(one.left_at is None or one.left_at > moment for one in self)

    @property
    def unnamed(self) -> int:
        """How many ranks of this node are counted, and neither listed nor here."""
        return max(0, self.local_size - len(self.expected))

    @property
    def unstarted(self) -> str:
        """How many ranks of this node have not started, in words; "" for none."""
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

    def _hello(self, rank: int, hello: events.Hello) -> None:
        at = hello.at
        if not self._remembers:
            self.expect(hello.world_size, find_local_ranks(hello), find_local_size(hello))
        known = self.by_rank.get(rank)
        if known is not None and known.pid == hello.pid and not known.left:
            return  # it greets a new monitor
        stays = known.stays if known is not None else Stays([] if self._remembers else None)
        stays.close_all(at, is_left=True)  # another process is this rank now
        stays.importing = None
        twin = known.pid if known is not None and _is_twin(known, hello) else None
        before = self.by_rank.get(-1 if hello.instead_of is None else hello.instead_of)
        if before is not None and before.pid == hello.pid:
            del self.by_rank[before.rank]  # it knows better now which rank it is
            self.expected.discard(before.rank)
            self.expected |= find_local_ranks(hello)
            stays = before.stays
        self.by_rank[rank] = RankState(
            rank=rank,
            local_rank=hello.local_rank,
            pid=hello.pid,
            host=hello.host,
            began=hello.began,
            attempt=hello.attempt,
            error_file=hello.error_file,
            max_restarts=hello.max_restarts,
            environment=dict(hello.environment),
            python=hello.python,
            executable=hello.executable,
            contradictions=hello.contradictions,
            above=hello.above or (),
            twin=twin,
            plain=bool(hello.plain),
            stays=stays,
            entered=at,
            since=at,
            moved_at=at,
            spoke=at,
        )
        if any(member.twin is not None for member in self):
            # What each says of the numbers of this node does not go together: none is missed.
            self.expected, self.local_size = set(self.by_rank), 0
        if self.user_steps is not None:
            self.user_steps.greet(self.by_rank[rank])

    def _on_world(self, member: RankState, event: events.World) -> None:
        member.plain = False
        self.expect(event.size, set())

    @property
    def numbered(self) -> set[int]:
        """The numbers of those that are known to have theirs: not of a program that may only start
        ranks.
        """
        return {member.rank for member in self if not member.plain}

    def _on_enter(self, member: RankState, event: events.Enter) -> None:
        member.step, member.entered, member.phase = event.n, event.at, None
        member.held_at, member.announced = None, ""
        member.forget_looks()
        member.since = event.at
        member.stays.close_all(event.at)
        member.stays.begin(Stay("step", "", event.at, event.n))

    def _on_phase(self, member: RankState, event: events.Phase) -> None:
        member.phase, member.phase_at = event.name, event.at
        member.pulsed_at = member.since = event.at
        member.forget_looks()
        member.stays.close(event.at, lambda stay: stay.kind == "phase")
        member.stays.begin(Stay("phase", event.name, event.at, event.n))

    def _on_call(self, member: RankState, event: events.Call) -> None:
        member.announced = event.call
        member.stays.announce(event.call, event.at)

    def _on_line(self, member: RankState, event: events.Line) -> None:
        member.last_line, member.last_line_at = event.text, event.at

    def _on_logged(self, member: RankState, event: events.Logged) -> None:
        member.logged = (*member.logged[1 - LOGGED_KEPT :], event.text)

    def _on_import(self, member: RankState, event: events.Import) -> None:
        member.imports[member.step] = member.imports.get(member.step, 0.0) + event.seconds
        if event.version:
            member.versions[event.module] = event.version
        member.stays.add_import(event.module, event.seconds, event.at)

    def _on_pulse(self, member: RankState, event: events.Pulse) -> None:
        member.pulse = event.step
        member.longest_silence = max(member.longest_silence, event.at - member.pulsed_at)
        member.pulsed_at = event.at
        member.forget_looks()
        member.stays.train(event.at)

    def _on_reached(self, member: RankState, event: events.Reached) -> None:
        at = event.at
        member.reached = max(member.reached, event.n)
        member.arrivals[event.n] = at - member.began
        member.took[event.n] = at - member.entered
        member.step = member.reached + 1
        member.entered, member.phase, member.announced = at, None, ""
        member.since = at
        member.stays.close(at, lambda stay: stay.kind in ("step", "phase"))

    def _on_begin(self, member: RankState, event: events.Begin) -> None:
        member.tells_steps, member.since = True, event.at
        member.is_of_server |= event.step in RANK_STEPS
        member.stays.begin_own(event)
        if self.user_steps is not None:
            self.user_steps.begin(member, event)

    def _on_end(self, member: RankState, event: events.End) -> None:
        member.since = event.at
        member.stays.close(event.at, lambda stay: (stay.name, stay.k) == (event.step, event.k))
        if self.user_steps is not None:
            self.user_steps.end(member, event)

    def _on_starts(self, member: RankState, _: events.StartsRanks) -> None:
        member.starts_ranks = True

    def _on_quiet(self, member: RankState, event: events.Quiet) -> None:
        member.quiet, member.quiet_at = True, event.at
        member.trained = 0
        member.stays.train(event.at)

    def _on_arrive(self, member: RankState, event: events.Arrive) -> None:
        if event.held:
            member.held_at, member.waits_since = event.n, event.at
            member.stays.begin(Stay("wait", "", event.at, event.n))

    def _on_await(self, member: RankState, event: events.Await) -> None:
        if event.what not in self.done:
            # One that cannot know the number of the first rank here waits for it, if it is here.
            first = tuple(m.rank for m in self if m.local_rank == 0 and m is not member)
            member.awaits = event.ranks or first
            member.awaits_what, member.waits_since = event.what, event.at
            member.stays.begin(Stay("wait", event.what, event.at))

    def _on_waits_no_more(self, member: RankState, event: events.WaitsNoMore) -> None:
        member.awaits, member.entered = (), event.at
        member.stays.close(event.at, lambda stay: stay.kind == "wait")

    def _on_did(self, member: RankState, event: events.Did) -> None:
        self.done.add(event.what)
        for one in self:
            one.stays.close(event.at, lambda s: (s.kind, s.name) == ("wait", event.what))

    def _on_exercised(self, member: RankState, event: events.Exercised) -> None:
        member.not_exercised = event.missing

    def _on_environ(self, member: RankState, event: events.Environ) -> None:
        member.environment.update(event.changed)

    def _on_ring(self, member: RankState, event: events.RingOpened) -> None:
        member.ring = event.fd

    def _on_finished(self, member: RankState, event: events.Finished) -> None:
        member.finished, member.entered = True, event.at
        member.stays.close_all(event.at, is_left=True)

    def _on_bye(self, member: RankState, event: events.Bye) -> None:
        member.said_goodbye = True
        member.status = member.status if event.status is None else event.status
        member.error, member.traceback = event.error, event.traceback or ""
        member.usage, member.finished = bool(event.usage), event.finished
        member.left_at = member.ended_at = event.at
        member.stays.close_all(event.at, is_left=True)

    def _on_ended(self, member: RankState, event: events.Ended) -> None:
        # Its status, and that it left, is for the watch to find out (monitor/missing_ranks.py).
        member.ended_at = event.at if member.ended_at is None else member.ended_at
        member.stays.close_all(event.at, is_left=True)

    def opens(self, number: int, at: float) -> None:
        """The barrier after a checkpoint opened."""
        self.opened[number] = at
        for member in self:
            if member.held_at is not None and member.held_at <= number:
                member.held_at = None
                member.entered = member.since = at
            member.stays.close(at, lambda stay: _waits_behind(stay, number))

    def phase_of(self, member: RankState) -> Phase | None:
        """Return the phase that a member is in."""
        for checkpoint in self.table:
            if checkpoint.number == member.step:
                return next((p for p in checkpoint.phases if p.name == member.phase), None)
        return None

    def checkpoint_of(self, member: RankState) -> Checkpoint | None:
        """Return the checkpoint whose step a member is in; None after the last."""
        if self.user_steps is not None:
            return member.open[-1].step if member.open else member.inside
        return next((c for c in self.table if c.number == member.step), None)


def _is_twin(known: RankState, hello: events.Hello) -> bool:
    """Return whether the rank that says hello and the one that is known live side by side, and are
    two: what a rank starts, and what comes after it, has its LOCAL_RANK as well.
    """
    return (
        known.pid != hello.pid
        and not known.has_left
        and hello.instead_of is None
        and known.attempt == hello.attempt
        and known.local_rank not in (-1, hello.local_rank)
    )


def _waits_behind(stay: Stay, number: int) -> bool:
    return stay.kind == "wait" and stay.number is not None and stay.number <= number


def find_local_ranks(hello: events.Hello) -> set[int]:
    """Return the numbers of a node's ranks, as far as one of them knows them: all that its launcher
    lists, or numbers one after the other; else its own. LOCAL_RANK may be anything where somebody
    has set it by hand.
    """
    rank, size = hello.rank or 0, find_local_size(hello)
    if hello.neighbours:
        return set(hello.neighbours)
    if size < 1 or not hello.in_order:
        return {rank}
    first = 0 if size == hello.world_size else rank - hello.local_rank
    ranks = range(first, first + size)
    return set(ranks) if rank in ranks and first >= 0 and ranks.stop <= hello.world_size else {rank}


def find_local_size(hello: events.Hello) -> int:
    """Return how many ranks a node has, as the launcher counts them; 0 where it does not."""
    size = hello.local_world_size if hello.counted else 0
    return size if size <= _MOST_LISTED else 0


def find_opening_barriers(members: NodeRanks) -> list[int]:
    """Return the checkpoints whose barrier opens now: every rank of this node has reached them.

    A rank that left early cannot arrive any more: that is a finding of its own, and the barrier
    stays closed until it has been judged. For one that had finished no rank waits.
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
