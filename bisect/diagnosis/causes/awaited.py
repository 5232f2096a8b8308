"""Threads and processes of its own that a rank waits for, and that stand still."""

from __future__ import annotations

from collections.abc import Iterator

from ...base.library_functions import Role, find_role
from ...base.process_facts import Frame, Kernel, Look, Thread
from ...base.process_roles import is_dask_worker
from ..process.actor_waits import is_idle_loop, waits_for_ray
from ..process.blocked_syscalls import POLL_CALLS, TRANSFER_CALLS, list_awaited_pids
from ..process.frames import (
    format_frame,
    frame_owner,
    innermost_python_frame,
    is_service_thread,
    runs_job_code,
    serves_multiprocessing,
    unqualified_name,
)
from ..process.helper_processes import is_idle_worker, waits_for_room
from ..process.process_snapshot import ProcessSnapshot, merge_looks
from ..process.public_calls import find_group_wait
from ..process.request_threads import takes_connections, waits_for_others
from ..thread_edges import HeldLock, find_held_lock
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .services import in_wandb
from .signs import (
    THREAD_WAIT_FILES,
    a_child_died,
    blocks_its_own_loop,
    find_blocked_processes,
    find_used_descriptors,
    format_place,
    format_process,
    is_forked,
    parent_waits_for_workers,
)
from .threads import hands_it_to_a_loop, no_other_thread_works

# The causes where nothing is known of why that thread, or that process, is.
THREAD_STUCK = "thread-stuck"
CHILD_STUCK = "child-process-stuck"
BESIDE_STUCK = "server-process-stuck"
# Threads that hand tasks to the processes of a pool and take their results.
_MANAGES_A_POOL = r"concurrent/futures/process\.py|loky/process_executor\.py"
_JOINS = frozenset(["join", "_wait_for_tstate_lock"])  # of threading.Thread
_JOINS_A_FEEDER = (r"multiproc?ess(?:ing)?/queues\.py", "_finalize_join|join_thread")
_MANAGER = r"multiproc?ess(?:ing)?/managers\.py"
_TAKES_REQUESTS = r"accept\w*|recv\w*|_recv\w*|poll|_poll|serve_forever|accepter"


def _waiting_frame(scene: Scene) -> Frame | None:
    """Return the frame in which the main thread waits for another thread."""
    if scene.call != "futex" or scene.group is not None or scene.view is None:
        return None
    if is_forked(scene.view):  # it has none of its parent's threads; the feeder is its own
        return scene.frame(*_JOINS_A_FEEDER)
    return scene.inside(THREAD_WAIT_FILES)


def _at_work(scene: Scene) -> Iterator[tuple[Thread, Kernel | None]]:
    """Yield the job's other threads of Python, with how the kernel sees each; of a worker of Dask
    those alone that run a task: its others wait for messages, and for its end.
    """
    view = scene.view
    tasks = {task.tid: task for task in view.look.kernel} if view is not None else {}
    for thread in view.threads if view is not None else ():
        ours = any(frame_owner(frame, scene.job.package) == "harness" for frame in thread.frames)
        if (
            view is not None
            and thread is not view.main
            and not ours
            and not is_service_thread(thread)
            and not takes_connections(thread, of_each=True)
            and not (is_dask_worker(view.look.command) and not runs_job_code(thread))
            and find_frame(thread.frames, _MANAGER, "serve_client") is None  # at a client's word
        ):
            yield thread, tasks.get(thread.os_id or 0)


def _child(scene: Scene) -> ProcessSnapshot | None:
    """Return the descendant that something is waited for from: as the verdict has it, by the other
    end of a connection, or behind a thread that manages a pool. Of programs that are no Python,
    those whose output is read: whose end is awaited, others tell.
    """
    reads = scene.call in TRANSFER_CALLS | POLL_CALLS and scene.inside(r"/subprocess\.py") is None
    known = {
        v.look.pid: v
        for v in scene.workers
        if (v.threads or reads) and not _helps(v) and v.look.pid in scene.started
    }
    wait = scene.verdict.waits_for
    if wait is not None and wait.kind in ("process", "pipe", "socket") and wait.pid in known:
        return known[wait.pid]
    for socket in scene.asked:
        # Who shares a port with a process of another job may not be who has the connection.
        ours = set(socket.peer_pids) <= scene.job_pids
        for pid in socket.peer_pids if ours else ():
            if pid in known:
                return known[pid]
    managed = any(find_frame(t.frames, _MANAGES_A_POOL) for t, _ in _at_work(scene))
    if managed and _waiting_frame(scene) is not None:
        busy = [view for view in known.values() if not is_idle_worker(view.look)]
        return next(iter(busy or known.values()), None)
    return None


