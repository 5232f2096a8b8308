"""Both ends of the link by which monitors tell the process around the launcher, `hangbisect run`,
what they know, if there is one; and what was heard of a job there: where each rank is, and what was
said of it. That process hears of its front, and of who started it, here too; and what it watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import events
from ..base.events import (
    Answered,
    Event,
    Failed,
    HeldBack,
    Hello,
    OtherHosts,
    TakenBack,
    Verdict,
    Watches,
    encode_outer,
)
from ..base.lazy_dataclass import dataclass
from ..base.outcomes import BADNESS
from ..base.proc import find_peer_pid
from ..base.rank_state import NodeRanks, RankState
from ..base.typed_messages import Message
from ..base.variables import OUTER_VARIABLE as OUTER_VARIABLE
from ..base.variables import STARTER_VARIABLE as STARTER_VARIABLE
from ..front.watcher_socket import was_interrupted

if TYPE_CHECKING:
    from ..base.checkpoints import Checkpoint
    from .asked_hosts import Ask

# Set in one of many starts of a search: it is ended where it hangs, proved or not, because the
# search judges what they show together.
TRIAL_VARIABLE = "HANGBISECT_TRIAL"

_MUST_ARRIVE = (Watches, Hello, Verdict, TakenBack, HeldBack, OtherHosts, Answered, Failed)
_READY = "ready"  # the only word that goes the other way
_MOST_KEPT = 1 << 16  # messages for one that reads none
_LAST_LIMIT = 2.0  # seconds for it to take the last ones


@dataclass(frozen=True)
class SupervisedCommand:
    """What was started, and how to watch it from outside. Times are seconds."""

    command: tuple[str, ...]
    run_dir: Path
    expects_words: bool  # its ranks walk a pipeline of ours, and speak to monitors
    on_hang: str  # end, report, hold
    table: tuple[Checkpoint, ...]  # of the pipeline; its first row is the launcher's
    start_limit: float  # for the first rank to come to its first line
    stall: float
    limit: float | None
    answers: bool = False  # the verdict as JSON on stdout
    joins_nodes: bool = True  # the watches of other nodes, as far as there is a token
    since: float = field(default_factory=time.time)  # when it began, on the wall clock
    asks_health: bool = True  # a server may be asked whether it is ready
    starter: int | None = None  # a socket to who started us: told everything; its end is ours
    ask_hosts: Ask | None = None  # by whom other hosts are asked that the command reaches by ssh


class SupervisorLink:
    """Messages to one outer process. Nobody waits: of what it does not take at once the steps of
    ranks may be lost, and nothing else.
    """

    def __init__(self, path: str) -> None:
        """`path` is that of its socket, "" if there is none."""
        self.path = path
        self._awaits_ready = False  # it asks a server whether it is ready, which is not so far
        self._ready = ""  # by what it is, until that is read
        self._unsent: deque[bytes] = deque(maxlen=_MOST_KEPT)
        self._socket: socket.socket | None = None
        if path:
            connection = None
            try:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.setblocking(False)
                connection.connect(path)
                self._socket = connection
            except OSError:
                if connection is not None:
                    connection.close()

    @property
    def pid(self) -> int | None:
        """The outer process, None where it is gone or not known."""
        if self._socket is None:
            return None
        return find_peer_pid(self._socket) or None

    def sees_our_stderr(self) -> bool:
        """Return whether what we print goes where it prints itself, as far as is known."""
        try:
            ours, its = os.fstat(2), os.stat(f"/proc/{self.pid}/fd/2")
        except OSError:
            return True
        return (ours.st_dev, ours.st_ino) == (its.st_dev, its.st_ino)

    def send(self, event: Event, message: Message) -> None:
        """Send a message, after those that had to wait."""
        data = json.dumps(message).encode()
        is_sent = self.flush() and self._send(data)
        if not is_sent and isinstance(event, _MUST_ARRIVE):
            self._unsent.append(data)

    def flush(self) -> bool:
        """Send what had to wait, as far as it is taken now. Return whether nothing waits."""
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()
        return not self._unsent

    @property
    def awaits_ready(self) -> bool:
        """Whether it asks the server that these ranks belong to, and that is not ready."""
        self._hear_ready()
        return self._awaits_ready

    def read_ready(self) -> str:
        """Return once what it has said by which the server is ready, "" for nothing."""
        self._hear_ready()
        text, self._ready = self._ready, ""
        return text

    def _hear_ready(self) -> None:
        said = b""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                said = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
        with contextlib.suppress(ValueError, AttributeError):
            text = str(json.loads(said).get(_READY, ""))
            self._awaits_ready = not text
            self._ready = text or self._ready

    def close(self, limit: float = _LAST_LIMIT) -> None:
        """Send the last of it, and let go. Waits `limit` seconds at most."""
        until = time.monotonic() + limit
        while not self.flush() and time.monotonic() < until and self._socket is not None:
            time.sleep(0.02)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, data: bytes) -> bool:
        """Return whether it need not be sent again: it was, or no watcher is there any more."""
        if self._socket is None:
            return True
        try:
            self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return False
            if error.errno != errno.EMSGSIZE:
                self._socket.close()
                self._socket = None
        return True


class SupervisorLinks:
    """All outer processes around the ranks of one job: a launcher may start one for each rank."""

    def __init__(self, path: str, job: str = "") -> None:
        """`path` is the socket of the one that we know of, "" for none; `job` tells it which of its
        jobs is spoken of.
        """
        self._job = job
        self._links: dict[str, SupervisorLink] = {}
        # What a late one must know.
        self._kept: deque[tuple[Event, Message]] = deque(maxlen=_MOST_KEPT)
        self.add(path)

    def add(self, path: str) -> None:
        """Tell one more from now on, and first what the others have heard. Once for each path."""
        if not path or path in self._links:
            return
        link = self._links[path] = SupervisorLink(path)
        for event, message in self._kept:
            link.send(event, message)

    def tell(self, event: Event) -> None:
        """Send an event, if it is of a kind that matters out there. What failed is sent where it
        ended the watch.
        """
        message = encode_outer(event)
        if message is None or (isinstance(event, Failed) and event.part is not None):
            return
        if self._job:
            message["job"] = self._job
        self._kept.append((event, message))
        for link in self._links.values():
            link.send(event, message)

    def hand_over(self, text: str, launcher: int) -> bool:
        """Have one of them print a verdict, where none prints where we do; return whether we need
        not print it then: `launcher`, which started the ranks, hands on what we print, or nobody
        reads it. A file that it does not read itself has readers of its own.
        """
        there = [link for link in self._links.values() if link.pid is not None]
        if not there or any(link.sees_our_stderr() for link in there):
            return False
        event = Answered(text=text)
        there[0].send(event, encode_outer(event) or {})
        return there[0].pid is not None and not is_kept_file(2, launcher)

    @property
    def paths(self) -> list[str]:
        """The sockets of the outer processes."""
        return [*self._links]

    def read_ready(self) -> str:
        """Return what one of them has said by which the server is ready, "" for nothing."""
        return next(filter(None, (link.read_ready() for link in self._links.values())), "")

    @property
    def awaits_ready(self) -> bool:
        """Whether one of them asks the server that these ranks belong to, and it is not ready."""
        return any(link.awaits_ready for link in self._links.values())

    def pids(self) -> list[int]:
        """Return the outer processes that are there."""
        return [pid for link in self._links.values() if (pid := link.pid) is not None]

    def were_interrupted(self) -> bool:
        """Return whether the command of one of the fronts was told to end."""
        return any(map(was_interrupted, self._links))

    def flush(self) -> None:
        """Send what had to wait, as far as it is taken now."""
        for link in self._links.values():
            link.flush()

    def close(self) -> None:
        """Send the last of it."""
        for link in self._links.values():
            link.close()


def is_kept_file(descriptor: int, launcher: int) -> bool:
    """Return whether what we print there stays in a file, and the process `launcher` does not read
    that itself, to hand it on (torchrun --tee).
    """
    try:
        ours = os.fstat(descriptor)
        if not stat.S_ISREG(ours.st_mode):
            return False
        names = os.listdir(f"/proc/{launcher}/fd")
    except OSError:
        return True
    for name in names:
        with contextlib.suppress(OSError):
            its = os.stat(f"/proc/{launcher}/fd/{name}")
            is_same = (its.st_dev, its.st_ino) == (ours.st_dev, ours.st_ino)
            if is_same and _reads(launcher, name):
                return False
    return True


def _reads(pid: int, descriptor: str) -> bool:
    """Return whether a process has a descriptor to read alone (proc_pid_fdinfo(5)). May raise
    OSError.
    """
    with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "1")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


Hear = Callable[[bytes], None]
HearFront = Callable[[Mapping[str, Any]], None]


class SupervisorSocket:
    """Connections of a running loop: to monitors, to the front, and to who started that."""

    def __init__(self, hear: Hear, hear_front: HearFront, gone: Callable[[], None]) -> None:
        """`hear` gets each message of a monitor, `hear_front` each of the front; `gone` is called
        when the front, or who started it, has ended.
        """
        self._hear, self._hear_front, self._gone = hear, hear_front, gone
        self._loop = asyncio.get_running_loop()
        self._connections: list[socket.socket] = []
        self._front: socket.socket | None = None
        self._heard_count = 0  # connections made and messages read
        self._monitors: list[socket.socket] = []
        self._ready = b""  # what monitors are told, those that come later too

    def listen(self, listener: int, front: socket.socket, starter: int | None) -> None:
        """Begin to hear on the descriptor `listener` (-1: there is none)."""
        self._front = front
        front.setblocking(False)
        self._loop.add_reader(front, self._read_front)
        if starter is not None:
            self._loop.add_reader(starter, self._starter_ended, starter)
        if listener >= 0:
            accepting = socket.socket(fileno=listener)
            self._connections.append(accepting)
            self._loop.add_reader(accepting, self._accept, accepting)

    def tell_front(self, message: Mapping[str, Any]) -> None:
        """Tell the front something, if it is still there."""
        if self._front is not None:
            with contextlib.suppress(OSError):
                self._front.send(json.dumps(message).encode())

    def tell_ready(self, text: str) -> None:
        """Tell all monitors by what the server is ready, "" for not yet; those too that are yet to
        come.
        """
        self._ready = json.dumps({_READY: text}).encode()
        for connection in self._monitors:
            self._send_ready(connection)

    def _send_ready(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.send(self._ready)

    async def catch_up(self) -> None:
        """Read what was sent before now: its sender may have ended since."""
        before = -1
        while before != self._heard_count:
            before = self._heard_count
            await asyncio.sleep(0.01)

    def _starter_ended(self, starter: int) -> None:
        self._loop.remove_reader(starter)
        os.close(starter)
        self._gone()

    def _read_front(self) -> None:
        assert self._front is not None
        try:
            data = self._front.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._hear_front(json.loads(data))
            return
        self._loop.remove_reader(self._front)
        self._front = None
        self._hear_front({"t": "gone"})

    def _accept(self, accepting: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = accepting.accept()
            self._heard_count += 1
            connection.setblocking(False)
            self._connections.append(connection)
            self._monitors.append(connection)
            self._loop.add_reader(connection, self._read_connection, connection)
            if self._ready:
                self._send_ready(connection)

    def _read_connection(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard_count += 1
        if not data:
            self._loop.remove_reader(connection)
            self._connections.remove(connection)
            self._monitors.remove(connection)
            connection.close()
            return
        with contextlib.suppress(ValueError):  # cut, or a stranger's
            self._hear(data)


@dataclass
class JobProgress:
    """All of it. `monitors` are their pids, `run_dirs` where each writes."""

    everyone: NodeRanks = field(default_factory=NodeRanks)  # of all nodes, as far as we are told
    titles: dict[int, str] = field(default_factory=dict)
    monitors: set[int] = field(default_factory=set)
    run_dirs: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)  # of the monitors' sockets
    outcomes: dict[str, str] = field(default_factory=dict)  # by job: one command may start several
    ending: set[str] = field(default_factory=set)  # the jobs that their monitor ends
    failed: bool = False  # a monitor failed: its ranks go on, and are not watched
    hosts: dict[str, str] = field(default_factory=dict)  # of other nodes, their addresses by name
    is_held_back: bool = False  # ranks of other nodes are not seen, and nothing moves here

    @property
    def ranks(self) -> dict[int, RankState]:
        """Each rank that has spoken, as far as its monitor tells; who only starts some is none."""
        return {rank: m for rank, m in self.everyone.by_rank.items() if not m.starts_ranks}

    @property
    def outcome(self) -> str | None:
        """The worst outcome of all jobs, None where there is none yet."""
        return max(self.outcomes.values(), key=BADNESS.index, default=None)

    @property
    def ends(self) -> bool:
        """Whether a monitor that gave an outcome ends its job."""
        return bool(self.ending)

    def take(self, event: Event) -> None:
        """Take in what a monitor tells."""
        self.everyone.apply(event)
        if isinstance(event, events.Watches):
            self.monitors.add(event.pid)
            self.folders.add(event.folder)
            if event.run_dir not in self.run_dirs:
                self.run_dirs.append(event.run_dir)
            self.titles.update(event.titles)
        elif isinstance(event, events.OtherHosts):
            self.hosts.update(event.hosts)
        elif isinstance(event, events.HeldBack):
            self.is_held_back = True
        elif isinstance(event, events.Hello | events.TakenBack):
            self.is_held_back = False
            self.outcomes.pop(event.job or "", None)  # of an attempt before
            self.ending.discard(event.job or "")
        elif isinstance(event, events.Verdict) and event.outcome in BADNESS:
            self._take_verdict(event)
        elif isinstance(event, events.Failed):
            self.failed = True

    def _take_verdict(self, event: events.Verdict) -> None:
        job = event.job or ""
        both = (self.outcomes.get(job, BADNESS[0]), event.outcome)
        self.outcomes[job] = max(both, key=BADNESS.index)
        if event.ends:
            self.ending.add(job)
