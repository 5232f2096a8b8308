"""What a driver of Ray, an actor or a task waits for: for which actor or task at work, and in which
thread of it the job's code runs. Pure.

Ray runs the methods of a plain actor in the main thread of its process. Those of one with several
threads run in others, and Ray Train runs the training function in a thread of its own
(ray/train/v2/_internal/execution/worker_group/thread_runner.py): the main thread is in main_loop
then, and says nothing of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...base.library_functions import Role, has_role
from ...base.process_facts import Frame, Look, Thread
from ...base.process_roles import find_actor, is_dask_worker, runs_method
from ...base.process_roles import is_idle_worker as is_idle_worker_of_ray
from ...base.verdict_facts import Wait
from .frames import frame_owner, innermost_python_frame, runs_job_code, unqualified_name
from .process_snapshot import ProcessSnapshot, put_thread_first

_LOOP = "ray/_private/worker.py"
_RUNS_A_STEP = "/asyncio/events.py"  # of a task (Handle._run)
# Around each async method of an actor (ray/util/tracing/tracing_helper.py): uvloop, which Ray takes
# where it is installed, has no frame of its own.
_ASYNC_METHOD = "async_span_wrapper"
_TRAINING = "worker_group/thread_runner.py"
# What is on top of Ray's actors and tasks, and waits for these where a driver calls it.
_LIBRARIES_OF_RAY = re.compile(
    r"/ray/(?:data|serve|tune|train|rllib|air|dag|util/(?!tracing/))[\w/]*\.py$"
)
_WAITS_OF_PYTHON = re.compile(r"/(?:threading|queue|concurrent/futures/_base)\.py$")
_ASKS_OTHERS = 2
_IDLE_ACTOR = 3


def is_idle_loop(frames: Iterable[Frame]) -> bool:
    """Return whether a thread is in the loop in which a worker of Ray waits for work: ray.get and
    ray.wait are in the same file.
    """
    inner = innermost_python_frame(frames)
    is_loop = inner is not None and unqualified_name(inner.name) == "main_loop"
    return inner is not None and is_loop and inner.file.endswith(_LOOP)


def find_blocked_coroutine(frames: Iterable[Frame]) -> Frame | None:
    """Return the frame of the job's own coroutine, or of what it calls, that stands still in the
    thread of an event loop and keeps that from going on; None where the loop itself waits.
    """
    python = [frame for frame in frames if not frame.native]
    ran = next((n for n, one in enumerate(python) if _runs_a_step(one)), None)
    inside = python[:ran] if ran is not None else ()
    return next((one for one in inside if frame_owner(one, "") == "user"), None)


def _runs_a_step(frame: Frame) -> bool:
    return frame.file.endswith(_RUNS_A_STEP) or _ASYNC_METHOD in frame.name


def is_between_calls(look: Look) -> bool:
    """Return whether a process is an actor of Ray whose main thread waits for its next call."""
    frames = look.main.frames if look.main is not None else ()
    return is_idle_loop(frames) and bool(find_actor(look.command))


def put_job_thread_first(look: Look) -> Look:
    """Return a look at an actor, or at a worker of Dask, as if the thread that runs the job's code
    were its main thread; any other look as it is.
    """
    if look.main is None:
        return look
    if is_dask_worker(look.command):
        beside = (one for one in look.threads if one is not look.main)
        task = next((one for one in beside if runs_job_code(one)), None)
        return look if task is None else put_thread_first(look, task.os_id or 0)
    if not find_actor(look.command):
        return look
    # A library's actor (Tune's) may wait in its main thread for the one in which the job's code is.
    if not is_idle_loop(look.main.frames) and not _waits_within_ray(look.main):
        return look
    others = [one for one in look.threads if one.os_id not in (None, look.pid)]
    chosen = next((one for one in others if _trains(one)), None)
    chosen = chosen or next((one for one in others if runs_job_code(one)), None)
    return look if chosen is None else put_thread_first(look, chosen.os_id or 0)


def put_same_thread_first(before: Sequence[Look], one: Look) -> Look:
    """Return a look whose stack could not be read with the thread in place of the main one that was
    there in the last of those `before` it that has one: the kernel tells then what that waits in.
    """
    read = next((look for look in reversed(before) if look.threads), None)
    if one.threads or read is None or read.pid != one.pid:
        return one
    others = (thread for thread in read.threads if thread.os_id not in (None, read.pid))
    moved = next((thread.os_id for thread in others if thread.name == "MainThread"), None)
    return one if moved is None else put_thread_first(one, moved)


def _waits_within_ray(main: Thread) -> bool:
    """Return whether a main thread is in no code of the job's, and in a queue or a lock for which a
    library of Ray's waits.
    """
    python = [frame for frame in main.frames if not frame.native]
    outside = [one for one in python if not _WAITS_OF_PYTHON.search(one.file)]
    is_of_ray = bool(outside) and _LIBRARIES_OF_RAY.search(outside[0].file) is not None
    return is_of_ray and python[0] is not outside[0] and not runs_job_code(main)


def _trains(thread: Thread) -> bool:
    return runs_job_code(thread) and any(one.file.endswith(_TRAINING) for one in thread.frames)


def waits_for_ray(frames: Sequence[Frame]) -> bool:
    """Return whether a thread waits for what actors or tasks of Ray are to give: its innermost
    frame is that of ray.get or ray.wait.
    """
    inner = innermost_python_frame(frames)
    return inner is not None and has_role(inner.file, inner.name, Role.AWAITS_ACTORS)


def is_inside_ray(frames: Iterable[Frame]) -> bool:
    """Return whether a thread is in a library of Ray's (ray.data, serve, tune, train) that the
    job's own code has called: it waits there, by sleeping or otherwise, for actors and tasks.
    """
    python = [frame for frame in frames if not frame.native]
    own = next((n for n, one in enumerate(python) if frame_owner(one, "") == "user"), None)
    return any(_LIBRARIES_OF_RAY.search(one.file) for one in python[:own] if own is not None)


def find_actor_of_driver(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait of a driver for an actor or a task of Ray at work, where it waits in a
    library of Ray's; None for any other process, and where another thread is in the job's code.
    """
    if find_actor(view.look.command) or not is_inside_ray(view.frames):
        return None
    if any(runs_job_code(one) for one in view.threads if one is not view.main):
        return None
    living = [looks for looks in family if looks[-1].state not in ("", "Z", "X")]
    return find_actor_wait(view, living) if living else None


