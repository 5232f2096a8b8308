"""What a blocked system call waits for: the kinds of calls, the file, pipe, peer or terminal that a
call names, and what a connection has carried while its process was looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from string import digits

from ...base.addresses import host_of, is_loopback, may_be, port_of, proxies
from ...base.process_facts import (
    Descriptor,
    Look,
    Socket,
    Syscall,
    list_queue_sockets,
    tries_to_connect,
    waits_at_queue,
)
from ...base.verdict_facts import Wait, WaitKind


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SLEEP_CALLS = _split_names("nanosleep clock_nanosleep pause rt_sigtimedwait rt_sigsuspend")
CHILD_WAIT_CALLS = _split_names("wait4 waitid vfork")
LOCK_CALLS = _split_names("flock fcntl semop semtimedop")
POLL_CALLS = _split_names("poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2")
WRITE_CALLS = _split_names("write writev pwrite64 sendto sendmsg splice sendfile")
READ_CALLS = _split_names("read readv recvfrom recvmsg")
OPEN_CALLS = _split_names("open openat openat2 creat")
PATH_CALLS = _split_names("""
    mkdir mkdirat stat lstat newfstatat statx access faccessat faccessat2 rename renameat
    renameat2 unlink unlinkat rmdir readlink readlinkat chmod fchmodat chown fchownat link
    linkat symlink symlinkat statfs utimensat execve execveat chdir truncate mount sync
""")
# With a descriptor as the first argument.
TRANSFER_CALLS = _split_names("""
    read pread64 readv preadv preadv2 recvfrom recvmsg recvmmsg getdents64 write pwrite64 writev
    pwritev pwritev2 sendto sendmsg sendmmsg sendfile splice copy_file_range fsync fdatasync
    syncfs ftruncate fallocate fstat fstatfs connect accept accept4 close lseek
