"""Threads, locks in memory and event loops: whoever was to go on is not there, or waits as well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...base.identity import name_rank
from ...base.library_functions import Role, find_role
from ...base.process_facts import Frame, Kernel, Thread
from ...base.process_roles import find_actor
from ..process.blocked_syscalls import POLL_CALLS, READ_CALLS
from ..process.frames import (
    EXPORTERS,
    format_frame,
    frame_owner,
    is_service_thread,
    unqualified_name,
)
from ..process.helper_processes import find_unread_child, is_to_be_given
from ..process.loop_waits import describe_tasks
from ..thread_edges import list_locks
from .deadlock import find_ring
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .preloaded import in_a_preloaded_library
from .signs import (
    a_thread_ended,
    blocks_its_own_loop,
    find_native_frame,
    format_place,
    innermost_native_frames,
    innermost_python_frame,
    is_forked,
)

_PYTHON_LOCK = (
    r"^(?:lock_PyThread_acquire_lock|PyThread_acquire_lock_timed|rlock_acquire|_PyMutex_\w+)"
)
_SIMPLE_QUEUE = r"^_queue_SimpleQueue_get"  # waits as a lock does (Modules/_queuemodule.c)
_HANDS_OVER = (
    (r"/queue\.py", "get|put|join"),
    (r"/threading\.py", "wait|wait_for"),
    (r"concurrent/futures/_base\.py", "result|wait"),
)
_OF_PROCESSES = r"/multiproc?ess(?:ing)?/synchronize\.py"
_RESULT = (r"concurrent/futures/_base\.py", "result")
_POOL_THREAD = (r"concurrent/futures/thread\.py", "_worker")
_LOOP = r"asyncio/(?:base_events|runners|unix_events)\.py"
_SELECTS = r"/selectors\.py"
_SHARED_LOCK = (r"multiproc?ess(?:ing)?/synchronize\.py", "__enter__|acquire|wait")
_WAITS_TO_GET = {"futex", "accept", "accept4", *READ_CALLS, *POLL_CALLS}
_FUTEX_TIME_LIMIT = 3  # which argument of futex() it is


def find_side_threads(scene: Scene) -> tuple[Thread, ...]:
    """Return the job's own threads of Python besides the main one."""
    view, package = scene.view, scene.job.package
    found = []
    for thread in view.threads if view is not None else ():
        ours = any(frame_owner(frame, package) == "harness" for frame in thread.frames)
        if view is not None and thread is not view.main and not ours and not _is_service(thread):
            found.append(thread)
    return tuple(found)


def _is_service(thread: Thread) -> bool:
    """Return True for a helper of a library; threads of a pool with a task are none."""
    return is_service_thread(thread) and find_frame(thread.frames, *_RESULT) is None


def _kernel(scene: Scene, thread: Thread) -> Kernel | None:
    looks = scene.view.look.kernel if scene.view is not None else ()
    return next((k for k in looks if k.tid == thread.os_id), None)


def _for_ever(kernel: Kernel | None) -> bool:
    """Return True for a thread that sleeps in a futex without a time limit."""
    call = kernel.syscall if kernel is not None else None
    if call is None or call.name != "futex" or len(call.args) <= _FUTEX_TIME_LIMIT:
        return False
    return call.args[_FUTEX_TIME_LIMIT] == 0


def _named(thread: Thread) -> str:
    return f"thread {thread.name or thread.os_id}"


def _own_lock(scene: Scene, thread: Thread) -> Frame | None:
    """Return the frame in which a thread waits for a lock of Python's, in code that is not a
    library's: `with lock`.
    """
    frame = innermost_python_frame(thread.frames)
    if frame is None or frame_owner(frame, scene.job.package) not in ("user", "step"):
        return None
    if not _for_ever(_kernel(scene, thread)):
        return None
    native = innermost_native_frames(thread.frames)
    if any(re.match(_SIMPLE_QUEUE, one.name) for one in native):
        return None
    locks = find_native_frame(thread.frames, _PYTHON_LOCK) is not None
    return frame if locks or not native else None


# ---- signs ---------------------------------------------------------------------------------------


def _waits_for_a_lock(scene: Scene) -> Found | None:
    """A rank's main thread waits for a lock of Python's in the job's own code."""
    view = scene.view
    main = view.main if view is not None else None
    if view is None or main is None or view.running or is_forked(view):
        return None
    frame = _own_lock(scene, main)
    if frame is None:
        return None
    values = {"place": format_frame(frame), "lock": _call_lock(frame)}
    return Found(f"it waits for {_call_lock(frame)}", values)