def find_actor_of_loop(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait of a driver whose event loop has nothing to do, for an actor or a task of Ray
    that is in a method: `await` leaves no frame (python/ray/_raylet.pyx, ObjectRef.__await__). None
    where none is, and for any other process.
    """
    if find_actor(view.look.command) or view.look.ray is None:
        return None
    living = [looks for looks in family if looks[-1].state not in ("", "Z", "X")]
    return find_actor_wait(view, living) if living else None


def find_actor_wait(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait for an actor, or a task, of Ray that is in a method; None if none is: what is
    waited for has no process yet. Which object is wanted of which actor no frame tells: of several
    one that awaits no others itself comes first, and of these one that waits for no other rank.
    Where all wait for others, the source says whom each has asked: the last of these it is.
    """
    actors = [looks[-1] for looks in family if find_actor(looks[-1].command)]
    pids = {one.pid for one in actors}
    actors = [one for one in actors if one.ppid not in pids]  # forked by one, with its title
    at_work = [
        one for one in actors if runs_method(find_actor(one.command)) or _is_actor_at_work(one)
    ]
    if not at_work:
        # Before its first task a worker may stand in a hook of the job (worker_process_setup_hook).
        hooked = [looks[-1] for looks in family if is_idle_worker_of_ray(looks[-1].command)]
        one = next((one for one in hooked if _is_actor_at_work(one)), None)
        return Wait("process", "", one.pid, one.name) if one is not None else None
    chosen = min(at_work, key=_order_actors)
    last = _follow_calls(view.frames, at_work) if _rank_actor(chosen) >= _ASKS_OTHERS else None
    if last is not None:
        return Wait("process", "", last.pid, find_actor(last.command))
    others = tuple(
        one.pid for one in at_work if one is not chosen and _rank_actor(one) < _IDLE_ACTOR
    )
    return Wait("process", "", chosen.pid, find_actor(chosen.command), others=others)


def _order_actors(one: Look) -> tuple[int, bool, int]:
    """Return by what actors at work are put in order: first who stands still by itself."""
    return _rank_actor(one), _meets_ranks(one), one.pid


def _follow_calls(frames: Iterable[Frame], at_work: Sequence[Look]) -> Look | None:
    """Return the actor at the end of the calls that the source shows, each in the method that the
    one before it waits for; None if the first step is not known.
    """
    last: Look | None = None
    left = list(at_work)
    while True:
        asked = find_asked_methods(frames)
        next_ones = [one for one in left if runs_any_of(find_actor(one.command), asked)]
        if not next_ones:
            return last
        last = min(next_ones, key=_order_actors)
        left.remove(last)
        frames = last.main.frames if last.main is not None else ()


def find_asked_actor(view: ProcessSnapshot, others: Sequence[Look]) -> Wait | None:
    """Return the wait of an actor of Ray that waits for Ray itself, for the one of these `others`
    that its source asks: it is in that method; or it is the only one of the class that has it, and
    does something else in its main thread, behind which the call waits. None for any other process,
    and where it is not known which one it is.
    """
    if not find_actor(view.look.command) or not waits_for_ray(view.frames):
        return None
    asked = find_asked_methods(view.frames)
    actors = {one.pid: one for one in others if one.pid != view.look.pid}
    there = [one for one in actors.values() if runs_any_of(find_actor(one.command), asked)]
    behind = [
        one
        for one in actors.values()
        if _does_one_at_a_time(one) and _name_class(one) in {n.partition(".")[0] for n in asked}
    ]
    classes = [_name_class(one) for one in actors.values()]
    behind = [one for one in behind if classes.count(_name_class(one)) == 1]
    found = there or behind
    if len(found) != 1:
        return None
    name = find_actor(found[0].command)
    detail = "" if there else f"{asked[0]}, behind {name}"
    return Wait("process", detail, found[0].pid, name)


def _name_class(look: Look) -> str:
    return find_actor(look.command).partition(".")[0]


def _does_one_at_a_time(look: Look) -> bool:
    """Return whether an actor is in a method, in the thread in which all of its calls run."""
    return runs_method(find_actor(look.command)) and not any(
        is_idle_loop(thread.frames) for thread in look.threads
    )


def find_asked_methods(frames: Iterable[Frame]) -> tuple[str, ...]:
    """Return the methods of Ray's actors for whose answers a thread waits, as the source says:
    "Buffer.add", "add" where it is not known of which class, or for a task of that name.
    """
    return next((one.asks for one in frames if one.asks), ())


def runs_any_of(actor: str, methods: Iterable[str]) -> bool:
    """Return whether an actor ("Buffer.add") is in one of these methods."""
    if not runs_method(actor):  # a task has the name of its function
        return bool(actor) and actor in methods
    return any(
        actor == one or ("." not in one and actor.rpartition(".")[2] == one) for one in methods
    )


def _rank_actor(look: Look) -> int:
    """Return a number that is less for an actor that is more likely to stand still by itself: one
    that only manages others has a method that awaits them, or its main thread is idle.
    """
    frames = look.main.frames if look.main is not None else ()
    if not _is_actor_at_work(look):
        return _IDLE_ACTOR
    if not waits_for_ray(frames):
        return 0
    return 1 if find_blocked_coroutine(frames) is not None else _ASKS_OTHERS


def _is_actor_at_work(look: Look) -> bool:
    return look.main is not None and bool(look.main.frames) and not is_idle_loop(look.main.frames)


def _meets_ranks(look: Look) -> bool:
    frames = look.main.frames if look.main else ()
    return any(
        has_role(frame.file, frame.name, role)
        for frame in frames
        for role in (Role.MAKES_GROUP, Role.ASKS_STORE, Role.RUNS_COLLECTIVE)
    )