""")
# In which a library waits for the other ranks; "": not known.
PEER_WAIT_CALLS = (
    POLL_CALLS | SLEEP_CALLS | _split_names("futex recvfrom recvmsg read sched_yield") | {""}
)


_SILENT = ("LISTEN", "CLOSE", "CLOSED", "")
_KINDS: dict[str, WaitKind] = {"tty": "input", "device": "device", "file": "file"}


def format_socket(socket: Socket) -> str:
    """Return a socket as the verdict spells it: "127.0.0.1:18080 ESTABLISHED"."""
    where = socket.peer or socket.local or socket.family
    counted = f", {socket.received} bytes received" if socket.received == 0 else ""
    return f"{where} {socket.state}".strip() + counted


def make_socket_wait(socket: Socket, own_pid: int) -> Wait:
    """Return the wait for the other end of `socket`."""
    what = socket.peer or socket.local
    if socket.remote is not None:
        other = socket.remote
        return Wait("socket", format_socket(socket), other.pid or None, what=what, host=other.host)
    others = [
        (pid, name)
        for pid, name in _pair_with_names(socket.peer_pids, socket.peer_names)
        if pid != own_pid
    ]
    pid, name = others[0] if others else (None, None)
    return Wait("socket", format_socket(socket), pid, name or None, what=what)


def _pair_with_names(pids: Sequence[int], names: Sequence[str]) -> Iterable[tuple[int, str]]:
    return zip(pids, [*names, *[""] * max(0, len(pids) - len(names))], strict=False)


def make_descriptor_wait(descriptor: Descriptor, look: Look, family: Sequence[int]) -> Wait | None:
    """Return the wait for what `descriptor` is, None if that says nothing.

    `family` are the descendants of the process: at the other end of a pipe they are what is
    waited for, and the pipe only the way.
    """
    if descriptor.kind == "socket":
        socket = descriptor.socket or find_socket_by_inode(descriptor, look)
        if socket is None:
            return Wait("socket", descriptor.path, what=descriptor.path)
        if socket.peer_pids and set(socket.peer_pids) == {look.pid}:
            return None  # both ends are its own, as those of an event loop
        if socket.family == "unix":
            child = next((p for p in socket.peer_pids if p in family), None)
            if child is not None:
                return Wait("process", format_socket(socket), child, what=descriptor.path)
        return make_socket_wait(socket, look.pid)
    path = descriptor.path
    if descriptor.kind in ("pipe", "fifo"):
        child = next((p for p in descriptor.other_ends if p in family and p != look.pid), None)
        if child is not None:
            return Wait("process", path, child, what=path)
        other = next((p for p in descriptor.other_ends if p != look.pid), None)
        if other is None and descriptor.other_ends and descriptor.kind == "pipe":
            return Wait("pipe", f"{path}, both ends are its own", what=path)
        detail = f"{path}, its standard input" if descriptor.fd == 0 else path
        return Wait("pipe", detail, other, what=path)
    kind = _KINDS.get(descriptor.kind)
    if kind == "device" and path.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        kind = "input"
    return Wait(kind, path, what=path) if kind else None


def is_fed_by_itself(look: Look, call: Syscall | None) -> bool:
    """Return whether the process itself has the other end of each pipe and socket that a call
    names, and the call names nothing else: an event loop, or the wait for a thread of its own.
    """
    named = [one for one in (call.descriptors if call else ()) if one.kind != "anon"]
    return bool(named) and all(_other_ends(one) == {look.pid} for one in named)


def _other_ends(one: Descriptor) -> Set[int]:
    if one.socket is not None:
        return {*one.socket.peer_pids}
    return {*one.other_ends} if one.kind == "pipe" else frozenset()


def is_open_to_peers(wait: Wait, call: Syscall | None) -> bool:
    """Return whether anybody on the machine may end a wait by opening what the call names: a pipe
    with a name, a port that listens, or one for datagrams, and nobody has the other end yet.
    """
    if wait.pid is not None or wait.host or call is None or not call.descriptors:
        return False
    return all(one.kind == "fifo" or _is_open_socket(one.socket) for one in call.descriptors)


def hears_other_hosts(wait: Wait, call: Syscall | None) -> bool:
    """Return whether a wait is for anybody to connect from another machine."""
    if call is None or not is_open_to_peers(wait, call):
        return False
    ports = [one.socket for one in call.descriptors]
    return all(one is not None and not is_loopback(host_of(one.local)) for one in ports)


def _is_open_socket(socket: Socket | None) -> bool:
    if socket is None or socket.remote is not None or socket.peer_pids:
        return False
    is_connected = bool(socket.peer) and not socket.peer.endswith((":0", ":*"))
    return not is_connected and (socket.state == "LISTEN" or socket.family.startswith("udp"))


def find_socket_by_inode(descriptor: Descriptor, look: Look) -> Socket | None:
    """Return the socket of a look whose inode is in a descriptor's path ("socket:[4711]")."""
    inode = "".join(c for c in descriptor.path if c in digits)
    return next((s for s in look.sockets if str(s.inode) == inode), None)


# Of several descriptors that are polled, the one that says most.
_ORDER = ("process", "socket", "pipe", "input", "device", "file")


_READS = frozenset(["read", "readv", "recvfrom", "recvmsg"])


def choose_descriptor_wait(
    descriptors: Iterable[Descriptor],
    look: Look,
    family: Sequence[int],
    readers: Collection[int] = (),
) -> Wait | None:
    """Return the wait that says most of those for `descriptors`; of several for a process one that
    is not for those which read from this one themselves (`readers`).
    """
    waits = [w for d in descriptors if (w := make_descriptor_wait(d, look, family)) is not None]
    return min(
        waits,
        key=lambda w: (_ORDER.index(w.kind), w.pid is None, w.pid in readers),
        default=None,
    )


def list_readers(pid: int, looks: Iterable[Look]) -> frozenset[int]:
    """Return which of these processes wait to read what process `pid` is to write."""
    return frozenset(
        look.pid
        for look in looks
        if any(k.syscall and k.syscall.name in _READS for k in look.kernel if k.tid == look.pid)
        if pid in list_awaited_pids(look)
    )


