"""Who asks a peer one question after another: too few bytes to be progress by themselves.

With a hub that takes three seconds for each answer a process is seen in the same place at every
look, and some hundred bytes go both ways. So is one that asks the same for ever; but that mostly
pauses before it asks again, and is then seen elsewhere. Hence both looks must find it waiting, and
what is found here counts for a while only (`monitor.clocks.asking_until`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..facts import Look, Socket
from .movement import awaited
from .syscalls import words

# Bytes of an answer, at the least: the status line and the headers of HTTP are more. A heartbeat is
# less: 17 bytes in HTTP/2 (RFC 9113, PING), 2 in WebSocket (RFC 6455), 22 to 29 more under TLS.
LEAST = 64
_RECEIVES = words("read readv recvfrom recvmsg recvmmsg")


class Asking(NamedTuple):
    """That a process waits for the answer to another question than before."""

    at: float  # of the later look
    text: str  # what it does, without a subject
    answered: bool  # False: whether the question before was answered cannot be told


def asking(
    looks: Sequence[Look], children: Sequence[Sequence[Look]] = (), ours: Collection[int] = ()
) -> Asking | None:
    """Return the last sign that a process or a child of it gets answers, None for none.

    Each sequence is of one process, oldest first. `ours` are the processes of the job: what they
    ask one another is no sign of life.
    """
    found = [
        one
        for process in [looks, *children]
        for pair in pairwise(look for look in process if not _came_between(look))
        if (one := _between(*pair, ours)) is not None
    ]
    return max(found, key=lambda one: (one.at, one.answered), default=None)


def _came_between(look: Look) -> bool:
    """Return whether a connection was made while the look was taken: nothing is known of it."""
    return any(one.kind == "socket" and one.socket is None for _, one in awaited(look))


def _between(before: Look, after: Look, ours: Collection[int]) -> Asking | None:
    waited, waits = _peers(before, ours), _peers(after, ours)
    for inode, now in waits.items():
        if inode in waited and (now.received or 0) - (waited[inode].received or 0) >= LEAST:
            return Asking(after.at, f"gets answers from {now.peer or 'a socket'}", True)
    if waited.keys() & waits.keys() and _was_woken(before, after):
        return Asking(after.at, "hears from who it waits for", False)
    open_before = {one.inode for one in before.sockets}
    anew = [now for inode, now in waits.items() if waited and inode not in open_before]
    open_after = {one.inode for one in after.sockets}
    ended = _ends((one for one in waited.values() if one.inode not in open_after), after)
    if not anew or "in vain" in ended:
        return None
    return Asking(after.at, f"asks {anew[0].peer or 'a socket'} anew", ended == {"by the peer"})


def _was_woken(before: Look, after: Look) -> bool:
    """Return whether a call that returns only if something comes has returned in between: nobody
    counts the bytes of a Unix socket.
    """
    calls = [look.kernel[0].syscall for look in (before, after) if look.kernel]
    receives = all(c is not None and c.name in _RECEIVES and c.timeout is None for c in calls)
    if not receives or before.waits is None or after.waits is None:
        return False
    return after.waits > before.waits


def _ends(waited: Iterable[Socket], after: Look) -> set[str]:
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


def _peers(look: Look, ours: Collection[int]) -> Mapping[int, Socket]:
    """Return the established connections that a process waits on, by inode."""
    sockets = [one.socket for _, one in awaited(look) if one.socket is not None]
    return {
        one.inode: one
        for one in sockets
        if one.state == "ESTABLISHED" and not set(one.peer_pids) & set(ours)
    }
