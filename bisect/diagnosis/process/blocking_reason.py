"""Why a process is blocked, as far as its own looks tell.

Decided in the order of certainty: what the kernel says of the process as a whole (stopped, in
the kernel), what is known of the Python call (a lock that is polled, a child that serves), the
object that the system call names, and only then the bare name of the call.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import field, replace

from ...base.addresses import port_of
from ...base.identity import ProcessId, RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import BUILD_LOCK
from ...base.lock_polls import (
    compile_path_pattern,
    describe_polled_lock,
    find_lock_poll,
    find_told_lock_path,
)
from ...base.masking import MASK
from ...base.process_facts import AskedServer, AwaitedFile, FileLock, Look
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Wait
from ...base.words import format_seconds
from ..other_nodes import find_node_wait
from .actor_waits import find_actor_of_driver, find_actor_of_loop, is_between_calls
from .blocked_syscalls import (
    CHILD_WAIT_CALLS,
    LOCK_CALLS,
    OPEN_CALLS,
    PATH_CALLS,
    POLL_CALLS,
    SLEEP_CALLS,
    TRANSFER_CALLS,
    WRITE_CALLS,
    choose_descriptor_wait,
    find_folder_wait,
    find_outward_socket,
    find_queue_wait,
    format_others,
    is_for_client,
    list_awaited_pids,
    list_readers,
    make_socket_wait,
    read_wanted_child,
    waits_for_children,
)
from .frames import format_innermost_frame, frame_owner, innermost_python_frame
from .helper_processes import (
    find_fork_server,
    find_giver,
    find_polled_helper,
    find_serving_child,
    is_halted,
)
from .loop_waits import (
    describe_loop,
    find_wait_for_itself,
    hears_itself_alone,
    note_alternatives,
    runs_event_loop,
)
from .pipe_writers import choose_awaited, list_ends_among
from .process_snapshot import (
    ProcessSnapshot,
    ProcessTable,
    find_descendants,
    merge_looks,
    put_thread_first,
)
from .public_calls import awaits_server_of_store, find_group_wait
from .spin_waits import find_gpu_call, find_gpu_line
from .thread_waits import find_futex_wait, find_gil_wait, runs_pool_task

_PYTHON_SOCKETS = re.compile(r"/python\d[^/]*/(?:socket|ssl|http/client|asyncio/\w+)\.py$")
_STARTED_APART = 60.0  # seconds by which the ranks of a job may have started one after another
_DEPTH = 3  # of children's children, when saying what a child waits for


@dataclass(frozen=True)
class HeldLock:
    """A lock file that a rank, or a child of it, has."""

    rank: RankId
    host: str  # where its holder runs
    lock: FileLock


@dataclass(frozen=True)
class ProcessContext:
    """What there is to know around one process."""

    facts: RankFacts
    table: ProcessTable = field(default_factory=ProcessTable)
    held_by_others: Sequence[HeldLock] = ()  # the lock files that other ranks have

    @property
    def store_port(self) -> str:
        return self.facts.environment.get("MASTER_PORT", "")


def find_blocking_reason(looks: Sequence[Look], around: ProcessContext, depth: int = 0) -> Wait:
    """Return what the process of `looks` waits for; peers are only recognised as such, by the
    kinds collective and store: `rank_waits` says which rank is meant.
    """
    view = merge_looks(looks)
    if view is None:
        return Wait("unknown", "")
    return find_blocking_reason_in(view, looks, around, depth)


def find_blocking_reason_in(
    view: ProcessSnapshot, looks: Sequence[Look], around: ProcessContext, depth: int = 0
) -> Wait:
    """Return what blocks a process; `view` is what its `looks` show together."""
    family = find_descendants(around.facts, view.look.pid)
    wait = (
        _find_halt(view, family)
        or _find_opening_connection(view)
        or _find_lock_wait(view, looks, around)
        or find_node_wait(view)
        or _find_port_wait(view)
        or _find_peer_wait(view)
        or find_gil_wait(view)
        or _find_device_wait(view)
        or (Wait("itself", _format_running_frame(view)) if view.running else None)
        or _find_syscall_wait(view, family, around, depth)
        or Wait("unknown", view.wchan or view.call_name)
    )
    pids = [looks[-1].pid for looks in family]
    wait = note_alternatives(wait, view, pids)
    return describe_loop(_complete_wait(wait, family, around, depth), view, pids)


def _find_halt(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait | None:
    if view.look.frozen:
        return Wait("stopped", f"its control group is frozen: {view.look.frozen}")
    if view.state == "T":
        return Wait("stopped", "by a signal (SIGSTOP, SIGTSTP): state T")
    if view.state == "t":
        tracer = view.look.traced_by
        return Wait("stopped", "by a tracer: state t", tracer or None)
    if view.state == "D":
        call = view.call_name
        path = view.call.path if view.call else None
        named = choose_descriptor_wait(view.call.descriptors if view.call else (), view.look, ())
        if path or (named is not None and named.kind == "file"):
            where = path or (named.detail if named else "")
            return Wait("file", _joined(where, f"{call}, state D", view.wchan), what=where)
        detail = _joined(view.wchan, call, "state D")
        copies = [one.pid for looks in family for one in looks[-1:] if _is_copy(one, view.look)]
        if call == "vfork" and copies:
            return Wait("process", detail, max(copies))
        return Wait("kernel", detail)
    return None


def _is_copy(child: Look, parent: Look) -> bool:
    """Return whether a child has not become a program of its own yet (man 2 vfork)."""
    same = child.ppid == parent.pid and child.name == parent.name
    return same and (not child.command or child.command == parent.command)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _format_running_frame(view: ProcessSnapshot) -> str:
    place = format_innermost_frame(view.frames)
    return f"runs in {place}" if place else "runs"


def _find_device_wait(view: ProcessSnapshot) -> Wait | None:
    if call := find_gpu_call(view.frames):
        return Wait("device", _joined(call, format_innermost_frame(view.frames)))
    line = find_gpu_line(view.frames, view.look) if view.running else ""
    return Wait("device", line) if line else None


def _find_opening_connection(view: ProcessSnapshot) -> Wait | None:
    """A connection that is not made yet is what a rendezvous or a client waits for."""
    if view.call_name not in TRANSFER_CALLS | POLL_CALLS:
        return None
    named = [d.socket for d in (view.call.descriptors if view.call else ()) if d.socket]
    all_of_them = named or (view.look.sockets if find_group_wait(view) == "construction" else ())
    opening = next((s for s in all_of_them if s.state == "SYN_SENT"), None)
    return make_socket_wait(opening, view.look.pid) if opening else None


def _find_lock_wait(
    view: ProcessSnapshot, looks: Sequence[Look], around: ProcessContext
) -> Wait | None:
    waited = next((lock for lock in view.look.locks if lock.waiting), None)
    if waited is not None:
        return _make_lock_wait(waited)
    if find_lock_poll(view.frames) is not None:
        return _find_polled_lock(view, looks, around)
    if (awaited := find_awaited_file(view)) is not None:
        return _make_file_wait(awaited, view.look.age)
    if view.call_name == "flock":
        return Wait("lock", _first_path(view) or "flock", what=_first_path(view))
    if view.call_name == "fcntl" and view.wchan.startswith(("fcntl", "posix", "locks")):
        return Wait("lock", _first_path(view) or "fcntl", what=_first_path(view))
    return None


def find_awaited_file(view: ProcessSnapshot) -> AwaitedFile | None:
    """Return the file that the main thread waits to disappear, None if it does not wait for one."""
    of_main = (one for one in view.look.awaited_files if one.thread == view.look.pid)
    return next(of_main, None) if find_group_wait(view) is None else None


def _make_file_wait(one: AwaitedFile, age: float) -> Wait:
    """Return the wait for a file to go; `age` is that of the process that waits: what is older, no
    rank of the same job has made.
    """
    old = f", {format_seconds(one.age)} old" if one.age is not None else ""
    gone = one.maker_lives is False or (one.age or 0.0) > age + _STARTED_APART
    return Wait(
        "lock",
        f"{one.path}{old}",
        one.owner,
        one.owner_name or None,
        what=one.path,
        is_for_a_file=one.owner is None and not gone,
    )


def _find_port_wait(view: ProcessSnapshot) -> Wait | None:
    """Return the wait for a port to become free, None where nobody listens at it."""
    taken = next(iter(view.look.taken_ports), None)
    if taken is None:
        return None
    who = f", at which {taken.holder_name} (pid {taken.holder}) listens" if taken.holder else ""
    what = f"port {taken.port}"
    return Wait("socket", f"{what}{who}", taken.holder, taken.holder_name or None, what=what)


def _find_server_wait(view: ProcessSnapshot) -> Wait | None:
    """Return the wait for a server that is asked again and again, None if none is."""
    asked = view.look.asked_server
    if asked is None:
        return None
    return Wait("socket", describe_asked(asked), asked.process, asked.name or None, what=asked.url)


def describe_asked(asked: AskedServer) -> str:
    """Return in words who listens at the address of a server that is asked again and again."""
    who = f"{asked.name} (pid {asked.process})" if asked.process is not None else ""
    if not asked.is_here:
        return f"{asked.url}, on another machine: who listens there is not known here"
    if asked.listens:
        return (
            f"{asked.url}, at which {who or 'somebody'} listens and does not say that it is ready"
        )
    started = f"; {who} was started to listen there" if who else ""
    return f"{asked.url}, at which nobody listens{started}"


def _first_path(view: ProcessSnapshot) -> str:
    return next((d.path for d in (view.call.descriptors if view.call else ())), "")


def _make_lock_wait(lock: FileLock, host: str = "") -> Wait:
    name = lock.holder_name or None
    return Wait("lock", lock.path, lock.holder, name, what=lock.path, host=host)


def _find_polled_lock(view: ProcessSnapshot, looks: Sequence[Look], around: ProcessContext) -> Wait:
    """Return the wait for the lock that the frames poll."""
    path = find_told_lock_path(view.frames)
    # A poller may have the file open for an instant only: any look may have caught it.
    caught = [lock for look in reversed(looks) for lock in look.locks]
    if caught:
        return _make_lock_wait(min(caught, key=lambda lock: lock.holder is None))
    if held := _choose_polled_locks(path, around.held_by_others):
        return _make_lock_wait(held[0].lock, held[0].host)
    kind = describe_polled_lock(view.frames)
    # Two files may look the same where a part is masked; whose build it is, is found by its words.
    if not path or MASK in path or kind == BUILD_LOCK:
        return Wait("lock", kind)
    return Wait("lock", path, what=path)


def _choose_polled_locks(path: str, held: Sequence[HeldLock]) -> list[HeldLock]:
    """Return those of the locks that others have which a poller may want: the one at `path`, part
    of which may be masked; where that is not known, or only from a folder on, the only one there
    is.
    """
    if path.startswith("/"):
        wanted = compile_path_pattern(path)
        return [one for one in held if wanted.fullmatch(one.lock.path)]
    found = list(held)
    if path:
        ending = re.compile(rf"/{compile_path_pattern(path.removeprefix('./')).pattern}\Z")
        found = [one for one in held if ending.search(one.lock.path)]
    return found if len({one.lock.inode for one in found}) == 1 else []


def _find_peer_wait(view: ProcessSnapshot) -> Wait | None:
    kind = find_group_wait(view)
    if kind is None:
        return None
    return Wait(
        "collective" if kind == "collective" else "store", format_innermost_frame(view.frames)
    )


def _find_syscall_wait(
    view: ProcessSnapshot, family: Sequence[Sequence[Look]], around: ProcessContext, depth: int
) -> Wait | None:
    """What the system call is about."""
    name = view.call_name
    pids = [looks[-1].pid for looks in family]
    direct = [looks[-1] for looks in family if looks[-1].ppid == view.look.pid]
    if name in CHILD_WAIT_CALLS or waits_for_children(view.look, direct):
        return _make_child_wait(view, direct, family, around, depth)
    actor = find_actor_of_driver(view, family)
    if actor is not None:
        return actor
    if name in SLEEP_CALLS:
        return _make_sleep_wait(view, family)
    if is_between_calls(view.look):
        return Wait("itself", "its next call, as an actor of Ray between two")
    giver = find_giver(view, family, around.table, around.facts.host)
    if giver is not None:
        return giver
    served = find_fork_server(view, family) or find_serving_child(view, family, around.facts)
    if served is not None:
        return served
    if name == "futex":
        return find_futex_wait(view)
    if name in LOCK_CALLS:
        return Wait("lock", _first_path(view) or name, what=_first_path(view))
    if name in OPEN_CALLS or name in PATH_CALLS:
        return _make_path_wait(view, name)
    descriptors = view.call.descriptors if view.call else ()
    readers = list_readers(view.look.pid, (looks[-1] for looks in family))
    named = choose_descriptor_wait(descriptors, view.look, pids, readers)
    if named is not None and named.kind == "input" and name in WRITE_CALLS:
        named = Wait("device", f"room in a terminal, {named.detail}", what=named.what)
    if named is not None and named.kind == "process":
        ends = list_ends_among(descriptors, named.what, set(pids))
        chosen = _choose_among(ends, family, around, depth)
        named = named if chosen is None else replace(named, pid=chosen.pid)
    if named is not None and runs_event_loop(view) and is_for_client(named, view.look):
        mine = around.table.awaited_by.get(ProcessId(around.facts.host, view.look.pid), ())
        named = find_queue_wait(view.call, view.look, pids, mine) or named
    if named is None and name in POLL_CALLS | TRANSFER_CALLS:
        mine = around.table.awaited_by.get(ProcessId(around.facts.host, view.look.pid), ())
        queue = find_queue_wait(view.call, view.look, pids, mine)
        if queue is not None:
            return queue
        place = format_innermost_frame(view.frames)
        named = find_folder_wait(view.call, place)
        if named is None and runs_event_loop(view):
            named = find_actor_of_loop(view, family)
        named = named or _find_wait_of_pool_thread(view, family, around, depth)
        named = named or find_wait_for_itself(view, family)
        # A loop that hears itself alone is woken by threads, which may be at a connection.
        if named is None and (runs_event_loop(view) or not hears_itself_alone(view)):
            named = _find_only_socket_wait(view, pids)
    if named is not None:
        return _as_store_wait(named, view, around) or named
    if name in POLL_CALLS and view.call is not None and view.call.timeout is not None:
        return Wait(
            "sleep",
            _joined(name, f"at most {view.call.timeout:g} s", format_innermost_frame(view.frames)),
        )
    if name == "ioctl":
        return Wait("device", _joined(_first_path(view), name, view.wchan))
    if view.holds_gil:
        return Wait("gil", f"a native call that holds the GIL: {name or view.wchan}")
    if name or view.wchan not in ("", "0"):
        return Wait("kernel", _joined(name, view.wchan))
    return None


def _find_wait_of_pool_thread(
    view: ProcessSnapshot, family: Sequence[Sequence[Look]], around: ProcessContext, depth: int
) -> Wait | None:
    """Return the wait of a thread to which an event loop that hears itself alone has handed a call
    (run_in_executor, to_thread), where that waits for a descendant which does not wait for this
    process in turn: nothing else can wake the loop. None where there is no such thread.
    """
    if depth >= _DEPTH or not (runs_event_loop(view) and hears_itself_alone(view)):
        return None
    known = {looks[-1].pid: looks[-1] for looks in family}
    for thread in view.threads:
        if thread is view.main or thread.os_id is None or not runs_pool_task(thread):
            continue
        inside = [put_thread_first(view.look, thread.os_id)]
        wait = find_blocking_reason(inside, around, depth + 1)
        child = known.get(wait.pid or 0)
        if child is not None and view.look.pid not in list_awaited_pids(child):
            return wait
    return None


def _make_sleep_wait(view: ProcessSnapshot, family: Sequence[Sequence[Look]]) -> Wait:
    if view.holds_gil:
        return Wait("gil", "a native call that holds the GIL sleeps")
    is_of_children = (
        view.call is None or not view.call.signals or signal.SIGCHLD in view.call.signals
    )
    helper = find_polled_helper(view, family) if is_of_children else None
    return (helper or _find_server_wait(view)) or Wait(
        "sleep", " in ".join(filter(None, (view.call_name, format_innermost_frame(view.frames))))
    )


def _make_path_wait(view: ProcessSnapshot, name: str) -> Wait:
    path = view.call.path if view.call else None
    fifo = view.wchan.startswith(("wait_for_partner", "fifo_open"))
    if fifo or any(d.kind == "fifo" for d in (view.call.descriptors if view.call else ())):
        what = path or _first_path(view)
        return Wait("pipe", _joined(what, "the other end is not open"), what=what)
    return Wait("file", _joined(path or _first_path(view), name), what=path or _first_path(view))


def _find_only_socket_wait(view: ProcessSnapshot, family: Sequence[int]) -> Wait | None:
    """Return the wait for the one peer a process has, where the call names none (epoll)."""
    socket = find_outward_socket(view.look, family)
    return make_socket_wait(socket, view.look.pid) if socket else None


def _as_store_wait(wait: Wait, view: ProcessSnapshot, around: ProcessContext) -> Wait | None:
    """Return a store wait if `wait` is for the server of the job's own TCPStore, or of any that a
    thread of torch's serves in another process of the job.
    """
    if wait.kind != "socket" or awaits_server_of_store(view):
        return None
    port = around.store_port
    peer = wait.detail.partition(" ")[0]
    if wait.pid is not None and not _reads_by_python(view):
        served = around.table.stores.get(ProcessId(wait.host or around.facts.host, wait.pid), ())
        if peer.rpartition(":")[2] in served:  # whoever serves it is not who sets the key
            return Wait("store", format_innermost_frame(view.frames))
    if port:
        return replace(wait, kind="store") if peer.rpartition(":")[2] == port else None
    # torchrun's agent serves the store: the parent of a rank at the other end of a TCP socket.
    tcp = port_of(wait.what).isdecimal() and not wait.what.startswith("/")
    parent = tcp and wait.pid is not None and wait.pid == view.look.ppid
    may_ask = parent and not (_reads_by_python(view) or _is_in_another_library(view))
    return replace(wait, kind="store") if may_ask else None


def _is_in_another_library(view: ProcessSnapshot) -> bool:
    """Return whether the innermost Python frame is a library's that is not torch: a client of gRPC
    waits in C as well.
    """
    inner = innermost_python_frame(view.frames)
    is_library = inner is not None and frame_owner(inner, "") == "library"
    return inner is not None and is_library and "/torch/" not in inner.file


def _reads_by_python(view: ProcessSnapshot) -> bool:
    """Return whether Python's own modules make the call: torch asks its store in C++."""
    python = innermost_python_frame(view.frames)
    return python is not None and _PYTHON_SOCKETS.search(python.file) is not None