def _helps(view: ProcessSnapshot) -> bool:
    return serves_multiprocessing(view.frames)


# ---- signs ---------------------------------------------------------------------------------------


def _waits_for_a_child(scene: Scene) -> Found | None:
    """A rank waits for a process that it started (multiprocessing, loky, dask; one whose output it
    reads).
    """
    view = _child(scene)
    if view is None or scene.view is None:
        return None
    values = {
        "child": format_process(view.look),
        "pid": view.look.pid,
        "waits": format_place(scene.view),
    }
    words = f"it waits in {format_place(scene.view)}, for its child {format_process(view.look)}"
    return Found(words, values, doubtful=_others_have_the_end(scene, scene.view, view.look))


def asks_a_process_beside(scene: Scene) -> Found | None:
    """A rank waits for the answer of a process that was started beside the ranks, with them."""
    view = next(iter(find_blocked_processes(scene)[1:]), None)
    if view is None or view.look.pid not in scene.beside or scene.view is None:
        return None
    values = {"server": format_process(view.look), "waits": format_place(scene.view)}
    return Found(f"it waits in {values['waits']}, for {values['server']}", values)


def _its_parent_waits_for_room(scene: Scene) -> Found | None:
    """That process has started the rank, and waits for room in a queue of multiprocessing."""
    view = next(iter(find_blocked_processes(scene)[1:]), None)
    parent = scene.view.look.ppid if scene.view is not None else 0
    if view is None or view.look.pid != parent or view.running or not waits_for_room(view):
        return None
    where, who = _in_the_jobs_code(scene, view) or format_place(view), format_process(view.look)
    return Found(f"{who} waits for room in a queue, in {where}", {"there": where})


def what_is_beside_stands_still(scene: Scene) -> Found | None:
    """That process, or what it waits for itself, does not move, and waits for no rank."""
    view = next(reversed(find_blocked_processes(scene)), None)
    if view is None or view.running or scene.subject is None or scene.subject.moved:
        return None
    if waits_for_others(view, {facts.pid for facts in scene.neighbours}):
        return None
    where, who = _in_the_jobs_code(scene, view) or format_place(view), format_process(view.look)
    place = ", ".join(part for part in (view.call_name, view.wchan) if part)
    words = f"{who} stands still in {where}" + (f" ({place})" if place else "")
    return Found(words, {"stuck": who, "there": where, "pid": view.look.pid})


def _others_have_the_end(scene: Scene, view: ProcessSnapshot, child: Look) -> bool:
    """Return whether what a process waits for in a pipe may come from another than `child`: that
    one's starter is gone, which had the end as well, or somebody has it who is neither its starter
    nor started by it.
    """
    pipes = [one for one in find_used_descriptors(scene, view) if one.kind in ("pipe", "fifo")]
    if not any(child.pid in one.other_ends for one in pipes):
        return False
    own = {view.look.pid, child.pid, child.ppid}
    own.update(look.pid for look in scene.children if look.ppid == child.pid)
    others = any(set(one.other_ends) - own for one in pipes)
    return others or child.ppid not in scene.job_pids


def _child_stands_still(scene: Scene) -> Found | None:
    """That process lives, does not move, and does not wait for the rank in turn."""
    view, subject = _child(scene), scene.subject
    if view is None or view.running or subject is None or subject.moved:
        return None
    if list_awaited_pids(view.look) == {subject.pid}:
        return None
    if (below := _find_rank_below(scene, view)) is not None:
        where = _in_the_jobs_code(scene, below) or format_place(below)
        there = f"{where}, in {format_process(below.look)}, a rank of its own"
        words = f"{format_process(view.look)} watches ranks of its own: of these"
        words = f"{words} {format_process(below.look)} stands still in {where}"
        return Found(words, {"there": there, "pid": below.look.pid})
    where = _in_the_jobs_code(scene, view) or format_place(view)
    place = ", ".join(part for part in (view.call_name, view.wchan) if part)
    words = f"{format_process(view.look)} stands still in {where}" + (
        f" ({place})" if place else ""
    )
    return Found(words, {"there": where})


