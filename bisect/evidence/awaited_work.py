"""Whose movement counts while a process waits. Pure.

What moves is progress only if the wait may depend on it. Where the kernel names what the main
thread waits for (a child, the other end of a pipe or a socket, who has a file lock), and has not
woken it since the look before, only those processes count, what is below them, and what they wait
for in turn. Where it does not (a lock inside the process, an event loop, an end that nobody knows)
everything counts: a hang that is missed costs less than a healthy job that is called hung.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.addresses import host_of, is_loopback, is_talking
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Kernel, Look, Socket, Syscall
from .kernel import split_words

_NAMES_DESCRIPTORS = split_words(
    "read readv recvfrom recvmsg write writev sendto sendmsg connect poll ppoll"
)
_AWAITS_CHILD = split_words("wait4 waitid")
_AWAITS_FILE_LOCK = split_words("flock fcntl")
_BY_PID = 1  # waitid(2): P_PID


@dataclass(frozen=True)
class Feeders:
    """Who may end a wait: threads of the process itself, and which processes below it."""

    own_threads: bool
    children: frozenset[int] | None  # their pids; None: any of them


_ANYBODY = Feeders(True, None)


def is_same_wait(before: Look, after: Look) -> bool:
    """Return whether the main thread has been in one wait from one look to the next: the kernel
    counts how often it has waited (voluntary_ctxt_switches, proc(5)).
    """
    first, second = _main_call(before), _main_call(after)
    if first is None or second is None or before.waits is None or before.waits != after.waits:
        return False
    return (first.number, first.name, first.stack) == (second.number, second.name, second.stack)


def select_last_wait(looks: Sequence[Look]) -> Sequence[Look]:
    """Return the last looks, all of which found the main thread in one and the same wait."""
    first = len(looks) - 1
    while first > 0 and is_same_wait(looks[first - 1], looks[first]):
        first -= 1
    return looks[max(first, 0) :]


def find_feeders(look: Look, children: Iterable[Look] = ()) -> Feeders:
    """Return who may end the wait of a process's main thread; `children` are looks at what is below
    it.
    """
    family = {one.pid: one for one in children}
    call = _main_call(look)
    if call is None:
        return _ANYBODY
    named = _list_awaited_processes(call, look, family)
    if named is None or look.pid in named:
        return _ANYBODY
    needed = _add_what_they_need(named, family, look.pid)
    return _ANYBODY if needed is None else Feeders(False, needed)


def keep_what_feeds(before: Look, after: Look) -> tuple[Look, Look]:
    """Return two looks at a process that is in one wait at both, without what cannot end that: the
    other threads, sockets that it does not wait for, and the counters of the whole process.
    """
    return _without_helpers(before), _without_helpers(after)


def keep_children_that_feed(
    looks: Sequence[Look], children: Sequence[Sequence[Look]]
) -> list[Sequence[Look]]:
    """Return the children whose movement counts: those that the last wait of the process may depend
    on, and of all others what they did before it.
    """
    wait = select_last_wait(looks)
    if len(wait) < 2:
        return list(children)
    feeders = find_feeders(wait[-1], (one[-1] for one in children if one))
    if feeders.children is None:
        return list(children)
    pids, began = feeders.children, wait[0].at
    inherited = {one.inode for one in wait[-1].sockets}
    parents = {one[-1].pid: one[-1].ppid for one in children if one}
    kept = []
    for one in filter(None, children):
        if one[-1].pid in pids:
            kept.append(_without_inherited(one, inherited))
        elif _is_below(one[-1].pid, wait[-1].pid, parents):
            kept.append(_before(one, began))
        else:  # its parent has ended: nobody knows who started it
            kept.append(one)
    return [one for one in kept if one]


def _is_below(pid: int, top: int, parents: Mapping[int, int]) -> bool:
    passed: set[int] = set()
    while pid in parents and pid not in passed:
        passed.add(pid)
        pid = parents[pid]
    return pid == top


def _without_inherited(looks: Sequence[Look], inherited: Collection[int]) -> Sequence[Look]:
    """Return looks at a child without the sockets that its parent has too, and it never waits on: a
    fork has them all, and the kernel counts what the parent reads.
    """
    own = {
        one.socket.inode
        for look in looks
        for task in look.kernel
        for one in (task.syscall.descriptors if task.syscall is not None else ())
        if one.socket is not None
    }
    foreign = set(inherited) - own
    return [
        replace(one, sockets=tuple(s for s in one.sockets if s.inode not in foreign))
        for one in looks
    ]


def _before(looks: Sequence[Look], began: float) -> Sequence[Look]:
    """Return the looks up to the first one after `began`; () of who was started after that."""
    if looks[0].at - looks[0].age >= began:
        return ()
    return [one for n, one in enumerate(looks) if n == 0 or looks[n - 1].at < began]


def _main_call(look: Look) -> Syscall | None:
    return look.kernel[0].syscall if look.kernel else None


def _without_helpers(look: Look) -> Look:
    call, main = _main_call(look), look.main
    waited = {one.socket.inode for one in (call.descriptors if call else ()) if one.socket}
    return replace(
        look,
        threads=() if main is None else (main,),
        kernel=look.kernel[:1],
        sockets=tuple(one for one in look.sockets if one.inode in waited),
        sample=None,
    )


# ---- who is named by a wait ----------------------------------------------------------------------


def _list_awaited_processes(
    call: Syscall, look: Look, family: Mapping[int, Look]
) -> Collection[int] | None:
    """Return the processes that a call of the main thread waits for, () for what is elsewhere; None
    where it does not tell.
    """
    if call.name in _AWAITS_CHILD:
        pid = _find_awaited_child(call)
        if pid and pid not in family:  # inside a container it has another number
            return None
        return {pid} if pid else [one for one in family if family[one].ppid == look.pid]
    if call.name in _AWAITS_FILE_LOCK:
        holders = [lock.holder for lock in look.locks if lock.waiting]
        return None if not holders or None in holders else [one for one in holders if one]
    return _list_other_ends(call, look)


def _find_awaited_child(call: Syscall) -> int:
    """Return the pid of the one child whose end is awaited (wait(2)), 0 for any of several."""
    if not call.args:
        return 0
    if call.name == "waitid":
        return call.args[1] if call.args[0] == _BY_PID and len(call.args) > 1 else 0
    number = call.args[0] & 0xFFFFFFFF
    return number if number < 1 << 31 else 0


def _list_other_ends(call: Syscall, look: Look) -> set[int] | None:
    """Return who has the other ends of what a call waits for; None where one of them is not known,
    or is on this machine and nobody is seen to have it.
    """
    if call.name not in _NAMES_DESCRIPTORS or not call.descriptors:
        return None
    found: set[int] = set()
    for one in call.descriptors:
        ends = one.other_ends if one.socket is None else one.socket.peer_pids
        is_elsewhere = one.socket is not None and _is_elsewhere(one.socket, look)
        if one.kind not in ("pipe", "fifo", "socket") or not (ends or is_elsewhere):
            return None
        found.update(ends)
    return found


def _is_elsewhere(socket: Socket, look: Look) -> bool:
    """Return whether the other end of a socket is on another machine, as far as the sockets of a
    process tell.
    """
    if not is_talking(socket):
        return False
    host = host_of(socket.peer).removeprefix("::ffff:")
    local = {host_of(one.local).removeprefix("::ffff:") for one in (socket, *look.sockets)}
    return host not in local and not is_loopback(host)


def _add_what_they_need(
    named: Collection[int], family: Mapping[int, Look], own: int
) -> frozenset[int] | None:
    """Return these processes with all that is below them, and all that those wait for in turn; None
    where one may wait for anything of the job's.
    """
    found: set[int] = set()
    queue = list(named)
    while queue:
        pid = queue.pop()
        if pid == own:
            return None
        if pid in found:
            continue
        found.add(pid)
        queue += [one.pid for one in family.values() if one.ppid == pid]
        if (look := family.get(pid)) is not None:
            ends = _list_needs(look)
            if ends is None:
                return None
            queue += ends
    return frozenset(found)


def _list_needs(look: Look) -> list[int] | None:
    """Return the processes that any thread of a process waits for; None where that may be anybody:
    locks in memory that several processes share (multiprocessing) name no owner.
    """
    if look.threads and _waits_in(look.kernel[:1], "futex"):
        return None
    found: list[int] = []
    for task in look.kernel:
        call = task.syscall
        meets = call is not None and any(
            one.kind in ("pipe", "fifo", "socket") for one in call.descriptors
        )
        if call is None or not meets or call.name not in _NAMES_DESCRIPTORS:
            continue
        ends = _list_other_ends(call, look)
        if ends is None:
            return None
        found += ends
    return found


def _waits_in(tasks: Iterable[Kernel], name: str) -> bool:
    return any(one.syscall is not None and one.syscall.name == name for one in tasks)
