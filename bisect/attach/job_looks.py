"""Looks at a job, one after another, until it is clear whether it moves; and the downloads that its
processes have not completed: files whose names say so, and how large they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.rank_facts import CollectiveLog, MachineFacts, RankFacts
from ..base.words import format_rate
from ..collect.beside import ProcessesBeside, has_spawned
from ..collect.looks import (
    MOST_NATIVE_RANKS,
    PAUSE,
    LockHolders,
    LookSeries,
    RankClasses,
    may_pause,
    order_unlike,
    select_looks_since,
    take_good_looks,
)
from ..diagnosis.server_roles import READY, is_ready
from ..evidence import movement
from ..evidence.descriptors import read_links, read_quiet_times
from ..evidence.look import Target
from ..evidence.machine import read_machine
from ..evidence.periodic_threads import PeriodicThreads
from ..evidence.ring_reader import read_ring_of
from ..evidence.successive_looks import find_peer_request
from ..monitor.ended_children import EndedChildren
from ..monitor.ending import resume_process
from .jobs import Job
from .restarts import comes_in_vain, list_failing_actors

DOWNLOAD_ENDINGS = (
    ".incomplete",
    ".part",
    ".partial",
    ".crdownload",
)  # the hub's; others' of the kind
DOWNLOADS_LIMIT = 0.3  # seconds: the files may lie on a disk that does not answer


@dataclass(frozen=True)
class Download:
    """A file that is being downloaded, as one process has it open."""

    at: float
    pid: int
    path: str
    size: int
    grew: bool = False  # since the first look

    @property
    def name(self) -> str:
        """The file's own name; the hub calls it by a hash."""
        return os.path.basename(self.path)


async def find_downloads(pids: Iterable[int]) -> list[Download]:
    """Return the unfinished downloads that these processes have open: those that are found within
    DOWNLOADS_LIMIT.
    """
    found: list[Download] = []
    try:
        await call_with_limit(
            _read_downloads, list(pids), found, limit=DOWNLOADS_LIMIT, key="downloads"
        )
    except TimeoutError:
        return list(found)
    return found


def _read_downloads(pids: list[int], found: list[Download]) -> None:
    for pid in pids:
        try:
            opened = read_links(pid)
        except OSError:
            continue
        for fd, path in opened.items():
            if not path.endswith(DOWNLOAD_ENDINGS):
                continue
            try:
                size = os.stat(f"/proc/{pid}/fd/{fd}").st_size
            except OSError:
                continue
            found.append(Download(time.monotonic(), pid, path, size))


STILL_SPAN = 2.1  # seconds over which nothing may have moved before a job is called hung
PATIENCE = 10.0  # seconds that are waited until it is clear: it computes, or is about to wake
LEAST_LOOKS = 3  # looks
MOST_LOOKS = 16  # that are kept of each process: the first, and the last ones
HEARD_LATELY = 30.0  # seconds: who heard from a server since then is looked at for longer
_HEARD_LIMIT = 0.5
_NATIVE_LOOK_LIMIT = 3.0  # seconds: it takes 0.2 to 0.4, ten times that on a very busy machine