def _it_waits_where_another_died(scene: Scene) -> Found | None:
    """That process only waits for a message of the job's, and another child has died of an error:
    what it waits for may be of that one.
    """
    view, died = _child(scene), a_child_died(scene)
    if view is None or died is None:
        return None
    awaited = list_awaited_pids(view.look)
    return died if awaited and awaited <= scene.job_pids else None


def _find_rank_below(scene: Scene, view: ProcessSnapshot) -> ProcessSnapshot | None:
    """Return the rank of a job inside of the job, whose launcher `view` is, that stands still and
    waits for no other one of them; None for any other process, or if several may be meant.
    """
    if find_role(view.frames, Role.WATCHES_RANKS) is None:
        return None
    ranks = [one for one in scene.workers if one.look.ppid == view.look.pid and one.threads]
    alone = [one for one in ranks if find_group_wait(one) is None and not one.running]
    return alone[0] if len(alone) == 1 else None


def _awaits_an_idle_actor(scene: Scene) -> Found | None:
    """It waits in ray.get for an actor of Ray whose main thread waits for calls: that tells nothing
    of why it does not answer.
    """
    child = _child(scene)
    if scene.view is None or child is None or not waits_for_ray(scene.view.frames):
        return None
    words = f"{format_process(child.look)} waits for calls"
    return Found(words) if is_idle_loop(child.frames) else None


def _in_the_jobs_code(scene: Scene, view: ProcessSnapshot) -> str:
    """Return where a process stands in the job's own code, in any of its threads."""
    threads = sorted(view.threads, key=lambda one: one is not view.main)
    frames = (frame for thread in threads for frame in thread.frames)
    own = scene.users_frame(frames)
    return (
        format_frame(own) if own is not None and innermost_python_frame(view.frames) != own else ""
    )


def asks_a_manager(scene: Scene) -> Found | None:
    """A rank waits for an answer of a multiprocessing.Manager."""
    frame = scene.inside(_MANAGER)
    if frame is None or _is_a_server(scene):
        return None
    return Found(f"it waits in {format_frame(frame)}", {"place": format_frame(frame)})


def _is_a_server(scene: Scene) -> bool:
    """Return True for a process that is a manager's server, in its main thread or in another: what
    it waits for there are the requests of others.
    """
    threads = scene.view.threads if scene.view is not None else ()
    stacks = [scene.frames, *(thread.frames for thread in threads)]
    return any(find_frame(one, _MANAGER, "serve_forever|_run_server") for one in stacks)


def _its_server_waits(scene: Scene) -> Found | None:
    """The manager's process waits itself, for that request: a lock, a queue's next item."""
    view = _child(scene) or _find_awaited_sibling(scene)
    for thread in view.threads if view is not None else ():
        python = tuple(frame for frame in thread.frames if not frame.native)
        if find_frame(python, _MANAGER, "serve_client") is None:
            continue
        if find_frame(python[:4], r".*", _TAKES_REQUESTS) is None and view is not None:
            where = format_frame(python[0])
            words = f"{format_process(view.look)} answers it in {where}, and waits there"
            return Found(words, {"there": format_frame(python[0])})
    return None


def _find_awaited_sibling(scene: Scene) -> ProcessSnapshot | None:
    """Return the process for which the rank waits, where it was started beside the ranks and is
    looked at as what another rank of the same host has started.
    """
    wait, subject = scene.verdict.waits_for, scene.subject
    if wait is None or wait.pid is None or subject is None:
        return None
    beside = (facts.children for facts in scene.ranks if facts.host == subject.host)
    looks = (one for children in beside for one in children if one and one[-1].pid == wait.pid)
    return merge_looks(next(looks, ()))


