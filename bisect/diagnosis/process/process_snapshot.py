"""One process as its looks together show it, and the table of all processes of the job."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ...base.addresses import port_of
from ...base.identity import ProcessId, RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import Role, find_role
from ...base.process_facts import Frame, Kernel, Look, Syscall, Thread
from ...base.rank_facts import RankFacts
from .blocked_syscalls import list_awaited_pids
from .frames import drop_signal_handlers

_P = ParamSpec("_P")
_T = TypeVar("_T")

# A call that was interrupted and goes on is shown as restart_syscall; what it sleeps on tells
# which one it was. The same table serves where the kernel hides the call but not the place.
_BY_WCHAN = {
    "hrtimer_nanosleep": "clock_nanosleep",
    "do_nanosleep": "clock_nanosleep",
    "futex_wait": "futex",
    "futex_wait_queue": "futex",
    "futex_wait_queue_me": "futex",
    "futex_do_wait": "futex",
    "poll_schedule_timeout": "poll",
    "do_sys_poll": "poll",
    "do_poll": "poll",
    "do_select": "select",
    "do_epoll_wait": "epoll_wait",
    "ep_poll": "epoll_wait",
    "do_wait": "wait4",
    "wait_for_partner": "openat",
    "locks_lock_inode_wait": "flock",
    "flock_lock_inode_wait": "flock",
    "fcntl_setlk": "fcntl",
    "posix_lock_inode_wait": "fcntl",
    "do_sys_pause": "pause",
    "__do_sys_pause": "pause",
    "unix_stream_read_generic": "recvfrom",
    "unix_stream_data_wait": "recvfrom",
    "inet_csk_accept": "accept",
    "inet_stream_connect": "connect",
    "inet_wait_for_connect": "connect",
    "sk_wait_data": "recvfrom",
    "pipe_read": "read",
    "anon_pipe_read": "read",
    "pipe_write": "write",
    "n_tty_read": "read",
    "kernel_clone": "vfork",
}
# Functions of the C library, innermost in a native stack, that are called as their system calls.
_BY_LIBRARY = frozenset({*_BY_WCHAN.values(), "nanosleep", "connect", "recvmsg"})


@dataclass(frozen=True)
class ProcessSnapshot:
    """A process as its looks show it together."""

    look: Look  # the last one that found the process
    frames: tuple[Frame, ...]  # of the main thread, innermost first, no signal handlers
    threads: tuple[Thread, ...]
    state: str
    wchan: str
    call: Syscall | None
    running: bool  # on a CPU, or ready, in most looks, and not only to ask for another's value
    owner: Thread | None  # the thread that had the GIL in every look that shows threads

    @property
    def call_name(self) -> str:
        """The system call's name, "" if it is in none or that is not known."""
        name = self.call.name if self.call else ""
        if name in ("", "restart_syscall") and not self.running:
            found = _BY_WCHAN.get(self.wchan.partition(".")[0]) or self._library_call
            return found or name
        return name

    @property
    def _library_call(self) -> str:
        """The function of the C library that it is in, if that is a system call, else ""."""
        inner = next(iter(self.frames), None)
        if inner is None or not inner.native or "libc" not in inner.file.rpartition("/")[2]:
            return ""
        name = inner.name.lstrip("_")
        return name if name in _BY_LIBRARY else ""

    @property
    def main(self) -> Thread | None:
        """The main thread; where none has the pid as its id, the first one."""
        return next((t for t in self.threads if t.os_id == self.look.pid), None) or next(
            iter(self.threads), None
        )

    @property
    def holds_gil(self) -> bool:
        """The main thread had the GIL in every look."""
        return self.owner is not None and self.owner == self.main


def keep_in_view(
    find: Callable[Concatenate[ProcessSnapshot, _P], _T],
) -> Callable[Concatenate[ProcessSnapshot, _P], _T]:
    """Return a function that works out once what `find` says of a view, and keeps it there."""

    @wraps(find)
    def found(view: ProcessSnapshot, /, *args: _P.args, **options: _P.kwargs) -> _T:
        kept: dict[Hashable, _T] = view.__dict__.setdefault("_kept", {})
        key = (find.__name__, *args, *options.values())
        if key not in kept:
            kept[key] = find(view, *args, **options)
        return kept[key]

    return found


