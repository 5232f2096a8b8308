"""Event loops and pools of threads: what is awaited was lost, or waits for a place itself."""

from __future__ import annotations

from ...base.process_facts import Socket, Thread, list_queue_sockets
from ...base.process_roles import find_actor
from ...base.words import format_count
from ..process.blocked_syscalls import (
    CHILD_WAIT_CALLS,
    POLL_CALLS,
    SLEEP_CALLS,
    list_awaited_pids,
)
from ..process.frames import format_frame, frame_owner, is_of_threading, unqualified_name
from ..process.helper_processes import find_unread_child
from ..process.loop_waits import describe_tasks
from ..process.process_snapshot import ProcessSnapshot, merge_looks
from ..process.request_threads import (
    is_of_a_client,
    list_unanswered_clients,
    takes_connections,
)
from ..process.thread_waits import is_of_anyio, runs_pool_task
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import a_child_died, format_place
from .threads import RESULT, find_side_threads, no_other_thread_works

_POOL_THREAD = (r"concurrent/futures/thread\.py", "_worker")
_TAKES_RESULTS = (r"concurrent/futures/process\.py", "process_result_item|run")
_CALLS_BACK = (r"concurrent/futures/_base\.py", "_invoke_callbacks")
_LOOP = r"asyncio/(?:base_events|runners|unix_events)\.py"
_SHORT = 5.0  # seconds: what sleeps for less looks again and again
_SELECTS = r"/selectors\.py"
_FEWEST_PEERS = 2  # ranks of a job
_MAY_BE_TOLD = 0.65  # what a sign is worth where the main thread may tell those that wait


# ---- signs ---------------------------------------------------------------------------------------


def _waits_for_a_result(scene: Scene) -> Found | None:
    """A rank waits for the result of a task in a pool; or its event loop for what its threads are
    to give, as nothing else can wake it; or a callback does.
    """
    if (callback := _find_waiting_callback(scene)) is not None:
        return Found(f'its thread "{callback.name}" waits in Future.result')
    frame = scene.frame(*RESULT)
    if frame is not None:
        return Found(f"it waits in {format_frame(frame)}")
    loop = _in_an_event_loop(scene)
    if loop is None or _hears_only_itself(scene) is None:
        return None
    # What the loop is to do for them may be lost as well.
    return Found(f"{loop.sentence}, and only its own threads can wake it", doubtful=True)


def _find_waiting_callback(scene: Scene) -> Thread | None:
    """Return the thread that takes the results of a pool of processes, if a callback of one result
    waits on it for another: nobody takes that (_ExecutorManagerThread, concurrent/futures/
    process.py).
    """
    for thread in find_side_threads(scene):
        takes = find_frame(thread.frames, *_TAKES_RESULTS) is not None
        calls_back = find_frame(thread.frames, *_CALLS_BACK) is not None
        if takes and calls_back and find_frame(thread.frames, *RESULT) is not None:
            return thread
    return None


def _is_of_a_pool(thread: Thread) -> bool:
    """Return whether a thread is one of a pool of threads, or takes the results of processes."""
    return any(find_frame(thread.frames, *one) for one in (_POOL_THREAD, _TAKES_RESULTS))


def _name_place(thread: Thread, otherwise: str) -> str:
    frame = next((f for f in thread.frames if frame_owner(f, "") == "user"), None)
    return format_frame(frame) if frame is not None else otherwise


def _pool_waits_for_results(scene: Scene) -> Found | None:
    """Every thread of the pool waits for the result of another task, or a callback on the thread
    that takes the results of its processes does.
    """
    if (callback := _find_waiting_callback(scene)) is not None:
        where = _name_place(callback, "a callback")
        words = (
            f"the only thread that takes results of the pool's processes is in the callback {where}"
        )
        why = "that is a callback, on the only thread that takes the results of the pool"
        others = scene.view.threads if scene.view is not None else ()
        doubtful = any(_is_of_a_pool(one) for one in others if one is not callback)
        return Found(words, {"place": where, "reason": why}, doubtful=doubtful)
    pool = [t for t in find_side_threads(scene) if find_frame(t.frames, *_POOL_THREAD) is not None]
    waiting = [t for t in pool if find_frame(t.frames, *RESULT) is not None]
    there = scene.view.threads if scene.view is not None else ()
    idle = [t for t in there if find_frame(t.frames, *_POOL_THREAD) is not None and t not in pool]
    pools = {_name_pool(thread) for thread in waiting}
    if not pool or len(waiting) < len(pool) or any(_name_pool(one) in pools for one in idle):
        return None
    where = _name_place(waiting[0], "a task")
    count = len(pool)
    wait = "wait" if count > 1 else "waits"
    why = "no thread is free to begin it, as all threads of the pool wait so"
    words = f"{'all ' if count > 1 else 'the only '}{count} thread{'s' if count > 1 else ''}"
    return Found(
        f"{words} of the pool {wait} for another task in {where}", {"place": where, "reason": why}
    )


