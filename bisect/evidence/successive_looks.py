"""What two successive looks at a process tell together: a look is completed from the one before,
and a process that asks a peer one question after another is found.

A look that pauses the process asks for no locals, for it would pause for longer; and what may
block with a process does not always answer in time. The look before fills that in.

Of questions to a peer too few bytes pass to be progress by themselves. With a hub that takes
three seconds for each answer a process is seen in the same place at every look, and some hundred
bytes go both ways. So is one that asks the same for ever; but that mostly pauses before it asks
again, and is then seen elsewhere. Hence both looks must find it waiting, and what is found here
counts for a while only (`monitor.clocks.asking_until`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ..base.process_facts import Descriptor, Frame, Kernel, Look, Socket, Thread
from .descriptors import ENDS_UNKNOWN
from .kernel import may_wait_for_input
from .movement import find_awaited_descriptors, list_threads_of_the_step
from .stacks import format_stacks


def complete_look(before: Look, after: Look) -> Look:
    """Return `after` with what only `before` shows: the locals of the frames that both have, the
    lock files found by them; and what was not answered, the command line, whether it is frozen, and
    who has the other ends of what it waits for.
    """
    if before.pid == after.pid and ENDS_UNKNOWN in after.missing:
        after = _copy_other_ends(before, after)
    if before.pid == after.pid and before.command and not after.command:
        after = replace(after, command=before.command, frozen=before.frozen)
    if (
        after.rung != "py-spy"
        or before.pid != after.pid
        or any(_has_locals(t) for t in after.threads)
    ):
        return after
    known = {thread.os_id: thread for thread in before.threads}
    threads = tuple(_copy_locals(known.get(one.os_id), one) for one in after.threads)
    if not any(_has_locals(thread) for thread in threads):
        return after
    return replace(
        after,
        threads=threads,
        stale_locks=after.stale_locks or before.stale_locks,
        awaited_files=after.awaited_files or before.awaited_files,
        taken_ports=after.taken_ports or before.taken_ports,
        asked_server=after.asked_server or before.asked_server,
        dump=format_stacks(after.pid, after.command or (after.name,), threads),
    )


def _copy_other_ends(before: Look, after: Look) -> Look:
    """Return `after` with the processes at the other ends of what was open before as well."""
    old = [one for task in before.kernel if task.syscall for one in task.syscall.descriptors]
    ends = {one.path: one.other_ends for one in old if one.other_ends}
    peers = {one.inode: one for one in before.sockets if one.peer_pids}
    peers |= {one.socket.inode: one.socket for one in old if one.socket and one.socket.peer_pids}

    def fill_socket(one: Socket) -> Socket:
        known = peers.get(one.inode)
        if known is None or one.peer_pids or (known.peer, known.state) != (one.peer, one.state):
            return one
        return replace(one, peer_pids=known.peer_pids, peer_names=known.peer_names)

    def fill(one: Descriptor) -> Descriptor:
        if one.socket is not None:
            return replace(one, socket=fill_socket(one.socket))
        return replace(one, other_ends=one.other_ends or ends.get(one.path, ()))

    kernel = change_descriptors(after, fill)
    return replace(after, kernel=kernel, sockets=tuple(map(fill_socket, after.sockets)))


def change_descriptors(
    look: Look, change: Callable[[Descriptor], Descriptor]
) -> tuple[Kernel, ...]:
    """Return the threads of a look with each descriptor that their calls name changed."""
    return tuple(
        task
        if (call := task.syscall) is None
        else replace(task, syscall=replace(call, descriptors=tuple(map(change, call.descriptors))))
        for task in look.kernel
    )


def _has_locals(thread: Thread) -> bool:
    return any(frame.locals or frame.objects or frame.numbers for frame in thread.frames)


def _copy_locals(before: Thread | None, after: Thread) -> Thread:
    """Return the thread with the locals of the outermost frames that it shares with `before`."""
    shared = iter([f for f in reversed(before.frames) if not f.native] if before else [])
    frames: list[Frame] = []
    still = True
    for frame in reversed(after.frames):
        if still and not frame.native:
            old = next(shared, None)
            still = old is not None and _place_of_frame(old) == _place_of_frame(frame)
            if still and old is not None:
                frame = replace(frame, locals=old.locals, objects=old.objects, numbers=old.numbers)
        frames.append(frame)
    return replace(after, frames=tuple(reversed(frames)))


def _place_of_frame(frame: Frame) -> tuple[str, str, int]:
    return frame.file, frame.name, frame.line


# Bytes of an answer, at the least: the status line and the headers of HTTP are more. A heartbeat is
# less: 17 bytes in HTTP/2 (RFC 9113, PING), 2 in WebSocket (RFC 6455), 22 to 29 more under TLS.
LEAST_REQUEST = 64


class PeerRequest(NamedTuple):
    """That a process waits for the answer to another question than before."""

    at: float  # of the later look
    text: str  # what it does, without a subject
    answered: bool  # False: whether the question before was answered cannot be told
    heard: bool = False  # something came, of which nobody can say how much: a heartbeat, or all


def find_peer_request(
    looks: Sequence[Look], children: Sequence[Sequence[Look]] = (), ours: Collection[int] = ()
) -> PeerRequest | None:
    """Return the last sign that a process or a child of it gets answers, None for none.

    Each sequence is of one process, oldest first. `ours` are the processes of the job: what they
    ask one another is no sign of life.
    """
    found = [
        one
        for process in [looks, *children]
        for pair in pairwise(look for look in process if not _came_between(look))
        if (one := _find_request_between(*pair, ours)) is not None
    ]
    return max(found, key=lambda one: (one.at, one.answered), default=None)


def _came_between(look: Look) -> bool:
    """Return whether a connection was made while the look was taken: nothing is known of it."""
    return any(
        one.kind == "socket" and one.socket is None for _, one in find_awaited_descriptors(look)
    )


def _find_request_between(before: Look, after: Look, ours: Collection[int]) -> PeerRequest | None:
    waited, waits = _find_awaited_peers(before, ours), _find_awaited_peers(after, ours)
    for inode, now in waits.items():
        if inode in waited and (now.received or 0) - (waited[inode].received or 0) >= LEAST_REQUEST:
            return PeerRequest(after.at, f"gets answers from {now.peer or 'a socket'}", True)
    if _was_woken(before, after, ours):
        return PeerRequest(after.at, "hears from who it waits for", answered=False, heard=True)
    open_before = {one.inode for one in before.sockets}
    anew = [now for inode, now in waits.items() if waited and inode not in open_before]
    open_after = {one.inode for one in after.sockets}
    ended = _find_ended_connections(
        (one for one in waited.values() if one.inode not in open_after), after
    )
    if not anew or "in vain" in ended:
        return None
    return PeerRequest(
        after.at, f"asks {anew[0].peer or 'a socket'} anew", ended == {"by the peer"}
    )


def _was_woken(before: Look, after: Look, ours: Collection[int]) -> bool:
    """Return whether a call that returns only if something comes has returned in between, and the
    same waits again: nobody counts the bytes of a Unix socket, nor those that a helper thread reads
    from a pipe.
    """
    waited = _count_wakings(before, ours)
    return any(
        count > waited.get(where, count) for where, count in _count_wakings(after, ours).items()
    )


def _count_wakings(look: Look, ours: Collection[int]) -> Mapping[tuple[int, str], int]:
    """Return how often each thread has waited that receives from outside of the job without a time
    limit, by its id and what it receives from.
    """
    counts = {}
    for thread in list_threads_of_the_step(look):
        call = thread.syscall
        if call is None or call.timeout is not None or not may_wait_for_input(call):
            continue
        waits = look.waits if thread is look.kernel[0] else thread.waits
        if waits is not None and all(_is_open_end(one, ours) for one in call.descriptors):
            counts.update({(thread.tid, one.path): waits for one in call.descriptors})
    return counts


def _is_open_end(one: Descriptor, ours: Collection[int]) -> bool:
    """Return whether something may come by a descriptor that no process of the job sends."""
    if one.socket is not None:
        return one.socket.state == "ESTABLISHED" and not set(one.socket.peer_pids) & set(ours)
    return one.kind in ("pipe", "fifo") and not set(one.other_ends) & set(ours)


def _find_ended_connections(waited: Iterable[Socket], after: Look) -> set[str]:
    """Return how connections ended that were waited on: the peer closed them, as who has answered
    does; only this side did, in vain; or it cannot be told.

    Who closes first keeps its end for a while, in FIN_WAIT1 or FIN_WAIT2 until the other end is
    closed too, then in TIME_WAIT (RFC 9293, 3.3.2).
    """
    kept = {one.local: one.state for one in after.closed_here}
    words = {"FIN_WAIT1": "in vain", "FIN_WAIT2": "in vain", "": "by the peer"}
    return {
        words.get(kept.get(one.local, ""), "unknown") if one.received is not None else "unknown"
        for one in waited
    }


def _find_awaited_peers(look: Look, ours: Collection[int]) -> Mapping[int, Socket]:
    """Return the established connections that a process waits on, by inode."""
    sockets = [one.socket for _, one in find_awaited_descriptors(look) if one.socket is not None]
    return {
        one.inode: one
        for one in sockets
        if one.state == "ESTABLISHED" and not set(one.peer_pids) & set(ours)
    }
