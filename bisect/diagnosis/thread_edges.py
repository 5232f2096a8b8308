"""The threads of one process as nodes of the wait-for graph: which lock each waits for, and which
other thread has it.

The kernel vouches for the owner of a mutex (a futex word, man 2 futex) and for the process that has
the lock on a file (/proc/locks). Of a lock of Python's or of multiprocessing's nothing tells who
has it: a thread that stands between taking it and giving it back most likely does, and such an edge
is `likely`, not `hard`. The same goes for which thread of a process has the lock on a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base.lock_polls import find_lock_poll
from ..base.process_facts import FILE_LOCK, CodeLock, Frame, Kernel, Look, Thread
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait
from .graph_drawing import GraphDrawing
from .process.frames import (
    format_frame,
    format_innermost_frame,
    frame_owner,
    is_of_threading,
    is_service_thread,
    unqualified_name,
)
from .process.process_snapshot import ProcessSnapshot, main_kernel
from .process.thread_waits import runs_pool_task

_TIME_LIMIT = 3  # which argument of futex() it is
_OF_THREADS = ("futex", "lock", "thread", "gil")
_FUTURES = "/concurrent/futures/_base.py"
_RUNS_THREAD = frozenset(["run", "_bootstrap_inner", "_bootstrap"])
# Of Condition: whoever called it has no lock. An Event and a Barrier wait for a condition of their
# own, by a wait() that calls another one.
_GIVES_BACK = frozenset(["wait", "wait_for"])

_NO_LIMIT = ("", "None", "-1", "-1.0")  # of FileLock.acquire(timeout=)

# Of concurrent.futures: they return once a thread of a pool has done something.
_AWAITS_FUTURES = frozenset(["result", "exception", "wait", "as_completed"])

Follow = Callable[[str, int], None]
Asks = Callable[[int], bool]


class ThreadEdges:
    """Draws which threads of one process wait for which others of it."""

    def __init__(
        self,
        drawing: GraphDrawing,
        name: str,
        facts: RankFacts,
        look: Look,
        follow: Follow,
        asks_a_rank: Asks,
    ) -> None:
        """`name`: of the process's node, which stands for its main thread. `follow(name, tid)`
        draws what a thread waits for outside of its process; `asks_a_rank(tid)`: it waits there for
        another rank.
        """
        self._drawing, self._name, self._facts, self._look = drawing, name, facts, look
        self._follow, self._asks_a_rank = follow, asks_a_rank
        self._drawn: set[int] = set()

    def of_main(self, view: ProcessSnapshot, wait: Wait) -> bool:
        """Draw whom the main thread waits for; return False if that is not known."""
        if wait.kind not in _OF_THREADS:
            return False
        has_gil = view.owner
        if wait.kind == "gil" and has_gil is not None and has_gil != view.main and has_gil.os_id:
            shows = f"it has the GIL{_format_thread_place(has_gil)}"
            self._drawing.link(self._name, self._node_of(has_gil.os_id), "gil", shows, hard=True)
            return True
        if wait.pid is not None or wait.what:  # it is known: the lock on a file
            return False
        main, thread = main_kernel(self._look), self._look.main
        known = main is not None and self._mutex(self._name, main)
        known = known or (thread is not None and self._by_frames(self._name, thread))
        self._waiting_threads()
        return known

    def _waiting_threads(self) -> None:
        """Draw those other threads that wait for a lock: the main thread may wait for one of them
        in a way that tells nothing (an Event, a Future).
        """
        for thread in self._look.threads:
            tid = thread.os_id or self._look.pid
            takes = any(f.takes is not None and f.takes.identity for f in thread.frames)
            if takes or waits_for_a_file_lock(self._look, tid):
                self._node_of(tid)

    def may_have_locked_a_file(self, waits: int | None) -> list[str]:
        """Return the nodes of the threads one of which has a lock on a file that the process has;
        `waits`: the thread that waits for that lock, if it is one of these itself. [] where the
        main thread is the only one, or no stack shows the threads.
        """
        threads = [t for t in self._look.threads if t.os_id and self._may_have_a_lock(t)]
        shown = [t for t in threads if any(lock.identity == FILE_LOCK for lock in list_locks(t))]
        chosen = [t for t in (shown or threads) if t.os_id != waits]
        if not chosen or (len(chosen) == 1 and chosen[0].os_id == self._look.pid):
            return []
        return [self._node_of(t.os_id) for t in chosen if t.os_id]

    def describe(self, node: str) -> str:
        """Return in words where the thread of a node stands: "thread loader, in load (x.py:3)"."""
        thread = next((t for t in self._look.threads if self._name_of(t.os_id or 0) == node), None)
        return node if thread is None else _format_thread(thread)

    def _may_have_a_lock(self, thread: Thread) -> bool:
        ours = any(frame_owner(frame, "") == "harness" for frame in thread.frames)
        return thread.os_id == self._look.pid or not (ours or is_service_thread(thread))

    def _by_frames(self, source: str, thread: Thread) -> bool:
        """Draw whom a thread waits for as far as frames tell; return False if they do not."""
        joined = self._find_joined(thread)
        if joined is not None and joined.os_id:
            shows = f"it waits for its end{_format_thread_place(thread)}"
            self._drawing.link(source, self._node_of(joined.os_id), "thread", shows, likely=True)
            return True
        held = find_held_lock(self._look, thread)
        if held is not None:
            self._held_lock(source, thread, held)
            return True
        works = find_working_thread(self._look, thread)
        if works is None or works.os_id is None:
            return False
        # Of one that works, and waits for no lock and no rank, its own place says more.
        if find_held_lock(self._look, works) is None and not self._asks_a_rank(works.os_id):
            return False
        shows = f"it waits for a result{_format_thread_place(thread)}"
        self._drawing.link(source, self._node_of(works.os_id), "thread", shows, likely=True)
        return True

    def _held_lock(self, source: str, thread: Thread, held: HeldLock) -> None:
        draw, lock, holder = self._drawing, held.lock, held.holder
        called = draw.name_on(self._facts.host, f"lock {lock.name}")
        if not draw.is_free(called, f"{self._name}: {lock.identity}"):
            called = f"{called} of {self._name} at {lock.identity}"
        thing = draw.node(called, "lock", f"{self._name}: {lock.identity}")
        draw.link(source, thing, "lock", f"{_format_thread(thread)} waits for it", likely=True)
        inside = next(f for f in holder.frames if lock in f.inside)
        has = f"{_call_thread(holder)} has taken it before, in {format_frame(inside)}"
        draw.link(thing, self._node_of(holder.os_id or 0), "lock", has, likely=True)

    def _find_joined(self, thread: Thread) -> Thread | None:
        """Return the thread whose end a thread waits for: its frames have the same object."""
        python = [f for f in thread.frames if not f.native][:3]
        joins = [f for f in python if is_of_threading(f) and unqualified_name(f.name) == "join"]
        wanted = dict(joins[0].objects).get("self") if joins else None
        if wanted is None:
            return None
        return next((t for t in self._look.threads if _object_of_thread(t) == wanted), None)

    def _mutex(self, source: str, waits: Kernel) -> bool:
        """Draw which thread has the mutex that the thread `waits` wants."""
        futex = waits.syscall.futex if waits.syscall else None
        if futex is None or futex.owner is None:
            return False
        draw, at = self._drawing, f"the mutex at {futex.address:#x}"
        if futex.owner_exists is False:
            gone = draw.node(f"thread {futex.owner}, which {self._name} does not have", "other")
            draw.link(source, gone, "futex", f"it has {at}")
        elif futex.owner == self._look.pid:
            draw.link(source, self._name, "futex", f"the main thread has {at}", hard=True)
        else:
            draw.link(source, self._node_of(futex.owner), "futex", f"it has {at}", hard=True)
        return True

    def _name_of(self, tid: int) -> str:
        if tid == self._look.pid:
            return self._name
        return self._drawing.name_on(self._facts.host, f"thread {tid}")

    def _node_of(self, tid: int) -> str:
        """Return the node of a thread, drawn with what it waits for itself."""
        if tid == self._look.pid:
            return self._name
        look = self._look
        known = next((t for t in look.threads if t.os_id == tid), None)
        says = f"{known.name or 'a thread'} of {self._name}" if known else f"of {self._name}"
        name = self._drawing.node(self._name_of(tid), "thread", says, self._facts.rank)
        kernel = next((k for k in look.kernel if k.tid == tid), None)
        if tid in self._drawn or kernel is None:
            return name
        self._drawn.add(tid)
        if self._mutex(name, kernel) or (known is not None and self._by_frames(name, known)):
            return name
        if _asks_for_the_gil(kernel) and look.main is not None and look.main.owns_gil:
            self._drawing.link(name, self._name, "gil", "the main thread has the GIL", hard=True)
        elif known is not None:
            self._follow(name, tid)
        return name


class HeldLock(NamedTuple):
    """A lock that a thread waits for and another one has, as frames tell."""

    lock: CodeLock
    frame: Frame  # in which it is waited for
    holder: Thread


def find_held_lock(look: Look, waits: Thread) -> HeldLock | None:
    """Return the lock that a thread waits for and the other thread that has it; None if it waits
    for none, or if none has it, or several may.
    """
    frame = next((one for one in waits.frames if one.takes is not None), None)
    lock = frame.takes if frame is not None else None
    if frame is None or lock is None or not lock.identity:
        return None
    holders = [one for one in look.threads if one.os_id and lock in list_locks(one)]
    if len(holders) != 1 or holders[0] is waits:
        return None
    return HeldLock(lock, frame, holders[0])


def find_working_thread(look: Look, waits: Thread) -> Thread | None:
    """Return the thread of a pool for whose result a thread waits (concurrent.futures): the only
    one that works on anything, and so on that, or on what is before it. None if there are several.
    """
    python = [f for f in waits.frames if not f.native][:3]
    if not any(
        f.file.endswith(_FUTURES) and unqualified_name(f.name) in _AWAITS_FUTURES for f in python
    ):
        return None
    working = [t for t in look.threads if t is not waits and runs_pool_task(t)]
    return working[0] if len(working) == 1 else None


def stands_inside(look: Look, lock: CodeLock, file: str) -> bool:
    """Return whether a thread has taken a lock that source `file` calls by this name, as far as
    frames tell: of a lock that several processes share the name is the same in each.
    """
    frames = (
        frame
        for thread in look.threads
        for frame in thread.frames
        if frame.file == file and any(one.name == lock.name for one in frame.inside)
    )
    held = {one.name for thread in look.threads for one in list_locks(thread)}
    return any(True for _ in frames) and lock.name in held


def _object_of_thread(thread: Thread) -> str | None:
    for frame in reversed(thread.frames):
        if is_of_threading(frame) and unqualified_name(frame.name) in _RUNS_THREAD:
            return dict(frame.objects).get("self")
    return None


def list_locks(thread: Thread) -> list[CodeLock]:
    """Return the locks that a thread has taken and not given back, as far as frames tell."""
    found: list[CodeLock] = []
    inner: Frame | None = None
    calls_another = False  # of `inner`: it waits by another function of threading's
    for frame in thread.frames:
        if frame.native:
            continue
        if inner is None or not _gives_its_lock_back(inner, calls_another):
            found += frame.inside
        calls_another = inner is not None and is_of_threading(inner)
        inner = frame
    return found


def _gives_its_lock_back(wait: Frame, calls_another: bool) -> bool:
    name = unqualified_name(wait.name)
    if not is_of_threading(wait) or name not in _GIVES_BACK:
        return False
    return name == "wait_for" or not calls_another


def _asks_for_the_gil(kernel: Kernel) -> bool:
    """Return True for the timed wait by which Python asks for the GIL, again and again."""
    args = kernel.syscall.args if kernel.syscall else ()
    futex = kernel.syscall is not None and kernel.syscall.name == "futex"
    return futex and len(args) > _TIME_LIMIT and args[_TIME_LIMIT] != 0


def _call_thread(thread: Thread) -> str:
    return f"thread {thread.name or thread.os_id}"


def _format_thread(thread: Thread) -> str:
    return f"{_call_thread(thread)}{_format_thread_place(thread)}"


def _format_thread_place(thread: Thread) -> str:
    place = format_innermost_frame(thread.frames)
    return f", in {place}" if place else ""


def waits_for_a_file_lock(look: Look, tid: int) -> bool:
    """Return True for a thread in flock() or fcntl(), or that asks for the lock on a file again and
    again without a time limit (the package filelock).
    """
    task = next((k for k in look.kernel if k.tid == tid), None)
    call = task.syscall if task is not None else None
    if call is not None and call.name in ("flock", "fcntl"):
        return True
    thread = next((t for t in look.threads if t.os_id == tid), None)
    polls = find_lock_poll(thread.frames) if thread is not None else None
    limit = dict(polls.locals).get("timeout", "") if polls is not None else ""
    return polls is not None and limit in _NO_LIMIT
