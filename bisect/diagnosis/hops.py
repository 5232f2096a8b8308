"""What a process waits for, as far as its own looks tell: the first hop.

Decided in the order of certainty: what the kernel says of the process as a whole (stopped, in the
kernel), what is known of the Python call (a lock that is polled, a child that serves), the
object that the system call names, and only then the bare name of the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..facts import FileLock, Frame, Look, RankFacts, Wait
from .builds import BUILD_LOCK
from .distributed import group_wait
from .frames import owner, short, worded
from .objects import of_descriptors, of_socket, outward
from .people import People, descendants
from .services import helper_polled_for, is_halted, service
from .syscalls import CHILDREN, LOCKS, OPENS, PATHS, POLLS, SLEEPS, TRANSFERS
from .threads import futex_wait, gil_wait
from .view import Seen, seen

_DEPTH = 3  # of children's children, when saying what a child waits for
_GPU_CALL = re.compile(r"(?:cuda|hip|hsa)[A-Z]\w*|cu[A-Z]\w*|cudart::")
# Loops that sleep between two looks at a lock.
_POLLED_LOCKS = (
    ("filelock/", ("_poll_until_acquired", "acquire"), "a lock file"),
    ("torch/utils/file_baton.py", ("wait",), BUILD_LOCK),
    ("datasets/utils/filelock.py", ("acquire",), "a lock file"),
    ("portalocker/", ("acquire", "lock"), "a lock file"),
    ("fasteners/", ("acquire", "_do_acquire"), "a lock file"),
)
_MASKED = "***"  # in place of what may be a secret: the hash that a cache's file is named by
_LOCK_PATHS = ("lock_filename", "canonical_path", "lock_file", "lock_path")  # locals of pollers


@dataclass(frozen=True)
class Context:
    """What there is to know around one process."""

    facts: RankFacts
    people: People = field(default_factory=People)
    held_by_others: Sequence[FileLock] = ()  # the lock files that other ranks have

    @property
    def store_port(self) -> str:
        return self.facts.environment.get("MASTER_PORT", "")


def first_hop(looks: Sequence[Look], around: Context, depth: int = 0) -> Wait:
    """Return what the process of `looks` waits for; peers are only recognised as such, by the
    kinds collective and store: `peers` says which rank is meant.
    """
    view = seen(looks)
    if view is None:
        return Wait("unknown", "")
    family = descendants(around.facts, view.look.pid)
    wait = (
        _as_a_whole(view)
        or _connecting(view)
        or _file_lock(view, looks, around)
        or _meeting(view)
        or gil_wait(view)
        or _device(view)
        or (Wait("itself", _at(view)) if view.running else None)
        or _blocked(view, family, around)
        or Wait("unknown", view.wchan or view.call_name)
    )
    return _completed(wait, family, around, depth)


def _as_a_whole(view: Seen) -> Wait | None:
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
        named = of_descriptors(view.call.descriptors if view.call else (), view.look, ())
        if path or (named is not None and named.kind == "file"):
            where = path or (named.detail if named else "")
            return Wait("file", _joined(where, f"{call}, state D", view.wchan), what=where)
        return Wait("kernel", _joined(view.wchan, call, "state D"))
    return None


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _at(view: Seen) -> str:
    return next((f"runs in {worded(f)}" for f in view.frames if not f.native), "runs")


def _device(view: Seen) -> Wait | None:
    """Waiting for a GPU spins as often as it sleeps: only native frames tell."""
    for frame in view.frames:
        if not frame.native:
            break
        if _GPU_CALL.match(frame.name):
            return Wait("device", _joined(frame.name, _at_call(view)))
    return None


def _connecting(view: Seen) -> Wait | None:
    """A connection that is not made yet is what a rendezvous or a client waits for."""
    if view.call_name not in TRANSFERS | POLLS:
        return None
    named = [d.socket for d in (view.call.descriptors if view.call else ()) if d.socket]
    all_of_them = named or (view.look.sockets if group_wait(view) == "construction" else ())
    opening = next((s for s in all_of_them if s.state == "SYN_SENT"), None)
    return of_socket(opening, view.look.pid) if opening else None


def _file_lock(view: Seen, looks: Sequence[Look], around: Context) -> Wait | None:
    waited = next((lock for lock in view.look.locks if lock.waiting), None)
    if waited is not None:
        return _of_lock(waited)
    polled = _polled_lock(view.frames)
    if polled:
        # A poller has the file open for an instant only: any look may have caught it.
        caught = [lock for look in reversed(looks) for lock in look.locks]
        held = sorted(caught, key=lambda lock: lock.holder is None)
        held = held or _meant(view.frames, around.held_by_others)
        return _of_lock(held[0]) if held else Wait("lock", polled)
    if view.call_name == "flock":
        return Wait("lock", _named(view) or "flock", what=_named(view))
    if view.call_name == "fcntl" and view.wchan.startswith(("fcntl", "posix", "locks")):
        return Wait("lock", _named(view) or "fcntl", what=_named(view))
    return None


def _named(view: Seen) -> str:
    return next((d.path for d in (view.call.descriptors if view.call else ())), "")


def _of_lock(lock: FileLock) -> Wait:
    return Wait("lock", lock.path, lock.holder, lock.holder_name or None, what=lock.path)


def _polled_lock(frames: Sequence[Frame]) -> str:
    """Return in words which kind of lock the innermost Python frames poll, "" if none."""
    for frame in [f for f in frames if not f.native][:3]:
        for file, functions, words in _POLLED_LOCKS:
            if file in frame.file and short(frame.name) in functions:
                return words
        if owner(frame, "") == "user":
            break
    return ""


def _meant(frames: Sequence[Frame], held: Sequence[FileLock]) -> list[FileLock]:
    """Return those of the locks that others have which a poller may want: the one at the path in
    its frames, part of which may be masked; where no frame tells a path, the only one there is.
    """
    paths = (dict(frame.locals).get(name, "") for frame in frames[:8] for name in _LOCK_PATHS)
    path = next((path.strip("'\"") for path in paths if path), "")
    if not path:
        return list(held) if len({lock.inode for lock in held}) == 1 else []
    wanted = re.compile(re.escape(path).replace(re.escape(_MASKED), ".*"))
    return [lock for lock in held if wanted.fullmatch(lock.path)]


def _meeting(view: Seen) -> Wait | None:
    kind = group_wait(view)
    if kind is None:
        return None
    return Wait("collective" if kind == "collective" else "store", _at_call(view))


def _at_call(view: Seen) -> str:
    return next((worded(f) for f in view.frames if not f.native), "")


def _blocked(view: Seen, family: Sequence[Sequence[Look]], around: Context) -> Wait | None:
    """What the system call is about."""
    name = view.call_name
    pids = [looks[-1].pid for looks in family]
    if name in CHILDREN:
        return _child(view, family)
    if name in SLEEPS:
        return _asleep(view, family)
    served = service(view, family)
    if served is not None:
        return served
    if name == "futex":
        return futex_wait(view)
    if name in LOCKS:
        return Wait("lock", _named(view) or name, what=_named(view))
    if name in OPENS or name in PATHS:
        return _path(view, name)
    descriptors = view.call.descriptors if view.call else ()
    named = of_descriptors(descriptors, view.look, pids)
    if named is None and name in POLLS | TRANSFERS:
        named = _itself(view) or _only_socket(view, pids)
    if named is not None:
        return _store(named, view, around) or named
    if name in POLLS and view.call is not None and view.call.timeout is not None:
        return Wait("sleep", _joined(name, f"at most {view.call.timeout:g} s", _at_call(view)))
    if name == "ioctl":
        return Wait("device", _joined(_named(view), name, view.wchan))
    if view.holds_gil:
        return Wait("gil", f"a native call that holds the GIL: {name or view.wchan}")
    if name or view.wchan not in ("", "0"):
        return Wait("kernel", _joined(name, view.wchan))
    return None


def _asleep(view: Seen, family: Sequence[Sequence[Look]]) -> Wait:
    if view.holds_gil:
        return Wait("gil", "a native call that holds the GIL sleeps")
    helper = helper_polled_for(view, family)
    return helper or Wait("sleep", " in ".join(filter(None, (view.call_name, _at_call(view)))))


def _itself(view: Seen) -> Wait | None:
    """Return the wait of a process without a time limit that listens to itself alone: both ends
    of each socket that its call names are its own, as in an event loop that nobody wakes.
    """
    heard = [d for d in (view.call.descriptors if view.call else ()) if d.kind != "anon"]
    ends = [set(d.socket.peer_pids) for d in heard if d.socket is not None]
    if not heard or len(ends) < len(heard) or any(pids != {view.look.pid} for pids in ends):
        return None
    if view.call is None or view.call.timeout is not None:
        return None
    return Wait("itself", f"both ends of {heard[0].path} are its own, in {_at_call(view)}")


def _path(view: Seen, name: str) -> Wait:
    path = view.call.path if view.call else None
    fifo = view.wchan.startswith(("wait_for_partner", "fifo_open"))
    if fifo or any(d.kind == "fifo" for d in (view.call.descriptors if view.call else ())):
        what = path or _named(view)
        return Wait("pipe", _joined(what, "the other end is not open"), what=what)
    return Wait("file", _joined(path or _named(view), name), what=path or _named(view))


def _only_socket(view: Seen, family: Sequence[int]) -> Wait | None:
    """Return the wait for the one peer a process has, where the call names none (epoll)."""
    socket = outward(view.look, family)
    return of_socket(socket, view.look.pid) if socket else None


def _store(wait: Wait, view: Seen, around: Context) -> Wait | None:
    """Return a store wait if `wait` is for the server of the job's own TCPStore."""
    if wait.kind != "socket":
        return None
    port = around.store_port
    peer = wait.detail.partition(" ")[0]
    # torchrun's agent serves the store: the parent of a rank at the other end of a TCP socket.
    parent = wait.pid is not None and wait.pid == view.look.ppid
    if (port and peer.rpartition(":")[2] == port) or parent:
        return replace(wait, kind="store")
    return None


