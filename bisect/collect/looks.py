"""A series of looks at the ranks of a job: how one is taken, what is kept of it, and what it says
about each rank: does it move, wait for another, or hang. The watch and `attach` have their own
reasons to look once more.

Processes outside the job that have a lock which a rank waits for are looked at too. Once such a
process is done the lock is free: its work is as good as the rank's own.

NCCL's RAS service is asked where one of the ranks listens, and once more a little later where its
counts differ: those that stand are facts, those that grow are the job at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise, zip_longest

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.proc import read_stat
from ..base.process_facts import Frame, Look, waits_at_queue
from ..base.rank_facts import CollectiveLog, RankFacts
from ..base.verdict_facts import WAITS_FOR_RANKS, Wait
from ..diagnosis.process.actor_waits import put_job_thread_first, put_same_thread_first
from ..diagnosis.process.process_snapshot import main_kernel
from ..diagnosis.process.request_threads import put_stuck_request_first
from ..diagnosis.process.request_waits import keep_feeding_parents
from ..diagnosis.process.spin_waits import list_python_frames
from ..diagnosis.process.time_limits import find_end_of_wait, find_who_waits, is_asleep, waits_anew
from ..diagnosis.rank_connections import note_exchanges
from ..diagnosis.rendezvous_claims import claimed_world_size
from ..diagnosis.snapshot import Snapshot
from ..evidence import movement
from ..evidence.gpus.nccl_ras import (
    LIMIT as RAS_LIMIT,
)
from ..evidence.gpus.nccl_ras import (
    NoGreeting,
    ask_service,
    describe_status,
    find_moving,
    find_outer_pids,
    find_service,
    find_unheard_ranks,
    is_of_others,
    make_ras_logs,
    name_processes,
)
from ..evidence.gpus.ras_answers import RasAnswer, parse_ras_status
from ..evidence.kernel import reason_not_to_pause
from ..evidence.look import Target, take_looks
from ..evidence.other_network import read_local_addresses
from ..evidence.successive_looks import complete_look
from ..rank.collective_records import RECORDER_THREAD

PAUSE = 0.7  # seconds between two looks
MOST_NATIVE_RANKS = 2  # that are paused so that their native frames tell what they and others do
_LOGS_LIMIT = 1.0  # seconds for reading the logs of all ranks


class LookSeries(ABC):
    """Looks at all ranks and what they started, and what these show together."""

    def __init__(self, most: int, soon: float) -> None:
        """Keep at most `most` looks of each process. A process whose sleep ends within `soon`
        seconds does not hang.
        """
        self._most, self._soon = most, soon
        self.last_snapshot = Snapshot()
        self.began = time.monotonic()
        self.count = 0
        self.logs: dict[RankId, CollectiveLog] = {}  # what each rank logs itself

    async def read_logs(self, read: Callable[..., None], ranks: object) -> None:
        """Have read(ranks, logs) put what ranks log of their operations into `logs`; what takes too
        long is left as it was.
        """
        with contextlib.suppress(TimeoutError, RuntimeError):
            await call_with_limit(read, ranks, self.logs, limit=_LOGS_LIMIT, key="rings")

    @abstractmethod
    def facts(self) -> list[RankFacts]:
        """Return each rank as it is now, with its looks and what they say of its movement."""

    @abstractmethod
    def had_time(self) -> Collection[RankId]:
        """Return the ranks whose patience is used up: CPU use of other ranks no longer protects
        them.
        """

    def spinning(self) -> Collection[RankId]:
        """Return the ranks that burn CPU in a wait for a device, and are not to count as busy."""
        return ()

    def snapshot(self) -> Snapshot:
        """Return the ranks as they are now; what they wait for is worked out once for each look."""
        ranks = keep_feeding_parents(note_exchanges(self.facts()))
        self.last_snapshot = self.last_snapshot.update(ranks)
        return self.last_snapshot

    def settled(self) -> RankClasses:
        """Return which ranks move, wait and hang, as far as these looks show it."""
        snapshot = self.snapshot()
        return classify_ranks(
            snapshot.ranks, snapshot.waits, self.had_time(), self._soon, self.spinning()
        )

    def keep(self, looks: list[Look], one: Look) -> None:
        """Add a look to those at the same process, completed from the one before. The first shows
        what moved since long ago: it is kept, and the last ones.
        """
        one = put_stuck_request_first(put_job_thread_first(one))
        if looks:
            one = put_same_thread_first(looks, one)
            one = complete_look(looks[-1], one)
            looks[-1] = replace(looks[-1], logs=())  # the newest tails are enough
        looks.append(one)
        del looks[1 : 1 - self._most]


async def take_good_looks(
    calm: Sequence[Target],
    paused: Sequence[Target] = (),
    *,
    limit: float = 3.0,
    resume: Callable[[int], object] | None = None,
) -> list[Look]:
    """Look once at each, at the `paused` ones with native frames; return what is of use."""
    taken = [take_looks(calm, limit=limit)] if calm else []
    if paused:
        taken.append(take_looks(paused, native=True, limit=limit, resume=resume))
    looks = [one for found in await asyncio.gather(*taken) for one in found]
    return [drop_own_thread(one) for one in looks if not is_paused_by_a_look(one)]


def may_pause(looks: Sequence[Look]) -> bool:
    """Return whether a pausing look would leave what a process waits for as it is."""
    if not looks or looks[-1].state not in ("S", "R") or looks[-1].frozen:
        return False
    return not reason_not_to_pause(looks[-1].kernel)


def order_unlike(looks: Mapping[int, Look]) -> list[int]:
    """Return pids by their looks: one of each place in which main threads stand, those first where
    the fewest do, then the others of them. What is seen of one tells of all that stand as it does.
    """
    there: dict[tuple[Frame, ...], list[int]] = {}
    for pid, one in looks.items():
        there.setdefault(one.main.frames if one.main is not None else (), []).append(pid)
    places = sorted(there.values(), key=len)
    turns = zip_longest(*places)
    return [pid for turn in turns for pid in turn if pid is not None]


def is_paused_by_a_look(one: Look) -> bool:
    """Return whether what was seen is a process in the middle of another look, of ours or of a
    person's: for a moment its tracer is py-spy. That is no debugger, and says nothing.
    """
    if one.state != "t" or not one.traced_by:
        return False
    tracer = read_stat(one.traced_by)
    return tracer is None or tracer.comm.startswith("py-spy")


def drop_own_thread(one: Look) -> Look:
    """Return a look without the thread of ours that waits in a rank for its monitor to ask."""
    ours = {t.os_id for t in one.threads if t.name == RECORDER_THREAD}
    if not ours:
        return one
    return replace(
        one,
        threads=tuple(t for t in one.threads if t.os_id not in ours),
        kernel=tuple(k for k in one.kernel if k.tid not in ours),
    )


@dataclass(frozen=True)
class RankClasses:
    """Ranks by what they do: they move, burn CPU in the same places, wait for others, or hang."""

    moving: frozenset[RankId]
    busy: frozenset[RankId]
    waiting: frozenset[RankId]
    hung: frozenset[RankId]


def classify_ranks(
    ranks: Sequence[RankFacts],
    waits: Mapping[RankId, Wait | None],
    had_time: Collection[RankId] = (),
    soon: float = 0.0,
    spinning: Collection[RankId] = (),
) -> RankClasses:
    """Return the ranks by what they do.

    A rank that waits, or may wait, for another rank counts as hung only if no rank moves. If other
    ranks only use CPU, which is also how a GPU is waited for, it counts as hung once it is in
    `had_time`. A rank that sleeps and wakes within `soon` seconds is waiting. Those that are
    `spinning` wait for a device.
    """
    held = {r.rank for r in ranks if r.held or r.awaits}
    alive = {r.rank for r in ranks if r.alive} - held
    moving = {r.rank for r in ranks if r.moved} & alive
    busy = {r.rank for r in ranks if r.busy and not r.moved} & alive
    quiet = alive - moving - busy
    unsure = {r.rank for r in ranks if may_wait_for_another(r, waits.get(r.rank))}
    if not moving:
        unsure -= set(had_time)
    on_another = {r for r in quiet if r in unsure or waits_for_another(waits.get(r), r)}
    # A rank that spins inside a collective (NCCL does, and MPI) waits, whatever CPU it burns; what
    # native frames of one tell is true of those in the same place.
    spins = {r for r in busy if r in spinning or waits_for_another(waits.get(r), r)}
    places = {r.rank: _list_python_frames(r) for r in ranks if r.rank in busy}
    spins |= {r for r in busy if places[r] and places[r] in [places[s] for s in spins]}
    asleep = {r.rank for r in ranks if r.rank in quiet and wakes_soon(r, waits.get(r.rank), soon)}
    goes_on = moving | asleep | (busy - spins)
    hung = quiet - on_another - asleep if goes_on else quiet | spins
    waiting = (alive | held) - hung - (goes_on - asleep)
    return RankClasses(
        frozenset(moving), frozenset(busy - spins), frozenset(waiting), frozenset(hung)
    )


def _list_python_frames(facts: RankFacts) -> tuple[Frame, ...]:
    """Return where the main thread of a rank stands, without native frames."""
    main = facts.looks[-1].main if facts.looks else None
    return list_python_frames(main.frames) if main is not None else ()


def waits_for_another(wait: Wait | None, rank: RankId) -> bool:
    """Return whether a wait is for another rank of the job."""
    if wait is None:
        return False
    return wait.kind in WAITS_FOR_RANKS or (wait.rank is not None and wait.rank != rank)


def may_wait_for_another(facts: RankFacts, wait: Wait | None) -> bool:
    """Return whether a rank looks now and then for something that another may do: it waits for a
    moment again and again (a file that is to be there, or to go), for a lock without a known owner,
    or at a message queue for an unknown peer.
    """
    if wait is None:
        return False
    if wait.others:
        return True
    if wait.kind == "socket":
        return wait.pid is None and _is_at_a_queue(facts)
    if wait.kind in ("sleep", "futex"):
        return any(waits_anew(*pair) for pair in pairwise(facts.looks))
    if wait.is_for_a_file:
        return True
    return wait.has_no_owner and not any(look.stale_locks for look in facts.looks)


def _is_at_a_queue(facts: RankFacts) -> bool:
    main = main_kernel(facts.looks[-1]) if facts.looks else None
    return main is not None and waits_at_queue(main.syscall, facts.looks[-1].kernel)


def wakes_soon(facts: RankFacts, wait: Wait | None, soon: float) -> bool:
    """Return whether a rank, or the child that it waits for, is in one sleep that ends within
    `soon` seconds, as the kernel knows: a client that was told to come back later. What sleeps
    again and again has no such end.
    """
    looks = find_who_waits(facts, wait)
    if wait is None or wait.kind not in ("sleep", "process") or not looks:
        return False
    return is_asleep(looks[-1]) and 0.0 < find_end_of_wait(looks) - looks[-1].at <= soon


MOST_COMPUTING = 300.0  # seconds for which burning a CPU in the same places counts as work
Keep = Callable[[list[Look], Look], None]  # LookSeries.keep


class LockHolders:
    """The looks at processes that have a lock, in a series of looks at a job."""

    def __init__(self) -> None:
        """No process is known to have a lock yet."""
        self.waiting: dict[int, set[int]] = {}  # by the holder's pid, those of ranks that wait
        self._looks: dict[int, list[Look]] = {}  # by pid, oldest first

    def find(self, looks: Iterable[tuple[int, Look]], known: Container[int]) -> list[Target]:
        """Return the processes to look at: those that have a lock which one of these looks shows,
        each with the pid of its rank. `known` are processes of the job, and our own.
        """
        self.waiting = {}
        for rank, look in looks:
            owners = [lock.holder for lock in look.locks]
            owners += [file.owner for file in look.awaited_files]
            for owner in owners:
                if owner and owner not in known:
                    self.waiting.setdefault(owner, set()).add(rank)
        return [Target(pid, "child") for pid in self.waiting]

    def add(self, one: Look, keep: Keep) -> bool:
        """Keep a look at a holder; return whether it is at one."""
        if one.pid not in self.waiting:
            return False
        if one.state:
            keep(self._looks.setdefault(one.pid, []), one)
        return True

    def describe_work(self, rank: int, span: float) -> str:
        """Return what the processes do that a rank (its pid) waits for, over the last `span`
        seconds; "" for nothing.
        """
        found = (self._describe_work(p, span) for p, of in self.waiting.items() if rank in of)
        return "; ".join(filter(None, found))

    def _describe_work(self, pid: int, span: float) -> str:
        looks = self._looks.get(pid, [])
        recent = select_looks_since(looks, span)
        known = movement.collect_places(looks[: len(looks) - len(recent)])
        does = movement.describe_movement(recent, [], known)
        if not does and looks and looks[-1].at - looks[0].at < MOST_COMPUTING:
            does = movement.describe_computing(recent)
        return f"waits for a lock of {looks[0].name} ({pid}), which {does}" if does else ""


def select_looks_since(looks: Sequence[Look], span: float) -> list[Look]:
    """Return the looks of the last `span` seconds, and the one before them; two at the least."""
    if not looks:
        return []
    start = looks[-1].at - span
    before = max((i for i, one in enumerate(looks) if one.at <= start), default=0)
    return list(looks[min(before, max(0, len(looks) - 2)) :])


# Seconds to the next question, from an answer whose counts differ, or that tells of communicators
# which are being made.
RAS_PAUSE = 1.0


@dataclass(frozen=True)
class RasFacts:
    """Sentences for the verdict, and where they differ how many operations each rank has begun."""

    notes: tuple[str, ...] = ()
    logs: Mapping[RankId, CollectiveLog] = field(default_factory=dict)
    unheard: Mapping[RankId, str] = field(default_factory=dict)  # ranks without an answer


@dataclass(frozen=True)
class _RasService:
    """Where the service of a job is asked, and by what the job is known in its answer."""

    address: tuple[str, int, int | None]
    pids: frozenset[int]
    outer: Mapping[int, int]  # numbers of processes here, by those in their container
    here: frozenset[str]  # addresses of this machine


def _find_ras(ranks: Sequence[RankFacts]) -> _RasService | None:
    address = find_service(ranks)
    if address is None:
        return None
    pids = frozenset(facts.pid for facts in ranks if facts.pid is not None)
    return _RasService(address, pids, find_outer_pids(ranks), read_local_addresses(address[2]))


async def ask_ras(
    ranks: Sequence[RankFacts], world: int = 0, limit: float = RAS_LIMIT, pause: float = RAS_PAUSE
) -> RasFacts:
    """Return what the RAS service of these ranks says, nothing if none of them listens. `world`: at
    least so many ranks has the job. Never raises. Takes two times `limit` and `pause` seconds at
    most.
    """
    service = _find_ras(ranks)
    if service is None:
        return RasFacts()
    host, port, _ = service.address
    answer = await _ask_ras_service(service, limit)
    if not isinstance(answer, RasAnswer):
        return RasFacts((f"NCCL RAS: {host}:{port} {answer}",))
    world = max(world, claimed_world_size(ranks), len(ranks))
    logs = make_ras_logs(answer, ranks, world=world, here=service.here)
    moving: frozenset[str] = frozenset()
    if logs or any(rank.making for one in answer.communicators for rank in one.ranks):
        await asyncio.sleep(pause)
        later = await _ask_ras_service(service, limit)
        if not isinstance(later, RasAnswer):
            return RasFacts(describe_status(answer, service.pids))
        moving = find_moving(answer, later)
        answer = later
        logs = make_ras_logs(answer, ranks, moving, world, service.here)
    standing = tuple(one for one in answer.communicators if one.name not in moving)
    notes = describe_status(replace(answer, communicators=standing), service.pids)
    grows = (f"communicator {name} begins operations meanwhile" for name in sorted(moving))
    unheard = find_unheard_ranks(answer, ranks, moving, world, service.here)
    return RasFacts((*notes, *(f"NCCL RAS: {words}" for words in grows)), logs, unheard)


def add_ras_logs(ranks: Sequence[RankFacts], found: RasFacts) -> list[RankFacts]:
    """Return the ranks with what was counted of them, and those that gave no answer marked."""
    counted = [
        replace(facts, collectives=(*facts.collectives, log))
        if (log := found.logs.get(facts.rank)) is not None
        else facts
        for facts in ranks
    ]
    return [
        replace(facts, unheard=found.unheard[facts.rank]) if facts.rank in found.unheard else facts
        for facts in counted
    ]


_RAS_TRIES = 6  # where two jobs share the port, the other one has all of them once in 64 times


async def _ask_ras_service(service: _RasService, limit: float) -> RasAnswer | str:
    """Return what the service of a job answers, or why there is no answer. Whoever has its port is
    asked again where nothing is said, or where it is told of another job alone.
    """
    host, port, pid = service.address
    until = time.monotonic() + limit
    why = "gave no answer that can be read"
    for _ in range(_RAS_TRIES):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            data = await call_with_limit(
                ask_service, host, port, left, pid, limit=left + 0.5, key="NCCL RAS"
            )
        except NoGreeting:
            continue
        except (OSError, TimeoutError, ValueError):
            return why
        answer = parse_ras_status(data)
        if answer is None:
            return why
        answer = name_processes(answer, service.outer, service.here)
        if not is_of_others(answer, service.pids):
            return answer
        why = "tells of another job alone: each job wants an NCCL_RAS_ADDR of its own"
    return why
