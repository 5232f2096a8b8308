"""The end of a watch from outside: an agent that waits for others once its ranks have ended well;
monitors are waited for, what is left of the job is ended where that is ours to do, and what no rank
and no monitor told is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.words import format_count
from ..evidence.process import exit_code, marked
from ..front.watcher_socket import remove_watcher_socket
from .ending import find_monitors, is_alive
from .monitor_process import call_in_thread
from .watcher_link import OUTER_VARIABLE

if TYPE_CHECKING:
    from .watcher import LauncherSupervisor

MONITORS_LIMIT = 15.0  # seconds for monitors to write and leave once the launcher has ended
OTHERS_LIMIT = 1.0  # the same, for monitors that have other ranks to watch
CLIENT_LIMIT = 5.0  # seconds for a client of a scheduler to end after its tasks were ended
MOST_SHOWN = 4  # pids of ranks that a command has left behind
STOP_LIMIT = 10.0  # seconds for a launcher to end after it was told to


async def look_past_ranks(its: LauncherSupervisor, now: float) -> None:
    """All ranks here have ended well, and the command has not: give a verdict where its agent waits
    for one of another node that is not connected any more.
    """
    at, around, pause = its.at, its.around, its.find_pause(now)
    if around.expects_words or around.starter is not None:
        return
    if any(map(is_alive, its.heard.monitors)) or now < at.sampled + pause:
        return
    at.sampled = now
    its.sample(now)
    if now < max(at.stirred, at.looked) + max(around.stall, pause):
        return
    outside = await its.look()
    lost = outside.list_lost_agents(its.heard.hosts)
    if lost and not (outside.moved() or its.has_ended or its.is_held()):
        judged, _ = await its.judge_here(outside, "still", at.stirred, lost)
        await its.close(outside, judged, is_to_end=False)


def describe_left_ranks(status: int | None, pids: Collection[int], run_dirs: Sequence[str]) -> str:
    """Return what is told of ranks that a command has left behind: they have these pids."""
    ended = "has ended" if status is None else f"has ended with status {status}"
    number = format_count(len(pids), "rank")
    shown = ", ".join(map(str, sorted(pids)[:MOST_SHOWN])) + ", ..." * (len(pids) > MOST_SHOWN)
    runs = "runs" if len(pids) == 1 else "run"
    where = f": what comes of it is written to {run_dirs[-1]}" if run_dirs else ""
    which = f"{number} that it started {runs} on (pid {shown})"
    return f"The command {ended}; {which}, watched still{where}"


class CommandEnd:
    """What is done once a command has ended, or is to be ended."""

    def __init__(self, supervisor: LauncherSupervisor) -> None:
        """`supervisor` has watched the command until now."""
        self._its = supervisor
        self._around, self._heard = supervisor.around, supervisor.heard
        self._listening = supervisor.listening

    async def finish(self) -> None:
        """See monitors out, and end what is left, if it is ours to end."""
        if self._its.is_stopped:
            await self._end_all()
        await self._see_monitors_out()
        if self._its.is_stopped or self._ended_by_a_verdict():
            self._its.family.spared = set()
            await call_in_thread(self._its.family.end_for_good)
            await self._until_ended(STOP_LIMIT)
        status = exit_code(self._its.pid)  # it stays a zombie until we have left
        if status == 0 and self._its.hosts.has_judged:
            self._its.hosts.forget()  # its ranks have ended well, wherever they were
        is_void = self._its.hosts.is_void
        if self._its.verdict is None and (self._heard.failed or not self._heard.ranks or is_void):
            await self._write_unspoken(status)
        self._say_what_nobody_told(status)
        self._say_what_runs_on(status)
        if self._around.answers and not self._around.expects_words and self._heard.run_dirs:
            from .watcher_report import print_verdict_as_json

            print_verdict_as_json(Path(self._heard.run_dirs[-1]))
        if self._its.reports is not None:
            await self._its.reports.finish()
        remove_watcher_socket(self._listening)
        await self._inherit()

    async def _inherit(self) -> None:
        """Take over what a monitor that was killed has left: its files, and then its folder."""
        from .leftovers import find_folders, take_over_folders

        mark, folders = self._listening.path, set(self._heard.folders)
        if not any(map(is_alive, self._monitors())):  # one that is leaving listens no more
            folders |= find_folders(mark)
        await take_over_folders(self._around, mark, folders)

    def _ended_by_a_verdict(self) -> bool:
        """Return whether what is left of the job is ours to end: of a pipeline of ours it is; what
        a command of the user's leaves behind, it means to leave, unless a verdict ended it.
        """
        around = self._around
        return around.on_hang == "end" and (around.expects_words or self._heard.ends)

    def _say_what_nobody_told(self, status: int | None) -> None:
        if status and self._heard.outcome == "ok" and not self._around.expects_words:
            from .watcher_report import print_line

            shown = status if status > 0 else 128 - status
            print_line(f"The command ended with status {shown}, and no rank told of a failure")

    def _say_what_runs_on(self, status: int | None) -> None:
        """Say which ranks are there after the command has ended: those that a script has started
        in the background are watched on, and nobody would know.
        """
        around = self._around
        if around.expects_words or around.starter is not None or self._its.is_stopped:
            return
        alive = {one.pid for one in self._heard.ranks.values() if is_alive(one.pid)}
        if left := alive and alive & marked(OUTER_VARIABLE, self._listening.path):
            from .watcher_report import print_line

            print_line(describe_left_ranks(status, left, self._heard.run_dirs))

    async def _write_unspoken(self, status: int | None) -> None:
        from ..base.command_words import pipeline_of
        from .watcher_report import has_verdict, write_from_outside
        from .watcher_verdict import make_unspoken_verdict

        around = self._around
        is_void = self._its.hosts.is_void
        if has_verdict(around) and not is_void:
            return
        how = "is gone" if status is None else f"ended with status {status}"
        note = f"no rank spoke to the watch; the command {how}"
        if is_void:
            note = f"what all hosts showed was taken back, as they went on; the command {how}"
        if self._heard.failed:
            note = f"the watch failed; the command {how}: events.jsonl has the traceback"
        pipeline = pipeline_of(around.command) if around.expects_words else ""
        verdict = make_unspoken_verdict(around.command, pipeline, self._its.at.began, status, note)
        if self._its.readiness.ends_its_start:
            verdict = replace(verdict, outcome="ok", notes=("ended on purpose: it was ready",))
        elif self._its.is_stopped:
            verdict = replace(verdict, outcome="interrupted")
        where = await write_from_outside(around, self._listening.folder, verdict)
        if verdict.outcome != "ok":
            self._its.begin_reports(where)

    async def _end_all(self) -> None:
        self._its.family.spared = self._monitors()
        if self._its.tasks:  # a client of a scheduler ends with them, and gives back what it had
            self._its.family.end_ranks(self._its.tasks)
            await self._until_ended(CLIENT_LIMIT)
        await call_in_thread(self._its.family.end_for_good)
        await self._until_ended(1.0)

    async def _until_ended(self, limit: float) -> None:
        until = time.monotonic() + limit
        while not self._its.has_ended and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def _see_monitors_out(self) -> None:
        """Wait until the monitors have written what they know."""
        from .leftovers import PAUSE, StoppedMonitors, read_folders

        stopped = StoppedMonitors(self._listening.path)
        began = time.monotonic()
        left = self._monitors()
        self._heard.folders |= read_folders(left)
        await self._its.socket.catch_up()
        ours = marked(OUTER_VARIABLE, self._listening.path)
        others = [one.pid for one in self._heard.ranks.values() if one.pid not in ours]
        while any(map(is_alive, left)):
            # Of several tasks on a node each has a `run` of its own, and all have one monitor.
            has_others = any(map(is_alive, others))
            if time.monotonic() > began + (OTHERS_LIMIT if has_others else MONITORS_LIMIT):
                break
            if not has_others:
                stopped.look(left)
            await asyncio.sleep(PAUSE)
        await self._its.socket.catch_up()

    def _monitors(self) -> set[int]:
        return self._heard.monitors | find_monitors(OUTER_VARIABLE, self._listening.path)
