"""The work that a rank waits for and that runs elsewhere: in a library's helper process, in a
thread of an actor of Ray, in the process that spawned the ranks and feeds them. Pure.

Ray runs the methods of a plain actor in the main thread of its process. Those of one with several
threads run in others, and Ray Train runs the training function in a thread of its own
(ray/train/v2/_internal/execution/worker_group/thread_runner.py): the main thread is in main_loop
then, and says nothing of the job.

Most parents only wait for the ends of their ranks, and have an end of each pipe all the same.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...base.identity import ProcessId
from ...base.library_functions import Role, has_role
from ...base.process_facts import Frame, Look, Thread
from ...base.process_roles import find_actor, runs_method
from ...base.process_roles import is_idle_worker as is_idle_worker_of_ray
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Wait
from .blocked_syscalls import WRITE_CALLS, list_awaited_pids
from .frames import frame_owner, runs_job_code, serves_multiprocessing, unqualified_name
from .process_snapshot import ProcessSnapshot, ProcessTable, merge_looks, put_thread_first

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


_PACKAGE = re.compile(r"/(?:site|dist)-packages/([A-Za-z0-9_]+)")
_SHORT_SLEEP = 60.0  # seconds: whoever sleeps so long in one go polls for nothing
_LOCKED = frozenset(["futex", "sem_wait", "poll", "ppoll", "epoll_wait", "select", "pselect6", ""])
_SYNCHRONIZE = re.compile(r"multiproc?ess(?:ing)?/synchronize\.py$")
_QUEUES = re.compile(r"multiproc?ess(?:ing)?/queues\.py$")
_ALL_QUEUES = re.compile(r"(?:multiproc?ess(?:ing)?/queues|(?:^|/)queue)\.py$")
_WAIT_OF_CONDITION = frozenset(["wait", "acquire", "__enter__"])
_STARTS_BY_SERVER = re.compile(r"multiproc?ess(?:ing)?/(?:popen_)?forkserver\.py$")
_FORK_SERVER = "multiprocessing.forkserver"  # in the words by which it is started
_JOINS = ("join", "_wait_for_tstate_lock", "_shutdown")
# Waiting of these goes through a lock or a pipe, but what is waited for are the workers.
_WORKERS = (
    ("multiprocessing/pool.py", None),
    ("multiprocessing/queues.py", ("get", "join", "_poll")),
    ("multiprocessing/connection.py", None),
    ("torch/utils/data/dataloader.py", None),
    ("concurrent/futures/process.py", None),
    ("joblib/", None),
)

# What a worker without a task does, and who calls that where workers are a library's.
_FUTURES = "concurrent/futures/_base.py"
_POOLS = ("concurrent/futures/process.py", "concurrent/futures/thread.py")
_TAKES_A_TASK = (
    (re.compile(r"(?:multiproc?ess(?:ing)?|loky\S*)/queues\.py$"), re.compile("get")),
    (re.compile(r"multiproc?ess(?:ing)?/connection\.py$"), re.compile(r"_?recv\w*|_?poll")),
)
_LOOPS_OF_WORKERS = (
    (re.compile(r"torch/utils/data/_utils/worker\.py$"), re.compile("_worker_loop")),
    (re.compile(r"multiproc?ess(?:ing)?/pool\.py$"), re.compile("worker")),
    (re.compile(r"concurrent/futures/process\.py$"), re.compile("_process_worker")),
    (re.compile(r"loky/process_executor\.py$"), re.compile("_process_worker")),
)


def find_serving_child(
    view: ProcessSnapshot, family: Sequence[Sequence[Look]], facts: RankFacts
) -> Wait | None:
    """Return the wait for a child that serves this process, None if there is no such child. An
    actor of Ray is served by another one of its rank's (`facts`).

    Either a worker pool of a kind that is known, or a child named after the library that the
    main thread is in (wandb, wandb-core), or the one that a thread of ours talks to over a
    socket. Forked workers inherit every socket, so a socket alone is no proof: the main thread
    must wait on a Python lock, and another thread be at the socket.
    """
    if view.call_name in _LOCKED:
        beside = [looks[-1] for looks in (facts.looks, *facts.children) if looks]
        if (asked := find_asked_actor(view, beside)) is not None:
            return asked
    living = [looks for looks in family if looks[-1].state not in ("", "Z", "X")]
    if not living or view.call_name not in _LOCKED:
        return None
    worker = _find_worker(view, living)
    if worker is not None:
        return Wait("process", "", worker.pid, worker.name)
    if waits_for_ray(view.frames):
        return _find_actor_wait(view, living)
    child = (
        _find_child_named_after_library(view, living)
        or _find_connected_child(view, living)
        or _find_halted_helper(view, living)
    )
    return Wait("process", "", child.pid, child.name) if child else None


def find_polled_helper(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait of a process that sleeps for a moment, again and again, for a child that is
    halted: what it looks for cannot come from there. None if no child is, or the sleep is long.
    """
    left = view.call.timeout if view.call is not None else None
    inner = next((f for f in view.frames if not f.native), None)
    by_library = inner is not None and frame_owner(inner, "") == "library"
    if not (by_library if left is None else left <= _SHORT_SLEEP):
        return None
    child = _find_child_named_after_library(view, _list_halted(family)) or _choose_nearest(
        _list_halted(family), view.look.pid
    )
    return Wait("process", "", child.pid, child.name) if child else None