class JobLooks(LookSeries):
    """The looks at the processes of a job, and what they show together."""

    def __init__(
        self,
        job: Job,
        ranks: Mapping[int, RankId],
        family: Callable[[], Mapping[int, int]],
        environment: Mapping[RankId, Mapping[str, str]] | None = None,
    ) -> None:
        """`ranks` has each rank by its pid; `family` is asked before each look for pids, each with
        its rank's; `environment` has what matters of each rank's.
        """
        super().__init__(MOST_LOOKS, PATIENCE)
        self.job = job
        self._twins = {rank.pid: rank.twin for rank in job.ranks if rank.twin is not None}
        self.ranks = ranks
        self.looks: dict[int, list[Look]] = {}  # by pid, oldest first
        self.rank_of: dict[int, int] = {}  # pid of the rank, by pid
        self.helpers: dict[int, PeriodicThreads] = {}  # by the rank's pid
        self.holders = LockHolders()
        self.beside = ProcessesBeside()
        self.ended = EndedChildren(reads_logs=False)
        self.grown: dict[tuple[int, str], list[Download]] = {}
        self.machine = MachineFacts()
        self._family = family
        self._environment = environment or {}

    @property
    def span(self) -> float:
        """Seconds from the first look to the last."""
        ats = [one.at for looks in self.looks.values() for one in looks]
        return max(ats) - min(ats) if ats else 0.0

    async def take(self, span: float = STILL_SPAN) -> RankClasses:
        """Look until it is clear who moves: for `span` seconds, and for up to PATIENCE more where
        that does not tell. Return the ranks by what they do.
        """
        end = self.began + max(span + 2 * PAUSE, PATIENCE)
        while True:
            await self.look()
            settled = self.settled()
            if time.monotonic() + PAUSE > end:
                return settled
            enough = min(span, STILL_SPAN) if settled.moving else span
            clear = self.count >= LEAST_LOOKS and self.span >= enough and self.is_clear(settled)
            if clear and not await self._was_heard_lately(settled):
                return settled
            await asyncio.sleep(PAUSE)

    async def look(self) -> None:
        """Look once at everything."""
        self.rank_of = dict(self._family())
        spawns = {p for p in self.job.launchers for pid in self.ranks if has_spawned(pid, p)}
        known = {*self.rank_of, *(self.job.pids - spawns), os.getpid()}
        last = {**self.beside.asked_by, **self.rank_of}
        seen_last = [(r, self.looks[p][-1]) for p, r in last.items() if p in self.looks]
        self.rank_of |= self.beside.find(seen_last, known)
        self.ended.note(self.rank_of, time.monotonic())
        targets = [Target(pid, "rank" if pid in self.ranks else "child") for pid in self.rank_of]
        targets += self.holders.find(seen_last, {*self.rank_of, os.getpid()})
        looks, seen, about, _ = await asyncio.gather(
            take_good_looks(targets),
            find_downloads(list(self.rank_of)),
            read_machine(since=self.job.began) if self.count == 0 else _look_at_no_machine(),
            self.read_logs(_read_logs, dict(self.ranks)),
        )
        self.machine = about or self.machine
        self.add(looks)
        for file in seen:
            self.grown.setdefault((file.pid, file.path), []).append(file)

    def add(self, looks: Iterable[Look]) -> None:
        """Keep what one look found."""
        for one in looks:
            if one.state and not self.holders.add(one, self.keep):
                self.keep(self.looks.setdefault(one.pid, []), self.beside.show(one))
                if one.pid in self.ranks:
                    self.helpers.setdefault(one.pid, PeriodicThreads()).note(one)
        self.count += 1

    async def look_deeper(self, ranks: Sequence[RankId]) -> None:
        """Take the one look that pauses, last, at these ranks, as far as that does no harm, and
        have it in the last snapshot.
        """
        chosen = self.choose_to_pause(ranks)
        if not chosen:
            return
        targets = [Target(pid, "rank") for pid in chosen]
        looks = await take_good_looks([], targets, limit=_NATIVE_LOOK_LIMIT, resume=resume_process)
        self.add(one for one in looks if one.threads)
        self.snapshot()

    def choose_to_pause(self, ranks: Collection[RankId]) -> list[int]:
        """Return the pids of those of these ranks that may be paused, so many at the most as a look
        pauses: those that stand in different places first.
        """
        pids = [pid for pid, rank in self.ranks.items() if rank in ranks]
        paused = {pid: self.looks[pid][-1] for pid in pids if self._may_pause(pid)}
        return order_unlike(paused)[:MOST_NATIVE_RANKS]

    async def _was_heard_lately(self, settled: RankClasses) -> bool:
        """Return whether something came not long ago from outside the job to a rank that seems to
        hang: a server that trickles shows in no short series of looks.
        """
        inodes = self._connections(settled.hung)
        if not inodes or settled.moving:
            return False
        try:
            quiet = await call_with_limit(read_quiet_times, limit=_HEARD_LIMIT, key="quiet")
        except (OSError, TimeoutError):
            return False
        return any(quiet.get(inode, HEARD_LATELY) < HEARD_LATELY for inode in inodes)

    def _connections(self, ranks: Collection[RankId]) -> set[int]:
        """Return the connections to others over which these ranks, or what they started, have got
        something: a rank's own where it waits for one, all of its children.
        """
        inside = {s.local for looks in self.looks.values() for s in looks[-1].sockets}
        found: set[int] = set()
        for pid, rank in self.ranks.items():
            for p, looks in self._of(pid).items() if rank in ranks else ():
                waited = [one.socket for _, one in movement.find_awaited_descriptors(looks[-1])]
                for one in waited if p == pid else looks[-1].sockets:
                    if one is not None and one.received and one.peer not in inside:
                        found.add(one.inode)
        return found

    def _may_pause(self, pid: int) -> bool:
        looks = self.looks.get(pid, [])
        return may_pause(looks) and bool(looks[-1].threads)

    # ---- what they show -------------------------------------------------------------------------

    def moved(self, pid: int, span: float = STILL_SPAN) -> str:
        """Return what moved of a rank over the last `span` seconds, "" for nothing. Places that
        were seen before that are no news: who asks again and again is in few.
        """
        failing = list_failing_actors(self.looks.get(pid, ()))
        others = {pid, *self.ended.select_others(self._of(pid))}
        family = {
            p: looks
            for p, looks in self._of(pid).items()
            if p in others and not comes_in_vain(looks[-1], failing)
        }
        recent = {p: select_looks_since(looks, span) for p, looks in family.items()}
        earlier = [one for p, looks in family.items() for one in looks[: -len(recent[p])]]
        own = recent.pop(pid, [])
        text = movement.describe_movement(
            *self._without_periodic(pid, own, list(recent.values())),
            movement.collect_places(earlier),
        )
        grows = [said for file in self._files_of(pid) if (said := _describe_growth(file, span))]
        held = self.holders.describe_work(pid, span)
        return "; ".join(part for part in (text, *grows, held) if part)

    def _without_periodic(
        self, pid: int, looks: Sequence[Look], children: Sequence[Sequence[Look]]
    ) -> tuple[Sequence[Look], Sequence[Sequence[Look]]]:
        """Return looks at a rank and its children without what only comes round again."""
        helpers = self.helpers.get(pid)
        return (looks, children) if helpers is None else helpers.drop(looks, children)

    def facts(self) -> list[RankFacts]:
        """Return each rank as a diagnosis takes it, without where it is."""
        ranks = [self._facts(rank, pid) for pid, rank in self.ranks.items()]
        if not is_ready(ranks):
            return ranks
        return [replace(facts, moved=facts.moved or READY) for facts in ranks]

    def _facts(self, rank: RankId, pid: int) -> RankFacts:
        family = self._of(pid)
        looks = family.pop(pid, [])
        children = tuple(tuple(seen) for seen in family.values())
        ours = {*self.rank_of, *self.job.pids} - {*self.beside.asked_by}
        below = tuple(one for one in children if one[-1].pid not in self.beside.asked_by)
        asks = find_peer_request(*self._without_periodic(pid, looks, below), ours)
        moved = self.moved(pid) or (asks.text if asks is not None and asks.answered else "")
        return RankFacts(
            rank=rank,
            pid=pid,
            twin=self._twins.get(pid),
            environment=dict(self._environment.get(rank, {})),
            looks=tuple(looks),
            children=children,
            beside=tuple(sorted({*family} & {*self.beside.asked_by})),
            moved=moved,
            busy=movement.is_busy(looks, children, moved),
            collectives=() if (log := self.logs.get(rank)) is None else (log,),
        )

    def had_time(self) -> Collection[RankId]:
        """Return all ranks, once they were looked at for long."""
        return set(self.ranks.values()) if self.span >= PATIENCE else ()

    def is_clear(self, settled: RankClasses) -> bool:
        """Return whether more looks would tell no more than what was `settled` by these: every rank
        hangs or waits, or something moves that is more than another place in the code.
        """
        if settled.moving:
            words = (facts.moved for facts in self.last_snapshot.ranks)
            return any(word and "new code" not in word for word in words)
        known = settled.hung | settled.waiting
        return not settled.busy and known >= set(self.ranks.values())

    def _of(self, pid: int) -> dict[int, list[Look]]:
        """Return the looks at a rank and at what it has started, by pid."""
        return {
            p: looks
            for p, looks in self.looks.items()
            if p == pid or (self.rank_of.get(p) == pid and p not in self.ranks)
        }

    def _files_of(self, pid: int) -> list[list[Download]]:
        return [f for (p, _), f in self.grown.items() if self.rank_of.get(p) == pid]


def _read_logs(ranks: Mapping[int, RankId], found: dict[RankId, CollectiveLog]) -> None:
    for pid, rank in ranks.items():
        with contextlib.suppress(OSError):
            log = read_ring_of(pid)
            if log is not None:
                found[rank] = log


async def _look_at_no_machine() -> None:
    return None


def _describe_growth(file: list[Download], span: float) -> str:
    recent = [one for one in file if one.at >= file[-1].at - span - PAUSE]
    if len(recent) < 2 or recent[-1].size <= recent[0].size:
        return ""
    grown = format_rate(recent[-1].size - recent[0].size, recent[-1].at - recent[0].at)
    return f"its download {recent[-1].name} grows by {grown}"
