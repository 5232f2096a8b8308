"""The connections between the nodes of a job: whose process is at the other end of a socket, and
from which hosts somebody has come of which nobody tells. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.addresses import host_of, is_loopback, plain_address, port_of
from ..base.identity import ProcessId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look, Socket
from ..base.rank_facts import LostNode, RankFacts
from ..diagnosis.single_ranks import is_gone
from ..evidence.successive_looks import change_descriptors

_Ends = tuple[str, str]  # local and peer, as the other side has them


def connect_nodes(
    ranks: Sequence[RankFacts], addresses: Mapping[str, str] | None = None
) -> list[RankFacts]:
    """Return the ranks; a socket whose other end a process on another machine has says which.
    `addresses` are those of hosts that are known without their sockets.

    An end that nobody has who was looked at was that of the one rank there that has ended, if there
    is one: what a rank has started may keep its connections open.
    """
    if len({facts.host for facts in ranks}) < 2:
        return [*ranks]
    owners: dict[_Ends, ProcessId] = {}
    hosts = dict(addresses or {})
    for facts in ranks:
        for looks in (facts.looks, *facts.children):
            last = looks[-1:]
            for socket in (s for k in last for s in (*k.sockets, *_list_called_sockets(k))):
                if ends := _find_remote_ends(socket):
                    owners.setdefault(ends, ProcessId(facts.host, looks[-1].pid))
                    hosts.setdefault(host_of(ends[0]), facts.host)
    ended = _find_only_ended(ranks)
    for local, peer in [*owners] if ended else ():
        if (peer, local) not in owners and (had := ended.get(hosts.get(host_of(peer), ""))):
            owners[peer, local] = had
    # The kernel of a machine makes a connection before the process that listens has accepted it.
    owners = {**_find_who_is_asked(ranks, hosts), **owners}
    if not any((peer, local) in owners for local, peer in owners):
        return [*ranks]  # nobody has the other end of anything
    return [_connect_rank(facts, owners) for facts in ranks]


def _find_who_is_asked(
    ranks: Sequence[RankFacts], hosts: Mapping[str, str]
) -> dict[_Ends, ProcessId]:
    """Return the processes that listen where a connection is asked for that nobody has answered, or
    was made that nobody may have accepted, by the ends that it has there.
    """
    last = [(r.host, looks[-1]) for r in ranks for looks in (r.looks, *r.children) if looks]
    listening = {
        (host, port_of(one.local)): ProcessId(host, look.pid)
        for host, look in last
        for one in look.sockets
        if one.state == "LISTEN" and one.family.startswith("tcp")
    }
    states = ("SYN_SENT", "ESTABLISHED")
    asked = (one for _, look in last for one in look.sockets if one.state in states)
    found = {}
    for local, peer in filter(None, map(_find_remote_ends, asked)):
        if other := listening.get((hosts.get(host_of(peer), ""), port_of(peer))):
            found[peer, local] = other
    return found


def _find_only_ended(ranks: Sequence[RankFacts]) -> dict[str, ProcessId]:
    """Return by host the rank that has ended there, where it is the only one and each other one
    there was looked at.
    """
    by_host: dict[str, list[RankFacts]] = {}
    for facts in ranks:
        by_host.setdefault(facts.host, []).append(facts)
    found = {}
    for host, here in by_host.items():
        ended = [facts for facts in here if is_gone(facts)]
        are_seen = all(facts.looks for facts in here if not is_gone(facts))
        if len(ended) == 1 and ended[0].pid is not None and are_seen:
            found[host] = ProcessId(host, ended[0].pid)
    return found


def map_addresses(known: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return by address as sockets have it the host, of those that have an address."""
    return {address.removeprefix("::ffff:"): host for address, host in known if address}


def mark_lost_ends(ranks: Sequence[RankFacts], lost: Sequence[LostNode]) -> list[RankFacts]:
    """Return the ranks; a socket whose other end is on a node that is lost says so."""
    hosts = map_addresses((one.address, one.host) for one in lost)
    if not hosts:
        return [*ranks]

    def mark(socket: Socket) -> Socket:
        ends = _find_remote_ends(socket)
        host = hosts.get(host_of(ends[1])) if ends is not None else None
        is_open = host is not None and socket.remote is None
        return replace(socket, remote=ProcessId(host or "", 0)) if is_open else socket

    return [_change_rank(facts, mark) for facts in ranks]


