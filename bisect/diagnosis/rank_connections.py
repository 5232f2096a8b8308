"""The connections between ranks: which ranks are together in process groups of some ranks, whose
main threads talk to each other, and over which connections nothing gets through. Pure.

A group of gloo connects every two of its members once, and keeps these connections as long as it
is there (gloo/rendezvous/context.cc). A look shows no member of a group, which is an object of C++,
but it shows who is at the other end of a connection: two ranks with more of them than they have
with all others are in a group of some ranks together.

A loop of short steps is found in the same place by every look, as one is that waits for something
again and again. What tells them apart is that messages come and go between the ranks themselves: a
store or a service that is asked again and again is answered by another process, or by a thread
beside a main thread that may hang.

A kernel that is up acknowledges what reaches it whatever its process does, also where that is
stopped or reads nothing: then a window of zero is told, and nothing is sent again (RFC 9293,
3.8.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from ..base.addresses import host_of, is_loopback
from ..base.identity import ProcessId, RankId, name_rank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look, Socket, Syscall
from ..base.rank_facts import RankFacts
from .blocked_syscalls import POLL_CALLS, READ_CALLS
from .process_snapshot import main_kernel

_MOST_RANKS = 64  # of a job that is looked into: the connections grow with their square


def find_group_partners(ranks: Sequence[RankFacts]) -> dict[RankId, frozenset[RankId]]:
    """Return by rank the others that are with it in groups of some ranks; {} if two ranks have no
    connection at all (they are made when they are first used, or by NCCL), or on several hosts.
    """
    living = [facts for facts in ranks if facts.looks and facts.pid is not None and facts.alive]
    if len(living) < max(len(ranks), 3) or len(living) > _MOST_RANKS:
        return {}
    if len({facts.host for facts in living}) > 1:
        return {}
    counts = _count_connections(living)
    numbers = [facts.rank for facts in living]
    if not all(counts.get(pair) for pair in permutations(numbers, 2)):
        return {}
    # Who serves the store has connections to all others besides.
    fewest = {a: min(counts[a, b] for b in numbers if b != a) for a in numbers}
    return {
        a: frozenset(b for b in numbers if b != a and counts[a, b] > max(fewest[a], fewest[b]))
        for a in numbers
    }


def _count_connections(ranks: Iterable[RankFacts]) -> dict[tuple[RankId, RankId], int]:
    """Return how many connections two ranks have, as that of both shows it that shows more."""
    rank_of = {facts.pid: facts.rank for facts in ranks}
    seen: dict[tuple[RankId, RankId], int] = {}
    for facts in ranks:
        for socket in facts.looks[-1].sockets:
            if socket.state == "ESTABLISHED" and socket.family.startswith("tcp"):
                for other in {rank_of[pid] for pid in socket.peer_pids if pid in rank_of}:
                    if other != facts.rank:
                        pair = facts.rank, other
                        seen[pair] = seen.get(pair, 0) + 1
    return {(a, b): max(count, seen.get((b, a), 0)) for (a, b), count in seen.items()} | {
        (b, a): max(count, seen.get((b, a), 0)) for (a, b), count in seen.items()
    }


def find_only_group(partners: Mapping[RankId, frozenset[RankId]]) -> frozenset[RankId]:
    """Return the members of the only group of some ranks, none if there are several, or none."""
    members = frozenset(rank for rank, others in partners.items() if others)
    is_one = all(partners[rank] | {rank} == members for rank in members)
    return members if is_one and 1 < len(members) < len(partners) else frozenset()


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


# Each time is twice as long as the last, from 0.2 s on (RFC 6298): for 1.4 s nothing came back.
OFTEN = 3  # times in a row


@dataclass(frozen=True)
class CutConnection:
    """One of them, as the end that sends has it."""

    socket: Socket
    sender: RankFacts
    receiver: RankFacts

    def __str__(self) -> str:
        here = f"{name_rank(self.sender.rank)} on {self.sender.host}"
        there = f"{name_rank(self.receiver.rank)} on {self.receiver.host}"
        return (
            f"what {here} has sent from {self.socket.local} to {self.socket.peer} ({there}) was "
            f"sent again {self.socket.resent} times, and nothing is acknowledged"
        )


def find_cut_connection(ranks: Iterable[RankFacts]) -> CutConnection | None:
    """Return that over which data was sent again most often, None where there is none."""
    ranks = [*ranks]
    resent = [
        (facts, one) for facts in ranks for one in _list_connections(facts) if one.resent >= OFTEN
    ]
    if not resent:
        return None
    by_process: dict[ProcessId, RankFacts] = {}
    for facts in ranks:
        for looks in (facts.looks, *facts.children):
            if looks:
                by_process.setdefault(ProcessId(facts.host, looks[-1].pid), facts)
    found = [
        CutConnection(socket, facts, by_process[socket.remote])
        for facts, socket in resent
        if socket.remote in by_process
    ]
    return max(found, key=lambda one: one.socket.resent, default=None)


def _list_connections(facts: RankFacts) -> Iterator[Socket]:
    last: list[Look] = [looks[-1] for looks in (facts.looks, *facts.children) if looks]
    for look in last:
        yield from (one for one in look.sockets if one.state == "ESTABLISHED")
