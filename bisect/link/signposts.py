"""Where the lead of a job is: told by a node that it leads to others that look for it here, and
asked on the networks that a node is on, where the name of the first node leads to nobody or means
the machine itself.

Who asks sends one small datagram to a group of its own (RFC 2365: 239.255.0.0/16), one hop far, on
each interface; who leads that job answers where it listens. Nothing that comes is believed: who
listens there proves itself as at any other place (channel.py). Where all nodes find the lead by its
address nothing is ever sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from .channel import Address, Channel, Credentials, Refused, limit_segments, set_options
from .lead import BACKLOG, MOST_UNKNOWN
from .peers import LEASE

GROUP = "239.255.83.76"
ANSWER_LIMIT = 1.0  # seconds for who leads to answer
_MOST_BYTES = 1024  # of a datagram
_MOST_ANSWERS = 16  # that are kept


class Signpost:
    """Tells nodes that look for the lead where another one is who leads: what a name means may
    differ between machines, and MASTER_ADDR be a machine of the job for each.
    """

    def __init__(self, credentials: Credentials, where: Callable[[], Address | None]) -> None:
        """`where` returns at what address who leads is reached, None where nobody does."""
        self._credentials, self._where = credentials.of_listener(), where
        self._asking: dict[Channel, None] = {}
        self._servers: list[asyncio.Server] = []

    async def listen(self, address: str, port: int) -> int:
        """Listen there, and return the port. Raises OSError."""
        server = await asyncio.start_server(
            self._connected, address, port, limit=1 << 16, backlog=BACKLOG
        )
        limit_segments(server)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Tell nobody any more."""
        for server in self._servers:
            server.close()
        for channel in self._asking:
            channel.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel, place = Channel(reader, writer), self._where()
        set_options(writer)
        if place is None or len(self._asking) >= MOST_UNKNOWN:
            channel.close()
            return
        self._asking[channel] = None
        try:
            await channel.welcome(self._credentials, place)
            await channel.leave(LEASE)
        except (Refused, OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._asking.pop(channel, None)
            channel.close()


class FoundLead(NamedTuple):
    """Who leads, as it says itself."""

    name: str
    places: tuple[Address, ...]  # where it may listen: as it says, and as its answer came


# Returns the name and the place of who leads here, to somebody at an address; None: nobody does.
Where = Callable[[str], tuple[str, Address] | None]


class Beacon(asyncio.DatagramProtocol):
    """Answers those that look for who leads a job here."""

    def __init__(self, job: str, where: Where) -> None:
        """`job` is the name that all nodes know. Nobody is heard before listen()."""
        self._job, self._where = job, where
        self._transport: asyncio.BaseTransport | None = None

    async def listen(self, port: int) -> bool:
        """Hear who asks at that port of the group; return whether any interface has one."""
        with contextlib.suppress(OSError):
            heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            heard.setblocking(False)
            try:
                heard.bind((GROUP, port))
                joined = [_join(heard, index) for index in _list_interfaces()]
                loop = asyncio.get_running_loop()
                await loop.create_datagram_endpoint(lambda: self, sock=heard)
            except BaseException:
                heard.close()
                raise
            return any(joined)
        return False

    def close(self) -> None:
        """Hear nobody any more."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket; asyncio calls this."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Answer who asks for this job; asyncio calls this."""
        asked = _parse_datagram(data)
        if asked.get("job") != self._job or asked.get("t") != "where":
            return
        found = self._where(str(addr[0]))
        if found is None:
            return
        name, (host, port) = found
        told = {"t": "here", "job": self._job, "name": name, "host": host, "port": port}
        with contextlib.suppress(OSError), socket.socket(*_DATAGRAMS) as answering:
            answering.sendto(json.dumps(told).encode(), addr[:2])


_DATAGRAMS = (socket.AF_INET, socket.SOCK_DGRAM)


async def ask_neighbours(job: str, port: int, limit: float = ANSWER_LIMIT) -> list[FoundLead]:
    """Return who says that it leads a job, of those on this machine's networks; [] for nobody."""
    loop, found = asyncio.get_running_loop(), list[FoundLead]()
    question = json.dumps({"t": "where", "job": job}).encode()
    with contextlib.suppress(OSError), socket.socket(*_DATAGRAMS) as asking:
        asking.setblocking(False)
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        asking.bind(("", 0))
        for index in _list_interfaces():
            with contextlib.suppress(OSError):
                asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _on(index))
                asking.sendto(question, (GROUP, port))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while len(found) < _MOST_ANSWERS:
                    data, sender = await loop.sock_recvfrom(asking, _MOST_BYTES)
                    answer = _read_answer(data, job, str(sender[0]))
                    if answer is not None and answer not in found:
                        found.append(answer)
    return found


def _read_answer(data: bytes, job: str, sender: str) -> FoundLead | None:
    told = _parse_datagram(data)
    host, port = told.get("host"), told.get("port")
    is_one = told.get("job") == job and told.get("t") == "here"
    if not is_one or not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65536:
        return None
    places = dict.fromkeys([(host, port), (sender, port)])
    return FoundLead(str(told.get("name", ""))[:256], tuple(places))


def _parse_datagram(data: bytes) -> dict[str, Any]:
    """Return the object in a datagram, {} for anything else."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(data[:_MOST_BYTES])
        return told if isinstance(told, dict) else {}
    return {}


def _list_interfaces() -> list[int]:
    """Return the numbers of the interfaces of this machine."""
    with contextlib.suppress(OSError):
        return [index for index, _ in socket.if_nameindex()]
    return []


def _on(index: int) -> bytes:
    """Return an interface as a struct ip_mreqn (ip(7)) with our group."""
    return struct.pack("=4s4si", socket.inet_aton(GROUP), bytes(4), index)


def _join(heard: socket.socket, index: int) -> bool:
    with contextlib.suppress(OSError):
        heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _on(index))
        return True
    return False