def waits_for_a_thread(scene: Scene) -> Found | None:
    """The main thread waits for what another thread is to give or do (join, result, get), or for a
    lock that another one has.
    """
    frame = _waiting_frame(scene)
    if frame is not None:
        return Found(f"the main thread waits in {format_frame(frame)}")
    held = _find_held_lock(scene)
    if held is None:
        return None
    words = f"the main thread waits for {held.lock.name} in {format_frame(held.frame)}"
    return Found(f"{words}, which thread {held.holder.name or held.holder.os_id} has")


def _find_held_lock(scene: Scene) -> HeldLock | None:
    """Return the lock that the main thread waits for and another thread has."""
    view = scene.view
    if view is None or view.main is None or scene.call != "futex":
        return None
    return find_held_lock(view.look, view.main)


def find_stuck_thread(scene: Scene) -> tuple[Thread, Kernel] | None:
    """Return the thread of the job that stands still in a system call beside the main one, and how
    the kernel sees it: of several one that is in the job's own code. None if there is none.
    """
    still = [(thread, task) for thread, task in _at_work(scene) if task and task.state in "SD"]
    own = [one for one in still if scene.users_frame(one[0].frames) is not None]
    return next(iter(own or still), None)


def _find_joined_thread(scene: Scene) -> tuple[Thread, Kernel] | None:
    """Return the thread that the main thread joins, where there is no other, or all others meet in
    a Barrier: one that only waits (for an event that nobody sets) looks like one of a library that
    waits for work.
    """
    frame, view = _waiting_frame(scene), scene.view
    if frame is None or view is None or unqualified_name(frame.name) not in _JOINS:
        return None
    others = [thread for thread in view.threads if thread is not view.main]
    is_clear = len(others) == 1 or (bool(others) and all(map(_find_barrier, others)))
    return _if_still(view, others[0]) if is_clear else None


def find_still_holder(scene: Scene) -> tuple[Thread, Kernel] | None:
    """Return the thread that has the lock the main thread waits for, where it stands still."""
    held = _find_held_lock(scene)
    return _if_still(scene.view, held.holder) if held is not None and scene.view else None


def _if_still(view: ProcessSnapshot, thread: Thread) -> tuple[Thread, Kernel] | None:
    """Return a thread and how the kernel sees it, None if it does not stand still."""
    task = next((one for one in view.look.kernel if one.tid == (thread.os_id or 0)), None)
    return (thread, task) if task is not None and task.state in "SD" else None


def _find_barrier(thread: Thread) -> Frame | None:
    """Return the frame of threading.Barrier in which a thread waits, None if it does not."""
    python = [frame for frame in thread.frames if not frame.native][:5]
    own = (f for f in python if f.file.endswith("/threading.py"))
    return next((f for f in own if unqualified_name(f.name) == "_wait"), None)


def _thread_stands_still(scene: Scene) -> Found | None:
    """Another thread of the job stands still in a system call: the one that has the lock, if a
    lock is waited for.
    """
    found = find_still_holder(scene) or find_stuck_thread(scene) or _find_joined_thread(scene)
    if found is None:
        return None
    thread, task = found
    frame = scene.users_frame(thread.frames) or _find_barrier(thread)
    frame = frame or innermost_python_frame(thread.frames)
    where = format_frame(frame) if frame is not None else "native code"
    call = task.syscall.name if task.syscall is not None else ""
    name = f"thread {thread.name or thread.os_id}"
    words = f"{name} stands still in {where}" + (f" ({call})" if call else "")
    return Found(words, {"thread": name, "place": where})


