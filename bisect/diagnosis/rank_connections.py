"""The connections between ranks: which ranks are together in process groups of some ranks, whose
main threads talk to each other, which wait for one another alone, and over which connections
nothing gets through. Pure.

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

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from ..base.addresses import host_of, is_loopback, plain_address, port_of
from ..base.identity import ProcessId, RankId, name_rank
from ..base.lazy_dataclass import dataclass
from ..base.native_code import CODE_OF_PYTHON
from ..base.process_facts import Kernel, Look, Socket, Syscall
from ..base.rank_facts import RankFacts
from .process.blocked_syscalls import POLL_CALLS, READ_CALLS
from .process.frames import frame_owner, is_service_thread
from .process.process_snapshot import main_kernel

_MOST_RANKS = 64  # of a job that is looked into: the connections grow with their square


def find_group_partners(ranks: Sequence[RankFacts]) -> dict[RankId, frozenset[RankId]]:
    """Return by rank the others that are with it in groups of some ranks; {} if two ranks have no
    connection at all (they are made when they are first used, or by NCCL), or none whose other end
    is known.
    """
    living = [facts for facts in ranks if facts.looks and facts.pid is not None and facts.alive]
    if len(living) < max(len(ranks), 3) or len(living) > _MOST_RANKS:
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
    ranks = [*ranks]
    rank_of = {ProcessId(facts.host, facts.pid): facts.rank for facts in ranks if facts.pid}
    seen: dict[tuple[RankId, RankId], int] = {}
    for facts in ranks:
        for socket in facts.looks[-1].sockets:
            if socket.state == "ESTABLISHED" and socket.family.startswith("tcp"):
                ends = {ProcessId(facts.host, pid) for pid in socket.peer_pids} | {socket.remote}
                for other in {rank_of[end] for end in ends if end is not None and end in rank_of}:
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


_MUCH = 4  # times as much as to any other: what else goes over the connections of a group is small
_LEAST = 256  # bytes


def find_usual_receivers(ranks: Sequence[RankFacts]) -> dict[RankId, RankId]:
    """Return by rank the one other to which it has sent far more than to all others together, by
    what the kernel counts of their connections: one that hands messages over in one direction, as
    in a ring or a pipeline, has this one to hand the next to. No rank of fewer than three, and none
    that has not a connection to each other one.
    """
    return {rank: receiver for rank, (receiver, _) in _find_flows(ranks).items()}


def _find_flows(ranks: Sequence[RankFacts]) -> dict[RankId, tuple[RankId, int]]:
    """Return by rank its usual receiver, and how many bytes it has sent there."""
    living = [facts for facts in ranks if facts.looks and facts.pid is not None and facts.alive]
    if len(living) < max(len(ranks), 3) or len(living) > _MOST_RANKS:
        return {}
    rank_of = {ProcessId(facts.host, facts.pid): facts.rank for facts in living if facts.pid}
    found = {}
    for facts in living:
        sent: dict[RankId, int] = {}
        for one in facts.looks[-1].sockets:
            ends = {ProcessId(facts.host, pid) for pid in one.peer_pids} | {one.remote}
            for other in {rank_of[end] for end in ends if end is not None and end in rank_of}:
                sent[other] = sent.get(other, 0) + (one.sent or 0)
        sent.pop(facts.rank, None)
        most = max(sent, key=lambda rank: sent[rank], default=None)
        if most is not None and len(sent) == len(living) - 1:
            rest = sum(sent.values()) - sent[most]
            if sent[most] >= max(_LEAST, _MUCH * rest):
                found[facts.rank] = most, sent[most]
    return found


_AS_MUCH = 0.9  # of what another one has sent: what else goes that way is small


@dataclass(frozen=True)
class ShortFlow:
    """A rank that has handed less to the next one than each other rank has to its own."""

    sender: RankId
    receiver: RankId
    sent: int  # bytes
    usual: int  # the least of the others

    def __str__(self) -> str:
        return (
            f"{name_rank(self.sender)} has sent {self.sent} bytes to {name_rank(self.receiver)}, "
            f"which has taken less than any other: each other rank has sent {self.usual} or more "
            "to the one that it hands to"
        )


def find_short_flow(ranks: Sequence[RankFacts], sender: RankId) -> ShortFlow | None:
    """Return that of a rank that waits to hand a message over, where all ranks hand messages to one
    other each, and as much but for this one: what is missing was not taken, for who sends one too
    many has sent as much as the others. None where it is not so.
    """
    flows = _find_flows(ranks)
    if sender not in flows or len(flows) < len(ranks):
        return None
    receiver, sent = flows[sender]
    others = [count for rank, (_, count) in flows.items() if rank != sender]
    is_even = min(others) >= _AS_MUCH * max(others)
    if len(others) < 2 or not is_even or sent >= _AS_MUCH * min(others):
        return None
    return ShortFlow(sender, receiver, sent, min(others))


def is_untaken(socket: Socket, server: Look) -> bool:
    """Return whether a connection is to a port at which a process listens that has not accepted it:
    the kernel makes it, and the process has no other end.
    """
    ports = {port_of(one.local) for one in server.sockets if one.state == "LISTEN"}
    ends = {plain_address(one.peer) for one in server.sockets if one.peer}
    return port_of(socket.peer) in ports and plain_address(socket.local) not in ends


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

    @property
    def is_of_one_port(self) -> bool:
        """Whether it is asked for in vain, while all that goes over others between both hosts comes
        through: a firewall, say, throws away what is sent to that port.
        """
        others = [
            one
            for one in _list_connections(self.sender)
            if one.remote is not None and one.remote.host == self.receiver.host
        ]
        is_asked = self.socket.state == "SYN_SENT"
        return is_asked and bool(others) and not any(one.resent for one in others)

    def __str__(self) -> str:
        here = f"{name_rank(self.sender.rank)} on {self.sender.host}"
        there = f"{name_rank(self.receiver.rank)} on {self.receiver.host}"
        if self.socket.state == "SYN_SENT":
            return (
                f"the connection that {here} asks for, from {self.socket.local} to "
                f"{self.socket.peer} ({there}), was asked for {self.socket.resent} times more, and "
                "nothing is answered"
                + (": what goes to that port is lost, others get through" * self.is_of_one_port)
            )
        return (
            f"what {here} has sent from {self.socket.local} to {self.socket.peer} ({there}) was "
            f"sent again {self.socket.resent} times, and nothing is acknowledged"
        )


def find_cut_connection(ranks: Iterable[RankFacts]) -> CutConnection | None:
    """Return that over which data was sent again most often, or which was asked for most often
    without an answer; None where there is none.
    """
    ranks = [*ranks]
    states = ("ESTABLISHED", "SYN_SENT")
    resent = [
        (facts, one)
        for facts in ranks
        for one in _list_connections(facts, states)
        if one.resent >= OFTEN
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


def _list_connections(
    facts: RankFacts, states: Container[str] = ("ESTABLISHED",)
) -> Iterator[Socket]:
    last: list[Look] = [looks[-1] for looks in (facts.looks, *facts.children) if looks]
    for look in last:
        yield from (one for one in look.sockets if one.state in states)


_Server = tuple[str, str]  # the host of a loopback address, the address


def find_closed_circle(ranks: Iterable[RankFacts]) -> frozenset[ProcessId]:
    """Return the processes of ranks, and those that they have started, that wait for one another
    alone: each thread of Python in them reads, without a limit, what is to come over a connection
    to another one of them, so none of them ever sends it. A server whose only thread asks a client
    that asks the server is one of two. None where anything that was sent has not come: it may
    still.
    """
    living = [facts for facts in ranks if facts.looks and facts.pid is not None and facts.alive]
    looks = {
        ProcessId(facts.host, family[-1].pid): family[-1]
        for facts in living
        for family in (facts.looks, *facts.children)
        if family and any(map(_find_read_connection, family[-1].kernel))
    }
    if not looks or any(s.resent for facts in living for s in _list_connections(facts)):
        return frozenset()
    # A connection that nobody has accepted yet has no descriptor at its server: others have.
    served = {
        _name_server(process.host, socket.local): process
        for process, look in looks.items()
        for socket in look.sockets
        if socket.state == "ESTABLISHED"
    }
    awaited = {
        process: {_find_awaited(process, task, served) for task in _list_python_tasks(look)}
        for process, look in looks.items()
    }
    closed = {process for process, others in awaited.items() if others and process not in others}
    while open_ones := {process for process in closed if not awaited[process] <= closed}:
        closed -= open_ones
    return frozenset(closed)


def _list_python_tasks(look: Look) -> list[Kernel | None]:
    """Return the threads of Python that are at work for the job, as the kernel sees each."""
    tasks = {task.tid: task for task in look.kernel}
    return [
        tasks.get(thread.os_id or 0)
        for thread in look.threads
        if not is_service_thread(thread)
        and not any(frame_owner(frame, "") == "harness" for frame in thread.frames)
    ]


def _find_awaited(
    process: ProcessId, task: Kernel | None, served: Mapping[_Server, ProcessId]
) -> ProcessId | None:
    """Return the process of whom a thread waits to hear over a connection, None for other waits."""
    socket = _find_read_connection(task) if task is not None else None
    if socket is None:
        return None
    if socket.remote is not None:
        return socket.remote
    if len({*socket.peer_pids}) == 1:
        return ProcessId(process.host, socket.peer_pids[0])
    return served.get(_name_server(process.host, socket.peer))


def _find_read_connection(task: Kernel) -> Socket | None:
    """Return the connection from which a thread reads in code of Python's, None for any other: a
    library's own protocol may be answered by a thread of its own (a store).
    """
    call = task.syscall
    if call is None or call.name not in READ_CALLS or len(call.descriptors) != 1:
        return None
    socket = call.descriptors[0].socket
    if socket is None or socket.state != "ESTABLISHED" or not CODE_OF_PYTHON.search(call.caller):
        return None
    return socket


def _name_server(host: str, address: str) -> _Server:
    plain = address.replace("[::ffff:", "").replace("]:", ":") if "." in address else address
    return host if is_loopback(host_of(address)) else "", plain
