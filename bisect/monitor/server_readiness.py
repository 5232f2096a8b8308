"""Whether a server that the command has started is ready: its start is over then.

It is while a process of the command listens at the server's port, and answers what load balancers
ask it. That is the only request that hangbisect makes of a job: one GET at a time, with a deadline,
on this machine, and none after the first answer that says yes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.addresses import host_of, plain_address
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Socket
from ..base.process_roles import LONGEST_NAME, name_server_process
from ..base.server_endpoints import ServerEndpoint, find_endpoint
from ..base.words import format_seconds

if TYPE_CHECKING:
    from .watcher import LauncherSupervisor

CHECK_EVERY = 2.0  # seconds between two looks whether somebody listens at the port
_MOST_SELDOM = 30.0  # seconds between two of one that has run for an hour
_ASK_EVERY = 3.0  # seconds between two requests
_ASK_LIMIT = 2.0  # seconds for an answer
_UNANSWERED = 30.0  # seconds until one is asked again that did not answer in that time
_SEARCH_EVERY = 10.0  # seconds between two searches for a server below a script
_OF_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of who listens at all addresses
_STORE_THREAD = "pt_tcpstore"  # as torch calls it: that listens at a port where ranks meet
_MOST_READ = 1 << 10  # bytes of an answer: its first line is all that counts
_TLS_ALERT = b"\x15"  # with which TLS answers what is no greeting of it (RFC 8446, 5.1)


@dataclass(frozen=True)
class ServerReady:
    """How a server showed that it is ready."""

    pid: int
    name: str  # "API server"
    port: int
    said: str  # "answers GET /health with 200", "listens"
    is_answer: bool  # it said so itself, and the command is this server: all of it has started

    def describe(self, seconds: float, is_late: bool) -> str:
        """Return a sentence, of `seconds` since the command was started; `is_late`: it was ready
        before anybody looked.
        """
        when = f"{'within' if is_late else 'after'} {format_seconds(seconds)}"
        return f"Ready {when}: {self.name} (pid {self.pid}) {self.said} at port {self.port}"


class ServerReadiness:
    """What is known of the server of one command."""

    def __init__(self, supervisor: LauncherSupervisor) -> None:
        """`supervisor` watches the command."""
        self.ready: ServerReady | None = None
        self._its = supervisor
        self._endpoint = find_endpoint(supervisor.around.command)
        self._is_command = self._endpoint is not None
        self._checked = self._asked = self._searched = 0.0  # monotonic
        self._ask_again = _ASK_EVERY
        self._checks = 0
        self._is_announced = False

    @property
    def has_answered(self) -> bool:
        """Whether the command is a server that has said that it is ready."""
        return self.ready is not None and self.ready.is_answer

    @property
    def ends_its_start(self) -> bool:
        """Whether it is one of the starts of a search, and has shown what it was asked: a server
        has no end of its own.
        """
        return self.has_answered and self._its.around.starter is not None

    def find_pause(self, otherwise: float) -> float:
        """Return the seconds until the next check, `otherwise` at the most."""
        return (
            otherwise if self._endpoint is None or self._is_over() else min(otherwise, self._every)
        )

    @property
    def _every(self) -> float:
        """The seconds between two checks: the longer it has run, the more seldom."""
        passed = time.monotonic() - self._its.at.began
        return min(_MOST_SELDOM, max(CHECK_EVERY, passed / 120))

    def _is_over(self) -> bool:
        """Return whether nothing is looked for: it is ready, or what else it starts trains."""
        ranks = self._its.heard.ranks.values()
        trains = bool(ranks) and all(one.quiet for one in ranks)
        is_server = self._endpoint is not None and bool(self._endpoint.path)
        return self.ready is not None or (trains and not is_server)

    async def check(self, now: float) -> None:
        """Say once that the server is ready; where it has said so itself, its start is over, and
        whoever watches its ranks is told.
        """
        if now < self._checked + self._every or self._is_over():
            return
        self._checked, self._checks = now, self._checks + 1
        is_asked = self._endpoint is not None and bool(self._endpoint.path)
        if is_asked and self._is_command and self._its.around.asks_health:
            if not self._is_announced:
                self._its.socket.tell_ready("")
            self._is_announced = True
        self.ready = await self._find(now)
        if self.ready is None:
            return
        from .watcher_report import print_line

        # The wall clock: the command was started before this process had loaded what it needs.
        text = self.ready.describe(time.time() - self._its.around.since, is_late=self._checks == 1)
        print_line(text)
        if self.ready.is_answer:
            self._its.socket.tell_ready(text)
        if self.ends_its_start and not self._its.heard.ranks:
            self._its.stop()

    async def _find(self, now: float) -> ServerReady | None:
        """Return how it shows that it is ready, None while it does not."""
        if self._endpoint is None or not self._endpoint.path:
            self._search(now)
        if self._endpoint is None or not (listening := _find_listening(self._endpoint.port)):
            return None
        found = _find_listener(listening, self._list_own())
        if found is None:
            return None
        pid, address = found
        said, is_answer = "listens", False
        if self._endpoint.path and self._its.around.asks_health:
            if now < self._asked + self._ask_again:
                return None
            self._asked = now
            said = await self._ask(address, self._endpoint)
            is_answer = bool(said) and self._is_command
        if not said:
            return None
        return ServerReady(pid, _name_server(pid), self._endpoint.port, said, is_answer)

    def _list_own(self) -> list[int]:
        """Return the processes of the command."""
        from ..evidence.process import descendants

        return [self._its.pid, *descendants([self._its.pid])]

    def _search(self, now: float) -> None:
        """Look for a server that a script of the command has started."""
        if now < self._searched + _SEARCH_EVERY:
            return
        self._searched = now
        for pid in self._list_own():
            found = find_endpoint(_read_words(pid))
            if found is not None and found.path:
                self._endpoint = found
                self._is_command = pid == self._its.pid  # it has become the server (exec)
                return

    async def _ask(self, address: str, endpoint: ServerEndpoint) -> str:
        """Return what it says by which it is ready, "" if it says that it is not, or nothing."""
        host = host_of(plain_address(address))
        host = _OF_ANY.get(host, host)
        try:
            answer = await asyncio.wait_for(_get(host, endpoint), _ASK_LIMIT)
        except (OSError, TimeoutError):
            self._ask_again = _UNANSWERED
            return ""
        self._ask_again = _ASK_EVERY
        if answer.startswith(_TLS_ALERT):
            return "listens, by TLS"
        words = answer.partition(b"\r\n")[0].split()
        status = words[1].decode(errors="replace") if len(words) > 1 else ""
        # 503: it loads still. 401 or 404 is an answer as well: of one that asks for a key.
        if not (words and words[0].startswith(b"HTTP/") and status[:1] in ("2", "3", "4")):
            return ""
        return f"answers GET {endpoint.path} with {status}"


async def _get(host: str, endpoint: ServerEndpoint) -> bytes:
    """Return the beginning of what a server answers. Raises OSError."""
    reader, writer = await asyncio.open_connection(host, endpoint.port)
    try:
        shown = f"[{host}]" if ":" in host else host
        writer.write(
            f"GET {endpoint.path} HTTP/1.1\r\nHost: {shown}:{endpoint.port}\r\n"
            "User-Agent: hangbisect\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        return await reader.read(_MOST_READ)
    finally:
        writer.close()


def _find_listening(port: int) -> dict[int, Socket]:
    """Return what listens at a TCP port of this machine, by inode."""
    from ..evidence.descriptors import read_sockets, select_listening

    return select_listening(read_sockets(), port)


def _find_listener(listening: dict[int, Socket], pids: Sequence[int]) -> tuple[int, str] | None:
    """Return which of these processes has one of the sockets, and the address of that; None for
    none, or for one of torch's stores.
    """
    from ..evidence.descriptors import parse_socket_inode, read_links

    for pid in pids:
        links: list[str] = []
        with suppress(OSError):
            links = [*read_links(pid).values()]
        for inode in filter(None, map(parse_socket_inode, links)):
            if inode in listening and not _has_store(pid):
                return pid, listening[inode].local
    return None


def _has_store(pid: int) -> bool:
    for one in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            if one.read_text(errors="replace").startswith(_STORE_THREAD):
                return True
    return False


def _read_words(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return text.decode(errors="replace").removesuffix("\0").split("\0")


def _name_server(pid: int) -> str:
    name = ""
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()[:LONGEST_NAME]
    return name_server_process(_read_words(pid), name) or "a process"