def main_kernel(look: Look) -> Kernel | None:
    """Return the main thread as the kernel sees it."""
    return next((k for k in look.kernel if k.tid == look.pid), None) or next(
        iter(look.kernel), None
    )


def merge_looks(looks: Sequence[Look]) -> ProcessSnapshot | None:
    """Return what `looks` (oldest first) show together, None if none found the process.

    The newest wins, but a look that caught a poller between two polls, or that could read no
    stack, does not hide what an earlier one saw.
    """
    found = [look for look in looks if look.state not in ("", "X")]
    if not found:
        return None
    # Who is traced at one look and not at another was looked at by another tool just then.
    found = [look for look in found if look.state != "t"] or found
    # In a signal handler the kernel shows what the handler does, not what it came upon.
    calm = [look for look in found if not _is_in_handler(look)]
    handled, found = not calm, calm or found
    last = found[-1]
    with_stack = next((lk for lk in reversed(found) if lk.threads), last)
    running = sum(_runs(lk) for lk in found) * 2 > len(found)
    blocked = [lk for lk in reversed(found) if not _runs(lk)]
    # Between two polls the kernel tells no call.
    called = [lk for lk in blocked if (task := main_kernel(lk)) is not None and task.syscall]
    shown = last if running or not blocked else (called or blocked)[0]
    kernel = None if handled else main_kernel(shown)
    main = with_stack.main
    frames = drop_signal_handlers(main.frames) if main else ()
    spins = find_role(frames, Role.SPINS_FOR_OTHERS) is not None
    return ProcessSnapshot(
        look=last,
        frames=frames,
        threads=with_stack.threads,
        state=last.state if last.state in "DTtZ" else shown.state,
        wchan=kernel.wchan if kernel else "",
        call=kernel.syscall if kernel else None,
        running=running and last.state not in "DTtZ" and not spins,
        owner=_find_gil_owner(found),
    )


def put_thread_first(look: Look, thread: int) -> Look:
    """Return a look as if a thread (its id) were the main one of the process, and the main one a
    further thread: what is asked of the main thread is then asked of that.
    """
    other = {thread: look.pid, look.pid: thread}
    renamed = (_rename_threads(task, other) for task in look.kernel)
    threads = (replace(one, os_id=other.get(one.os_id or 0, one.os_id)) for one in look.threads)
    return replace(
        look,
        threads=tuple(sorted(threads, key=lambda one: one.os_id != look.pid)),
        kernel=tuple(sorted(renamed, key=lambda task: task.tid != look.pid)),
        awaited_files=tuple(
            replace(one, thread=other.get(one.thread, one.thread)) for one in look.awaited_files
        ),
    )


def _rename_threads(task: Kernel, other: Mapping[int, int]) -> Kernel:
    call = task.syscall
    if call is not None and call.futex is not None and call.futex.owner is not None:
        owner = other.get(call.futex.owner, call.futex.owner)
        call = replace(call, futex=replace(call.futex, owner=owner))
    return replace(task, tid=other.get(task.tid, task.tid), syscall=call)


def _is_in_handler(look: Look) -> bool:
    frames = look.main.frames if look.main is not None else ()
    return drop_signal_handlers(frames) is not frames


def _runs(look: Look) -> bool:
    return look.state == "R"


def _find_gil_owner(looks: Sequence[Look]) -> Thread | None:
    """Return the thread that owns the GIL in all looks with threads, at the same place."""
    owners = [next((t for t in look.threads if t.owns_gil), None) for look in looks if look.threads]
    last = owners[-1] if owners else None
    if last is None:
        return None
    same = all(o is not None and o.os_id == last.os_id for o in owners)
    return last if same else None


@dataclass(frozen=True)
class ProcessTable:
    """The processes of a job."""

    rank_of: Mapping[ProcessId, RankId] = field(default_factory=dict)  # children: their rank's
    names: Mapping[ProcessId, str] = field(default_factory=dict)
    # The pids of those that wait for a process, as the other ends of their calls show.
    awaited_by: Mapping[ProcessId, frozenset[int]] = field(default_factory=dict)
    # The files of the semaphores in which they sleep.
    semaphores: Mapping[ProcessId, frozenset[str]] = field(default_factory=dict)
    # The ports at which a thread of torch's in them serves a store.
    stores: Mapping[ProcessId, frozenset[str]] = field(default_factory=dict)

    def other_rank(self, process: ProcessId, me: RankId) -> RankId | None:
        """Return the rank to which `process` belongs, None if to none or to `me`."""
        rank = self.rank_of.get(process)
        return None if rank == me else rank