def find_fork_server(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait for the fork server by which a process starts another one: what that is to
    answer by is on its way there until it is taken, so no other end of it is to be seen
    (multiprocessing/popen_forkserver.py). None for any other process.
    """
    python = [frame for frame in view.frames if not frame.native][:2]
    if not any(_STARTS_BY_SERVER.search(frame.file) for frame in python):
        return None
    servers = (looks[-1] for looks in family if _FORK_SERVER in " ".join(looks[-1].command))
    server = next(servers, None)
    return Wait("process", "", server.pid, server.name) if server is not None else None


def has_failed(look: Look) -> bool:
    """Return True for a zombie that ended by an error or a signal: nobody has asked for its exit
    status (wait(2)). One that was told to end did not fail.
    """
    return look.state == "Z" and look.status not in (None, 0, -signal.SIGTERM)


def find_dead_helper(ranks: Sequence[RankFacts]) -> Sequence[Look]:
    """Return the looks at the only process beside these ranks that was started by what has started
    them, has failed, and is none of them; () where there is none, or several.
    """
    pids = {facts.pid for facts in ranks}
    parents = {facts.looks[-1].ppid for facts in ranks if facts.looks}
    found = {
        looks[-1].pid: looks
        for facts in ranks
        for looks in facts.children
        if looks and looks[-1].pid in facts.beside and looks[-1].pid not in pids
        if has_failed(looks[-1]) and looks[-1].ppid in parents
    }
    return next(iter(found.values())) if len(found) == 1 else ()


def is_halted(look: Look) -> bool:
    """Return True for a process that only others can let go on: stopped, traced, frozen."""
    return look.state in ("T", "t") or bool(look.frozen)


def _list_halted(family: Sequence[Sequence[Look]]) -> list[Sequence[Look]]:
    return [looks for looks in family if is_halted(looks[-1])]


def _choose_nearest(family: Sequence[Sequence[Look]], parent: int) -> Look | None:
    """Return one of a family, a child of `parent` before children's children."""
    looks = [looks[-1] for looks in family]
    return min(looks, key=lambda look: (look.ppid != parent, look.pid), default=None)


def is_to_be_given(view: ProcessSnapshot) -> bool:
    """Return whether a process waits for what another one is to give: an event of multiprocessing
    that is to be set, a condition that is to be notified. Nobody has it meanwhile, as one has a
    lock.
    """
    python = [frame for frame in view.frames if not frame.native][:1]
    return any(
        _SYNCHRONIZE.search(frame.file) and unqualified_name(frame.name) == "wait"
        for frame in python
    )


def find_giver(
    view: ProcessSnapshot, family: Sequence[Sequence[Look]], table: ProcessTable, host: str
) -> Wait | None:
    """Return the wait for the only process of the job that shares the semaphore in which this one
    waits to be given something, besides those that sleep in it as well and workers without a task.
    None where there are several, or it is not known.
    """
    futex = view.call.futex if view.call is not None else None
    if futex is None or not futex.sharers or not (is_to_be_given(view) or waits_for_room(view)):
        return None
    idle = {looks[-1].pid for looks in family if is_idle_worker(looks[-1])}
    givers = [
        one
        for pid in futex.sharers
        if (one := ProcessId(host, pid)) in table.names and pid not in idle
        if futex.file not in table.semaphores.get(one, ())
    ]
    return Wait("process", "", givers[0].pid, table.names[givers[0]]) if len(givers) == 1 else None


def waits_for_room(view: ProcessSnapshot) -> bool:
    """Return whether a process waits for a reader of a queue of multiprocessing that is full."""
    python = [frame for frame in view.frames if not frame.native][:1]
    return any(_QUEUES.search(one.file) and unqualified_name(one.name) == "put" for one in python)


def find_thread_for_room(threads: Sequence[Thread]) -> Thread | None:
    """Return the first of a process's threads that waits for room in a queue that is full, one of
    threads (queue.py) or of multiprocessing; None if none does.
    """
    for thread in threads:
        python = [frame for frame in thread.frames if not frame.native]
        inner = [one for one in python if unqualified_name(one.name) not in _WAIT_OF_CONDITION][:1]
        if any(
            _ALL_QUEUES.search(one.file) and unqualified_name(one.name) == "put" for one in inner
        ):
            return thread
    return None


def find_unread_child(pid: int, family: Sequence[Sequence[Look]]) -> Look | None:
    """Return the first of a family that waits to write into a pipe or a connection whose other end
    process `pid` has, None if none does.
    """
    for looks in family:
        last = looks[-1]
        call = next((task.syscall for task in last.kernel if task.tid == last.pid), None)
        writes = call is not None and call.name in WRITE_CALLS and last.state not in "RZX"
        if writes and pid in list_awaited_pids(last):
            return last
    return None


def _find_halted_helper(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Look | None:
    """Return a child that is halted, where nothing says whom else a lock is to come from."""
    futex = view.call.futex if view.call is not None else None
    if view.call_name not in ("futex", "sem_wait") or (futex is not None and futex.owner):
        return None
    return _choose_nearest(_list_halted(family), view.look.pid)


def _find_worker(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Look | None:
    python = [f for f in view.frames if not f.native][:8]
    pooled = any(
        file in f.file and (functions is None or unqualified_name(f.name) in functions)
        for f in python
        for file, functions in _WORKERS
    )
    if not pooled and not _waits_for_an_executor(view, python):
        return None
    known = [lks[-1] for lks in family if lks[-1].name == view.look.name or lks[-1].threads]
    servers = {one.pid for one in known if _serves(one)}  # of multiprocessing: they do no task
    forked = [one for one in known if one.pid not in servers]
    named = [lk for lk in forked if lk.name.startswith("pt_data_worker")]
    starters = {view.look.pid, *servers}
    mine = [lk for lk in named or forked if lk.ppid in starters] or named or forked
    # A worker that waits for its next task is idle, not what is waited for; one that is halted
    # takes none.
    halted = [lk for lk in mine if is_halted(lk)]
    working = [lk for lk in mine if not is_idle_worker(lk)]
    return next(iter(halted or working or mine), None)


def _waits_for_an_executor(view: ProcessSnapshot, python: Sequence[Frame]) -> bool:
    """Return whether a thread waits for a future where a process pool is the only executor at work:
    a thread of the pool's manages its workers, and none is of a pool of threads.
    """
    if not any(_FUTURES in one.file for one in python[:3]):
        return False
    files = {one.file for thread in view.threads for one in thread.frames if not one.native}
    pools = {name for name in _POOLS if any(name in file for file in files)}
    return pools == {_POOLS[0]}


def waits_for_ray(frames: Sequence[Frame]) -> bool:
    """Return whether a thread waits for what actors or tasks of Ray are to give: its innermost
    frame is that of ray.get or ray.wait.
    """
    inner = next((frame for frame in frames if not frame.native), None)
    return inner is not None and has_role(inner.file, inner.name, Role.AWAITS_ACTORS)


def _find_actor_wait(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait for an actor, or a task, of Ray that is in a method; None if none is: what is
    waited for has no process yet. Which object is wanted of which actor no frame tells: of several
    one that awaits no others itself comes first, and of these one that waits for no other rank.
    Where all wait for others, the source says whom each has asked: the last of these it is.
    """
    actors = [looks[-1] for looks in family if find_actor(looks[-1].command)]
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


_ASKS_OTHERS = 2
_IDLE_ACTOR = 3


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


def is_idle_worker(look: Look) -> bool:
    """Return True for a worker that waits for its next task, and for a helper of multiprocessing's.
    In the middle of a task a worker may wait for a queue of the task's own.
    """
    python = [f for f in (look.main.frames if look.main else ()) if not f.native]
    if _serves(look):
        return True
    waits = [n for n, f in enumerate(python[:6]) if _matches(f, _TAKES_A_TASK)]
    # What it unpickles there may be of the job, and run its code.
    if not waits or any(frame_owner(one, "") == "user" for one in python[: waits[-1]]):
        return False
    takes_for = python[waits[-1] + 1 :]
    loops = [n for n, f in enumerate(takes_for) if _matches(f, _LOOPS_OF_WORKERS)]
    return not loops or loops[0] == 0


def _serves(look: Look) -> bool:
    python = [f for f in (look.main.frames if look.main else ()) if not f.native]
    return serves_multiprocessing(python)


def _matches(frame: Frame, functions: Sequence[tuple[re.Pattern[str], re.Pattern[str]]]) -> bool:
    name = unqualified_name(frame.name)
    return any(file.search(frame.file) and names.fullmatch(name) for file, names in functions)


def _find_child_named_after_library(
    view: ProcessSnapshot, family: Sequence[Sequence[Look]]
) -> Look | None:
    """Return the child whose program is named after a library on the main thread's stack."""
    libraries = []
    for frame in view.frames:
        if frame_owner(frame, "") == "user":
            break
        found = _PACKAGE.search(frame.file)
        if found and found[1] not in libraries:
            libraries.append(found[1])
    for library in libraries:
        for looks in (*_list_halted(family), *family):
            name = looks[-1].name
            if re.match(rf"{re.escape(library)}(?:[-_.]|$)", name):
                return looks[-1]
    return None


def _find_connected_child(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Look | None:
    """Return the only child with a program of its own that we have a connection to."""
    if view.call_name not in ("futex", "sem_wait", ""):
        return None
    main = view.main
    waiting = any(
        t is not main
        and t.frames
        and unqualified_name(t.frames[0].name) in ("select", "poll", "recv", "read")
        for t in view.threads
    )
    python = [f for f in view.frames if not f.native]
    joins = any(
        unqualified_name(f.name) in _JOINS for f in python[:2]
    )  # that is a wait for the thread
    if not waiting or not python or frame_owner(python[0], "") != "library" or joins:
        return None
    peers = {pid for s in view.look.sockets for pid in s.peer_pids if pid != view.look.pid}
    own_program = [
        lks[-1] for lks in family if lks[-1].pid in peers and lks[-1].name != view.look.name
    ]
    return own_program[0] if len(own_program) == 1 else None


def keep_feeding_parents(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks; of those whose parent is looked at as a process beside them, without it
    unless it waits for room in a queue.
    """
    return [_drop_parent(one) if _has_other_parent(one) else one for one in ranks]


def _read_parent(facts: RankFacts) -> int:
    return facts.looks[-1].ppid if facts.looks else 0


def _has_other_parent(facts: RankFacts) -> bool:
    parent = _read_parent(facts)
    looks = next((one for one in facts.children if one and one[-1].pid == parent), ())
    return parent in facts.beside and not _waits_for_room(looks)


def _waits_for_room(looks: Sequence[Look]) -> bool:
    view = merge_looks(looks)
    return view is not None and not view.running and waits_for_room(view)


def _drop_parent(facts: RankFacts) -> RankFacts:
    parent = _read_parent(facts)
    children = tuple(one for one in facts.children if not one or one[-1].pid != parent)
    return replace(facts, children=children, beside=tuple(p for p in facts.beside if p != parent))
