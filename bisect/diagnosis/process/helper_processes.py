"""The work that a rank waits for and that runs elsewhere: in a library's helper process, in the
process that spawned the ranks and feeds them. Of actors of Ray actor_waits.py tells. Pure.

Most parents only wait for the ends of their ranks, and have an end of each pipe all the same.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence

from ...base.identity import ProcessId
from ...base.process_facts import Frame, Look, Thread
from ...base.process_roles import is_dask_worker
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Wait
from .actor_waits import find_actor_wait, find_asked_actor, waits_for_ray
from .blocked_syscalls import WRITE_CALLS, list_awaited_pids
from .frames import frame_owner, innermost_python_frame, serves_multiprocessing, unqualified_name
from .process_snapshot import ProcessSnapshot, ProcessTable

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
    ("/distributed/client.py", None),  # of Dask
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
        return find_actor_wait(view, living)
    child = (
        _find_child_named_after_library(view, living)
        or _find_connected_child(view, living)
        or _find_halted_helper(view, living)
    )
    return Wait("process", "", child.pid, child.name) if child else None


def find_polled_helper(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    """Return the wait of a process that sleeps for a moment, again and again, for a child that is
    halted: what it looks for cannot come from there; in a library also for the only one below it
    that is in the job's own code. None if there is none, or the sleep is long.
    """
    left = view.call.timeout if view.call is not None else None
    inner = innermost_python_frame(view.frames)
    by_library = inner is not None and frame_owner(inner, "") == "library"
    if not (by_library if left is None else left <= _SHORT_SLEEP):
        return None
    child = _find_child_named_after_library(view, _list_halted(family)) or _choose_nearest(
        _list_halted(family), view.look.pid
    )
    child = child or (_find_only_worker(family) if by_library else None)
    return Wait("process", "", child.pid, child.name) if child else None


def _find_only_worker(family: Sequence[Sequence[Look]]) -> Look | None:
    """Return the process that alone of a family is in the job's own code, or the first of several
    in the same line of it: what a library has started it for is not done. None for others.
    """
    working = {
        looks[-1].pid: (looks[-1], own)
        for looks in family
        if looks[-1].state not in "ZX" and not is_idle_worker(looks[-1])
        if (own := _find_own_frame(looks[-1])) is not None
    }
    places = {(own.file, own.name, own.line) for _, own in working.values()}
    return working[min(working)][0] if len(places) == 1 else None


def _find_own_frame(look: Look) -> Frame | None:
    frames = look.main.frames if look.main is not None else ()
    own = (one for one in frames if frame_owner(one, "") == "user")
    return next((one for one in own if one.file != "<string>"), None)  # `python -c`


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
    """Return the looks at the only process beside these ranks that has failed, is none of them, and
    was started by what has started them, or before all of them by what is no rank and none of
    these; () where there is none, or several.
    """
    pids = {facts.pid for facts in ranks}
    parents = {facts.parent for facts in ranks if facts.looks} - pids
    first = min((_tell_start(facts.looks) for facts in ranks if facts.looks), default=0.0)
    found = {
        looks[-1].pid: looks
        for facts in ranks
        for looks in facts.children
        if looks and looks[-1].pid not in pids and has_failed(looks[-1])
        if looks[-1].ppid in parents
        or (
            looks[-1].pid in facts.beside
            and _tell_start(looks) < first
            and looks[-1].ppid not in {*pids, *facts.beside}
        )
    }
    return next(iter(found.values())) if len(found) == 1 else ()


def _tell_start(looks: Sequence[Look]) -> float:
    """Return when a process was started, on the clock of its looks: the age is read later in a look
    than its moment, by so much the earlier a start seems.
    """
    return max(look.at - look.age for look in looks)


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


_TAKES_WITHIN = 2  # frames: `__enter__` of multiprocessing's lock, and who has called it


def may_keep(view: ProcessSnapshot, other: ProcessSnapshot) -> bool:
    """Return whether a process may have the lock of multiprocessing in which another one sleeps: it
    shares that, does not sleep in it, and stands in the function in which the other one takes it.
    """
    futex = other.call.futex if other.call is not None else None
    if futex is None or not futex.is_shared_semaphore or view.look.pid not in (futex.sharers or ()):
        return False
    own = view.call.futex if view.call is not None else None
    python = [frame for frame in other.frames if not frame.native][:_TAKES_WITHIN]
    takes = {(one.file, one.name) for one in python if not _SYNCHRONIZE.search(one.file)}
    inside = any((one.file, one.name) in takes for one in view.frames)
    return inside and (own is None or own.file != futex.file)


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
    working = sorted((lk for lk in mine if not is_idle_worker(lk)), key=asks_its_cluster)
    return next(iter(halted or working or mine), None)


def asks_its_cluster(look: Look) -> bool:
    """Return whether a worker of Dask waits in a task for what its cluster is to give: a lock, or
    the result of another task.
    """
    frames = look.main.frames if look.main is not None and is_dask_worker(look.command) else ()
    own = next((n for n, one in enumerate(frames) if frame_owner(one, "") == "user"), 0)
    return any("/distributed/" in one.file for one in frames[:own])


def _waits_for_an_executor(view: ProcessSnapshot, python: Sequence[Frame]) -> bool:
    """Return whether a thread waits for a future where a process pool is the only executor at work:
    a thread of the pool's manages its workers, and none is of a pool of threads.
    """
    if not any(_FUTURES in one.file for one in python[:3]):
        return False
    files = {one.file for thread in view.threads for one in thread.frames if not one.native}
    pools = {name for name in _POOLS if any(name in file for file in files)}
    return pools == {_POOLS[0]}


def is_idle_worker(look: Look) -> bool:
    """Return True for a worker that waits for its next task, and for a helper of multiprocessing's.
    In the middle of a task a worker may wait for a queue of the task's own.
    """
    python = [f for f in (look.main.frames if look.main else ()) if not f.native]
    if _serves(look):
        return True
    if is_dask_worker(look.command):
        return _find_own_frame(look) is None
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


# What a process is kept by that does not go on: no work that is to come to it.
_KEPT_BY = frozenset(["stopped", "file", "device", "input", "kernel", "gil"])


def is_kept_by_others(wait: Wait | None, family: Collection[int | None]) -> bool:
    """Return whether a process waits for what none of its job's processes (`family`) is to give."""
    if wait is None:
        return False
    outside = wait.kind in ("socket", "lock", "pipe") and bool(wait.what)
    return wait.kind in _KEPT_BY or (outside and wait.pid not in family)
