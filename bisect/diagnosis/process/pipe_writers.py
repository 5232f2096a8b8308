"""Who can still write what a process waits to read: all processes that have the other end. Pure.

The kernel shows who has the writing end of a pipe, and the other end of a connected Unix socket;
nobody else can get it but from one of these (pipe(7), unix(7)). If each of them waits, by whatever
way, for the reader, nobody ever writes. A pipe with a name is left out: anybody may open it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...base.process_facts import Descriptor, Look
from ...base.process_roles import find_actor
from ...base.verdict_facts import Wait
from .blocked_syscalls import POLL_CALLS, READ_CALLS
from .frames import is_service_thread
from .helper_processes import is_idle_worker
from .process_snapshot import ProcessSnapshot, main_kernel

_MOST_ENDS = 64  # of a pipe, that a look names: there may be more
_MOST_COMPARED = 32  # processes, any of which may be meant


def find_writers(view: ProcessSnapshot) -> tuple[str, tuple[int, ...]] | None:
    """Return what a process waits to read, without a time limit, and the pids of all that could
    write it, itself among them if it has that end too. None if it waits for anything else, or if it
    is not known who has the other end of each.
    """
    call = view.call
    if call is None or view.running or call.name not in READ_CALLS | POLL_CALLS:
        return None
    if call.timeout is not None or not call.descriptors:
        return None
    found = [_list_writers(one) for one in call.descriptors]
    if not all(found):
        return None
    names = ", ".join(dict.fromkeys(one.path for one in call.descriptors))
    return names, tuple(dict.fromkeys(pid for pids in found for pid in pids))


def _list_writers(one: Descriptor) -> tuple[int, ...]:
    """Return all that have the other end of a pipe or socket, () if that is not known."""
    if one.kind == "pipe":
        return tuple(end.pid for end in one.ends) if len(one.ends) < _MOST_ENDS else ()
    socket = one.socket
    if socket is None or socket.family != "unix" or socket.state in ("LISTEN", "SYN_SENT"):
        return ()
    return socket.peer_pids


def reads_words_of(look: Look, parent: int | None) -> bool:
    """Return whether a process reads its standard input, and that is what its parent writes to it:
    a worker that waits for its next request. A rank has the input of who has started it.
    """
    task = main_kernel(look)
    named = task.syscall.descriptors if task is not None and task.syscall is not None else ()
    inputs = (one for one in named if one.fd == 0)
    return any(
        parent in (one.other_ends if one.socket is None else one.socket.peer_pids) for one in inputs
    )


def only_main_thread_acts(look: Look) -> bool:
    """Return whether no thread of a process besides the main one could write anything: each sleeps,
    and those of Python's own wait for others, or serve a library. One that answers a request is
    woken by the next one, as where all ranks must have asked. Threads without Python of an actor of
    Ray's are Ray's own, and one of them may be on its way to its next wait.
    """
    if look.state in ("T", "t", "D", "R") or not look.kernel:
        return False
    python = {thread.os_id: thread for thread in look.threads}
    is_of_ray = bool(find_actor(look.command) and python)
    for task in look.kernel:
        if task.tid == look.pid or (is_of_ray and task.tid not in python):
            continue
        if task.state != "S" or not python:
            return False
        thread = python.get(task.tid)
        if thread is None or is_service_thread(thread):
            continue
        call = task.syscall
        if any(frame.file.endswith("/socketserver.py") for frame in thread.frames):
            return False
        if call is None or call.name != "futex" or call.timeout is not None:
            return False
    return True


def choose_awaited(looks: Sequence[Look], find_wait: Callable[[Look], Wait]) -> Look | None:
    """Return which of several processes is waited for, where any of them may be meant (the end of
    any child, whoever writes into a pipe): one that stands still by itself, before one that waits
    for another of these, one that sleeps, and one that is idle. `find_wait`: what one waits for.
    None of none.
    """
    if len(looks) < 2:
        return next(iter(looks), None)
    pids = {one.pid for one in looks}

    def order(one: Look) -> int:
        wait = find_wait(one)
        if is_idle_worker(one) or (wait.kind == "socket" and " LISTEN" in wait.detail):
            return 3
        if wait.kind == "sleep":
            return 2
        return int(wait.pid in pids - {one.pid})

    return min(looks[:_MOST_COMPARED], key=order)


def list_ends_among(descriptors: Iterable[Descriptor], path: str, pids: set[int]) -> set[int]:
    """Return which of the processes `pids` have the other end of the pipe called `path`."""
    named = (one for one in descriptors if one.path == path and one.kind in ("pipe", "fifo"))
    return {pid for one in named for pid in one.other_ends} & pids
