"""Pipes and sockets whose other end does not do its part."""

from __future__ import annotations

import re

from ...base.facts import Descriptor
from ..process_snapshot import ProcessSnapshot
from .known_cause import Found, KnownCause, Scene, also, need
from .signs import (
    find_blocked_processes,
    find_used_descriptors,
    format_descriptor,
    format_owner,
    format_place,
    list_other_ends,
)

_WRITES = re.compile(r"writev?|pwritev2|send(?:to|msg|mmsg|file)|v?m?splice")
_READS = re.compile(r"readv?|preadv2|recv(?:from|msg)|splice")
_ACCEPTS = re.compile(r"accept4?")
_MESSAGES = re.compile(r"msgrcv|mq_timedreceive")
_OPENS = re.compile(r"openat2?|open")
# Of Linux 5.x and 6.x: where room in a full pipe, and a partner for a fifo, are waited for.
_PIPE_IS_FULL = ("pipe_write", "anon_pipe_write", "fifo_pipe_write")
_NO_PARTNER = ("wait_for_partner", "fifo_open")


def _using(
    scene: Scene, calls: re.Pattern[str], kinds: tuple[str, ...]
) -> tuple[ProcessSnapshot, Descriptor] | None:
    """Return the process that waits in one of `calls`, with the descriptor that it is about."""
    for view in reversed(find_blocked_processes(scene)):
        if not calls.fullmatch(view.call_name) or view.running or view.state == "D":
            continue
        for one in find_used_descriptors(scene, view):
            if one.kind in kinds:
                return view, one
    return None


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
    """A process waits in write() on a pipe."""
    found = _using(scene, _WRITES, ("pipe", "fifo"))
    if found is None:
        return None
    view, one = found
    values = {"pipe": format_descriptor(one), "reader": "nobody that we may see", "fd": one.fd}
    return Found(
        f"{format_owner(scene, view)} waits in {view.call_name} on {format_descriptor(one)}",
        values,
    )


def _pipe_is_full(scene: Scene) -> Found | None:
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
    return Found(f"{who} has the other end and does not read", {"reader": who})


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
    found = _using(scene, _READS, ("pipe", "fifo"))
    if found is None or not found[1].other_ends or _find_other_holders(*found):
        return None
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
    values = {"peer": where, "reader": "the process at its other end"}
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
    who = _process(scene, others[0], names)
    return Found(f"{who} is at the other end and does not read", {"reader": who})


def _waits_to_be_called(scene: Scene) -> Found | None:
    """A process waits for a connection, a message or an event: accept(), a datagram, msgrcv()."""
    for view in reversed(find_blocked_processes(scene)):
        what = _called_by(view) if not view.running and scene.group is None else ""
        if what:
            values = {"what": what, "place": format_place(view)}
            return Found(
                f"{format_owner(scene, view)} waits in {view.call_name} for {what}", values
            )
    return None


def _called_by(view: ProcessSnapshot) -> str:
    """Return in words what comes from outside and ends the call, "" for any other call."""
    if _MESSAGES.fullmatch(view.call_name):
        return "a message in a queue of the kernel"
    for one in view.call.descriptors if view.call is not None else ():
        socket = one.socket
        if socket is not None and (_ACCEPTS.fullmatch(view.call_name) or socket.state == "LISTEN"):
            return f"a connection to {socket.local or one.path}"
        if socket is not None and socket.family.startswith("udp") and not socket.peer:
            return f"a datagram to {socket.local or one.path}"
        if one.kind == "anon" and _READS.fullmatch(view.call_name):
            return f"an event ({one.path.removeprefix('anon_inode:').strip('[]')})"
    return ""


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="pipe-unread",
        title="a process writes into a pipe that nobody reads",
        signs=(
            need(_writes_into_a_pipe, 0.65),
            also(_pipe_is_full, 0.5, proves=True),
            also(_somebody_should_read, 0.4),
        ),
        why="A pipe, {pipe}, is full (it holds 64 KiB), and whoever has its other end does not "
        "read: {reader}.",
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
        id="socket-unread",
        title="a peer does not read what it is sent",
        signs=(need(_sends_to_a_peer, 0.6), also(_peer_does_not_read, 0.55)),
        why="The buffers of its connection to {peer} are full, and {reader} does not read.",
        avoid=(
            "look what the other end is at: it stands still itself, or waits for an answer first",
            "a time limit for the socket (settimeout), and an upload in the background",
        ),
        references=("https://man7.org/linux/man-pages/man7/tcp.7.html",),
    ),
    KnownCause(
        id="nobody-sends",
        title="a process waits for a connection or a message that does not come",
        signs=(need(_waits_to_be_called, 0.6),),
        why="In {place} it waits for {what}, without a limit; whoever was to come has not started, "
        "went elsewhere (another port or host), or has left.",
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