def _find_remote_ends(socket: Socket) -> _Ends | None:
    """Return both ends of a connection between machines, None for any other socket."""
    if not socket.family.startswith("tcp") or not socket.peer or not socket.local:
        return None
    local, peer = plain_address(socket.local), plain_address(socket.peer)
    return None if is_loopback(host_of(local)) or is_loopback(host_of(peer)) else (local, peer)


def _list_called_sockets(look: Look) -> list[Socket]:
    """Return the sockets that system calls name: they may be in no list."""
    calls = (task.syscall for task in look.kernel if task.syscall is not None)
    return [each.socket for call in calls for each in call.descriptors if each.socket is not None]


def _connect_rank(facts: RankFacts, owners: Mapping[_Ends, ProcessId]) -> RankFacts:
    def connect(socket: Socket) -> Socket:
        ends = _find_remote_ends(socket)
        other = owners.get((ends[1], ends[0])) if ends is not None else None
        is_away = other is not None and other.host != facts.host
        return replace(socket, remote=other) if is_away else socket

    return _change_rank(facts, connect)


def _change_rank(facts: RankFacts, change: Callable[[Socket], Socket]) -> RankFacts:
    return replace(
        facts,
        looks=tuple(_change_sockets(look, change) for look in facts.looks),
        children=tuple(
            tuple(_change_sockets(k, change) for k in looks) for looks in facts.children
        ),
    )


def _change_sockets(look: Look, change: Callable[[Socket], Socket]) -> Look:
    """Return the look with each of its sockets changed, in its list and in its system calls."""
    if all(change(one) is one for one in (*look.sockets, *_list_called_sockets(look))):
        return look  # most are: to make all its threads anew takes the longest
    sockets = tuple(map(change, look.sockets))
    kernel = change_descriptors(
        look, lambda one: one if one.socket is None else replace(one, socket=change(one.socket))
    )
    same = sockets == look.sockets and kernel == look.kernel
    return look if same else replace(look, sockets=sockets, kernel=kernel)


@dataclass(frozen=True)
class UnheardHost:
    """A host from which a process of the job has come, and of which no node has told."""

    address: str
    resent: int  # times in a row that what was sent there was sent again, and nothing came back


def list_unheard_hosts(
    connected: Sequence[RankFacts], told: Sequence[RankFacts], addresses: Mapping[str, str]
) -> list[UnheardHost]:
    """Return the hosts of which no node has told, and from which somebody has connected to a port
    of a rank at which ranks of other nodes are too. `connected`: ranks, as connect_nodes returns
    them; `told`: all of which a node has told; `addresses` are those of hosts that have.
    """
    sockets = [one for r in connected for look in r.looks[-1:] for one in _list_accepted(look)]
    here = {host_of(plain_address(one.local)) for facts in told for one in _list_sockets_of(facts)}
    found: dict[str, int] = {}
    for one in sockets:
        host = host_of(plain_address(one.peer))
        if host not in here and host not in addresses:
            found[host] = max(found.get(host, 0), one.resent)
    return [UnheardHost(host, resent) for host, resent in sorted(found.items())]


def _list_accepted(look: Look) -> list[Socket]:
    """Return the connections of others to the ports at which ranks of other nodes are, too."""
    listening = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"}
    open_ones = [one for one in look.sockets if one.state == "ESTABLISHED" and one.peer]
    accepted = [one for one in open_ones if port_of(one.local) in listening]
    of_ranks = {port_of(one.local) for one in accepted if one.remote is not None}
    return [
        one
        for one in accepted
        if port_of(one.local) in of_ranks and one.remote is None and _find_remote_ends(one)
    ]


def _list_sockets_of(facts: RankFacts) -> list[Socket]:
    return [one for look in facts.looks[-1:] for one in look.sockets if one.local]
