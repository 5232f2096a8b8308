"""What a main thread that runs an event loop waits for, in words: all that the loop listens to, and
which of its tasks awaits what, where that is known.

Whatever the tasks of a loop await, its stack shows the loop alone. Python 3.14 and later tell the
tasks (`evidence/event_loops.py`); of an earlier one the descriptors are all there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...base.process_facts import AsyncTask, Look, waits_at_queue
from ...base.verdict_facts import Wait
from .blocked_syscalls import (
    POLL_CALLS,
    is_fed_by_itself,
    is_for_client,
    make_descriptor_wait,
)
from .frames import format_frame, format_innermost_frame, frame_owner
from .helper_processes import find_unread_child
from .process_snapshot import ProcessSnapshot
from .public_calls import find_group_wait

_LOOP = re.compile(r"/asyncio/(?:base_events|runners|unix_events)\.py$|/uvloop/")
_INNERMOST = 8  # Python frames among which a loop's own are, where it waits
_MOST_NAMED = 3
_OF_SOMEBODY = frozenset(["socket", "store", "pipe", "process"])
_EXPLAINED = frozenset(["socket", "store", "pipe", "process", "itself", "kernel", "sleep"])


def runs_event_loop(view: ProcessSnapshot) -> bool:
    """Return whether the main thread waits in an event loop."""
    python = [frame for frame in view.frames if not frame.native][:_INNERMOST]
    return view.call_name in POLL_CALLS and any(_LOOP.search(frame.file) for frame in python)


def hears_itself_alone(view: ProcessSnapshot) -> bool:
    """Return whether a call names sockets alone, both ends of each the process's own."""
    named = view.call.descriptors if view.call else ()
    pipes = any(one.kind == "pipe" for one in named)
    return not pipes and is_fed_by_itself(view.look, view.call)


def find_wait_for_itself(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait of a process without a time limit that listens to itself alone; for its child
    where that waits until somebody reads what it writes: the process has stopped to listen to it.
    """
    if view.call is None or view.call.timeout is not None or not hears_itself_alone(view):
        return None
    if (child := find_unread_child(view.look.pid, family)) is not None:
        return Wait("process", "", child.pid, child.name)
    heard = [d for d in view.call.descriptors if d.kind != "anon"]
    return Wait(
        "itself",
        f"both ends of {heard[0].path} are its own, in {format_innermost_frame(view.frames)}",
    )


def find_loop_thread(look: Look) -> Wait | None:
    """Return the wait for the thread besides the main one that runs an event loop, where there is
    one alone, with whom it listens to; None where there is none, or several.
    """
    tids = {task.tid: task for task in look.kernel}
    found = [
        (thread, tids[thread.os_id].syscall)
        for thread in look.threads
        if thread.os_id in tids and thread.os_id != look.pid
        if any(_LOOP.search(f.file) for f in thread.frames if not f.native)
    ]
    calls = [(thread, call) for thread, call in found if call and call.name in POLL_CALLS]
    if len(found) != 1 or not calls:
        return None
    thread, call = calls[0]
    waits = (make_descriptor_wait(one, look, ()) for one in call.descriptors)
    named = [one.detail for one in waits if one is not None and one.kind == "socket"]
    at = f" at {', '.join(named[:_MOST_NAMED])}" if named else ""
    return Wait("thread", f"thread {thread.name or thread.os_id}, an event loop{at}")


def note_alternatives(wait: Wait, view: ProcessSnapshot, family: Sequence[int]) -> Wait:
    """Return the wait of a process that polls with those for which it may as well be: whoever is at
    the other ends of what it polls. `family`: the pids of its descendants.

    Who asks the store of a process group by its functions waits for whoever sets the key, and not
    for the process in which the store is served.
    """
    if wait.kind not in _OF_SOMEBODY or view.call_name not in POLL_CALLS or wait.others:
        return wait
    if wait.kind == "store" and (wait.pid is None or find_group_wait(view) == "store"):
        return wait
    own = {wait.pid, view.look.pid}
    found = [one for one in _list_other_waits(wait, view, family) if one.pid not in own]
    if waits_at_queue(view.call, view.look.kernel) and not is_for_client(wait, view.look):
        found = [one for one in found if not is_for_client(one, view.look)]
    pids = tuple(dict.fromkeys(one.pid for one in found if one.pid is not None))
    return replace(wait, others=pids, is_for_any=True) if found else wait


def describe_loop(wait: Wait, view: ProcessSnapshot, family: Sequence[int]) -> Wait:
    """Return the wait of a process with what `format_loop` says of it."""
    said = format_loop(wait, view, family)
    if not said:
        return wait
    return replace(wait, detail=f"{wait.detail}, {said}" if wait.detail else said)


def format_loop(wait: Wait, view: ProcessSnapshot, family: Sequence[int]) -> str:
    """Return in words that a process waits in an event loop, what that listens to besides what
    `wait` is about, and which tasks await what; "" where the main thread runs no such loop.
    `family`: the pids of its descendants.
    """
    if wait.kind not in _EXPLAINED or not runs_event_loop(view):
        return ""
    others = _name_other_waits(wait, view, family)
    named = ", ".join(others[:_MOST_NAMED])
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    also = f" that listens to {named}{more} as well" if others else ""
    tasks = describe_tasks(view.look)
    return f"in an event loop{also}" + (f": {tasks}" if tasks else "")


def _name_other_waits(wait: Wait, view: ProcessSnapshot, family: Sequence[int]) -> list[str]:
    """Return in words what the loop listens to besides what `wait` is about."""
    found: dict[str, None] = {}
    for other in _list_other_waits(wait, view, family):
        who = f" of process {other.pid}" if other.pid is not None else ""
        found[f"{other.detail or other.what}{who}"] = None
    return list(found)


def _list_other_waits(wait: Wait, view: ProcessSnapshot, family: Sequence[int]) -> list[Wait]:
    """Return the waits for what a process polls besides what `wait` is about; a pipe of which both
    ends are its own, by which its threads wake it, left out.
    """
    found = []
    for descriptor in view.call.descriptors if view.call is not None else ():
        other = make_descriptor_wait(descriptor, view.look, family)
        own = descriptor.kind == "pipe" and set(descriptor.other_ends) == {view.look.pid}
        if other is not None and not own and other.what != wait.what:
            found.append(other)
    return found


def describe_tasks(look: Look) -> str:
    """Return in words which tasks stand still, and where: those that await no other task. "" where
    no task is known.
    """
    still = [task for task in look.tasks if not task.awaits and task.frames]
    named = "; ".join(_describe_task(task) for task in still[:_MOST_NAMED])
    more = f"; and {len(still) - _MOST_NAMED} more" if len(still) > _MOST_NAMED else ""
    return named + more


def _describe_task(task: AsyncTask) -> str:
    """Return "task 'load shards' awaits StreamReader.read in fetch (serve.py:3)"."""
    inner = task.frames[0]
    own = next((frame for frame in task.frames if frame_owner(frame, "") == "user"), inner)
    awaited = f"{inner.name} in " if own is not inner else ""
    return f"task {task.name!r} awaits {awaited}{format_frame(own)}"
