"""Queues between processes or threads: both of two are full, or a task is never marked done."""

from __future__ import annotations

from collections.abc import Iterator

from ..process.frames import format_frame
from ..process.helper_processes import is_idle_worker, waits_for_room
from ..process.process_snapshot import ProcessSnapshot
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import a_child_died, format_place, format_process

_QUEUES = r"(?:^|/)(?:multiproc?ess(?:ing)?/queues|queue)\.py$"
_FEWEST = 2  # processes that wait for one another


def _joins_a_queue(scene: Scene) -> Found | None:
    """A rank waits in join() of a queue until all of its tasks are done."""
    view = scene.view
    python = tuple(frame for frame in scene.frames if not frame.native)[:4]
    frame = find_frame(python, _QUEUES, "join")
    if view is None or view.running or frame is None:
        return None
    own = scene.users_frame(scene.frames) or frame
    values = {"place": format_frame(own), "wait": format_frame(frame)}
    return Found(f"it waits in {format_frame(frame)} until all tasks are done", values)


def _list_takers(scene: Scene) -> Iterator[tuple[str, bool]]:
    """Yield the processes and threads that could take a task, in words, and whether each of them
    waits for one.
    """
    for view in scene.workers:
        if view.threads and find_frame(view.frames, _QUEUES) is not None:
            yield format_process(view.look), is_idle_worker(view.look)
    main = scene.view.main if scene.view is not None else None
    for thread in scene.view.threads if scene.view is not None else ():
        python = tuple(frame for frame in thread.frames if not frame.native)
        if thread is not main and scene.users_frame(python) is not None:
            waits = find_frame(python[:3], _QUEUES, "get") is not None
            yield f"thread {thread.name or thread.os_id}", waits


def _all_wait_for_tasks(scene: Scene) -> Found | None:
    """Whoever could take a task of it waits for one: the queue is empty, and nobody is at work."""
    takers = [*_list_takers(scene)]
    if not takers or not all(waits for _, waits in takers):
        return None
    more = f" and {len(takers) - 1} more" if len(takers) > 1 else ""
    who = f"{takers[0][0]}{more}"
    wait = "wait" if more else "waits"
    return Found(f"{who} {wait} for the next task", {"takers": who, "verb": wait})


def _list_full(scene: Scene) -> list[ProcessSnapshot]:
    """Return the processes below a rank, and its own, that wait for room in a queue."""
    views = (*((scene.view,) if scene.view is not None else ()), *scene.workers)
    return [one for one in views if waits_for_room(one) and not one.running]


def _each_waits_for_room(scene: Scene) -> Found | None:
    """Two processes wait for room in a queue each, not the same, and each has the other's queue."""
    full = _list_full(scene)
    for one in full:
        for other in full:
            mine = one.call.futex if one.call is not None else None
            theirs = other.call.futex if other.call is not None else None
            if one is other or mine is None or theirs is None or mine.file == theirs.file:
                continue
            has_mine = other.look.pid in (mine.sharers or ())
            if has_mine and one.look.pid in (theirs.sharers or ()):
                who = f"{format_process(one.look)} and {format_process(other.look)}"
                where = f"{format_place(one)} and {format_place(other)}"
                own = scene.users_frame(one.frames), scene.users_frame(other.frames)
                if None not in own:
                    where = " and ".join(format_frame(frame) for frame in own if frame is not None)
                return Found(
                    f"{who} each wait for room in a queue that the other one has too, in {where}",
                    {"who": who, "place": where},
                )
    return None


def _nobody_else_reads(scene: Scene) -> Found | None:
    """All others that have one of these queues wait as well."""
    full = {one.look.pid for one in _list_full(scene)}
    sharers = {
        pid
        for one in _list_full(scene)
        if one.call is not None and one.call.futex is not None
        for pid in one.call.futex.sharers or ()
    }
    views = [*scene.workers, *((scene.view,) if scene.view is not None else ())]
    rest = [one for one in views if one.look.pid in sharers - full]
    if len(full) < _FEWEST or any(one.running for one in rest):
        return None
    return Found("nobody who has them is at work")


CAUSES = (
    KnownCause(
        id="tasks-not-marked-done",
        title="join() of a queue waits for tasks that nobody marks as done",
        signs=(
            need(_joins_a_queue, 0.5),
            need(_all_wait_for_tasks, 0.55),
            unless(a_child_died),
        ),
        why="In {place} it waits until each task of the queue is marked as done; {takers} {verb} "
        "for the next one, so all were taken, and for one of them task_done() was never called: "
        "where a loop goes on early, or an exception passes by.",
        avoid=(
            "try: ... finally: queue.task_done(), around all that is done with a task",
            "count results in place of join(), with a time limit",
        ),
        references=("https://docs.python.org/3/library/queue.html#queue.Queue.join",),
    ),
    KnownCause(
        id="full-queues-both-ways",
        title="two processes each wait for room in a queue that the other one is to read",
        signs=(
            need(_each_waits_for_room, 0.75),
            also(_nobody_else_reads, 0.2),
        ),
        why="{who} each wait for room in a queue of multiprocessing, in {place}, and neither reads "
        "before it has written: most likely each is to read what the other one writes.",
        avoid=(
            "read in a thread of its own, or in turns with writing",
            "no limit for one of the two queues, or one that holds all that may come at once",
            "put(..., timeout=60): an error in place of silence",
        ),
        references=(
            "https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Queue.put",
        ),
    ),
)