def _name_pool(thread: Thread) -> str:
    """Return what the threads of one pool have in common in their names (thread_name_prefix)."""
    return (thread.name or "").rpartition("_")[0]


def _in_an_event_loop(scene: Scene) -> Found | None:
    """A rank is in an event loop or a selector that waits without a time limit; or until a timer of
    its own ends, while clients wait for their answers.
    """
    view = scene.view
    if view is None or view.call is None or view.running or scene.call not in POLL_CALLS:
        return None
    python = tuple(frame for frame in scene.frames if not frame.native)[:4]
    frame = find_frame(python, _LOOP) or find_frame(python, _SELECTS)
    if frame is None:
        return None
    if view.call.timeout is None:
        return Found(f"it waits in {scene.call} without a time limit, in {format_frame(frame)}")
    if view.call.timeout < _SHORT or not _list_waiting_clients(scene):
        return None
    # A timer may be of a library's housekeeping, or what a request waits for.
    words = f"it waits in {scene.call} for {view.call.timeout:.0f} s at most, in"
    return Found(f"{words} {format_frame(frame)}", doubtful=True)


def _list_waiting_clients(scene: Scene) -> list[Socket]:
    """Return the connections of clients that wait for their answers, of a server: ranks send to one
    another, and hear by the same port from those that have not come; what stands behind a rank
    (`relatives`) is none.
    """
    is_peer = scene.job.world_size >= _FEWEST_PEERS and not scene.relatives
    if scene.view is None or is_peer:
        return []
    return list_unanswered_clients([scene.view.look])


def _hears_only_itself(scene: Scene) -> Found | None:
    """All that it listens to has its other end in the same process, or is a client that waits for
    its answer.
    """
    view = scene.view
    known = view.call.descriptors if view is not None and view.call is not None else ()
    # What is anonymous (the epoll itself, an eventfd) is the process's own.
    heard = [one for one in known if one.kind != "anon"]
    if view is None or not heard:
        return None
    unanswered = _list_waiting_clients(scene)
    clients = {one.inode for one in view.look.sockets if is_of_a_client(one, view.look)}
    for one in heard:
        socket = one.socket
        if socket is not None and unanswered and socket.inode in clients:
            continue
        ends = socket.peer_pids if socket is not None else one.other_ends
        if not ends or set(ends) != {view.look.pid}:
            return None
    frame = next(
        (f for f in scene.python if frame_owner(f, scene.job.package) in ("user", "step")), None
    )
    where = format_frame(frame) if frame is not None else format_place(view)
    # A thread at work may be what is awaited: it wakes the loop by such a socket; so does what
    # hears a message queue.
    others = find_side_threads(scene) or list_queue_sockets(view.look.kernel)
    trust = 0.5 if others else 1.0
    unknown = "before 3.14 no Python tells which task awaits it"
    values = {"place": where, "lost": unknown}
    words = "both ends of all that it listens to are its own"
    if unanswered:
        count = format_count(len(unanswered), "client")
        waits = "waits" if len(unanswered) == 1 else "wait"
        words = f"{count} of it {waits} for an answer, and it listens for nothing else"
    return Found(words, values, trust)


def _its_tasks_await(scene: Scene) -> Found | None:
    """Its Python (3.14 and later) tells which tasks stand still, and where."""
    tasks = describe_tasks(scene.view.look) if scene.view is not None else ""
    return Found(tasks, {"lost": tasks}) if tasks else None


def _tasks_await_one_another(scene: Scene) -> Found | None:
    """Its Python (3.14 and later) tells of tasks that each await the next, the last the first."""
    ring = scene.view.look.task_ring if scene.view is not None else ()
    way = " -> ".join(ring)
    return Found(f"tasks await one another: {way}", {"ring": way}) if ring else None


def _awaits_an_actor(scene: Scene) -> Found | None:
    """An actor or a task of Ray is in a method: its answer comes by a thread of Ray's in C++."""
    wait = scene.verdict.waits_for
    actors = {one.pid: find_actor(one.command) for one in scene.children}
    name = actors.get(wait.pid or 0) if wait is not None else ""
    return Found(f"it awaits {name}") if name else None


def _list_pool_threads(scene: Scene) -> list[Thread]:
    """Return the threads of pools that run a task, where no thread of a pool is without one: one
    of them is the main thread where a server is looked at by its request (request_threads.py).
    """
    threads = scene.view.threads if scene.view is not None else ()
    pool = [t for t in threads if find_frame(t.frames, *_POOL_THREAD) or is_of_anyio(t)]
    return pool if all(map(runs_pool_task, pool)) else []