def _call_lock(frame: Frame) -> str:
    """Return the lock that a frame waits for in words: "self._lock in Stage.load (stage.py:13)"."""
    name = frame.takes.name if frame.takes is not None else "a lock"
    return f"{name} in {format_frame(frame)}"


def _another_waits_for_a_lock(scene: Scene) -> Found | None:
    """Another thread waits for a lock in the job's own code too."""
    for thread in find_side_threads(scene):
        frame = _own_lock(scene, thread)
        if frame is not None:
            words = f"{_named(thread)} waits for {_call_lock(frame)}"
            return Found(words, {"other": _named(thread), "wanted": _call_lock(frame)})
    return None


def _locks_in_a_ring(scene: Scene) -> Found | None:
    """Each stands between taking the lock that the other wants and giving it back."""
    ring = find_ring(scene)
    if ring is None or any(edge.kind != "lock" for edge in ring.edges):
        return None
    has = [edge.evidence for edge in ring.edges if edge.source.startswith("lock ")]
    return Found("; ".join(has))


def no_other_thread_works(scene: Scene) -> Found | None:
    """The job has no other thread of Python that could go on for it."""
    view = scene.view
    if view is None or not view.threads or find_side_threads(scene) or view.look.rung != "py-spy":
        return None
    return Found("it has no other thread of Python at work for the job")


def _its_giver_has_ended(scene: Scene) -> Found | None:
    """The job has no other thread of Python, or it wrote that one has ended, and all others wait to
    be given something as well, or for requests.
    """
    if found := no_other_thread_works(scene):
        return replace(found, values={"gone": "there is no other thread"})
    ended = a_thread_ended(scene)
    tasks = (_kernel(scene, thread) for thread in find_side_threads(scene))
    waits = (task.syscall.name if task and task.syscall else "" for task in tasks)
    return ended if all(call in _WAITS_TO_GET for call in waits) else None


def _mutex_of_its_own(scene: Scene) -> Found | None:
    """The thread itself has the mutex that it waits for."""
    view = scene.view
    futex = view.call.futex if view is not None and view.call is not None else None
    if view is None or futex is None or futex.owner != view.look.pid:
        return None
    return Found("the mutex that it waits for is its own", {"place": format_place(view)})


def _waits_for_itself(scene: Scene) -> Found | None:
    """A thread waits for a lock that nobody else can have: it has it itself."""
    own = _mutex_of_its_own(scene)
    if own is not None:
        return own
    waits = _waits_for_a_lock(scene)
    if waits is not None and _stands_inside_its_lock(scene):
        return Found("it has taken it before, in a frame further out", waits.values)
    # A futex that nothing explains may be anything: a wait for a peer, a GPU, a native thread.
    explained = find_native_frame(scene.frames, _PYTHON_LOCK) is not None
    if waits is None or not explained or not no_other_thread_works(scene):
        return None
    return Found("", waits.values)


def _stands_inside_its_lock(scene: Scene) -> bool:
    """Return whether the main thread has taken the lock that it waits for, as its frames tell."""
    main = scene.view.main if scene.view is not None else None
    frame = innermost_python_frame(main.frames) if main is not None else None
    lock = frame.takes if frame is not None else None
    return (
        main is not None and lock is not None and lock.identity != "" and lock in list_locks(main)
    )


def _waits_to_be_given(scene: Scene) -> Found | None:
    """A rank waits for what another thread is to give (Queue.get, Event.wait, Future.result), or to
    take from a full queue (Queue.put).
    """
    view = scene.view
    main = view.main if view is not None else None
    if view is None or main is None or not _for_ever(_kernel(scene, main)):
        return None
    python = tuple(frame for frame in scene.frames if not frame.native)[:4]
    found = (find_frame(python, file, name) for file, name in _HANDS_OVER)
    frame = next((frame for frame in found if frame is not None), None)
    if frame is None or is_forked(view) or any(one.threads for one in scene.workers):
        return None  # a worker may be what is waited for
    if find_frame(python, _OF_PROCESSES) is not None:
        return None  # another process gives it: its Barrier and Event are on those of threads
    if scene.inside(EXPORTERS) is not None:
        return None  # its own thread is
    if find_role(scene.frames, Role.MEETS_WORKERS) is not None:
        return None  # threads in C++ give it
    puts = frame.name.rpartition(".")[2] == "put"
    does = "take from its full queue" if puts else "give"
    place = format_frame(frame)
    return Found(f"it waits in {place}", {"place": place, "does": does})


