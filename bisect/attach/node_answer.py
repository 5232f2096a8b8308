"""What runs on a machine of a job while it is asked from elsewhere: it finds the job, looks when it
is told to, and tells what it has seen.

Who asks and this talk by lines (`attach/node_messages.py`). This says that it is ready, once it has
found the job; it is asked what its clock shows, and told "look" at a moment on that, so that all
machines begin at the same time; it says a summary; it
is asked for details; at last it is told to end the job, or its input ends. Each wait has a limit,
and when its input ends this ends too, so nothing is left on a node, whatever happens to who asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import time
from collections.abc import Mapping
from typing import Any

from ..base.errors import HangbisectError, UsageError
from .job_looks import STILL_SPAN
from .job_search import FoundJobs
from .jobs import Job
from .node_messages import Message, Summary, write_message
from .nodes import SEVERAL_JOBS
from .session import end_job, look_at_ranks

MOST_AHEAD = 2.0  # seconds from an order to look to the look
LOOK_LIMIT = 60.0  # seconds until one that is ready, and not told to look, ends
ORDER_LIMIT = 300.0  # seconds for further questions: a person may be asked meanwhile
_MOST_ORDER = 1 << 20  # bytes of a line that it is told


async def answer_asker(name: str, found: FoundJobs, job: Job, span: float = STILL_SPAN) -> int:
    """Look at a job when told to, and answer what is asked then; return 0."""
    orders = OrderReader()
    say_message(name, {"is": "ready", "ranks": len(job.ranks), "clock": True})
    while (order := await asyncio.to_thread(orders.wait, LOOK_LIMIT)) is not None:
        if order.get("is") != "clock":
            break
        say_message(name, tell_clock())
    if order is None:
        return 0
    await asyncio.sleep(seconds_to_look(name, order))
    found, job, facts = await look_at_ranks(found, job, span)
    summary = Summary(facts)
    say_message(name, summary.message())
    until = time.monotonic() + ORDER_LIMIT
    while (order := await asyncio.to_thread(orders.wait, until - time.monotonic())) is not None:
        if order.get("is") == "details" and (details := make_details(name, summary, order)):
            say_message(name, details)
        elif order.get("is") == "end":
            ended, left = await asyncio.to_thread(end_job, job, found.processes)
            say_message(name, {"is": "ended", "ended": ended, "left": left})
    return 0


def tell_clock() -> Message:
    """Return what the clock of this machine shows, by which it is told when to look."""
    return {"is": "clock", "at": time.monotonic()}


def seconds_to_look(name: str, order: Mapping[str, Any]) -> float:
    """Return in how many seconds the node `name` is to begin to look, by an order to do so."""
    moments = order.get("at")
    at = moments.get(name) if isinstance(moments, dict) else None
    return min(max(0.0, at - time.monotonic()), MOST_AHEAD) if isinstance(at, float) else 0.0


def make_details(name: str, summary: Summary, order: Mapping[str, Any]) -> Message | None:
    """Return the second step of the answer of the node `name`; None where the order is for others:
    srun gives what it is told to all nodes of a step.
    """
    asked = order.get("of", {}).get(name)
    if asked is None:
        return None
    return summary.details(asked.get("stacks", ()), asked.get("pids", ()))


def say_message(name: str, message: Message) -> None:
    """Print a message for who asks."""
    text = write_message(name, message)
    while text:
        text = text[os.write(1, text) :]


def say_trouble(name: str, error: HangbisectError) -> None:
    """Tell who asks why there is no answer."""
    trouble = str(error)
    if isinstance(error, SeveralJobs):
        trouble = SEVERAL_JOBS
    say_message(name, {"is": "trouble", "why": trouble, "no_job": isinstance(error, NoJob)})


class SeveralJobs(UsageError):
    """More than one job runs on this machine, and nothing says which is meant."""


class NoJob(UsageError):
    """Nothing of a job, of anybody's, runs on this machine."""


class OrderReader:
    """The orders that come on standard input, a line of JSON each."""

    def __init__(self) -> None:
        self._text = b""
        self._is_over = False

    def wait(self, limit: float) -> dict[str, Any] | None:
        """Return the next order; None where none comes within `limit` seconds, or no more will.
        Blocks.
        """
        until = time.monotonic() + limit
        while True:
            line, newline, rest = self._text.partition(b"\n")
            if newline:
                self._text = rest
                if (order := _read_order(line)) is not None:
                    return order
                continue
            left = until - time.monotonic()
            if self._is_over or left <= 0 or len(self._text) > _MOST_ORDER:
                return None
            if select.select([0], [], [], left)[0]:
                block = os.read(0, 65536)
                self._is_over = not block
                self._text += block


def _read_order(line: bytes) -> dict[str, Any] | None:
    try:
        order = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return order if isinstance(order, dict) else None
