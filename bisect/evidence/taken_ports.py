"""Ports that a process waits to become free, by the functions that ask for one again and again, and
which sockets of the machine listen there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..base.addresses import port_of
from ..base.library_functions import Role, has_role
from ..base.process_facts import Socket, Thread

_LOCALS = ("port",)


def find_awaited_ports(threads: Iterable[Thread], known: Mapping[int, Socket]) -> dict[int, int]:
    """Return the ports that threads wait for and at which one of the sockets `known` (by inode)
    listens, each with the inode of that.
    """
    wanted = {
        int(value)
        for thread in threads
        for frame in thread.frames
        if has_role(frame.file, frame.name, Role.AWAITS_PORT)
        for name, value in frame.locals
        if name in _LOCALS and value.isascii() and value.isdigit()
    }
    return {
        int(port_of(one.local)): inode
        for inode, one in known.items()
        if one.state == "LISTEN"
        and one.family.startswith("tcp")
        and port_of(one.local).isdigit()
        and int(port_of(one.local)) in wanted
    }
