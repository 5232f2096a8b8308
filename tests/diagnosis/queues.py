"""Short spellings of what a look shows of a process that waits at a queue of ZeroMQ's (libzmq
5.2.5, pyzmq 27.3).
"""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket, Syscall

from .made_up import look

EPOLL = Descriptor(7, "anon", "anon_inode:[eventpoll]")
EVENT = Descriptor(8, "anon", "anon_inode:[eventfd]")


def unix(peer: int | None, inode: int = 51, path: str = "/tmp/a.sock") -> Socket:
    """A connection over `path`, of a process `peer`; None: that nobody has."""
    pids = () if peer is None else (peer,)
    return Socket(inode, "unix", "", path, "ESTABLISHED", peer_pids=pids, peer_inode=inode + 1)


LISTENS = Socket(50, "unix", "/tmp/a.sock", "", "LISTEN")


def queue(*sockets: Socket, timeout: float | None = None, tid: int = 901) -> Kernel:
    """ZeroMQ's thread that has these sockets; `timeout`: until it tries to connect again."""
    found = tuple(
        Descriptor(20 + n, "socket", f"socket:[{one.inode}]", socket=one)
        for n, one in enumerate(sockets)
    )
    call = Syscall(232, "epoll_wait", (7,), timeout=timeout, descriptors=(EPOLL, EVENT, *found))
    return Kernel(tid, "ZMQbg/IO/0", "S", "do_epoll_wait", call)


def receives(
    number: int, *sockets: Socket, timeout: float | None = None, retries: float | None = None
) -> Look:
    """A look at rank `number` that waits for a message; with a time limit it does so again."""
    one = look(
        "ask train.py:4",
        pid=100 + number,
        call="poll",
        wchan="poll_schedule_timeout.constprop.0",
        descriptors=(EVENT,),
    )
    (main,) = one.kernel
    assert main.syscall is not None
    main = replace(main, syscall=replace(main.syscall, timeout=timeout))
    return replace(one, kernel=(main, queue(*sockets, timeout=retries)))