def _wants_a_slot(scene: Scene) -> Found | None:
    """A rank waits for a slot of a semaphore of threading's, without a time limit."""
    if _waits_to_be_given(scene) is None:
        return None
    inner, *outer = tuple(frame for frame in scene.frames if not frame.native)[:2]
    if not outer or unqualified_name(inner.name) != "wait":
        return None
    if find_frame(tuple(outer), r"/threading\.py", "acquire") is None:
        return None
    own = scene.users_frame(scene.frames) or outer[0]
    values = {"place": format_frame(own)}
    return Found(f"it waits for a slot of a semaphore in {format_frame(own)}", values)


def find_catching_loop(scene: Scene) -> Frame | None:
    """Return the job's own frame that takes tasks from a queue in memory, in a loop that catches
    whatever a task of it raises; None for any other one.
    """
    python = tuple(frame for frame in scene.frames if not frame.native)[:3]
    if scene.call != "futex" or find_frame(python, r"/queue\.py", "get") is None:
        return None
    own = scene.users_frame(python)
    return own if own is not None and own.catches else None


def _its_loop_takes_tasks(scene: Scene) -> Found | None:
    """The loop that waits takes tasks, and catches what they raise, as its source shows."""
    frame = find_catching_loop(scene)
    return Found(f"{format_frame(frame)} takes tasks") if frame is not None else None


def _waits_for_a_result(scene: Scene) -> Found | None:
    """A rank waits for the result of a task in a pool of threads."""
    frame = scene.frame(*_RESULT)
    return None if frame is None else Found(f"it waits in {format_frame(frame)}")


def _pool_waits_for_results(scene: Scene) -> Found | None:
    """Every thread of the pool waits for the result of another task."""
    pool = [t for t in find_side_threads(scene) if find_frame(t.frames, *_POOL_THREAD) is not None]
    waiting = [t for t in pool if find_frame(t.frames, *_RESULT) is not None]
    if not pool or len(waiting) < len(pool):
        return None
    frame = next((f for f in waiting[0].frames if frame_owner(f, "") == "user"), None)
    where = format_frame(frame) if frame is not None else "a task"
    count = len(pool)
    words = f"{'all ' if count > 1 else 'the only '}{count} thread{'s' if count > 1 else ''}"
    return Found(f"{words} of the pool waits for another task in {where}", {"place": where})


def _in_an_event_loop(scene: Scene) -> Found | None:
    """A rank is in an event loop or a selector that waits without a time limit."""
    view = scene.view
    if view is None or view.call is None or view.running or scene.call not in POLL_CALLS:
        return None
    python = tuple(frame for frame in scene.frames if not frame.native)[:4]
    frame = find_frame(python, _LOOP) or find_frame(python, _SELECTS)
    if frame is None or view.call.timeout is not None:
        return None
    return Found(f"it waits in {scene.call} without a time limit, in {format_frame(frame)}")


def _hears_only_itself(scene: Scene) -> Found | None:
    """All that it listens to has its other end in the same process."""
    view = scene.view
    known = view.call.descriptors if view is not None and view.call is not None else ()
    # What is anonymous (the epoll itself, an eventfd) is the process's own.
    heard = [one for one in known if one.kind != "anon"]
    if view is None or not heard:
        return None
    for one in heard:
        socket = one.socket
        ends = socket.peer_pids if socket is not None else one.other_ends
        if not ends or set(ends) != {view.look.pid}:
            return None
    frame = next(
        (f for f in scene.python if frame_owner(f, scene.job.package) in ("user", "step")), None
    )
    where = format_frame(frame) if frame is not None else format_place(view)
    # A thread at work may be what is awaited: it wakes the loop by such a socket.
    trust = 0.5 if find_side_threads(scene) else 1.0
    unknown = "before 3.14 no Python tells which task awaits it"
    values = {"place": where, "lost": unknown}
    return Found("both ends of all that it listens to are its own", values, trust)


def _its_tasks_await(scene: Scene) -> Found | None:
    """Its Python (3.14 and later) tells which tasks stand still, and where."""
    tasks = describe_tasks(scene.view.look) if scene.view is not None else ""
    return Found(tasks, {"lost": tasks}) if tasks else None


