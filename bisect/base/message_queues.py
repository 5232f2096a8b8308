"""Message queues of ZeroMQ, as a look at a process shows them.

libzmq keeps the connections of a process in threads of its own, named "ZMQbg/IO/N" (src/ctx.cpp);
whoever sends or receives sleeps at an eventfd that such a thread writes to (src/signaler.cpp). So
what the caller's system call names is nobody's. A connection that fails is tried again by the
thread, which sleeps until then: 100 ms, and as much again by chance (ZMQ_RECONNECT_IVL; man 3
zmq_setsockopt; src/stream_connecter_base.cpp).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .process_facts import Kernel, Socket, Syscall

_THREADS = "ZMQbg/IO"  # how their names begin
_EVENTS = "anon_inode:[eventfd]"


def list_queue_threads(kernel: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """Return the threads that have the connections of message queues."""
    return tuple(task for task in kernel if task.comm.startswith(_THREADS))


def list_queue_sockets(kernel: Iterable[Kernel]) -> tuple[Socket, ...]:
    """Return the sockets of message queues, those that listen included."""
    calls = [task.syscall for task in list_queue_threads(kernel) if task.syscall is not None]
    return tuple(d.socket for call in calls for d in call.descriptors if d.socket is not None)


def waits_at_queue(call: Syscall | None, kernel: Collection[Kernel]) -> bool:
    """Return whether a system call waits for what a message queue brings."""
    events = call is not None and any(one.path == _EVENTS for one in call.descriptors)
    return events and bool(list_queue_threads(kernel))


def tries_to_connect(kernel: Collection[Kernel]) -> bool:
    """Return whether the message queues of a process have no connection, and one of them is about
    to try again.
    """
    calls = [task.syscall for task in list_queue_threads(kernel) if task.syscall is not None]
    again = any(call.name.startswith("epoll_") and call.timeout is not None for call in calls)
    return again and not any(one.kind == "socket" for c in calls for one in c.descriptors)