def find_outward_socket(look: Look, inside: Iterable[int]) -> Socket | None:
    """Return the socket by which a process talks to the world outside of the pids `inside`."""
    known = {look.pid, *inside}
    talking = [
        s
        for s in look.sockets
        if s.family != "unix"
        and s.state not in _SILENT
        and s.remote is None
        and not (set(s.peer_pids) & known)
    ]
    opening = [s for s in talking if s.state == "SYN_SENT"]
    return next(iter(opening or talking), None)


def find_queue_wait(
    call: Syscall | None, look: Look, family: Collection[int], waiting_for_it: Collection[int]
) -> Wait | None:
    """Return the wait of a process whose main thread waits at a message queue, None if it does not.

    Which of its connections is meant nothing says: it is one to a process that does not wait for
    this one (`waiting_for_it`: the pids of those that do), and the others are named beside it.
    """
    if not waits_at_queue(call, look.kernel):
        return None
    sockets = list_queue_sockets(look.kernel)
    outward = [s for s in sockets if s.state not in _SILENT and set(s.peer_pids) != {look.pid}]
    found = [make_socket_wait(socket, look.pid) for socket in outward]
    if not found:
        return _make_lonely_queue_wait(look, sockets)
    # Of those that all wait for it, who has started it waits for its end.
    chosen = min(
        found,
        key=lambda wait: (wait.pid in waiting_for_it, wait.pid is None, wait.pid == look.ppid),
    )
    peers = dict.fromkeys(wait.pid for wait in found if wait.pid is not None)
    others = tuple(pid for pid in peers if pid != chosen.pid)
    kind: WaitKind = "process" if chosen.pid in family else "socket"
    return replace(chosen, kind=kind, others=others)


def is_for_client(wait: Wait, look: Look) -> bool:
    """Return whether a wait is for who has connected to a port at which the process listens: it
    asks for something, and a server that has a queue to its own workers waits for these.
    """
    return wait.kind == "socket" and any(one.peer == wait.what for one in list_clients(look))


def list_clients(look: Look) -> list[Socket]:
    """Return the connections that came to the ports at which a process listens."""
    ports = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"} - {""}
    return [
        one
        for one in look.sockets
        if one.state == "ESTABLISHED" and one.family.startswith("tcp")
        if port_of(one.local) in ports
    ]


def find_folder_wait(call: Syscall | None, place: str) -> Wait | None:
    """Return the wait for what happens in a folder, where a call names inotify's descriptors alone
    (inotify(7)); `place`: of the call, in words.
    """
    named = call.descriptors if call is not None else ()
    heard = [one.path for one in named if one.path != "anon_inode:[eventpoll]"]
    if not heard or not all(path.endswith("inotify") for path in heard):
        return None
    return Wait("file", f"an event of inotify, in {place}" if place else "an event of inotify")


def format_others(wait: Wait) -> str:
    """Return in words for whom a wait may be as well, "" for nobody."""
    # What a loop listens to besides is said with it.
    named = wait.others if not wait.is_for_any else ()
    return f"or it waits for {', '.join(map(str, named))}" if named else ""


NOBODY_CONNECTED = "nobody is connected"  # the end of what is said of such a wait


def _make_lonely_queue_wait(look: Look, sockets: Iterable[Socket]) -> Wait | None:
    """Return the wait at a message queue without a connection."""
    listening = next((one.local for one in sockets if one.state == "LISTEN"), "")
    if listening:
        return Wait("socket", f"{listening} LISTEN, {NOBODY_CONNECTED}", what=listening)
    if not tries_to_connect(look.kernel):
        return None
    if look.unserved:
        words = f"nobody serves {' or '.join(look.unserved)}"
        return Wait("socket", words, what=look.unserved[0])
    return Wait("socket", "no connection is made, though it is tried again and again")