def _tasks_await_one_another(scene: Scene) -> Found | None:
    """Its Python (3.14 and later) tells of tasks that each await the next, the last the first."""
    ring = scene.view.look.task_ring if scene.view is not None else ()
    way = " -> ".join(ring)
    return Found(f"tasks await one another: {way}", {"ring": way}) if ring else None


def _waits_for_a_shared_lock(scene: Scene) -> Found | None:
    """A rank waits for a lock that processes share (multiprocessing.Lock, semop)."""
    if scene.call in ("semop", "semtimedop"):
        where = format_place(scene.view) if scene.view else "semop"
        return Found(f"it waits in {scene.call}(), in {where}", {"place": where})
    if scene.view is not None and is_to_be_given(scene.view):
        return None
    python = tuple(frame for frame in scene.frames if not frame.native)[:2]
    frame = find_frame(python, *_SHARED_LOCK) or _takes_a_semaphore(scene, python)
    if frame is None or scene.call != "futex":
        return None
    return Found(
        f"it waits for a lock of processes in {format_frame(frame)}", {"place": format_frame(frame)}
    )


def _takes_a_semaphore(scene: Scene, python: Sequence[Frame]) -> Frame | None:
    """Return the job's own line that takes a lock of multiprocessing: acquire() of one is a method
    of C, without a frame (multiprocessing/synchronize.py, SemLock._make_methods). The kernel says
    that it is a semaphore of processes. In a library's line it may count what is in a queue.
    """
    call = scene.view.call if scene.view is not None else None
    if call is None or call.futex is None or not call.futex.is_shared_semaphore or not python:
        return None
    return python[0] if frame_owner(python[0], scene.job.package) in ("user", "step") else None


def _nobody_there_to_have_it(scene: Scene) -> Found | None:
    """No living child of it could have that lock, nor a process that started it by way of
    multiprocessing, or others that this has started.
    """
    view = scene.view
    futex = view.call.futex if view is not None and view.call is not None else None
    if view is None or any(is_forked(one) for one in scene.workers):
        return None
    if futex is not None and futex.sharers:
        return None
    if find_frame(view.frames, r"multiproc?ess(?:ing)?/(?:process|spawn|forkserver)\.py"):
        return None
    return Found("no child of it lives that could have it")


def _a_rank_may_have_it(scene: Scene) -> Found | None:
    """A rank that lives shares the lock and does not sleep in it: it may have it."""
    subject, view = scene.subject, scene.view
    futex = view.call.futex if view is not None and view.call is not None else None
    if subject is None or futex is None or not futex.sharers:
        return None
    for other in scene.living:
        if other.host == subject.host and other.pid in futex.sharers:
            calls = (task.syscall for task in other.looks[-1].kernel)
            if all(c is None or c.futex is None or c.futex.file != futex.file for c in calls):
                return Found(f"{name_rank(other.rank)} shares it, and does not wait for it")
    return None


def _awaits_an_actor(scene: Scene) -> Found | None:
    """An actor or a task of Ray is in a method: its answer comes by a thread of Ray's in C++."""
    wait = scene.verdict.waits_for
    actors = {one.pid: find_actor(one.command) for one in scene.children}
    name = actors.get(wait.pid or 0) if wait is not None else ""
    return Found(f"it awaits {name}") if name else None


