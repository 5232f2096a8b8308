"""Pipes and sockets whose other end does not do its part."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.addresses import is_talking
from ...base.process_facts import Descriptor, Look, waits_at_queue
from ..exit_words import describe_exit_status
from ..process.blocked_syscalls import POLL_CALLS, list_awaited_pids
from ..process.frames import format_frame
from ..process.helper_processes import find_thread_for_room
from ..process.process_snapshot import ProcessSnapshot
from ..process.request_threads import has_client_inside, takes_connections
from ..proof_of_hang import waits_for_requests
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import (
    a_child_died,
    a_helper_died,
    find_blocked_processes,
    find_used_descriptors,
    format_descriptor,
    format_owner,
    format_place,
    format_process,
    list_other_ends,
    waits_for_one_that_never_came,
)

PIPE_UNREAD = "pipe-unread"
SOCKET_UNREAD = "socket-unread"
_WRITES = re.compile(r"writev?|pwritev2|send(?:to|msg|mmsg|file)|v?m?splice")
READS = re.compile(r"readv?|preadv2|recv(?:from|msg)|splice")
_ACCEPTS = re.compile(r"accept4?")
_MESSAGES = re.compile(r"msgrcv|mq_timedreceive")
_OPENS = re.compile(r"openat2?|open")
# Of Linux 5.x and 6.x: where room in a full pipe, and a partner for a fifo, are waited for.
_PIPE_IS_FULL = ("pipe_write", "anon_pipe_write", "fifo_pipe_write")
_NO_PARTNER = ("wait_for_partner", "fifo_open")


def list_uses(
    scene: Scene, calls: re.Pattern[str], kinds: tuple[str, ...], polls: bool = False
) -> Iterator[tuple[ProcessSnapshot, Descriptor]]:
    """Yield the processes that wait in one of `calls`, with the descriptor that it is about, the
    one that nobody else of them waits for first. `polls`: or in poll() for that alone.
    """
    for view in reversed(find_blocked_processes(scene)):
        waits = calls.fullmatch(view.call_name) or (polls and _polls_for_one(view))
        if not waits or view.running or view.state == "D":
            continue
        for one in find_used_descriptors(scene, view):
            if one.kind in kinds:
                yield view, one


def _polls_for_one(view: ProcessSnapshot) -> bool:
    """Return whether a process waits in poll(), for as long as it takes, for one thing alone: to
    read it, for in a pipe there mostly is room to write.
    """
    call = view.call
    if call is None or call.name not in POLL_CALLS or call.timeout is not None:
        return False
    return len(call.descriptors) == 1


def _using(
    scene: Scene, calls: re.Pattern[str], kinds: tuple[str, ...]
) -> tuple[ProcessSnapshot, Descriptor] | None:
    """Return the first of `list_uses`."""
    return next(list_uses(scene, calls, kinds), None)


def _find_other_holders(view: ProcessSnapshot, one: Descriptor) -> tuple[int, ...]:
    """Return who else has the other end."""
    return tuple(pid for pid in list_other_ends(one) if pid != view.look.pid)


def _process(scene: Scene, pid: int, names: tuple[str, ...] = ()) -> str:
    rank = scene.rank_of(pid)
    look = next((c for c in scene.children if c.pid == pid), None)
    name = next(iter(names), "") or (look.name if look is not None else "process")
    return f"{name} ({pid})" + (f", which is rank {rank}" if rank is not None else "")


# ---- signs ---------------------------------------------------------------------------------------


def _writes_into_a_pipe(scene: Scene) -> Found | None:
    """A process waits in write() on a pipe, or on a terminal."""
    found = _using(scene, _WRITES, ("pipe", "fifo")) or _writes_to_a_terminal(scene)
    if found is None:
        return None
    view, one = found
    full = f"A pipe, {format_descriptor(one)}, is full (it holds 64 KiB)"
    if one.kind not in ("pipe", "fifo"):
        full = f"A terminal, {format_descriptor(one)}, has no room (or Ctrl-S has stopped it)"
    values = {"full": full, "reader": "nobody that we may see", "fd": one.fd}
    return Found(
        f"{format_owner(scene, view)} waits in {view.call_name} on {format_descriptor(one)}",
        values,
    )


def _writes_to_a_terminal(scene: Scene) -> tuple[ProcessSnapshot, Descriptor] | None:
    """Return the first process that waits in a write to a terminal (pty(7)), with that."""
    used = list_uses(scene, _WRITES, ("tty", "device"))
    return next((one for one in used if one[1].path.startswith(("/dev/pts/", "/dev/tty"))), None)


def pipe_is_full(scene: Scene) -> Found | None:
    """The kernel waits for room in it."""
    found = _using(scene, _WRITES, ("pipe", "fifo"))
    if found is None or not found[0].wchan.startswith(_PIPE_IS_FULL):
        return None
    return Found(f"the pipe is full ({found[0].wchan})")


def _somebody_should_read(scene: Scene) -> Found | None:
    """It is known who has the other end and does not read."""
    found = _using(scene, _WRITES, ("pipe", "fifo"))
    others = _find_other_holders(*found) if found is not None else ()
    if found is None or not (others or found[1].other_ends):
        return None
    if not others:
        return Found("only it itself has the other end", {"reader": "nobody but itself"})
    who = _process(scene, others[0])
    gone = _find_ended_reader(scene, found[0], found[1], others)
    if gone is not None:
        how = describe_exit_status(gone.status) if gone.status else "has ended with status 0"
        ended = f"{format_process(gone)} {how}"
        reader = f"{who}, which reads another one; {ended}, and may be who was to read it"
        return Found(
            f"{who} has the other end, and reads another pipe; {ended}", {"reader": reader}
        )
    return Found(f"{who} has the other end and does not read", {"reader": who})


def _find_ended_reader(
    scene: Scene, view: ProcessSnapshot, pipe: Descriptor, others: tuple[int, ...]
) -> Look | None:
    """Return the last child of a writer that has ended (a zombie), where all who have the other end
    of its pipe read another one: they were forked later, and have inherited it. None else.
    """
    families = scene.subject.children if scene.subject is not None else ()
    last = [looks[-1] for looks in families if looks]
    dead = [one for one in last if one.state == "Z" and one.ppid == view.look.pid]
    holders = [one for one in scene.workers if one.look.pid in others]
    elsewhere = (
        READS.fullmatch(one.call_name) is not None
        and all(used.path != pipe.path for used in find_used_descriptors(scene, one))
        for one in holders
    )
    if not dead or len(holders) < len(others) or not all(elsewhere):
        return None
    return max(dead, key=lambda one: (one.status not in (None, 0), one.pid))


def _opens_a_fifo(scene: Scene) -> Found | None:
    """A process waits in open() for the other end of a named pipe."""
    for view in reversed(find_blocked_processes(scene)):
        if _OPENS.fullmatch(view.call_name) and view.wchan.startswith(_NO_PARTNER):
            path = view.call.path if view.call is not None and view.call.path else "a named pipe"
            words = f"{format_owner(scene, view)} opens {path}, and nobody has its other end open"
            return Found(words, {"path": path})
    return None


def _fifo_in_open(scene: Scene) -> Found | None:
    """The kernel says that it waits for a partner."""
    view = next(
        (v for v in reversed(find_blocked_processes(scene)) if v.wchan.startswith(_NO_PARTNER)),
        None,
    )
    return Found(f"the kernel waits in {view.wchan}") if view is not None else None


def _reads_a_pipe_of_its_own(scene: Scene) -> Found | None:
    """A process waits in read() on a pipe of which only it has the writing end."""
    found = _using(scene, READS, ("pipe", "fifo"))
    if found is None or not found[1].other_ends or _find_other_holders(*found):
        return None
    if a_helper_died(scene) is not None:
        return None  # who could write there has died
    view, one = found
    pipe = format_descriptor(one)
    words = f"{format_owner(scene, view)} reads {pipe}, and only it could write there"
    return Found(words, {"path": pipe, "place": format_place(view)})


def _reads_from_nobody(scene: Scene) -> Found | None:
    """A process waits for the other end of a pipe that nobody else has open."""
    return _opens_a_fifo(scene) or _reads_a_pipe_of_its_own(scene)


def _sends_to_a_peer(scene: Scene) -> Found | None:
    """A process waits in send() or write() on a socket."""
    found = _using(scene, _WRITES, ("socket",))
    if found is None or (found[1].socket is not None and found[1].socket.state == "SYN_SENT"):
        return None
    view, one = found
    socket = one.socket
    where = (socket.peer or socket.local or one.path) if socket is not None else one.path
    values = {"peer": where, "reader": "the process at its other end", "behind": ""}
    return Found(f"{format_owner(scene, view)} waits in {view.call_name} to {where}", values)


def _peer_does_not_read(scene: Scene) -> Found | None:
    """It is known which process is at the other end."""
    found = _using(scene, _WRITES, ("socket",))
    if found is None:
        return None
    view, one = found
    others = _find_other_holders(view, one)
    if not others:
        if one.socket is None or view.look.pid not in one.socket.peer_pids:
            return None
        return Found("only it itself is at the other end", {"reader": "its own process"})
    names = one.socket.peer_names if one.socket is not None else ()
    who, behind = _process(scene, others[0], names), _describe_full_queue(scene, others[0])
    words = f"{who} is at the other end and does not read{behind}"
    return Found(words, {"reader": who, "behind": behind})


def _describe_full_queue(scene: Scene, pid: int) -> str:
    """Return in words that a thread of that rank waits for room in a queue: it may be the one that
    reads for the others. "" if none does.
    """
    reader = next((facts for facts in scene.neighbours if facts.pid == pid and facts.looks), None)
    thread = find_thread_for_room(reader.looks[-1].threads) if reader is not None else None
    if thread is None:
        return ""
    own = scene.users_frame(thread.frames)
    where = f", in {format_frame(own)}" if own is not None else ""
    return f": its thread {thread.name or thread.os_id} waits for room in a queue{where}"


def _waits_to_be_called(scene: Scene) -> Found | None:
    """A process waits for a connection, a message or an event: accept(), a datagram, msgrcv()."""
    for view in reversed(find_blocked_processes(scene)):
        is_open = not view.running and scene.group is None
        what = (_called_by(view) or _sent_by(scene, view)) if is_open else ""
        if what:
            values = {"what": what, "place": format_place(view)}
            return Found(
                f"{format_owner(scene, view)} waits in {view.call_name} for {what}", values
            )
    return None


def _a_process_of_the_server_died(scene: Scene) -> Found | None:
    """It is a server, or hears one over a message queue, one of whose processes has died of an
    error: an answer may wait for it.
    """
    view = scene.view
    if view is None:
        return None
    died = a_child_died(scene) if waits_for_requests(view.look) else None
    if died is None and waits_at_queue(view.call, view.look.kernel):
        return a_helper_died(scene)
    return died


def _is_missed_in_a_collective(scene: Scene) -> Found | None:
    """It is a server, and ranks wait in a collective that it has not come to: for no client."""
    view = scene.view
    if view is None or view.main is None or not takes_connections(view.main):
        return None
    places = scene.collective_places
    return Found("ranks wait for it in a collective") if places else None


def _called_by(view: ProcessSnapshot) -> str:
    """Return in words what comes from outside and ends the call, "" for any other call."""
    if _MESSAGES.fullmatch(view.call_name):
        return "a message in a queue of the kernel"
    listens_to = view.call.descriptors if view.call is not None else ()
    # An event loop listens as long as it runs: what it waits for may come by its connections, and
    # a client that it has itself waits for its answer.
    has_client = any(_is_connected(one, view) for one in listens_to)
    if view.call_name in POLL_CALLS and (has_client or has_client_inside([view.look])):
        return ""
    for one in listens_to:
        socket = one.socket
        if socket is not None and (_ACCEPTS.fullmatch(view.call_name) or socket.state == "LISTEN"):
            return f"a connection to {socket.local or one.path}"
        if socket is not None and socket.family.startswith("udp") and not socket.peer:
            return f"a datagram to {socket.local or one.path}"
        if one.kind == "anon" and READS.fullmatch(view.call_name):
            return f"an event ({one.path.removeprefix('anon_inode:').strip('[]')})"
    return ""


def _sent_by(scene: Scene, view: ProcessSnapshot) -> str:
    """Return in words what another process is to send that does not stand still in the job's code
    for a reason of its own: who has started it, over a pair that it was given, or who waits for a
    message of it in turn, over a message queue. "" for any other call.
    """
    others = {one.look.pid for one in find_blocked_processes(scene)} - {view.look.pid}
    if waits_at_queue(view.call, view.look.kernel):
        return _heard_in_turn(scene, view)
    reads = READS.fullmatch(view.call_name) or _polls_for_one(view)
    parent = view.look.ppid
    if not reads or parent in others or scene.users_frame(view.frames) is None:
        return ""
    for one in find_used_descriptors(scene, view):
        is_pair = one.socket is None or not (one.socket.local or one.socket.peer)
        names = one.socket.peer_names if one.socket is not None else ()
        if is_pair and set(list_other_ends(one)) == {parent}:
            return f"a message of {_process(scene, parent, names)}, which has started it"
    return ""


def _heard_in_turn(scene: Scene, view: ProcessSnapshot) -> str:
    """Return in words what a process is to get over a message queue from one that waits for a
    message of it in turn, and of nobody else; "" for any other one.
    """
    peers = list_awaited_pids(view.look)
    ranks = (facts.looks[-1] for facts in scene.living if facts.looks)
    for look in (*(one.look for one in scene.beside.values()), *scene.children, *ranks):
        if look.pid in peers and list_awaited_pids(look) == {view.look.pid}:
            who, own = format_process(look), format_process(view.look)
            return f"a message of {who}, which waits for one of {own} in turn"
    return ""


def its_peer_waits_in_turn(scene: Scene) -> Found | None:
    """Whoever is to send it a message over a queue waits for one of it."""
    view = scene.view
    if view is None or scene.group is not None or view.call is None:
        return None
    if not waits_at_queue(view.call, view.look.kernel):
        return None
    return Found("") if _heard_in_turn(scene, view) else None


def _is_connected(one: Descriptor, view: ProcessSnapshot) -> bool:
    """Return whether a descriptor is a connection to anybody but its process itself."""
    socket = one.socket
    return socket is not None and is_talking(socket) and set(socket.peer_pids) != {view.look.pid}


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id=PIPE_UNREAD,
        title="a process writes into a pipe, or to a terminal, that nobody reads",
        signs=(
            need(_writes_into_a_pipe, 0.65),
            also(pipe_is_full, 0.5, proves=True),
            also(_somebody_should_read, 0.4),
        ),
        why="{full}, and whoever has its other end does not read: {reader}.",
        avoid=(
            "read it while it is written: subprocess.run or communicate() in place of wait()",
            "output to a file (`> log 2>&1`) in place of a pipe to a program that may stop reading",
        ),
        references=(
            "https://docs.python.org/3/library/subprocess.html#subprocess.Popen.wait",
            "https://man7.org/linux/man-pages/man7/pipe.7.html",
        ),
    ),
    KnownCause(
        id="pipe-no-writer",
        title="a process waits for the other end of a pipe that nobody has open",
        signs=(need(_reads_from_nobody, 0.7), also(_fifo_in_open, 0.6, proves=True)),
        why="It waits for {path}; no other process has that pipe open.",
        avoid=(
            "start what is to be at the other end first, or open with O_RDWR or O_NONBLOCK",
            "close the writing end in the process that only reads: it then sees the end",
        ),
        references=("https://man7.org/linux/man-pages/man7/fifo.7.html",),
    ),
    KnownCause(
        id=SOCKET_UNREAD,
        title="a peer does not read what it is sent",
        signs=(need(_sends_to_a_peer, 0.6), also(_peer_does_not_read, 0.55)),
        why="The buffers of its connection to {peer} are full, and {reader} does not read{behind}.",
        avoid=(
            "look what the other end is at: it stands still itself, or waits for an answer first",
            "a time limit for the socket (settimeout), and an upload in the background",
        ),
        references=("https://man7.org/linux/man-pages/man7/tcp.7.html",),
    ),
    KnownCause(
        id="nobody-sends",
        title="a process waits for a connection or a message that does not come",
        signs=(
            need(_waits_to_be_called, 0.6),
            also(its_peer_waits_in_turn, 0.4),
            unless(waits_for_one_that_never_came),
            unless(_a_process_of_the_server_died),
            unless(_is_missed_in_a_collective),
        ),
        why="In {place} it waits for {what}, without a limit; whoever was to come has not started, "
        "went elsewhere (another port or host), has left, or waits itself.",
        avoid=(
            "look at the other side: did it start, and does it know that port or queue?",
            "a time limit (settimeout, select, poll): an error in place of silence",
        ),
        references=(
            "https://man7.org/linux/man-pages/man2/accept.2.html",
            "https://man7.org/linux/man-pages/man2/msgrcv.2.html",
        ),
    ),
)
