"""The monitor's ear: what ranks say, and what they are answered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
from typing import TYPE_CHECKING

from ..report.words import ranges
from .barriers import missing, opening, released
from .departures import note_end, note_slow
from .ending import has_ended
from .members import Member, Message

if TYPE_CHECKING:
    from .job import Job

FIRST_LOOK = 0.2  # seconds after the first hello: ranks hurry through their first barriers then
LOOK_TRIES = 3  # py-spy may fail once on a process that is just changing
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
        self.signalled: dict[int, float] = {}  # since when a rank has a signal to end, by rank

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Begin to answer on a listening socket."""
        return await asyncio.start_unix_server(self._connected, sock=listener, limit=LINE_LIMIT)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            message: Message = json.loads(line) if line else {}
            pid = _peer(writer)
            if message.get("t") == "hello":
                await self._rank(int(message["rank"]), pid, message, reader, writer)
            elif message.get("t") == "signals":
                await self._signals(int(message["rank"]), reader, writer)
            elif message.get("t") == "recorder":
                await self.job.logs.serve(message, reader, writer)
        except ConnectionError:  # it was ended
            pass
        except (ValueError, KeyError) as error:
            self.job.note(None, {"t": "garbled", "why": repr(error)})
        finally:
            writer.close()

    async def _rank(
        self,
        rank: int,
        pid: int,
        hello: Message,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        job = self.job
        hello = {**hello, "pid": pid or hello["pid"]}
        self._take_in(rank, hello)
        before = hello.get("instead_of")
        if before is not None and before not in job.members.by_rank:
            self._stop_watching(before)
            job.writers.pop(before, None)
        member = job.members.by_rank[rank]
        job.writers[rank] = writer
        self._welcome(member)
        while line := await reader.readline():
            message: Message = json.loads(line)
            if job.members.by_rank.get(rank) is not member:
                continue  # another process is this rank: a launcher spoke for it before
            self._take_in(rank, message)
            self._answer(member, message)
        if job.writers.get(rank) is writer:
            del job.writers[rank]
        job.changed.set()
        await asyncio.sleep(1.0)
        alone = not member.left and member.left_at is None and rank not in job.writers
        if alone and job.lockstep and not job.closing:
            self.stop_holding(f"rank {rank} went on without the watch")
            job.say(f"Rank {rank} goes on without the watch: going on without barriers")

    def _take_in(self, rank: int, message: Message) -> None:
        members = self.job.members
        before = members.by_rank.get(rank)
        if message["t"] in ("reached", "phase", "end") and before is not None:
            note_slow(self.job, before)
        members.apply(rank, message)
        self.job.note(members.by_rank.get(rank), message)
        if message["t"] == "reached" and self.job.settings["sum_up"]:
            self._sum_up(int(message["n"]))
        if message["t"] == "bye":
            self.job.changed.set()

    def _sum_up(self, number: int) -> None:
        """Print one line for a checkpoint that every rank of this node has reached."""
        members = self.job.members
        if missing(members, number):
            return
        times = [m.arrivals[number] for m in members]
        title = next(c.title for c in self.job.table if c.number == number)
        self.job.say(
            f"CHECKPOINT {number}: {title}  ranks {ranges(members.expected)}, "
            f"+{min(times):.1f} s to +{max(times):.1f} s"
        )

    def _welcome(self, member: Member) -> None:
        job = self.job
        self.watch(member)
        job.tell(member.rank, "learn", tmp=str(job.temporary))
        if self._has_run_folder:
            job.tell(member.rank, "welcome", run_dir=str(job.files.path))
        if job.cannot_look:
            self._tell_where_to_leave_stacks(member)
        if not job.tried_to_look:
            job.tried_to_look = True
            self._say_for_whom_we_speak()
            self._task = asyncio.get_running_loop().create_task(self._try_to_look(member))

    def welcome_all(self) -> None:
        """The run folder is decided on: tell those who came before, and later ones at once."""
        self._has_run_folder = True
        for rank in self.job.writers:
            self.job.tell(rank, "welcome", run_dir=str(self.job.files.path))

    def watch(self, member: Member) -> None:
        """Hear of the member's end as soon as it comes, without being its parent."""
        job = self.job
        if self._watched.get(member.rank) == member.pid:
            return
        self._stop_watching(member.rank)
        job.family.add_rank(member.pid)
        try:
            descriptor = os.pidfd_open(member.pid)
        except OSError:
            member.left = True
            return
        job.pidfds[member.rank] = descriptor
        self._watched[member.rank] = member.pid
        asyncio.get_running_loop().add_reader(descriptor, self._ended, member, descriptor)

    def _stop_watching(self, rank: int) -> None:
        """Another process was taken for this rank."""
        descriptor = self.job.pidfds.pop(rank, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _ended(self, member: Member, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        note_end(self.job, member)

    async def _try_to_look(self, member: Member) -> None:
        """Find out once whether py-spy may look; where it may not, ranks arm their own timers."""
        from ..evidence.programs import executable

        job = self.job
        if executable() is not None:
            await asyncio.sleep(FIRST_LOOK)
        from ..evidence.stacks import can_look

        for _ in range(LOOK_TRIES):
            why = await can_look(member.pid)
            if not why or member.left:
                return
            if executable() is None:
                break
            await asyncio.sleep(0.5)
        job.cannot_look = why
        job.say(f"No stacks by py-spy: {why} Using faulthandler and /proc instead.")
        for other in job.members:
            self._tell_where_to_leave_stacks(other)

    def _say_for_whom_we_speak(self) -> None:
        members = self.job.members
        if len(members.expected) < members.world_size:
            self.job.say(
                f"This watch is for ranks {ranges(members.expected)} of {members.world_size}, "
                "those of this node: ranks of other nodes are neither missed nor blamed"
            )

    def _tell_where_to_leave_stacks(self, member: Member) -> None:
        self.job.tell(member.rank, "learn", stacks_file=str(self.job.stacks_file(member.rank)))

    def _answer(self, member: Member, message: Message) -> None:
        job, kind = self.job, message["t"]
        if kind == "arrive":
            if job.lockstep:
                self.open_barriers()
            elif message.get("held", True):
                self._let_go(member)
        elif kind == "await":
            if not member.awaits:
                self._let_go(member)
        elif kind == "did":
            for waiting in released(job.members):
                waiting.awaits = ()
                self._let_go(waiting)
        elif kind == "ring":
            job.logs.open(member.rank, member.pid, int(message["fd"]))
        elif kind == "bye" and (job.verdict is not None or job.own):
            job.tell(member.rank, "written")

    def open_barriers(self) -> None:
        """Let everyone go on whose barrier is complete."""
        job = self.job
        for number in opening(job.members):
            at = asyncio.get_running_loop().time()
            going = [m for m in job.members if m.held_at is not None and m.held_at <= number]
            job.members.opens(number, at)
            job.note(None, {"t": "opened", "n": number, "at": at})
            for member in going:
                self._let_go(member)

    def stop_holding(self, why: str) -> None:
        """Open all barriers for good: our barrier is never the cause."""
        job = self.job
        job.lockstep, job.barrier_opened = False, why
        job.note(None, {"t": "barriers off", "why": why})
        held = [m for m in job.members if m.held_at is not None]
        for member in job.members:
            job.tell(member.rank, "observe")
        job.members.opens(
            max((m.held_at or 0 for m in held), default=0), asyncio.get_running_loop().time()
        )
        for member in held:
            self._let_go(member)

    def _let_go(self, member: Member) -> None:
        self.job.tell(member.rank, "go")

    def remind(self) -> None:
        """Tell those that wait in a barrier that we are here, and for whom they wait."""
        job = self.job
        now = asyncio.get_running_loop().time()
        for member in job.members:
            if not member.waits_for_us or member.left:
                continue
            waited = now - member.waits_since
            who = list(member.awaits) or missing(job.members, member.held_at or 0)
            names = ", ".join(f"rank {r}" for r in who[:8]) + (" ..." if len(who) > 8 else "")
            if waited >= 10.0 and member.rank in (job.place["rank"], 0):
                job.tell(member.rank, "say", text=f"Waiting for {names} ({waited:.0f} s)")
            else:
                job.tell(member.rank, "alive")

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


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the pid at the other end (SO_PEERCRED, unix(7)), 0 if the kernel does not know it."""
    connection = writer.get_extra_info("socket")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", data)[0]
    return pid


def all_ended(job: Job) -> bool:
    """Return whether every rank that ever spoke has ended."""
    return all(has_ended(descriptor) for descriptor in job.pidfds.values())
