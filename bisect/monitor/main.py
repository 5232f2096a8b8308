"""The monitor's process: from the settings that a rank gives to the last file."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import select
import shutil
import socket
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base import events
from ..base.events import decode
from ..base.loading import import_at_low_priority
from ..base.proc import find_peer_pid
from ..base.rank_state import find_released_ranks
from ..base.typed_messages import Message
from ..rank import our_folders
from .early_messages import Heard
from .job import Job
from .leftovers import note_temporary_folder
from .monitor_process import call_in_thread, prepare_process
from .server import LINE_LIMIT, Server
from .watcher_link import OUTER_VARIABLE

TEMPORARY_LIMIT = 2.0  # seconds to make the job's temporary folder
LOADING_TRIES = 20
RESERVE = 4
SETTINGS_LIMIT = 60.0  # seconds for the rank that started us to read its arguments


def main(start: Message, heard: Heard | None = None) -> int:
    """Be the monitor; `start` says where we listen, and the pipe with our settings. What ranks said
    so far was `heard`. Returns 0.
    """
    prepare_process()
    # The rank's Python may find its packages where an isolated one does not look.
    sys.path += [path for path in start["path"] if path and path not in sys.path]
    settings = _read_settings(start["settings"])
    if settings is None:
        # Before our socket closes: a rank that is connected to it may start another one then.
        shutil.rmtree(start["folder"], ignore_errors=True)
        return 0
    asyncio.run(Monitor({**start, **settings}, heard).run())
    return 0


def _read_settings(pipe: int) -> Message | None:
    """Return what the rank that started us tells, None if it ends before it does."""
    data, end = b"", time.monotonic() + SETTINGS_LIMIT
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        more = os.read(pipe, 1 << 16)
        if not more:
            os.close(pipe)
            break
        data += more
    try:
        settings: Message = json.loads(data)
    except ValueError:
        return None
    return settings


class Monitor:
    """One process, and the jobs that it watches: mostly one; of a command that starts several
    programs without a launcher, all of them. They share nothing but the process, its folder, and
    that one look is taken and one judged at a time; unless the programs are ranks of one job
    (programs_beside.py).
    """

    def __init__(self, settings: Message, heard: Heard | None) -> None:
        """`settings` are those of the first job, and where we listen."""
        self._start = settings
        self._heard = heard
        self._servers: dict[str, Server] = {}  # by job
        self._over: list[Server] = []  # of jobs that have ended beside others that live
        self._watching: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()
        self._judging = asyncio.Lock()
        self._serving: asyncio.Server | None = None
        self._reserve: list[int] = []  # descriptors
        self._is_deaf = False

    async def run(self) -> None:
        """Watch the jobs until all are over, and end this process."""
        try:
            first = self._take(self._start)
            first.job.has_waited_to_load = self._heard is not None
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(functools.partial(_note, first.job))
            with first.job.failures.of("make a folder for temporary files"):
                await _make_temporary_folder(first.job)
            if os.environ.get(OUTER_VARIABLE):
                note_temporary_folder(first.job.folder, first.job.temporary)
            # Ranks may take all there are before what watches them is loaded.
            self._reserve += [os.dup(0) for _ in range(RESERVE)]
            listener = socket.socket(fileno=self._start["listener"])
            self._serving = await asyncio.start_unix_server(
                self._connected, sock=listener, limit=LINE_LIMIT
            )
            if self._heard is not None:
                await self._go_on_with(self._heard, first.job)
            self._watch(first)
            while self._watching:
                await asyncio.wait(self._watching, return_when=asyncio.FIRST_COMPLETED)
                self._watching = {task for task in self._watching if not task.done()}
        finally:
            # A thread may hang in /proc, behind a process in the kernel: it must not keep us.
            os._exit(0)

    async def _go_on_with(self, heard: Heard, job: Job) -> None:
        """Serve the connections that were taken before."""
        loop = asyncio.get_running_loop()
        job.logs.opened.update(heard.rings)
        for connection, said in heard.words:
            reader = asyncio.StreamReader(LINE_LIMIT)
            reader.feed_data(said)
            make = functools.partial(asyncio.StreamReaderProtocol, reader, self._connected)
            with job.failures.of("answer a rank"):
                await loop.connect_accepted_socket(make, connection)

    def _take(self, settings: Message) -> Server:
        """Take on a job."""
        job = Job({"folder": self._start["folder"], **settings})
        job.looking, job.judging = self._looking, self._judging
        job.beside = lambda: [*self._servers.values(), *self._over]
        server = self._servers[str(job.place["job"])] = Server(job)
        if settings.get("successor") or (job.is_one_of_several and job.files.events()):
            job.settings["successor"] = True
            with job.failures.of("go on for the monitor before"):
                _take_over(job, server)
        return server

    def _forget(self, server: Server) -> None:
        """Keep a job that has ended for no longer than one is watched beside which it lived."""
        self._servers.pop(str(server.job.place["job"]), None)
        first = min((one.job.began for one in self._servers.values()), default=math.inf)
        over = [*self._over, server]
        self._over = [one for one in over if one.job.members.lived_after(first)]

    def _watch(self, server: Server) -> None:
        self._watching.add(asyncio.get_running_loop().create_task(self._see_through(server)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(iter(self._servers.values()))
        try:
            with first.job.failures.of("answer a rank"):
                message = await first.next_message(reader) or {}
                server = self._server_for(message, find_peer_pid(writer.get_extra_info("socket")))
                if server is not None:
                    await server.answer(message, reader, writer)
        finally:
            writer.close()

    def _server_for(self, message: Message, pid: int) -> Server | None:
        """Return who serves the one that says `message` first on its connection; None for a job
        that comes too late for us.
        """
        known = self._servers.get(str(message.get("job", "")))
        if known is not None:
            return known
        if message.get("t") == "hello" and isinstance(message.get("settings"), dict):
            if self._is_deaf:
                return None
            # It said so a while ago, if nothing was loaded then.
            since = time.time() - (time.monotonic() - float(message["at"]))
            server = self._take({"since": since, **message["settings"]})
            self._watch(server)
            return server
        servers = list(self._servers.values())
        speaks = (one for one in servers if any(m.pid == pid for m in one.job.members))
        return next(speaks, servers[0])

    async def _see_through(self, server: Server) -> None:
        """Watch one job to its end, and leave nothing of it behind."""
        job = server.job
        try:
            # Ranks of ours wait for the first barrier by now: what they do not need comes after it.
            if job.runs_script:
                await job.wait_to_load()
            with job.failures.of("make the run folder"):
                await _make_run_folder(job)
            server.welcome_all()
            _introduce(job)
            if not job.runs_script:
                await job.wait_to_load()
            while self._reserve:
                os.close(self._reserve.pop())
            watch = await _load_watch(server)
            await watch.Watch(job, server).run()
        except Exception as error:  # the ranks go on without us, and the reason must be said
            with contextlib.suppress(Exception):
                server.stop_holding("the watch failed")
            with contextlib.suppress(Exception):
                where = traceback.format_exc()
                job.note(None, events.Failed(traceback=where))
                job.say(f"The watch failed, the job goes on without it: {error!r}")
                if os.environ.get("HANGBISECT_DEBUG"):
                    job.say(where)
        finally:
            is_last = len(self._watching) <= 1
            if is_last:
                self._stop_listening(job)
            await _leave(job, is_last)
            if not is_last:
                self._forget(server)

    def _stop_listening(self, job: Job) -> None:
        """Take on no more jobs. A rank of another one that comes from now on makes a new monitor,
        and a folder of the same name: ours is put aside for that before we are deaf.
        """
        self._is_deaf = True
        if job.is_one_of_several:
            with contextlib.suppress(OSError):
                job.move(Path(f"{job.folder}.{os.getpid()}"))
        if self._serving is not None:
            self._serving.close()


async def _load_watch(server: Server) -> ModuleType:
    """Return what watches, once there are descriptors to read it: ranks that say hello take them.

    Raises OSError if there are none for long.
    """
    # Ranks of a pipeline may wait for us in a barrier: then we load at normal priority.
    load = import_at_low_priority if server.job.runs_script else import_module
    name = f"{__package__}.watch"
    for _ in range(LOADING_TRIES - 1):
        try:
            return await call_in_thread(load, name)
        except OSError as error:
            server.job.failures.take("load what watches", error)
            server.spare_descriptors()
            await asyncio.sleep(1.0)
    return await call_in_thread(load, name)


def _note(job: Job, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Note what failed in a task that is not awaited: asyncio would print it on stderr."""
    error = context.get("exception")
    part = str(context.get("message", "go on")).partition("\n")[0]
    if isinstance(error, ConnectionError):
        return
    job.failures.take(f"do all it had begun ({part})", error or RuntimeError(part))