def list_awaited_pids(look: Look, thread: int | None = None) -> frozenset[int]:
    """Return the other processes at the other ends of what the call of a thread waits for; None:
    of the main thread.
    """
    tid = thread or look.pid
    call = next((task.syscall for task in look.kernel if task.tid == tid), None)
    if call is None or look.state == "R" or call.name not in POLL_CALLS | TRANSFER_CALLS:
        return frozenset()
    sockets = [one.socket for one in call.descriptors if one.socket is not None]
    if waits_at_queue(call, look.kernel):
        sockets += list_queue_sockets(look.kernel)
    pids = {pid for one in sockets for pid in one.peer_pids}
    pids.update(pid for one in call.descriptors for pid in one.other_ends)
    return frozenset(pids - {look.pid})


def read_wanted_child(call: Syscall | None) -> int:
    """Return the child that wait4 or waitid names, 0 where it is any."""
    args = call.args if call is not None else ()
    if call is not None and call.name == "waitid" and len(args) > 1 and args[0] == 1:  # P_PID
        return args[1]
    is_named = call is not None and call.name == "wait4" and args and 0 < args[0] < 1 << 31
    return args[0] if is_named else 0


def waits_for_children(look: Look, children: Sequence[Look]) -> bool:
    """Return whether a process waits for the end of its `children`: by its call, or as a shell does
    that is no Python, until the kernel tells it by a signal of an end (dash's `wait`).
    """
    name = next((task.syscall.name for task in look.kernel[:1] if task.syscall is not None), "")
    is_told = name == "rt_sigsuspend" and not look.threads
    return name in CHILD_WAIT_CALLS or (is_told and any(one.state != "Z" for one in children))


def list_connected_pids(look: Look) -> frozenset[int]:
    """Return the other processes at the other ends of a process's connections over TCP, whatever
    waits for them: the members of its groups are among them.
    """
    found = (s for s in look.sockets if s.state == "ESTABLISHED" and s.family.startswith("tcp"))
    return frozenset(pid for socket in found for pid in socket.peer_pids) - {look.pid}


def format_traffic(looks: Sequence[Look], wait: Wait, environment: Mapping[str, str]) -> str:
    """Return in words what the connection that `wait` is about is, and how many bytes came over
    it between the first look and the last: "(https_proxy) ESTABLISHED, 0 bytes in 12 s".
    """
    proxy = _find_proxy(wait.what, environment)
    state = _format_socket_state(looks, wait)
    return f"({proxy}) {state}" if proxy else state


def _find_proxy(address: str, environment: Mapping[str, str]) -> str:
    """Return the variable that names `address` as a proxy, "" if none does."""
    for name, (host, port) in proxies(environment).items():
        if port == port_of(address) and may_be(host, host_of(address), port):
            return name
    return ""


def _format_socket_state(looks: Sequence[Look], wait: Wait) -> str:
    found = [(look.at, s) for look in looks for s in _list_sockets(look) if _is_awaited(s, wait)]
    if not found:
        return wait.detail.removeprefix(wait.what).strip(" ,")
    at, last = found[-1]
    same = [(then, s) for then, s in found if s.inode == last.inode and s.received is not None]
    state = last.state or last.family
    if last.received is None or not same:
        return state
    began, first = same[0]
    grown = last.received - (first.received or 0)
    if at - began < 1.0:  # one look: all that it ever got, if that is nothing
        return f"{state}, 0 bytes received" if last.received == 0 else state
    return f"{state}, {grown} byte{'' if grown == 1 else 's'} in {at - began:.0f} s"


def _list_sockets(look: Look) -> Iterator[Socket]:
    """Yield the sockets that a look shows; those that a system call names may be in no list."""
    yield from look.sockets
    for thread in look.kernel[:1]:
        for descriptor in thread.syscall.descriptors if thread.syscall else ():
            if descriptor.socket is not None:
                yield descriptor.socket


def _is_awaited(socket: Socket, wait: Wait) -> bool:
    return bool(wait.what) and wait.what in (socket.peer, socket.local)