def _child(view: Seen, family: Sequence[Sequence[Look]]) -> Wait:
    """Return the wait for the child that wait4 or waitid names, for any if it names none."""
    args = view.call.args if view.call else ()
    wanted = 0
    if view.call_name == "waitid" and len(args) > 1 and args[0] == 1:  # P_PID
        wanted = args[1]
    elif view.call_name == "wait4" and args and 0 < args[0] < 1 << 31:
        wanted = args[0]
    direct = [looks[-1] for looks in family if looks[-1].ppid == view.look.pid]
    child = next((lk for lk in direct if lk.pid == wanted), None)
    if child is None and not wanted:
        child = next((lk for lk in direct if lk.state != "Z"), None)
    if child is not None:
        return Wait("process", "", child.pid, child.name)
    return Wait("process", f"its child {wanted}" if wanted else "any child", wanted or None)


def _completed(wait: Wait, family: Sequence[Sequence[Look]], around: Context, depth: int) -> Wait:
    """Return `wait` with the name and rank of the process, and what a child itself waits for."""
    if wait.pid is None:
        return wait
    names = {looks[-1].pid: looks[-1].name for looks in family}
    process = wait.process or names.get(wait.pid) or around.people.names.get(wait.pid) or None
    rank = around.people.other_rank(wait.pid, around.facts.rank)
    wait = replace(wait, process=process, rank=rank)
    if wait.kind != "process" or depth >= _DEPTH:
        return wait
    looks = next((lks for lks in family if lks[-1].pid == wait.pid), None)
    if looks is None:
        return wait
    next_hop = hop_of_child(looks, around, depth + 1)
    by_peer = next_hop.kind == "socket" and not looks[-1].threads
    kind = "" if by_peer or next_hop.kind == "unknown" else next_hop.kind
    return replace(wait, detail=_joined(kind, next_hop.detail) or wait.detail)


def hop_of_child(looks: Sequence[Look], around: Context, depth: int = 1) -> Wait:
    """Return what a descendant of a rank waits for. Of a helper that is no Python program the
    calls say little: it waits for the peer outside that it talks to, unless it is halted.
    """
    look = looks[-1]
    if not look.threads and not is_halted(look):
        inside = [lks[-1].pid for lks in around.facts.children if lks] + [around.facts.pid or 0]
        socket = outward(look, inside)
        if socket is not None:
            return of_socket(socket, look.pid)
    return first_hop(looks, around, depth)