def _its_child_waits_to_be_read(scene: Scene) -> Found | None:
    """A child waits to write into what the loop has stopped to read."""
    family = [(look,) for look in scene.children]
    child = find_unread_child(scene.view.look.pid, family) if scene.view is not None else None
    return None if child is None else Found(f"{child.name} ({child.pid}) waits to be read")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="self-deadlock",
        title="a thread waits for a lock that it has itself",
        signs=(
            need(_waits_for_itself, 0.6),
            also(_mutex_of_its_own, 0.95, proves=True),
            also(_waits_for_a_lock, 0.2),
            also(no_other_thread_works, 0.3),
            unless(in_a_preloaded_library),
        ),
        why="In {place} it waits for a lock that no other thread can have: it took it itself "
        "before, and such a lock cannot be taken twice.",
        avoid=(
            "threading.RLock in place of Lock, where a function may call itself by a detour",
            "release the lock before calling what takes it again",
        ),
        references=("https://docs.python.org/3/library/threading.html#rlock-objects",),
    ),
    KnownCause(
        id="lock-order",
        title="two threads take the same locks in different orders",
        signs=(
            need(_waits_for_a_lock, 0.45),
            need(_another_waits_for_a_lock, 0.5),
            also(_locks_in_a_ring, 0.6),
            unless(_waits_for_itself),
        ),
        why="The main thread waits for {lock}, {other} for {wanted}: most likely each has what the "
        "other wants.",
        avoid=(
            "take the locks in the same order everywhere, or use one lock for both",
            "lock.acquire(timeout=60): an error in place of silence",
        ),
        references=("scikit-learn/scikit-learn#29145",),
    ),
    KnownCause(
        id="dead-producer",
        title="the thread that was to give something, or to take it, has ended",
        signs=(
            need(_waits_to_be_given, 0.45),
            need(_its_giver_has_ended, 0.5),
            also(a_thread_ended, 0.5),
            unless(_its_loop_takes_tasks),
            unless(blocks_its_own_loop),
            unless(_wants_a_slot),
        ),
        why="It waits in {place} for what another thread is to {does}, and {gone}: an exception in "
        "a thread ends that thread alone.",
        avoid=(
            "hand exceptions over as well: queue.put(error) in the thread, and raise it here",
            "queue.get(timeout=60), and a look whether the thread lives: an error, not silence",
        ),
        references=("huggingface/datasets#3148",),
    ),
    KnownCause(
        id="slots-not-given-back",
        title="a semaphore has no slot left, and nobody gives one back",
        signs=(
            need(_wants_a_slot, 0.5),
            need(_its_giver_has_ended, 0.5),
            unless(blocks_its_own_loop),
        ),
        why="In {place} it waits for a slot of a semaphore, and {gone}: whoever took the slots "
        "has not given them back, as where an exception comes between acquire() and release().",
        avoid=(
            "`with semaphore:`, or release() in a finally: given back after any error too",
            "look at the results of what took them (future.result()): their exceptions tell why",
            "semaphore.acquire(timeout=60): an error in place of silence",
        ),
        references=("https://docs.python.org/3/library/threading.html#semaphore-objects",),
    ),
    KnownCause(
        id="pool-waits-for-itself",
        title="a task in a pool of threads waits for another task of the same pool",
        signs=(need(_waits_for_a_result, 0.35), need(_pool_waits_for_results, 0.65)),
        why="In {place} a task waits for another one that no thread is free to begin: all threads "
        "of the pool wait so.",
        avoid=(
            "a second pool for what tasks wait for, or more threads than tasks that wait",
            "give all tasks to the pool from outside, and wait there",
        ),
        references=(
            "https://docs.python.org/3/library/concurrent.futures.html#threadpoolexecutor",
        ),
    ),
    KnownCause(
        id="event-loop",
        title="an event loop waits for something that nobody will do",
        signs=(
            need(_in_an_event_loop, 0.4),
            need(_hears_only_itself, 0.45),
            also(no_other_thread_works, 0.4),
            also(_its_tasks_await, 0.3),
            unless(_its_child_waits_to_be_read),
            unless(_awaits_an_actor),
        ),
        why="Nothing outside the process can wake the loop that runs {place}: what it awaits was "
        "lost, or never started ({lost}).",
        avoid=(
            "asyncio.wait_for(..., timeout=60): an error that names what is awaited",
            "PYTHONASYNCIODEBUG=1 names tasks that were never awaited: slower",
        ),
        references=("fsspec/filesystem_spec#835", "fsspec/s3fs#369"),
    ),
    KnownCause(
        id="tasks-await-one-another",
        title="tasks of an event loop await one another",
        signs=(need(_tasks_await_one_another, 0.9),),
        why="Of the tasks {ring} each awaits the next, and none is done before that is.",
        avoid=(
            "let one of them await an asyncio.Event that the other sets, in place of that task",
            "asyncio.wait_for(..., timeout=60): an error that names what is awaited",
        ),
        references=("https://docs.python.org/3/whatsnew/3.14.html#asyncio",),
    ),
    KnownCause(
        id="dead-owner",
        title="a lock that processes share belongs to one that is gone",
        signs=(
            need(_waits_for_a_shared_lock, 0.5),
            also(_nobody_there_to_have_it, 0.35),
            unless(_a_rank_may_have_it),
        ),
        why="In {place} it waits for a lock or semaphore that processes share. Whoever had it "
        "ended without giving it back, or it took it twice: nothing frees such a lock then.",
        avoid=(
            "`ipcs -s` lists System V semaphores, `ipcrm -s ID` removes one that no job uses",
            "flock() on a file instead: the kernel frees it when its process ends",
        ),
        references=("python/cpython#82265", "python/cpython#96062"),
    ),
)
