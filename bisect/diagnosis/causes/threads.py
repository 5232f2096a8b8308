"""Threads, locks in memory and event loops: whoever was to go on is not there, or waits as well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from ...base.identity import name_rank
from ...base.library_functions import Role, find_role
from ...base.process_facts import Frame, Kernel, Thread
from ...base.words import begin_sentence
from ..process.blocked_syscalls import POLL_CALLS, READ_CALLS, list_awaited_pids
from ..process.frames import (
    EXPORTERS,
    format_frame,
    frame_owner,
    innermost_python_frame,
    is_of_threading,
    is_service_thread,
    serves_multiprocessing,
    unqualified_name,
)
from ..process.helper_processes import is_to_be_given, may_keep
from ..process.process_snapshot import ProcessSnapshot, merge_looks
from ..thread_edges import list_locks
from .deadlock import find_ring
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .preloaded import in_a_preloaded_library
from .signs import (
    a_thread_ended,
    blocks_its_own_loop,
    find_native_frame,
    format_place,
    format_process,
    innermost_native_frames,
    is_forked,
)

DEAD_PRODUCER = "dead-producer"
_PYTHON_LOCK = (
    r"^(?:lock_PyThread_acquire_lock|PyThread_acquire_lock_timed|rlock_acquire|_PyMutex_\w+)"
)
_SIMPLE_QUEUE = r"^_queue_SimpleQueue_get"  # waits as a lock does (Modules/_queuemodule.c)
_HANDS_OVER = (
    (r"/queue\.py", "get|put|join"),
    (r"/threading\.py", "wait|wait_for"),
    (r"concurrent/futures/_base\.py", "result|wait"),
)
# Of Condition, innermost first: below a wait() that calls another one is an Event.
_WAITS_FOR_CONDITION = (["wait"], ["wait", "wait_for"])
_MAY_BE_NOTIFIED = 0.6  # what a sign is worth where other threads of the job may notify
_OF_PROCESSES = r"/multiproc?ess(?:ing)?/synchronize\.py"
RESULT = (r"concurrent/futures/_base\.py", "result")
_SHARED_LOCK = (r"multiproc?ess(?:ing)?/synchronize\.py", "__enter__|acquire|wait")
_WAITS_TO_GET = {"futex", "accept", "accept4", *READ_CALLS, *POLL_CALLS}
_NEAR_A_POOL = 5  # innermost frames: from the lock of a queue to who takes a connection out of it
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
    return is_service_thread(thread) and find_frame(thread.frames, *RESULT) is None


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
    """Another thread waits for a lock in the job's own code too, and not for the same one."""
    main = scene.view.main if scene.view is not None else None
    first = _own_lock(scene, main) if main is not None else None
    wanted = first.takes.identity if first is not None and first.takes is not None else ""
    for thread in find_side_threads(scene):
        frame = _own_lock(scene, thread)
        same = frame is not None and frame.takes is not None and frame.takes.identity == wanted
        if frame is not None and not (wanted and same):
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


def hands_it_to_a_loop(scene: Scene) -> Found | None:
    """The source shows that the line hands a coroutine to a loop (run_coroutine_threadsafe)."""
    handed = "run_coroutine_threadsafe"
    for frame in scene.frames:
        if any(name.rpartition(".")[2] == handed for name in frame.calls):
            return Found(f"{format_frame(frame)} hands a coroutine to a loop")
    return None


def _its_giver_has_ended(scene: Scene) -> Found | None:
    """The job has no other thread of Python, or it wrote that one has ended, and all others wait to
    be given something as well, or for requests.
    """
    if found := no_other_thread_works(scene):
        gone = "there is no other thread"
        if handed := hands_it_to_a_loop(scene):
            gone = f"{handed.sentence} that no thread runs any more"
        return replace(found, values={"gone": gone})
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
    if frame is None or is_forked(view) or _list_givers(scene):
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


def _list_givers(scene: Scene, wait_for_it: bool = False) -> list[ProcessSnapshot]:
    """Return the processes below a rank that run Python, without the children that wait for it in
    turn: those may give it something; or these children.
    """
    own = scene.subject.pid if scene.subject is not None else None
    return [
        one
        for one in scene.workers
        if one.threads and not serves_multiprocessing(one.frames)
        if (one.look.ppid == own and list_awaited_pids(one.look) == {own}) is wait_for_it
    ]


def _waits_for_the_rank(scene: Scene) -> Found | None:
    """A process that it has started waits for it in turn: to be heard, or to be told."""
    view = next(iter(_list_givers(scene, wait_for_it=True)), None)
    if view is None:
        return None
    return Found(f"{format_process(view.look)} waits for it in turn, in {format_place(view)}")


def _wants_a_slot(scene: Scene) -> Found | None:
    """A rank waits for a slot of a semaphore of threading's, or for a connection of a pool of a
    library's that has none left, without a time limit.
    """
    if _waits_to_be_given(scene) is None:
        return None
    python = tuple(frame for frame in scene.frames if not frame.native)
    if find_role(python[:_NEAR_A_POOL], Role.TAKES_CONNECTION) is not None:
        own = scene.users_frame(scene.frames)
        place = format_frame(own) if own is not None else format_frame(scene.frames[0])
        slot = "a connection of a pool that has none left"
        return Found(f"it waits for {slot} in {place}", {"place": place, "slot": slot})
    inner, *outer = python[:2]
    if not outer or unqualified_name(inner.name) != "wait":
        return None
    if find_frame(tuple(outer), r"/threading\.py", "acquire") is None:
        return None
    own = scene.users_frame(scene.frames) or outer[0]
    values = {"place": format_frame(own), "slot": "a slot of a semaphore"}
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


