"""Keeps the monitor's own process going: it leaves to the job what is scarce, and what fails in the
watch itself is noted, said once in a sentence, and ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.deadline import call_with_limit
from ..base.events import Failed

if TYPE_CHECKING:
    from .job import Job


_MOST_DESCRIPTORS = 1 << 16
_MOST_MEMORY = 4 << 30  # bytes of data, in each process: a look at 1,024 ranks takes a tenth of it
_KILLED_FIRST = "1000"  # of oom_score_adj, the most there is (proc_pid_oom_score_adj(5))


def prepare_process() -> None:
    """Do all of it, for this process and what it starts. What is refused is left as it is."""
    # What the interpreter, a destructor or a library says there would stand among the job's lines
    # (without memory, hashlib logs a traceback for each of its functions). We use descriptor 2.
    if not os.environ.get("HANGBISECT_DEBUG"):
        sys.stderr = None
    take_descriptors()
    limit_memory()


def take_descriptors() -> None:
    """Take as many descriptors as we may: a job of many ranks needs several of each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def be_killed_first() -> None:
    """Where memory runs out, it is we who go and not the job."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_KILLED_FIRST)


def limit_memory() -> None:
    """Leave to the job what memory there is: we are the first to go, and never take much of it."""
    be_killed_first()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or soft > _MOST_MEMORY:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, hard))


T = TypeVar("T")

DESCRIPTORS = "descriptors (ulimit -n)"
_SHORT_OF = {
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: "descriptors of this machine",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or threads (ulimit -u)",
    errno.ENOSPC: "space on a disk",
    errno.EDQUOT: "space on a disk (quota)",
}
_MOST_NOTED = 50  # tracebacks written down
_LONGEST_PAUSE = 60.0  # seconds before a part that failed is tried again, at the most
_BEGIN_LIMIT = 2.0  # seconds for a thread to begin
ENOUGH_FAILURES = 3  # failures of a part, after which nothing more is expected of it


class Failures:
    """What failed of one job's watch."""

    def __init__(self, job: Job) -> None:
        """Nothing has failed yet."""
        self._job = job
        self._said: set[str] = set()
        self._in_a_row: dict[str, int] = {}
        self._again_at: dict[str, float] = {}
        self.count = 0
        self.short_of = ""  # what there was too little of, the last time
        # Called for each with what there was too little of, if anything, before it is said.
        self.happened: Callable[[str], None] = lambda short_of: None

    @contextlib.contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Let nothing that fails inside get out. `part` is what we do there: "judge the job"."""
        try:
            yield
        except Exception as error:
            self.take(part, error)
        else:
            self._in_a_row.pop(part, None)

    def take(self, part: str, error: BaseException) -> None:
        """A part failed: it is tried again later, each time later than before."""
        self.count += 1
        self._in_a_row[part] = self._in_a_row.get(part, 0) + 1
        pause = min(_LONGEST_PAUSE, 2.0 ** self._in_a_row[part])
        self._again_at[part] = time.monotonic() + pause
        with contextlib.suppress(Exception):
            self.short_of = describe_shortage(error) or self.short_of
            self.happened(describe_shortage(error))
        with contextlib.suppress(Exception):
            self._tell(part, error)

    def is_due(self, part: str) -> bool:
        """Return whether a part may be tried, as one may that has not failed lately."""
        return part not in self._in_a_row or time.monotonic() >= self._again_at[part]

    def forgive(self, part: str) -> None:
        """A part may be tried at once: something has changed since it failed."""
        self._in_a_row.pop(part, None)

    def is_hopeless(self, part: str) -> bool:
        """Return whether a part has failed so often in a row that it will fail again."""
        return self._in_a_row.get(part, 0) >= ENOUGH_FAILURES

    def _tell(self, part: str, error: BaseException) -> None:
        job = self._job
        where = "".join(traceback.format_exception(error))
        if self.count <= _MOST_NOTED:
            job.note(None, Failed(part=part, traceback=where))
        short = describe_shortage(error)
        about = f"short of {short}" if short else part
        if about in self._said:
            return
        self._said.add(about)
        why = f"it is short of {short}" if short else repr(error)
        job.say(f"The watch could not {part}: {why}. The job goes on; what is left is watched on")
        if os.environ.get("HANGBISECT_DEBUG"):
            job.say(where)


def describe_shortage(error: BaseException) -> str:
    """Return what there was too little of, "" if that was not why."""
    if isinstance(error, MemoryError):
        return _SHORT_OF[errno.ENOMEM]
    if isinstance(error, OSError):
        return _SHORT_OF.get(error.errno or 0, "")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return _SHORT_OF[errno.EAGAIN]
    return ""


async def call_in_thread(call: Callable[..., T], *args: Any) -> T:
    """Return call(*args), made in a thread; here, where none can be started, or where one ends
    before its first step, as it does without memory.
    """
    turn = threading.Lock()  # the thread that has it makes the call

    def take_turn() -> T | None:
        return call(*args) if turn.acquire(blocking=False) else None

    making = asyncio.ensure_future(call_with_limit(take_turn, limit=None))
    await asyncio.wait({making}, timeout=_BEGIN_LIMIT)
    if not making.done() and turn.acquire(blocking=False):
        making.cancel()
        return call(*args)
    try:
        return await making  # type: ignore[return-value]  # it was the thread's turn
    except RuntimeError as error:
        if not describe_shortage(error):
            raise
        return call(*args)
