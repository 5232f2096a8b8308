"""A Unix socket server: what ranks say to their node's monitor, and what they are answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING

from ..base import events
from ..base.events import Event, decode
from ..base.proc import find_peer_pid
from ..base.process_roles import find_server_process, is_worker
from ..base.rank_state import (
    RankState,
    find_missing_ranks,
    find_opening_barriers,
    find_released_ranks,
)
from ..base.typed_messages import Message
from ..base.words import format_bytes, format_ranges, format_ranks
from ..evidence.process import Life, open_life, words_of
from .rank_exits import note_end, note_slow, stop_hearing

if TYPE_CHECKING:
    from .job import Job

LOOK_TRIES = 3  # py-spy may fail once on a process that is just changing
ASK_EVERY = 0.25  # seconds between two questions whether a rank has ended
LINE_LIMIT = 1 << 24  # bytes of one message
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server:
    """Serves the ranks of one node."""

    def __init__(self, job: Job) -> None:
        """The job is what the ranks' words change."""
        self.job = job
        self._has_run_folder = False
        self._task: asyncio.Task[None] | None = None
        self._watched: dict[int, int] = {}  # the pids of those whose end is heard of, by rank
        self._polled: dict[int, tuple[RankState, Life]] = {}  # those whose end must be asked for
        self._polling: asyncio.Task[None] | None = None
        self.signalled: dict[int, float] = {}  # since when a rank has a signal to end, by rank

    async def answer(
        self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve a connection, the first message of which was read, to its end."""
        try:
            pid = find_peer_pid(writer.get_extra_info("socket"))
            if message.get("t") == "hello":
                hello = _read_hello(message, pid)
                self.job.outer.add(str(message.get("outer", "")))
                await self._rank(hello.rank or 0, hello, reader, writer)
            elif message.get("t") == "signals":
                await self._signals(int(message["rank"]), reader, writer)
            elif message.get("t") == "recorder":
                await self.job.logs.serve(message, reader, writer)
        except ConnectionError:  # it was ended
            pass
        except (ValueError, KeyError) as error:
            self.job.note(None, events.Garbled(why=repr(error)))

    async def next_message(self, reader: asyncio.StreamReader) -> Message | None:
        """Return what is said next, None at the end. What cannot be read is left out, and written
        down.
        """
        while True:
            try:
                message = json.loads(await reader.readuntil(b"\n"))
                if isinstance(message, dict) and "t" in message:
                    return message
                why = "no message"
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            except asyncio.LimitOverrunError as error:
                await _skip_line(reader, error.consumed)
                why = f"more than {format_bytes(LINE_LIMIT)}"
            except (ValueError, RecursionError) as error:
                why = repr(error)
            self.job.note(None, events.Garbled(why=why))

    async def _rank(
        self,
        rank: int,
        hello: events.Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        job = self.job
        self._take_in(rank, hello)
        before = hello.instead_of
        if before is not None and before not in job.members.by_rank:
            self._stop_watching(before)
            job.writers.pop(before, None)
        member = job.members.by_rank[rank]
        job.writers[rank] = writer
        self._welcome(member)
        while (message := await self.next_message(reader)) is not None:
            event = decode(message)
            if job.members.by_rank.get(rank) is not member:
                # Another process is this rank: a launcher spoke for it before.
                if job.server is not None and isinstance(event, events.Bye):
                    told = event.at, event.error, event.traceback or ""
                    job.server.note_error(member.pid, *told)
                continue
            with job.failures.of("take in what a rank says"):
                self._take_in(rank, event)
            with job.failures.of("answer a rank"):
                self._answer(member, event)
        if job.writers.get(rank) is writer:
            del job.writers[rank]
        job.changed.set()
        await asyncio.sleep(1.0)
        alone = not member.has_left and rank not in job.writers
        if alone and job.lockstep and not job.closing:
            self.stop_holding(f"rank {rank} went on without the watch")
            job.say(f"Rank {rank} goes on without the watch: going on without barriers")

    def _take_in(self, rank: int, event: Event) -> None:
        members = self.job.members
        before = members.by_rank.get(rank)
        if isinstance(event, events.Reached | events.Phase | events.End) and before is not None:
            note_slow(self.job, before)
        members.apply(event.replace(rank=rank))
        self.job.note(members.by_rank.get(rank), event)
        if isinstance(event, events.Begin):
            self._follow_server(members.by_rank.get(rank))
        if isinstance(event, events.Reached) and self.job.settings["sum_up"]:
            self._sum_up(event.n)
        if isinstance(event, events.Bye):
            self.job.changed.set()

    def _follow_server(self, member: RankState | None) -> None:
        """Watch what has started a rank of an inference server as well, until the rank's process
        has its title.
        """
        if member is None or not member.is_of_server or member.title:
            return
        if self.job.server is None:
            from .server_processes import ServerProcesses  # most jobs are no servers

            self.job.server = ServerProcesses(self.job, member.host)
        self.job.server.follow(member.above)
        found = find_server_process(words_of(member.pid))
        if found is not None and found.numbers:
            member.title = found.name

    def _sum_up(self, number: int) -> None:
        """Print one line for a checkpoint that every rank of this node has reached."""
        members = self.job.members
        if find_missing_ranks(members, number) or members.unnamed:
            return
        nodes = self.job.nodes
        if nodes is None or not nodes.spans_barriers:  # else who leads them prints it
            times = [m.arrivals[number] for m in members]
            self.job.sum_up(number, format_ranges(members.expected), min(times), max(times))

    def _welcome(self, member: RankState) -> None:
        job = self.job
        self.watch(member)
        job.tell(member.rank, events.Places(temporary=str(job.temporary)))
        if self._has_run_folder:
            job.tell(member.rank, events.Places(run_dir=str(job.files.path)))
        if job.cannot_look:
            self._tell_where_to_leave_stacks(member)
        if not job.tried_to_look:
            job.tried_to_look = True
            self._say_for_whom_we_speak()
            self._task = asyncio.get_running_loop().create_task(self._find_out_how_to_look(member))

    def welcome_all(self) -> None:
        """The run folder is decided on: tell those who came before, and later ones at once."""
        self._has_run_folder = True
        for rank in self.job.writers:
            self.job.tell(rank, events.Places(run_dir=str(self.job.files.path)))

    def watch(self, member: RankState) -> None:
        """Hear of the member's end as soon as it comes, without being its parent."""
        job = self.job
        if self._watched.get(member.rank) == member.pid:
            return
        self._stop_watching(member.rank)
        job.family.add_rank(member.pid)
        member.is_actor = is_worker(words_of(member.pid))
        life = job.lives[member.rank] = open_life(member.pid)
        if life.descriptor is None and life.has_ended():
            member.left = True
            return
        self._watched[member.rank] = member.pid
        try:
            if life.descriptor is not None:
                loop = asyncio.get_running_loop()
                loop.add_reader(life.descriptor, self._ended, member, life)
                return
        except OSError:  # no room for it in epoll
            life.close()
        self._poll(member, life)

    def _stop_watching(self, rank: int) -> None:
        """Another process was taken for this rank."""
        self._polled.pop(rank, None)
        life = self.job.lives.pop(rank, None)
        if life is not None:
            stop_hearing(life)

    def _ended(self, member: RankState, life: Life) -> None:
        told = None
        if life.descriptor is not None and life.has_ended():
            told = life.exit_code()
            stop_hearing(life)  # it has told all that it can: others may need the descriptor
        note_end(self.job, member, told)

    def spare_descriptors(self) -> None:
        """Hear of ends without pidfds from now on: other things need the descriptors more."""
        for member in self.job.members:
            life = self.job.lives.get(member.rank)
            if life is not None and life.descriptor is not None and not life.has_ended():
                stop_hearing(life)
                self._poll(member, life)

    def _poll(self, member: RankState, life: Life) -> None:
        """Ask again and again whether a member has ended: nothing else tells."""
        self._polled[member.rank] = member, life
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._ask_again_and_again())

    async def _ask_again_and_again(self) -> None:
        while self._polled:
            await asyncio.sleep(ASK_EVERY)
            with self.job.failures.of("ask whether ranks have ended"):
                self.ask_who_ended()

    def ask_who_ended(self) -> None:
        """Note the ends of ranks for which nothing else reports them: where there are no pidfds."""
        for rank, (member, life) in list(self._polled.items()):
            if life.has_ended():
                del self._polled[rank]
                note_end(self.job, member)

    async def _find_out_how_to_look(self, member: RankState) -> None:
        with self.job.failures.of("look at a rank"):
            await self._try_to_look(member)

    async def _try_to_look(self, member: RankState) -> None:
        """Find out once whether py-spy may look; where it may not, ranks arm their own timers."""
        from ..evidence.external_tools import find_program

        job = self.job
        if find_program() is not None:
            await job.wait_to_load()
        from ..evidence.stacks import why_py_spy_cannot_look

        for _ in range(LOOK_TRIES):
            why = await why_py_spy_cannot_look(member.pid)
            if not why or member.left:
                return
            if find_program() is None:
                break
            await asyncio.sleep(0.5)
        job.cannot_look = why
        job.say(f"No stacks by py-spy: {why} Using faulthandler and /proc instead.")
        for other in job.members:
            self._tell_where_to_leave_stacks(other)

    def _say_for_whom_we_speak(self) -> None:
        members = self.job.members
        others = "those of this node: ranks of other nodes are neither missed nor blamed"
        world = members.world_size
        if members.unnamed:
            self.job.say(f"This watch is for {members.size} ranks of {world}, {others}")
        elif members.local_size and members.size < world:
            self.job.say(f"This watch is for {format_ranks(members.expected)} of {world}, {others}")
        elif not members.local_size and world > 1:
            self._count_nobody()

    def _count_nobody(self) -> None:
        """Nobody says how many ranks this node has: none is waited for."""
        job = self.job
        where = "nobody says how many ranks this node has"
        if job.lockstep:
            self.stop_holding(where)
        job.say(f"{where[0].upper()}{where[1:]}, of {job.members.world_size}: none is missed")

    def _tell_where_to_leave_stacks(self, member: RankState) -> None:
        places = events.Places(stacks_file=str(self.job.stacks_file(member.rank)))
        self.job.tell(member.rank, places)

    def _answer(self, member: RankState, event: Event) -> None:
        job = self.job
        if isinstance(event, events.Arrive):
            if job.lockstep:
                self.open_barriers()
            elif event.held:
                self._let_go(member)
        elif isinstance(event, events.Await):
            if not member.awaits:
                self._let_go(member, done=event.what in job.members.done)
            self._release_from_elsewhere()
        elif isinstance(event, events.Did):
            for waiting in find_released_ranks(job.members):
                waiting.awaits = ()
                self._let_go(waiting)
            if member.rank == 0 and job.nodes is not None:
                job.nodes.tell_done(event.what)
        elif isinstance(event, events.RingOpened):
            job.logs.open(member.rank, member.pid, event.fd)
        elif isinstance(event, events.Bye) and (job.verdict is not None or job.runs_script):
            job.tell(member.rank, events.Written())

    def open_barriers(self) -> None:
        """Let everyone go on whose barrier is complete."""
        job = self.job
        for number in find_opening_barriers(job.members):
            if job.nodes is not None and not job.nodes.pass_barrier(number):
                return
            at = asyncio.get_running_loop().time()
            going = [m for m in job.members if m.held_at is not None and m.held_at <= number]
            opened = events.Opened(n=number, at=at)
            job.members.apply(opened)
            job.note(None, opened)
            for member in going:
                self._let_go(member)

    def hear_other_nodes(self) -> None:
        """Let ranks go that need not wait any longer for those of other nodes."""
        if self.job.lockstep:
            self.open_barriers()
        self._release_from_elsewhere()

    def _release_from_elsewhere(self) -> None:
        """Let ranks go that wait for rank 0 of another node: it is through, or not heard."""
        job = self.job
        here = {member.rank for member in job.members} | {*job.members.expected}
        for member in job.members:
            if member.awaits and here.isdisjoint(member.awaits):
                nodes = job.nodes
                done = nodes.has_done(member.awaits_what) if nodes is not None else None
                if done is not False:  # noted: who reads the events is to know that it goes on
                    at = asyncio.get_running_loop().time()
                    waited = events.WaitsNoMore(what=member.awaits_what, rank=member.rank, at=at)
                    job.members.apply(waited)
                    job.note(member, waited)
                    self._let_go(member, done=bool(done))

    def stop_holding(self, why: str) -> None:
        """Open all barriers for good: our barrier is never the cause."""
        job = self.job
        if job.nodes is not None:
            job.nodes.stop_holding()
        job.lockstep, job.barrier_opened = False, why
        job.note(None, events.BarriersOff(why=why))
        held = [m for m in job.members if m.held_at is not None]
        for member in job.members:
            job.tell(member.rank, events.Observe())
        job.members.opens(
            max((m.held_at or 0 for m in held), default=0), asyncio.get_running_loop().time()
        )
        for member in held:
            self._let_go(member)

    def _let_go(self, member: RankState, done: bool = True) -> None:
        self.job.tell(member.rank, events.Go(done=done))

    def remind(self) -> None:
        """Tell ranks that wait in a barrier that we are here, and which ranks they wait for."""
        job = self.job
        now = asyncio.get_running_loop().time()
        for member in job.members:
            if not member.waits_for_us or member.left:
                continue
            waited = now - member.waits_since
            who = list(member.awaits) or find_missing_ranks(job.members, member.held_at or 0)
            named = [format_ranks(who)] if who else []
            if not who and job.nodes is not None:
                named += job.nodes.hosts_behind
            if job.members.unnamed and not member.awaits:
                named.append(job.members.unstarted)
            names = ", ".join(named)
            if waited >= 10.0 and member.rank in (job.place["rank"], 0):
                job.tell(member.rank, events.Say(text=f"Waiting for {names} ({waited:.0f} s)"))
            else:
                job.tell(member.rank, events.Alive())

    # ---- signals -----------------------------------------------------------------------------

    async def _signals(
        self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.job.signal_writers[rank] = writer
        while data := await reader.read(64):
            if self.job.verdict is not None:  # the look is taken, or there is none to take
                writer.write(b"\n")
            if set(data) & set(INTERRUPTING):
                self.signalled.setdefault(rank, asyncio.get_running_loop().time())
                self.job.changed.set()

    def let_signalled_go(self) -> None:
        """The last look is taken: ranks that were signalled may end."""
        for rank in self.job.signal_writers:
            self._let_end(rank)

    def leave_alone(self) -> None:
        """Let those that were signalled do what they do about it, and hear of later signals."""
        for rank in self.signalled:
            self._let_end(rank)
        self.signalled = {}

    def _let_end(self, rank: int) -> None:
        writer = self.job.signal_writers.get(rank)
        if writer is not None and not writer.is_closing():
            writer.write(b"\n")


def _read_hello(message: Message, pid: int) -> events.Hello:
    """Return what a rank says first; `pid` is that of who says it, 0: not known.

    Raises ValueError if it lacks what a rank must say of itself.
    """
    hello = decode(message)
    if not isinstance(hello, events.Hello) or hello.rank is None:
        raise ValueError("a hello without a rank")
    hello = hello.replace(pid=pid or hello.pid)
    if min(hello.world_size, hello.local_world_size, hello.local_rank) < 0 or not hello.pid:
        raise ValueError("a hello without a place")
    return hello


async def _skip_line(reader: asyncio.StreamReader, seen: int) -> None:
    """Read to the end of a line of which `seen` bytes are more than is kept."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readexactly(seen)
            try:
                await reader.readuntil(b"\n")
                return
            except asyncio.LimitOverrunError as error:
                seen = error.consumed