def _choose_among(
    pids: Collection[int], family: Sequence[Sequence[Look]], around: ProcessContext, depth: int
) -> Look | None:
    """Return which of the processes `pids` of a family is waited for, where any of them may be."""
    known = {lks[-1].pid: lks for lks in family if lks[-1].pid in pids and lks[-1].state != "Z"}

    def find_wait(one: Look) -> Wait:
        return find_blocking_reason_of_child(known[one.pid], around, _DEPTH)

    looks = [one[-1] for one in known.values()]
    return choose_awaited(looks if depth < _DEPTH else looks[:1], find_wait)


def _make_child_wait(
    view: ProcessSnapshot,
    direct: Sequence[Look],
    family: Sequence[Sequence[Look]],
    around: ProcessContext,
    depth: int,
) -> Wait:
    """Return the wait for the child that wait4 or waitid names, for any if it names none."""
    wanted = read_wanted_child(view.call)
    child = next((lk for lk in direct if lk.pid == wanted), None)
    if child is None and not wanted:
        child = _choose_among({lk.pid for lk in direct}, family, around, depth)
    if child is not None:
        return Wait("process", "", child.pid, child.name)
    return Wait("process", f"its child {wanted}" if wanted else "any child", wanted or None)


def _complete_wait(
    wait: Wait, family: Sequence[Sequence[Look]], around: ProcessContext, depth: int
) -> Wait:
    """Return `wait` with the name and rank of the process, and what a child itself waits for."""
    if wait.pid is None:
        return wait
    process = ProcessId(wait.host or around.facts.host, wait.pid)
    names = {ProcessId(around.facts.host, looks[-1].pid): looks[-1].name for looks in family}
    name = wait.process or names.get(process) or around.table.names.get(process) or None
    rank = around.table.other_rank(process, around.facts.rank)
    wait = replace(wait, process=name, rank=rank)
    looks = next((lks for lks in family if lks[-1].pid == wait.pid), None)
    if wait.kind == "process" and depth < _DEPTH and looks is not None:
        next_hop = find_blocking_reason_of_child(looks, around, depth + 1)
        by_peer = next_hop.kind == "socket" and not looks[-1].threads
        kind = "" if by_peer or next_hop.kind == "unknown" else next_hop.kind
        wait = replace(wait, detail=_joined(kind, next_hop.detail) or wait.detail)
    return replace(wait, detail=_joined(wait.detail, format_others(wait)))


def find_reason_in_look(look: Look, rank: RankId) -> Wait:
    """Return what a process waits for as far as one look at it tells; `rank`: whose it is."""
    alone = RankFacts(rank, pid=look.pid, looks=(look,))
    return find_blocking_reason([look], ProcessContext(alone))


def find_blocking_reason_of_child(
    looks: Sequence[Look], around: ProcessContext, depth: int = 1
) -> Wait:
    """Return what a descendant of a rank waits for. Of a helper that is no Python program the
    calls say little: it waits for the peer outside that it talks to, unless it is halted.
    """
    look = looks[-1]
    if not any(one.threads for one in looks) and not is_halted(look):
        inside = [lks[-1].pid for lks in around.facts.children if lks] + [around.facts.pid or 0]
        socket = find_outward_socket(look, inside)
        if socket is not None:
            return make_socket_wait(socket, look.pid)
    return find_blocking_reason(looks, around, depth)
