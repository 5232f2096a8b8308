"""Which thread of a server answers a request, and whether that one waits for others. Pure.

The main thread of a server with a thread for each request takes connections (socketserver.py,
serve_forever; an event loop), and says nothing of what the request waits for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import takewhile

from ...base.addresses import port_of
from ...base.process_facts import Frame, Kernel, Look, Socket, Thread
from .blocked_syscalls import CHILD_WAIT_CALLS, READ_CALLS, list_awaited_pids
from .frames import frame_owner, runs_job_code, unqualified_name
from .helper_processes import is_halted
from .process_snapshot import ProcessSnapshot, put_thread_first
from .public_calls import find_group_wait

# How main threads wait for connections: socketserver, an event loop, multiprocessing's managers.
_TAKES_CONNECTIONS = (
    (re.compile(r"/(?:socketserver|http/server)\.py$"), re.compile("serve_forever")),
    (re.compile(r"/multiproc?ess(?:ing)?/managers\.py$"), re.compile("serve_forever|accepter")),
    (re.compile(r"/asyncio/(?:base_events|runners)\.py$"), re.compile("run_\\w+|_run_once|run")),
    (re.compile(r"/(?:uvloop|uvicorn)/\S+$"), re.compile("run|serve")),
    (re.compile(r"/grpc/_server\.py$"), re.compile("wait_for_termination")),
)

# What answers one request, in a thread of its own or of a pool; in a manager each client has one.
_HANDLES = (
    (re.compile(r"/socketserver\.py$"), re.compile("process_request_thread|finish_request")),
    (
        re.compile(r"/multiproc?ess(?:ing)?/managers\.py$"),
        re.compile("serve_client|handle_request"),
    ),
    (re.compile(r"/grpc/_server\.py$"), re.compile("_call_behavior|_take_response_from_\\w+")),
)


def put_request_thread_first(look: Look) -> Look:
    """Return a look at a server that is asked as if the thread that answers a request were its main
    thread; any other look, and one at a server that has no such thread, as it is.
    """
    shown = put_stuck_request_first(look)
    if shown is not look or look.main is None or not takes_connections(look.main):
        return shown
    kernel = {task.tid: task for task in look.kernel}
    others = [one for one in look.threads if one.os_id not in (None, look.pid)]
    at_work = (one for one in others if runs_job_code(one))
    chosen = next(
        (one for one in at_work if not _reads_from_a_client(look, kernel.get(one.os_id or 0))), None
    )
    return look if chosen is None else put_thread_first(look, chosen.os_id or 0)


def put_stuck_request_first(look: Look) -> Look:
    """Return a look at a server as if the thread that stands still in the job's own code for a
    request were its main thread, one that waits for no lock of another thread's before others; any
    other look, and one at a server whose threads only wait for the next request of a client, as it
    is.
    """
    if look.main is None or not takes_connections(look.main):
        return look
    threads = {one.os_id: one for one in look.threads if one is not look.main}
    stuck = [
        task
        for task in look.kernel
        if task.state in ("S", "D") and task.tid in threads
        if _handles_a_request(threads[task.tid]) and not _reads_from_a_client(look, task)
    ]
    chosen = min(stuck, key=lambda one: (_is_in_futex(one), one.tid), default=None)
    return look if chosen is None else put_thread_first(look, chosen.tid)


def _is_in_futex(task: Kernel) -> bool:
    return task.syscall is not None and task.syscall.name == "futex"


def _handles_a_request(thread: Thread) -> bool:
    """Return whether a thread is in the job's own code, inside of what handles a request."""
    python = [frame for frame in thread.frames if not frame.native]
    inside = takewhile(lambda one: not _calls_a_handler(one), python)
    own = [frame_owner(one, "") == "user" for one in inside]
    return len(own) < len(python) and any(own)


def _calls_a_handler(frame: Frame) -> bool:
    name = unqualified_name(frame.name)
    return any(file.search(frame.file) and what.match(name) for file, what in _HANDLES)


