"""The process around a launcher: `hangbisect run`.

It sees what no rank can tell: a launcher that starts nobody, a script that no rank of which speaks
to a monitor, the time limit of the whole, and what is left when all is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..bisection.flags import pipeline_of
from ..checkpoints import Checkpoint
from ..errors import INTERNAL_ERROR, NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart
from ..evidence.slurm_queue import is_queued
from ..facts import Ended, Verdict
from ..rank.front import EXIT_STATUS
from .clocks import AFTER_A_VERDICT
from .ending import Family, lives, monitors
from .heard import Heard
from .outer_link import OUTER_VARIABLE
from .outer_socket import OuterSocket
from .outside import Outside, judge_from_outside, look_from_outside, unspoken_verdict
from .outside_report import print_answer, report_from_outside, say, write_from_outside
from .reports import Reports
from .stillness import Stillness

TICK = 0.25  # seconds
SAMPLE_EVERY = 1.0
MONITORS_LIMIT = 15.0  # seconds for monitors to write and leave once the launcher has ended
CLIENT_LIMIT = 5.0  # seconds for a client of a scheduler to end after its tasks were ended
STOP_LIMIT = 10.0  # seconds for a launcher to end after it was told to
PATIENT_SIGNALS = 3  # a person who presses Ctrl-C so often means it


@dataclass(frozen=True)
class Around:
    """What to start, and how to watch it from outside. Times are seconds."""

    command: tuple[str, ...]
    run_dir: Path
    expects_words: bool  # its ranks walk a pipeline of ours, and speak to monitors
    on_hang: str  # end, report, hold
    table: tuple[Checkpoint, ...]  # of the pipeline; its first row is the launcher's
    start_limit: float  # for the first rank to come to its first line
    stall: float
    limit: float | None
    answers: bool = False  # the verdict as JSON on stdout
    environment: Mapping[str, str] = field(default_factory=dict)  # set beside our own
    starter: int | None = None  # a socket to who started us: told everything; its end is ours


class Outer:
    """One launcher and the process around it."""

    def __init__(self, around: Around) -> None:
        """Nothing is started before run()."""
        self.around = around
        self.heard = Heard()
        self.verdict: Verdict | None = None  # made from outside
        self._began = self._stirred = time.monotonic()
        self._sampled = self._looked = 0.0
        self._stillness = Stillness()
        self._reports = Reports()
        self._signals = 0
        self._stopped = False
        self._tasks: set[int] = set()  # ranks that are not below the launcher
        self._wake = asyncio.Event()

    async def run(self) -> int:
        """Start the launcher, watch it to its end, and return the exit status.

        Raises CannotStart, and UsageError if there is no place for a socket.
        """
        with OuterSocket(self.hear) as ears:
            self._ears = ears
            self._family = Family(ears.path, OUTER_VARIABLE)
            # Before anything is started: who started us ends it, should we be killed.
            self._pass_on(json.dumps({"t": "around", "mark": ears.path}).encode())
            process = self._process = self._start(ears.path)
            self._family.add_rank(process.pid)
            ears.listen(process.pid, self._wake.set, self.around.starter, self.stop, self.signalled)
            while not (_is_over(process) or self._stopped):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), TICK)
                self._wake.clear()
                await self._watch(time.monotonic())
            await self._finish(process)
        return self._status(process.returncode)

    def _start(self, path: str) -> subprocess.Popen[bytes]:
        around = self.around
        environ = {**os.environ, **around.environment, OUTER_VARIABLE: path}
        try:
            return subprocess.Popen(around.command, env=environ)
        except FileNotFoundError:
            raise _cannot_start(around.command[0], NO_SUCH_PROGRAM) from None
        except OSError as error:
            raise _cannot_start(around.command[0], NOT_ALLOWED, error.strerror or "") from None

    # ---- while it runs -------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        """Take in a message of a monitor, and pass it on to who started us."""
        self.heard.take(json.loads(data))
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.around.starter is not None:
            with contextlib.suppress(OSError):
                os.write(self.around.starter, data + b"\n")

    def signalled(self, number: signal.Signals) -> None:
        """Hand a signal on to the launcher, unless the terminal has sent it there as well."""
        self._signals += 1
        if self._signals >= PATIENT_SIGNALS:
            self.stop()
        elif not (number == signal.SIGINT and _from_the_terminal()):
            self._process.send_signal(number)

    def stop(self) -> None:
        """End everything now."""
        self._stopped = True
        self._wake.set()

    async def _watch(self, now: float) -> None:
        around = self.around
        if now - self._sampled > SAMPLE_EVERY:
            self._sampled = now
            self._sample(now)
        if self.heard.failed and around.on_hang == "end":
            self.stop()  # nobody would end it any more
        if self.heard.ranks:
            return
        if self.verdict is not None:
            if around.on_hang != "end":
                await self._take_back(now)
            return
        if around.limit is not None and now > self._began + around.limit:
            await self._judge("limit", self._began + around.limit)
        elif around.expects_words:
            if now > max(self._began, self._looked) + around.start_limit:
                await self._late_at_start(now)
        elif now > max(self._stirred, self._looked) + around.stall:
            await self._judge("still", self._stirred + around.stall)

    def _sample(self, now: float) -> None:
        self._family.refresh()
        pids = self._family.living()
        self._stirred = max(self._stirred, self._stillness.stirred_at(pids))

    async def _late_at_start(self, now: float) -> None:
        """No rank has come to its first line in time: look why, unless it waits in a queue."""
        if await is_queued(self._family.living()):
            self._looked = now
            return
        await self._judge("late", self._began + self.around.start_limit)

    async def _judge(self, ended: Ended, since: float) -> None:
        """Look from outside, and close if nothing moves."""
        around = self.around
        outside = await self._look()
        moved = outside.moved()
        if self.heard.ranks or _is_over(self._process):
            return
        if (moved or outside.sees_nothing) and ended != "limit":
            return
        if ended == "limit" and not (moved or outside.sees_nothing):
            ended = "late"
        judged = await judge_from_outside(
            outside,
            ended,
            around.command,
            around.table,
            self._began,
            self._looked - self._stirred,
            since,
        )
        self.verdict = judged[0]
        if outside.shut_out:
            say(
                f"PYTHONPATH was set anew for {outside.shut_out[-1]}, which tells no steps for "
                "that: keep what is in it, PYTHONPATH=DIR:$PYTHONPATH"
            )
        where = await report_from_outside(around, self._ears.folder, *judged)
        self._reports.begin(where)
        if around.on_hang == "end":
            self.stop()

    async def _take_back(self, now: float) -> None:
        """If what was called hung stirs, look; if it moves, the verdict is void."""
        if now < self._looked + AFTER_A_VERDICT or self._stirred <= self._looked:
            return
        if moved := (await self._look()).moved():
            self.verdict = None
            say(f"Taken back: it moves again ({moved}); watching on")

    async def _look(self) -> Outside:
        mark = self._ears.path
        found = await look_from_outside(self._process.pid, self.around.expects_words, mark)
        for pid in found.rank_of:
            self._family.add_rank(pid)
        self._tasks = set(found.rank_of) if found.is_elsewhere else set()
        self._looked = time.monotonic()
        return found

    # ---- the end ---------------------------------------------------------------------------------

    async def _finish(self, process: subprocess.Popen[bytes]) -> None:
        """See monitors out, and end what is left, if it is ours to end."""
        if self._stopped:
            await self._end_all(process)
        await self._see_monitors_out()
        process.poll()
        if self.around.on_hang == "end":
            self._family.spared = set()
            await asyncio.to_thread(self._family.end_for_good)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT)
        if self.verdict is None and (self.heard.failed or not self.heard.ranks):
            await self._write_unspoken(process.returncode)
        if process.returncode and self.heard.outcome == "ok" and not self.around.expects_words:
            status = self._status(process.returncode)
            say(f"The command ended with status {status}, and no rank told of a failure")
        if self.around.answers and not self.around.expects_words and self.heard.run_dirs:
            print_answer(Path(self.heard.run_dirs[-1]))
        await self._reports.finish()

    async def _write_unspoken(self, status: int | None) -> None:
        around = self.around
        how = "is gone" if status is None else f"ended with status {status}"
        note = f"no rank spoke to the watch; the command {how}"
        if self.heard.failed:
            note = "the watch failed, and the job was ended: events.jsonl has the traceback"
        pipeline = pipeline_of(around.command) if around.expects_words else ""
        verdict = unspoken_verdict(around.command, pipeline, self._began, status, note)
        if self._stopped:
            verdict = replace(verdict, outcome="interrupted")
        where = await write_from_outside(around, self._ears.folder, verdict)
        if verdict.outcome != "ok":
            self._reports.begin(where)

    async def _end_all(self, process: subprocess.Popen[bytes]) -> None:
        self._family.spared = self._monitors()
        if self._tasks:  # a client of a scheduler ends with them, and gives back what it had
            self._family.end_ranks(self._tasks)
            until = time.monotonic() + CLIENT_LIMIT
            while not _is_over(process) and time.monotonic() < until:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(self._family.end_for_good)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)

    async def _see_monitors_out(self) -> None:
        """Wait until the monitors have written what they know."""
        until = time.monotonic() + MONITORS_LIMIT
        left = self._monitors()
        while any(map(lives, left)) and time.monotonic() < until:
            await asyncio.sleep(0.05)

    def _monitors(self) -> set[int]:
        return self.heard.monitors | monitors(OUTER_VARIABLE, self._ears.path)

    def _status(self, launchers: int | None) -> int:
        """Return the exit status: the job's own, unless a verdict of ours judged or ended it."""
        outcome = self.verdict.outcome if self.verdict is not None else self.heard.outcome
        ended_by_us = self.heard.ends or (self.verdict is not None and self._stopped)
        if outcome in EXIT_STATUS and (self.around.expects_words or ended_by_us):
            return EXIT_STATUS[outcome]
        if self.heard.failed and self._stopped:
            return INTERNAL_ERROR
        if launchers is None:
            return EXIT_STATUS["interrupted"]
        return launchers if launchers >= 0 else 128 - launchers


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, and leave it to be reaped: it may be a rank, whose exit
    status its monitor can read until then.
    """
    if process.returncode is not None:
        return True
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, ended) is not None


def _cannot_start(program: str, status: int, why: str = "there is no such program") -> CannotStart:
    return CannotStart(f"{program!r} cannot be started: {why}", status)


def _from_the_terminal() -> bool:
    """Return whether we are what the terminal's Ctrl-C is sent to: the launcher, too, then."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