def _all_wait_for_one_condition(scene: Scene) -> Found | None:
    """The main thread waits for a Condition of the job's own without a time limit, and so do other
    threads for the same one: who waits notifies nobody.
    """
    main = scene.view.main if scene.view is not None else None
    condition = _find_condition(scene, main) if main is not None else ""
    if main is None or not condition:
        return None
    sides = find_side_threads(scene)
    same = [thread for thread in sides if _find_condition(scene, thread) == condition]
    if not same:
        return None
    places = [format_frame(own) for t in (main, *same) if (own := scene.users_frame(t.frames))]
    names = ["the main thread", *map(_named, same)]
    who = [f"{name} in {place}" for name, place in zip(names, places, strict=True)]
    others = [t for t in scene.view.threads if t not in same] if scene.view is not None else []
    doubtful = len(sides) > len(same) or any(_hears_others(scene, one) for one in others)
    words = f"{', '.join(who)} wait for the same Condition"
    values = {"who": begin_sentence(", ".join(who))}
    return Found(words, values, _MAY_BE_NOTIFIED if doubtful else 1.0, doubtful=doubtful)


def _hears_others(scene: Scene, thread: Thread) -> bool:
    """Return whether a thread waits for a word from outside, which it may hand on: the one of a
    client of gRPC. Exporters hand on nothing.
    """
    task = _kernel(scene, thread)
    call = task.syscall if task is not None else None
    is_exporter = any(re.search(EXPORTERS, frame.file) for frame in thread.frames)
    return call is not None and call.name in POLL_CALLS | READ_CALLS and not is_exporter


def _find_condition(scene: Scene, thread: Thread) -> str:
    """Return the Condition that the job's own code waits for in a thread, by the address of its
    object, "" where it waits for none: Events, Queues and Barriers have Conditions of their own.
    """
    python = [frame for frame in thread.frames if not frame.native]
    waits = list(takewhile(is_of_threading, python))
    names = [unqualified_name(frame.name) for frame in waits]
    outer = python[len(waits)] if len(waits) < len(python) else None
    is_own = outer is not None and outer == scene.users_frame(python)
    if names not in _WAITS_FOR_CONDITION or not (is_own and _for_ever(_kernel(scene, thread))):
        return ""
    return dict(waits[-1].objects).get("self", "")


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


def _another_process_may_have_it(scene: Scene) -> Found | None:
    """A process that a rank has started shares the lock, and stands where it is taken."""
    known = [looks for one in scene.ranks for looks in (one.looks, *one.children)]
    for other in map(merge_looks, (*known, *scene.relatives.values())):
        if other is not None and scene.view is not None and may_keep(other, scene.view):
            return Found(f"{format_process(other.look)} shares it, and is in {format_place(other)}")
    return None


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
        id="nobody-notifies",
        title="all threads that use a Condition wait for it, and nobody is left to notify them",
        signs=(need(_all_wait_for_one_condition, 0.9),),
        why="{who} wait for the same Condition, each until another one has changed what it looks "
        "at: who waits notifies nobody.",
        avoid=(
            "a lock for readers and writers is not taken twice by one thread: a writer that waits "
            "in between keeps the second one out",
            "what each waits for is changed before it waits itself, and notify_all() said",
            "condition.wait_for(..., timeout=60): an error in place of silence",
        ),
        references=("https://docs.python.org/3/library/threading.html#condition-objects",),
    ),
    KnownCause(
        id=DEAD_PRODUCER,
        title="the thread that was to give something, or to take it, has ended",
        signs=(
            need(_waits_to_be_given, 0.45),
            need(_its_giver_has_ended, 0.5),
            also(a_thread_ended, 0.5),
            also(_waits_for_the_rank, 0.2),
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
        title="a semaphore, or a pool of connections, has no slot left, and nobody gives one back",
        signs=(
            need(_wants_a_slot, 0.5),
            need(_its_giver_has_ended, 0.5),
            unless(blocks_its_own_loop),
        ),
        why="In {place} it waits for {slot}, and {gone}: whoever took the others has not "
        "given them back, as where an exception comes between acquire() and release(), or where an "
        "answer is neither read to its end nor closed.",
        avoid=(
            "`with semaphore:`, or release() in a finally: given back after any error too",
            "look at the results of what took them (future.result()): their exceptions tell why",
            "`with session.get(url, stream=True) as answer:`: its connection goes back to the pool",
            "semaphore.acquire(timeout=60): an error in place of silence",
        ),
        references=("https://docs.python.org/3/library/threading.html#semaphore-objects",),
    ),
    KnownCause(
        id="dead-owner",
        title="a lock that processes share belongs to one that is gone",
        signs=(
            need(_waits_for_a_shared_lock, 0.5),
            also(_nobody_there_to_have_it, 0.35),
            unless(_a_rank_may_have_it),
            unless(_another_process_may_have_it),
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
