"""Ranks whose main threads talk to each other, over a connection that both ends of are seen.

A loop of short steps is found in the same place by every look, as one is that waits for something
again and again. What tells them apart is that messages come and go between the ranks themselves: a
store or a service that is asked again and again is answered by another process, or by a thread
beside a main thread that may hang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..base.addresses import host_of, is_loopback
from ..base.identity import RankId
from ..base.process_facts import Look, Socket, Syscall
from ..base.rank_facts import RankFacts
from .blocked_syscalls import POLL_CALLS, READ_CALLS
from .process_snapshot import main_kernel

LATELY = 1.0  # seconds before the last look, or more, from which on messages must have come

_End = tuple[str, str, str]  # the host of loopback addresses, local, peer


def note_exchanges(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return the ranks; each that exchanges messages with another one moves by that."""
    ends: dict[_End, RankFacts] = {}
    for facts in ranks:
        for socket in _list_heard_sockets(facts):
            ends[_name_end(facts, socket.local, socket.peer)] = facts
    peers: dict[RankId, RankId] = {}
    for (host, local, peer), facts in ends.items():
        other = ends.get((host, peer, local))
        if other is not None and other is not facts:
            peers.setdefault(facts.rank, other.rank)
    return [
        replace(facts, moved=f"exchanges messages with rank {peers[facts.rank]}")
        if facts.rank in peers and not facts.moved
        else facts
        for facts in ranks
    ]


def _name_end(facts: RankFacts, local: str, peer: str) -> _End:
    return facts.host if is_loopback(host_of(peer)) else "", local, peer


def _list_heard_sockets(facts: RankFacts) -> Iterator[Socket]:
    """Return the connections by which the main thread of a rank has heard something lately."""
    last = facts.looks[-1] if facts.looks else None
    before = [look for look in facts.looks if last and look.at <= last.at - LATELY]
    if last is None or not before or not facts.alive or _only_hears(facts.looks):
        return
    earlier = {one.inode: one.received for one in before[-1].sockets}
    for one in last.sockets:
        had = earlier.get(one.inode)
        is_connected = one.state == "ESTABLISHED" and one.family.startswith("tcp")
        if not is_connected or had is None or (one.received or 0) <= had:
            continue
        if _only_main_thread_is_there(last) or _reads_from(one.inode, facts.looks):
            yield one


def _only_hears(looks: Sequence[Look]) -> bool:
    """Return whether it is an event loop that waits at each look: others may wake it by pings."""
    calls = (_main_call(look) for look in looks)
    return all(call is not None and call.name in POLL_CALLS for call in calls)


def _main_call(look: Look) -> Syscall | None:
    task = main_kernel(look)
    return task.syscall if task is not None else None


def _only_main_thread_is_there(look: Look) -> bool:
    return [task.tid for task in look.kernel] == [look.pid]


def _reads_from(inode: int, looks: Sequence[Look]) -> bool:
    """Return whether the main thread was seen to read from a socket."""
    for look in looks:
        call = _main_call(look)
        if call is not None and call.name in READ_CALLS:
            sockets = (each.socket for each in call.descriptors)
            if any(one is not None and one.inode == inode for one in sockets):
                return True
    return False