def _reads_from_a_client(look: Look, task: Kernel | None) -> bool:
    """Return whether a thread waits for a socket that its server has accepted: that one has the
    address at which the server listens.
    """
    call = task.syscall if task is not None else None
    ends = [one.socket for one in call.descriptors if one.socket] if call is not None else []
    ports = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"} - {""}
    return any(
        bool(one.local) if one.family == "unix" else port_of(one.local) in ports for one in ends
    )


def has_client_inside(looks: Sequence[Look], store_port: str = "") -> bool:
    """Return whether a thread of one of these processes waits for what another one of them, or its
    own, is to send over TCP from a port at which that listens: an answer is to come, and from
    nobody outside. The job's own store, at `store_port`, counts for nothing.
    """
    serving = {
        port: look.pid
        for look in looks
        for one in look.sockets
        if one.state == "LISTEN" and one.family.startswith("tcp")
        if (port := port_of(one.local)) not in ("", store_port)
    }
    return any(
        port_of(end.peer) in serving and serving[port_of(end.peer)] in end.peer_pids
        for look in looks
        for task in look.kernel
        if task.syscall is not None and task.syscall.name in READ_CALLS
        for one in task.syscall.descriptors
        if (end := one.socket) is not None and end.state == "ESTABLISHED"
    )


def list_unanswered_clients(looks: Sequence[Look], store_port: str = "") -> list[Socket]:
    """Return the connections over TCP that one of these processes has taken, at a port at which one
    of them listens, and over which it has got something and sent nothing: a request is to be
    answered. The job's own store, at `store_port`, counts for nothing; nor do message queues, which
    greet each other.
    """
    ports = {port for look in looks for port in list_served_ports(look)} - {store_port}
    return [
        one
        for look in looks
        for one in look.sockets
        if one.state == "ESTABLISHED" and bool(one.received) and one.sent == 0
        if one.family.startswith("tcp") and port_of(one.local) in ports
    ]


def list_untaken_ports(looks: Sequence[Look], store_port: str = "") -> list[str]:
    """Return the addresses at which one of these processes listens over TCP while connections are
    there that it has not accepted. The job's own store, at `store_port`, counts for nothing.
    """
    return [
        one.local
        for look in looks
        for one in look.sockets
        if one.state == "LISTEN" and one.unread and one.family.startswith("tcp")
        if port_of(one.local) != store_port
    ]


def list_served_ports(look: Look) -> set[str]:
    """Return the ports at which a process listens over TCP."""
    listens = (s for s in look.sockets if s.state == "LISTEN" and s.family.startswith("tcp"))
    return {port_of(one.local) for one in listens} - {""}


def is_of_a_client(socket: Socket, look: Look) -> bool:
    """Return whether a process listens by a socket over TCP, or has taken a connection by it."""
    return socket.family.startswith("tcp") and port_of(socket.local) in list_served_ports(look)


def waits_for_others(view: ProcessSnapshot, ranks: Collection[int | None]) -> bool:
    """Return whether a server waits for what ranks (their pids) or whoever else asks it are to do:
    in a group, for a connection or a request, for the end of one, at a store that it has itself.
    One that is stopped does not.
    """
    if is_halted(view.look):
        return False
    if find_group_wait(view) is not None or list_awaited_pids(view.look) & {*ranks}:
        return True
    if view.main is not None and takes_connections(view.main):
        return True
    if view.call is not None and view.call_name in CHILD_WAIT_CALLS:
        return bool({*view.call.args[:1]} & {*ranks})
    sockets = [one.socket for one in (view.call.descriptors if view.call is not None else ())]
    ends = [{*one.peer_pids} if one is not None else set() for one in sockets]
    return bool(ends) and all(one == {view.look.pid} for one in ends)


def takes_connections(thread: Thread, of_each: bool = False) -> bool:
    """Return whether a thread is in such a function, and in no code of the job's below it.
    `of_each`: of a server that answers each request in a thread of its own.
    """
    python = (frame for frame in thread.frames if not frame.native)
    inside = takewhile(lambda frame: frame_owner(frame, "") != "user", python)
    return any(
        file.search(one.file) and names.fullmatch(unqualified_name(one.name))
        for one in inside
        for file, names in (_TAKES_CONNECTIONS[:2] if of_each else _TAKES_CONNECTIONS)
    )