def _leaves_its_pool(scene: Scene) -> Found | None:
    """The `with` of an executor is over, by an error perhaps, and its end waits for its threads."""
    frame = scene.frame(r"concurrent/futures/_base\.py", "__exit__")
    if frame is None:
        return None
    return Found("the `with` of its pool is over: an error that ended it is not printed before")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="loop-waits-for-itself",
        title="an event loop waits for something that only it can run",
        signs=(
            need(blocks_its_own_loop, 0.5),
            need(no_other_thread_works, 0.4),
            also(hands_it_to_a_loop, 0.4),
        ),
        why="In {place} it waits for a result, in what its event loop runs: the loop does nothing "
        "else meanwhile, and no other thread is there that could give it.",
        avoid=(
            "await what the loop is to run; run_coroutine_threadsafe(...).result() is for other "
            "threads",
            "call what waits by asyncio.to_thread",
        ),
        references=(
            "https://docs.python.org/3/library/asyncio-task.html#asyncio.run_coroutine_threadsafe",
        ),
    ),
    KnownCause(
        id=CHILD_STUCK,
        title="a process that a rank started is stuck, and the rank waits for it",
        signs=(
            need(_waits_for_a_child, 0.4),
            need(_child_stands_still, 0.45),
            unless(parent_waits_for_workers),
            unless(_awaits_an_idle_actor),
            unless(_it_waits_where_another_died),
            unless(asks_a_manager),
            unless(in_wandb),
        ),
        why="The rank waits in {waits} for {child}, which stands still in {there}. The rank's own "
        "stack does not show why.",
        avoid=(
            "`py-spy dump --native --pid {pid}` shows all of that process",
            "a time limit where the rank waits (join, get, poll), and a look whether it lives",
            "start it by spawn or forkserver, which copy no threads and no locks (they need a main "
            "guard)",
        ),
        references=("joblib/joblib#844", "python/cpython#66587", "dask/distributed#1176"),
    ),
    KnownCause(
        id=BESIDE_STUCK,
        title="a server that runs beside the ranks is stuck, and a rank waits for its answer",
        signs=(
            need(asks_a_process_beside, 0.45),
            need(what_is_beside_stands_still, 0.45),
            unless(in_wandb),
            unless(_its_parent_waits_for_room),
        ),
        why="The rank waits in {waits} for {server}. There {stuck} stands still in {there}: the "
        "rank's own stack does not show why.",
        avoid=(
            "`py-spy dump --native --pid {pid}` shows all of that process",
            "a health endpoint that asks the server's workers, and not only its front",
            "a time limit for the request: an error in place of silence",
        ),
        references=("vllm-project/vllm#39863", "huggingface/trl#3467", "vllm-project/vllm#2731"),
    ),
    KnownCause(
        id="queue-of-another-full",
        title="who feeds the ranks waits for room in a queue, and another rank gets nothing",
        signs=(need(asks_a_process_beside, 0.45), need(_its_parent_waits_for_room, 0.5)),
        why="{server} has started the ranks and feeds them by queues. It waits in {there} for room "
        "in one of them; its reader may wait for the rank that waits in {waits} for its next item.",
        avoid=(
            "put into the queues in turns, as all ranks take: an order by rank fills one of them",
            "a thread for each queue, or queues without a limit",
            "put(..., timeout=60): an error in place of silence",
        ),
        references=(
            "https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Queue.put",
        ),
    ),
    KnownCause(
        id="manager-waits",
        title="a multiprocessing.Manager is asked for something that is not to be had",
        signs=(
            need(asks_a_manager, 0.55),
            also(_its_server_waits, 0.4),
            unless(a_child_died),  # who has that lock, or was to come
        ),
        why="In {place} the rank waits for the manager's process, which waits itself: a lock that "
        "another process has, or a queue into which nobody puts.",
        avoid=(
            "look which process has that lock: one that was killed never gives it back",
            "acquire(timeout=60) and get(timeout=60): an error in place of silence",
        ),
        references=(
            "https://docs.python.org/3/library/multiprocessing.html#managers",
            "python/cpython#101320",
        ),
    ),
    KnownCause(
        id=THREAD_STUCK,
        title="a thread of the rank is stuck, and the main thread waits for it",
        signs=(
            need(waits_for_a_thread, 0.35),
            need(_thread_stands_still, 0.4),
            also(_leaves_its_pool, 0.1),
            unless(parent_waits_for_workers),
            unless(in_wandb),
            unless(asks_a_manager),
        ),
        why="The main thread waits for {thread}, which stands still in {place}.",
        avoid=(
            "look what {place} waits for",
            "a time limit where the main thread waits: an error in place of silence",
        ),
        references=("https://docs.python.org/3/library/threading.html#threading.Thread.join",),
    ),
)