def _its_threads_wait_to_be_told(scene: Scene) -> Found | None:
    """Every thread of the pool that answers requests waits in the job's own code for a condition or
    an event.
    """
    pool = _list_pool_threads(scene)
    places = []
    for thread in pool:
        python = [frame for frame in thread.frames if not frame.native]
        own = next((n for n, f in enumerate(python) if frame_owner(f, "") == "user"), 0)
        inside = python[:own]
        if not inside or not all(map(is_of_threading, inside)):
            return None
        if not any(unqualified_name(f.name).startswith("wait") for f in inside):
            return None
        places.append(format_frame(python[own]))
    if not places:
        return None
    values = {"count": format_count(len(pool), "thread"), "place": places[0]}
    words = f"{values['count']} of its pool, all that it has, wait in {places[0]}"
    may_tell = _main_thread_may_tell(scene)
    return Found(words, values, _MAY_BE_TOLD if may_tell else 1.0, doubtful=may_tell)


def _main_thread_may_tell(scene: Scene) -> bool:
    """Return whether the main thread does something of its own: it takes no connections, and waits
    for the end of no child.
    """
    main = scene.view.main if scene.view is not None else None
    if main is None or scene.call in CHILD_WAIT_CALLS:
        return False
    return not (takes_connections(main) or runs_pool_task(main))


def _more_ask_than_it_has_threads(scene: Scene) -> Found | None:
    """More clients than the pool has threads are connected to the port at which it listens, and do
    nothing else.
    """
    look = scene.view.look if scene.view is not None else None
    if look is None:
        return None
    elsewhere = _list_busy_elsewhere(scene, look.pid)
    taken = [
        one
        for one in look.sockets
        if one.state == "ESTABLISHED" and is_of_a_client(one, look)
        if not (one.peer_pids and elsewhere.issuperset(one.peer_pids))
    ]
    clients, threads = len({one.peer for one in taken}), len(_list_pool_threads(scene))
    return Found(f"{clients} clients are connected to it") if clients > threads else None


def _list_busy_elsewhere(scene: Scene, server: int) -> frozenset[int]:
    """Return the processes that have not asked `server`: they have one thread of Python, which
    runs, sleeps, waits for the end of a child, or for somebody else.
    """
    relatives = filter(None, map(merge_looks, scene.relatives.values()))
    views = {view.look.pid: view for view in (*relatives, *scene.workers, *scene.views.values())}
    return frozenset(
        pid
        for pid, view in views.items()
        if len(view.threads) == 1 and _is_busy_elsewhere(view, server)
    )


def _is_busy_elsewhere(view: ProcessSnapshot, server: int) -> bool:
    awaited = list_awaited_pids(view.look)
    does_else = view.running or view.call_name in SLEEP_CALLS | CHILD_WAIT_CALLS
    return does_else or (bool(awaited) and server not in awaited)


def _its_thread_waits_for_a_child(scene: Scene) -> Found | None:
    """A thread of a pool, to which the loop has handed a call, waits for a child."""
    wait, view = scene.verdict.waits_for, scene.view
    child = next((one for one in scene.children if wait and one.pid == wait.pid), None)
    if view is None or wait is None or child is None or wait.kind == "itself":
        return None
    at_work = (one for one in view.threads if one is not view.main and runs_pool_task(one))
    name = next((one.name for one in at_work), None)
    return None if name is None else Found(f"{name} waits for {child.name} ({child.pid})")


def _its_child_waits_to_be_read(scene: Scene) -> Found | None:
    """A child waits to write into what the loop has stopped to read."""
    family = [(look,) for look in scene.children]
    child = find_unread_child(scene.view.look.pid, family) if scene.view is not None else None
    return None if child is None else Found(f"{child.name} ({child.pid}) waits to be read")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="pool-waits-for-itself",
        title="a task or a callback of a pool waits for another task of the same pool",
        signs=(need(_waits_for_a_result, 0.35), need(_pool_waits_for_results, 0.65)),
        why="In {place} it waits for another task of the same pool that cannot end: {reason}.",
        avoid=(
            "a second pool for what tasks wait for, or more threads than tasks that wait",
            "give all tasks to the pool from outside, and wait there, not in a callback",
        ),
        references=(
            "https://docs.python.org/3/library/concurrent.futures.html#threadpoolexecutor",
        ),
    ),
    KnownCause(
        id="request-threads-full",
        title="no thread is left for the request that all other requests wait for",
        signs=(
            need(_its_threads_wait_to_be_told, 0.5),
            need(_more_ask_than_it_has_threads, 0.45),
        ),
        why="Its pool has {count}, and each waits in {place} to be told something. Most likely a "
        "further request is to tell it, and that one waits for a thread.",
        avoid=(
            "more threads than requests that may wait at once (max_workers=...)",
            "answer at once, and let clients ask again; or grpc.aio, whose handlers await",
            "a time limit for the wait in the handler: an error in place of silence",
        ),
        references=("https://grpc.io/docs/guides/performance/#python",),
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
            unless(_its_thread_waits_for_a_child),
            unless(a_child_died),
            unless(_awaits_an_actor),
        ),
        why="Nothing is to come from outside that could wake the loop that runs {place}: what it "
        "awaits was lost, or never started ({lost}).",
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
)
