"""Waits of a rank that are for ranks of nodes which nobody sees, in a protocol of the job's own."""

from __future__ import annotations

from collections.abc import Collection

from ..base.addresses import host_of, is_loopback, port_of
from ..base.process_facts import Look, Socket
from .blocked_syscalls import hears_other_hosts
from .single_ranks import SingleRank


def find_unseen_end(one: SingleRank, masters: Collection[str]) -> str:
    """Return in words where the other end of a rank's connection is that is on a node which nobody
    sees: one that was heard, that of rank 0 (MASTER_ADDR, or one of the addresses `masters`; none
    where rank 0 is seen), one that came to a port of the rank's own, or is to come. "" for other
    waits.
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
