"""Protocols of the job's own: a rank that serves its peers at a port and waits there for those that
have not come, and waits that are for ranks of nodes which nobody sees. Pure.

Programs that meet by their own means often have one rank at which the others connect, and which
goes on once all have: it accepts so many connections, or asks its own server, whose threads answer
when all have asked. Nothing of such a wait names a rank. But who has come is seen by the other ends
of connections, and who has not is waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..base.addresses import host_of, is_loopback, port_of
from ..base.identity import ProcessId, RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look, Socket, list_queue_sockets, waits_at_queue
from ..base.verdict_facts import Wait
from .process.blocked_syscalls import hears_other_hosts
from .single_ranks import SingleRank, is_gone

PLACE = "connections to"  # in words, before the address


@dataclass(frozen=True)
class AwaitedGuests:
    """At which address a rank serves, and which ranks have not come there."""

    address: str
    missing: tuple[RankId, ...]

    @property
    def ranks(self) -> frozenset[RankId]:
        """The ranks that have not come."""
        return frozenset(self.missing)

    @property
    def place(self) -> str:
        """In words."""
        return f"{PLACE} {self.address}"

    def make_wait(self, own: Wait | None) -> Wait:
        """Return the wait for the first of them; `own` is what the process waits in."""
        first = self.missing[0]
        detail = f"{self.place}: rank {first} has not come"
        return replace(own or Wait("socket", ""), detail=detail, rank=first)


def find_awaited_guests(ranks: Sequence[SingleRank]) -> dict[RankId, AwaitedGuests]:
    """Return of each rank that waits at a server of its own, at which at least one other rank waits
    for its word, those that have no connection there: where all others have come and wait for it,
    those that ended early.

    Who waits for a process of another rank, or for its peers, is none of these: it is on its way to
    somebody else, perhaps to the one that serves.
    """
    serving = {
        ProcessId(one.facts.host, one.facts.pid): (one, address)
        for one in ranks
        if one.facts.pid is not None and (address := _find_own_server(one))
    }
    if not serving:
        return {}
    living = [one for one in ranks if not (is_gone(one.facts) or one.facts.finished)]
    pids = {ProcessId(other.facts.host, other.facts.pid or 0): other for other in living}
    ended = [one.facts.rank for one in ranks if is_gone(one.facts) and not one.facts.finished]
    found = {}
    for process, (one, address) in serving.items():
        others = [other for other in living if other is not one]
        came = {other.facts.rank for other in others if _has_come(other, process, address)}
        if not any(_waits_for(other, process) for other in others if other.facts.rank in came):
            continue
        missing = tuple(
            other.facts.rank
            for other in others
            if other.facts.rank not in came and not _is_on_its_way(other, pids)
        )
        if all(other.facts.rank in came and _waits_for(other, process) for other in others):
            missing = tuple(ended)
        if missing:
            found[one.facts.rank] = AwaitedGuests(address, missing)
    return found


def _find_own_server(one: SingleRank) -> str:
    """Return the address at which a rank serves and waits by itself, "" if it does not."""
    call = one.view.call if one.view is not None else None
    if call is None or one.group or one.facts.pid is None:
        return ""
    named = [d.socket for d in call.descriptors if d.socket is not None]
    listens = next((socket.local for socket in named if socket.state == "LISTEN"), "")
    if listens:
        return listens
    assert one.view is not None
    if waits_at_queue(call, one.view.look.kernel):
        queues = {s.local for s in list_queue_sockets(one.view.look.kernel) if s.state == "LISTEN"}
        return queues.pop() if len(queues) == 1 else ""
    own = {s.local for s in one.view.look.sockets if s.state == "LISTEN"}
    asks = (s.peer for s in named if {*s.peer_pids} == {one.facts.pid})
    return next((peer for peer in asks if _is_at(peer, own)), "")


def _is_at(peer: str, addresses: Collection[str]) -> bool:
    """Return whether a connection to `peer` ends at one of these addresses: a server may listen at
    all addresses of its machine.
    """
    ports = {port for address in addresses if (port := port_of(address))}
    return peer in addresses or (port_of(peer) != "" and port_of(peer) in ports)


def _has_come(other: SingleRank, server: ProcessId, address: str) -> bool:
    return any(
        _is_at(socket.peer, [address]) and _ends_at(socket, other.facts.host, server)
        for socket in _list_sockets(other)
    )


def _list_sockets(one: SingleRank) -> list[Socket]:
    looks = (one.facts.looks, *one.facts.children)
    return [socket for looked in looks if looked for socket in looked[-1].sockets]


def _ends_at(socket: Socket, host: str, server: ProcessId) -> bool:
    """Return whether a socket's other end is the server's, or may be: on another machine, or in a
    child of it, nobody may be known to have it.
    """
    if socket.remote is not None:
        return socket.remote in (server, ProcessId(server.host, 0))
    return not socket.peer_pids or (server.pid in socket.peer_pids and host == server.host)


def _waits_for(other: SingleRank, server: ProcessId) -> bool:
    wait = other.wait
    return wait is not None and ProcessId(wait.host or other.facts.host, wait.pid or 0) == server


def _is_on_its_way(other: SingleRank, ranks: Mapping[ProcessId, SingleRank]) -> bool:
    """Return whether a rank waits for another one, which is then to be asked."""
    wait = other.wait
    if other.group or other.facts.held or other.facts.awaits:
        return True
    if wait is None:
        return False
    if wait.rank is not None and wait.rank != other.facts.rank:
        return True
    awaited = ranks.get(ProcessId(wait.host or other.facts.host, wait.pid or 0))
    return awaited is not None and awaited is not other


def find_unseen_end(one: SingleRank, masters: Collection[str]) -> str:
    """Return in words where the other end of a rank's connection is that is on a node which nobody
    sees: one that was heard, that of rank 0 (MASTER_ADDR, or one of the addresses `masters`; none
    where rank 0 is seen), one that came to a port of the rank's own, or is to come; or that was
    not read. "" for other waits.
    """
    wait = one.wait
    if wait is None or wait.kind != "socket" or wait.pid:
        return ""
    if wait.host:
        return f" on {wait.host}"
    call = one.view.call if one.view is not None else None
    if hears_other_hosts(wait, call):
        return ", to which nobody connects"
    peer = host_of(wait.detail.partition(" ")[0])
    if peer and not is_loopback(peer) and peer in masters:
        return f" on {peer}"
    if one.view is None or call is None or not call.descriptors:
        return ""
    if all(each.kind == "socket" and each.socket is None for each in call.descriptors):
        return ", whose other end could not be read"
    look = one.view.look
    if all(_came_to_its_port(each.socket, look) for each in call.descriptors):
        return f", which came to a port of its own from {peer}"
    return ""


def _came_to_its_port(socket: Socket | None, look: Look) -> bool:
    """Return whether a connection was made from another machine, to a port at which the process
    listens.
    """
    if socket is None or not socket.peer or is_loopback(host_of(socket.peer)):
        return False
    ports = {port_of(each.local) for each in look.sockets if each.state == "LISTEN"}
    return socket.state == "ESTABLISHED" and port_of(socket.local) in ports