def _introduce(job: Job) -> None:
    """Tell the process around the launcher who watches, and what its ranks will speak of."""
    titles = {c.number: c.title for c in job.table}
    where, folder = str(job.files.path), str(job.folder)
    job.outer.tell(events.Watches(pid=os.getpid(), run_dir=where, folder=folder, titles=titles))
    job.note(None, events.Table(numbers={c.name: c.number for c in job.table}))


def _take_over(job: Job, server: Server) -> None:
    """Learn from events.jsonl what the monitor before this one knew."""
    for event in map(decode, job.files.events()):
        if isinstance(event, events.BarriersOff):
            job.lockstep, job.barrier_opened = False, event.why
        else:
            job.members.apply(event)
    for waiting in find_released_ranks(job.members):  # it was let go, or asks us again
        waiting.awaits = ()
    for member in job.members:
        server.watch(member)
        if member.left and member.left_at is None:
            # It ended while it was not watched: how is not known, and is not held against it.
            member.finished, member.left_at = True, job.began
    job.say("This monitor goes on for one that died")


async def _make_run_folder(job: Job) -> None:
    first = not job.settings.get("successor")
    if not await job.files.publish(first=first):
        await job.choose_another_run_folder()
        await job.files.publish(first=first)
    job.note_run_folder()


async def _make_temporary_folder(job: Job) -> None:
    """Make the folder that ranks of ours have for temporary files; if another user was there
    first, another one.
    """

    def make() -> None:
        try:
            our_folders.make(str(job.temporary))
        except OSError:
            job.temporary = Path(our_folders.make_new("hangbisect-tmp-"))

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(call_in_thread(make), TEMPORARY_LIMIT)


async def _leave(job: Job, is_last: bool) -> None:
    """Publish what came last, and leave nothing behind, whatever fails meanwhile."""
    with job.failures.of("close the table of ranks"):
        await job.live.close()
    with job.failures.of("leave"):
        if job.folder.is_dir():
            job.note(None, events.WatchEnds())
            with job.failures.of("copy the run folder"):
                await job.files.publish(last=True)
            for sentence in job.files.losses() if job.members.by_rank else ():
                job.say(sentence)
    with contextlib.suppress(OSError):
        if is_last:
            job.hush()
    with contextlib.suppress(Exception):
        job.remove_folder(whole=is_last)
    with contextlib.suppress(Exception):
        job.remove_temporary_files()
    with contextlib.suppress(Exception):
        await job.reports.finish()
    with contextlib.suppress(Exception):
        job.outer.close()
