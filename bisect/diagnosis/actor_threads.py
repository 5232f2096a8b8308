"""Which thread of an actor of Ray runs the job's code. Pure.

Ray runs the methods of a plain actor in the main thread of its process. Those of one with several
threads run in others, and Ray Train runs the training function in a thread of its own
(ray/train/v2/_internal/execution/worker_group/thread_runner.py): the main thread is in main_loop
then, and says nothing of the job.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..base.process_facts import Frame, Look, Thread
from ..base.ray_processes import find_actor
from .frames import frame_owner, runs_job_code, unqualified_name
from .process_snapshot import put_thread_first

_LOOP = "ray/_private/worker.py"
_RUNS_A_STEP = "/asyncio/events.py"  # of a task (Handle._run)
_TRAINING = "worker_group/thread_runner.py"


def is_idle_loop(frames: Iterable[Frame]) -> bool:
    """Return whether a thread is in the loop in which a worker of Ray waits for work: ray.get and
    ray.wait are in the same file.
    """
    inner = next((frame for frame in frames if not frame.native), None)
    is_loop = inner is not None and unqualified_name(inner.name) == "main_loop"
    return inner is not None and is_loop and inner.file.endswith(_LOOP)


def find_blocked_coroutine(frames: Iterable[Frame]) -> Frame | None:
    """Return the frame of the job's own coroutine, or of what it calls, that stands still in the
    thread of an event loop and keeps that from going on; None where the loop itself waits.
    """
    python = [frame for frame in frames if not frame.native]
    ran = next((n for n, one in enumerate(python) if one.file.endswith(_RUNS_A_STEP)), None)
    inside = python[:ran] if ran is not None else ()
    return next((one for one in inside if frame_owner(one, "") == "user"), None)


def is_between_calls(look: Look) -> bool:
    """Return whether a process is an actor of Ray whose main thread waits for its next call."""
    frames = look.main.frames if look.main is not None else ()
    return is_idle_loop(frames) and bool(find_actor(look.command))


def put_job_thread_first(look: Look) -> Look:
    """Return a look at an actor as if the thread that runs the job's code were its main thread; any
    other look as it is.
    """
    if not find_actor(look.command) or look.main is None or not is_idle_loop(look.main.frames):
        return look
    others = [one for one in look.threads if one.os_id not in (None, look.pid)]
    chosen = next((one for one in others if _trains(one)), None)
    chosen = chosen or next((one for one in others if runs_job_code(one)), None)
    return look if chosen is None else put_thread_first(look, chosen.os_id or 0)


def _trains(thread: Thread) -> bool:
    return runs_job_code(thread) and any(one.file.endswith(_TRAINING) for one in thread.frames)