def build_process_table(ranks: Sequence[RankFacts]) -> ProcessTable:
    """Return who is who. A rank's own pid wins: one rank may have started another."""
    rank_of: dict[ProcessId, RankId] = {}
    names: dict[ProcessId, str] = {}
    for facts in ranks:
        for looks in facts.children:
            for look in looks:
                process = ProcessId(facts.host, look.pid)
                if look.pid not in facts.beside:
                    rank_of.setdefault(process, facts.rank)
                names[process] = look.name
    for facts in ranks:
        if facts.pid is not None:
            process = ProcessId(facts.host, facts.pid)
            rank_of[process] = facts.rank
            names.setdefault(process, facts.looks[-1].name if facts.looks else "")
    return ProcessTable(
        rank_of, names, _find_who_awaits(ranks), _find_semaphores(ranks), _find_stores(ranks)
    )


# How the thread that serves a TCPStore is called (TCPStoreLibUvBackend.cpp, TCPStoreBackend.cpp).
_STORE_THREAD = "pt_tcpstore"


def _find_stores(ranks: Sequence[RankFacts]) -> dict[ProcessId, frozenset[str]]:
    found = {}
    for facts in ranks:
        for look in [looks[-1] for looks in (facts.looks, *facts.children) if looks]:
            calls = (one.syscall for one in look.kernel if one.comm.startswith(_STORE_THREAD))
            heard = (d.socket for call in calls if call is not None for d in call.descriptors)
            ports = frozenset(port_of(o.local) for o in heard if o and o.state == "LISTEN")
            if ports:
                found[ProcessId(facts.host, look.pid)] = ports
    return found


def _find_semaphores(ranks: Sequence[RankFacts]) -> dict[ProcessId, frozenset[str]]:
    found = {}
    for facts in ranks:
        for look in [looks[-1] for looks in (facts.looks, *facts.children) if looks]:
            calls = (one.syscall for one in look.kernel if one.syscall is not None)
            files = frozenset(c.futex.file for c in calls if c.futex and c.futex.file)
            if files:
                found[ProcessId(facts.host, look.pid)] = files
    return found


def _find_who_awaits(ranks: Sequence[RankFacts]) -> dict[ProcessId, frozenset[int]]:
    """Return by process the pids of those that wait for it."""
    found: dict[ProcessId, set[int]] = {}
    for facts in ranks:
        for look in [looks[-1] for looks in (facts.looks, *facts.children) if looks]:
            for pid in list_awaited_pids(look) | _find_joined(look):
                found.setdefault(ProcessId(facts.host, pid), set()).add(look.pid)
    return {process: frozenset(pids) for process, pids in found.items()}


def _find_joined(look: Look) -> frozenset[int]:
    """Return the child for whose end a process waits (waitpid), where it names one."""
    kernel = main_kernel(look)
    call = kernel.syscall if kernel is not None else None
    named = call is not None and call.name == "wait4" and call.args and call.args[0] > 0
    return frozenset([call.args[0]]) if call is not None and named else frozenset()


def find_descendants(facts: RankFacts, pid: int) -> tuple[tuple[Look, ...], ...]:
    """Return the looks at each descendant of process `pid` among the children of `facts`: all but
    what has started its rank (a part of an inference server), what else that has started, and what
    was started beside the ranks.
    """
    parents = {looks[-1].pid: looks[-1].ppid for looks in facts.children if looks}
    has_above = bool(facts.looks) and facts.looks[-1].ppid in parents
    if pid == facts.pid and not has_above:
        return tuple(lks for lks in facts.children if lks and lks[-1].pid not in facts.beside)

    def below(child: int) -> bool:
        passed: set[int] = set()
        while child in parents and child not in passed:
            passed.add(child)
            child = parents[child]
            if child == pid:
                return True
        return False

    return tuple(looks for looks in facts.children if looks and below(looks[-1].pid))
