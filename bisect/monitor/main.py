"""The monitor's process: from the settings that a rank gives to the last file."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import socket
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module

from .job import Job
from .members import Message
from .server import Server

TEMPORARY_LIMIT = 2.0  # seconds to make the job's temporary folder
FIRST_BARRIERS = 0.2  # seconds: ranks hurry through them, and imports would hold them up
SETTINGS_LIMIT = 60.0  # seconds for the rank that started us to read its arguments


def main(argument: str) -> int:
    """Be the monitor; `argument` says as JSON where we listen, and the pipe with our settings.
    Returns 0.
    """
    start: Message = json.loads(argument)
    # The rank's Python may find its packages where an isolated one does not look.
    sys.path += [path for path in start["path"] if path and path not in sys.path]
    settings = _read_settings(start["settings"])
    if settings is None:
        # Before our socket closes: whoever is connected to it may start another one then.
        shutil.rmtree(start["folder"], ignore_errors=True)
        return 0
    asyncio.run(_watch({**start, **settings}))
    return 0


def _read_settings(pipe: int) -> Message | None:
    """Return what the rank that started us tells, None if it ends before it does."""
    data, end = b"", time.monotonic() + SETTINGS_LIMIT
    while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
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


async def _watch(settings: Message) -> None:
    job = Job(settings)
    server = Server(job)
    if settings.get("successor"):
        _take_over(job, server)
    listener = socket.socket(fileno=settings["listener"])
    await _make_temporary_folder(job)
    serving = await server.serve(listener)
    try:
        # Ranks wait for the first barrier by now: what they do not need comes after it.
        await _make_run_folder(job)
        server.welcome_all()
        _introduce(job)
        await asyncio.sleep(FIRST_BARRIERS)
        watch = await asyncio.to_thread(import_module, ".watch", __package__)
        await watch.Watch(job, server).run()
    except Exception as error:  # the ranks go on without us, and somebody must be told why
        where = traceback.format_exc()
        job.note(None, {"t": "failed", "traceback": where})
        job.say(f"The watch failed, the job goes on without it: {error!r}")
        if os.environ.get("HANGBISECT_DEBUG"):
            job.say(where)
    finally:
        serving.close()
        await _leave(job)


def _introduce(job: Job) -> None:
    """Tell the process around the launcher who watches, and what its ranks will speak of."""
    titles = {c.number: c.title for c in job.table}
    where = str(job.files.path)
    job.outer.tell({"t": "watches", "pid": os.getpid(), "run_dir": where, "titles": titles})
    job.note(None, {"t": "table", "numbers": {c.name: c.number for c in job.table}})


def _take_over(job: Job, server: Server) -> None:
    """Learn from events.jsonl what the monitor before this one knew."""
    for event in job.files.events():
        if event.get("t") == "opened":
            job.members.opens(int(event["n"]), float(event["at"]))
        elif event.get("t") == "barriers off":
            job.lockstep, job.barrier_opened = False, str(event["why"])
        elif "rank" in event and "t" in event:
            job.members.apply(int(event["rank"]), event)
    for member in job.members:
        server.watch(member)
        if member.left and member.left_at is None:
            # It went while nobody watched: how is not known, and nothing is held against it.
            member.finished, member.left_at = True, job.began
    job.say("This monitor goes on for one that died")


async def _make_run_folder(job: Job) -> None:
    first = not job.settings.get("successor")
    if not await job.files.publish(first=first):
        job.choose_another_run_folder()
        await job.files.publish(first=first)


async def _make_temporary_folder(job: Job) -> None:
    def make() -> None:
        with suppress(FileExistsError):
            os.mkdir(job.temporary, 0o700)

    with suppress(OSError, TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(make), TEMPORARY_LIMIT)


async def _leave(job: Job) -> None:
    """Publish what came last, and leave nothing behind."""
    await job.live.close()
    job.hush()
    if job.folder.is_dir():
        job.note(None, {"t": "watch ends"})
        await job.files.publish(last=True)
        job.remove_folder()
    job.remove_temporary_files()
    await job.reports.finish()
    # A thread may hang in /proc, behind a process in the kernel: it must not keep us.
    os._exit(0)
