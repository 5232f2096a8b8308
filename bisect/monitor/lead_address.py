"""Where who leads several nodes listens, by what nodes prove that they belong to its job, how those
that share a run folder and find nobody wait for one another, and how one that finds nobody at the
address that it was given asks on its networks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.addresses import is_loopback
from ..base.deadline import call_with_limit
from ..base.json_codec import Misfit, from_json, to_json
from ..base.rank_facts import LostNode
from ..base.variables import LEAD_VARIABLE
from ..link.channel import Address, Credentials, has_munge
from ..link.lead import Lead
from ..link.messages import NodeWord
from ..link.signposts import Beacon, FoundLead, Signpost, Where, ask_neighbours
from ..rank.our_folders import bases
from .copy_run import write
from .monitor_process import call_in_thread

if TYPE_CHECKING:
    from ..collect.nodes import JointNodes

FIRST_PORT, LAST_PORT = 1, 8  # behind that of the job; the last first: jobs take the first ones
_COMMON_PORTS = range(20_000, 32_000)  # below those that Linux gives out (ip_local_port_range)
_MOST_COMMON = 3
TOKEN_FILE = "link.json"  # in the run folder, for nodes that share it
RESOLVE_LIMIT = 3.0  # seconds
REACH_LIMIT = 4.0  # three tries of a second to find the hardware address (arp(7)), and time
FILE_LIMIT = 1.0


def make_credentials(token: bytes, *job: object) -> Credentials:
    """Return what proves that nodes are of this user, and of the job that these values name."""
    identity = repr((os.getuid(), *job))
    return Credentials(blake2b(identity.encode(), digest_size=8).hexdigest(), token, has_munge())


def list_lead_places(host: str, port: str) -> list[Address]:
    """Return the names and ports at which the lead may be: those that LEAD_VARIABLE has, else those
    behind the port at which the job itself meets.
    """
    places: list[Address] = []
    for one in filter(None, os.environ.get(LEAD_VARIABLE, "").split(",")):
        name, _, number = one.strip().rpartition(":")
        if number.isdigit():
            places.append((name.strip("[]"), int(number)))
    if not places and host and port.isdigit():
        ports = range(int(port) + LAST_PORT, int(port) + FIRST_PORT - 1, -1)
        places = [(host, number) for number in ports if number < 1 << 16]
    return places


def list_common_ports(job: str) -> list[int]:
    """Return the ports at which the lead may be whatever port the job meets at, by a name that the
    job has without it (Credentials.also): nodes that do not agree about that port find it there.
    """
    first = int(job, 16) % len(_COMMON_PORTS)
    return [_COMMON_PORTS[(first + n) % len(_COMMON_PORTS)] for n in range(_MOST_COMMON)]


def are_on_one_machine(places: Sequence[Address]) -> bool:
    """Return whether a lead at these places hears nodes of its own machine alone: they are spelled
    as addresses of the loopback, as for a job whose nodes are all started on one machine.
    """
    return bool(places) and all(is_loopback(host) for host, _ in places)


def is_own_address(address: str) -> bool:
    """Return whether an address is one of this machine's: nothing else can listen at it here."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as one:
        one.bind((address, 0))
        return not address.startswith("0.")
    return False


async def resolve_places(places: Sequence[Address]) -> dict[str, list[Address]]:
    """Return by name the addresses and ports of places; nothing of a name that is not known."""
    found: dict[str, list[Address]] = {}
    for host in dict.fromkeys(host for host, _ in places):
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            known = await call_with_limit(_resolve, host, limit=RESOLVE_LIMIT)
            found[host] = [(one, port) for name, port in places if name == host for one in known]
    return found


async def listen_at(
    lead: Lead | Signpost, addresses: Sequence[Address], places: Sequence[Address] = ()
) -> str:
    """Have a lead, or who knows one, listen at the first address that is this machine's and that
    others reach; return "", else why there is none. `places` are what the addresses were looked up
    for: others reach the loopback where all are on this machine.
    """
    is_on_one_machine = are_on_one_machine(places)
    why = "no address for it"
    for address, port in addresses:
        if is_loopback(address) and not is_on_one_machine:
            why = f"{address} is this machine for every node"
            continue
        try:
            await lead.listen(address, port)
            return ""
        except OSError as error:
            why = f"{address}:{port}: {error.strerror or error}"
    return why


async def find_name(address: str) -> str:
    """Return the name of the host at an address, "" where nobody says one in time."""
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        found = await call_with_limit(socket.gethostbyaddr, address, limit=RESOLVE_LIMIT)
        return found[0].partition(".")[0]
    return ""


async def is_out_of_reach(address: str, port: int) -> bool:
    """Return whether the network says that there is no way to a host: it, or the router next to it,
    answers nobody who asks for its hardware address (EHOSTUNREACH, after three seconds). One that
    refuses a connection is there, and one that is silent may be: a firewall is silent too.
    """
    try:
        async with asyncio.timeout(REACH_LIMIT):
            _, writer = await asyncio.open_connection(address, port)
        writer.close()
    except OSError as error:  # TimeoutError is one, without a number
        return error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
    return False


def read_token(path: Path) -> str:
    """Return the token that the lead has left in a run folder that nodes share, "" if there is none
    of our own that nobody else can read. May block; raises OSError, ValueError.
    """
    return str(read_own_json(path).get("token", ""))


async def read_shared_token(folder: Path) -> str:
    """Return the token that the lead has left in a run folder that nodes share, "" if none can be
    read in time.
    """
    with contextlib.suppress(OSError, TimeoutError, RuntimeError, ValueError):
        return await call_with_limit(read_token, folder / TOKEN_FILE, limit=FILE_LIMIT)
    return ""


async def find_local_token(job: str) -> str:
    """Return the token that the lead of a job has left on this machine, in the folder of its
    monitor, "" if there is none: of several the last, for one may be of a lead that was killed.
    `job` is that of its Credentials.
    """
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        return await call_with_limit(_find_local_token, job, limit=FILE_LIMIT)
    return ""


def _find_local_token(job: str) -> str:
    found: list[tuple[float, str]] = []
    paths = (path for base in bases() for path in Path(base).glob(f"hangbisect-*/run/{TOKEN_FILE}"))
    for path in islice(paths, _MOST):
        with contextlib.suppress(OSError, ValueError):
            left = read_own_json(path)
            if left.get("job") == job:
                found.append((path.lstat().st_mtime, str(left.get("token", ""))))
    return max(found, default=(0.0, ""))[1]


def format_token(token: str, job: str = "") -> str:
    """Return what TOKEN_FILE holds, for read_token() and find_local_token()."""
    return json.dumps({"token": token, "job": job})


def read_own_json(path: Path) -> dict[str, Any]:
    """Return the object in a small file that is ours and that nobody else can read, {} for anything
    else. May block; raises OSError, ValueError.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        is_ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
        if not stat.S_ISREG(found.st_mode) or not is_ours:
            return {}
        data = json.loads(file.read(1 << 16))
    return data if isinstance(data, dict) else {}


def _resolve(host: str) -> list[str]:
    """Return the addresses of a host. May block; raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


AFTER = 10.0  # seconds without a lead until a node does so: that of rank 0 may be late
_FRESH = 30.0  # seconds since one of them was written: each node does it anew at each look
_MOST = 1 << 12  # files that are read


class WaitingNodes:
    """What one node leaves in the folder, and finds there."""

    def __init__(self, folder: Path, own: NodeWord) -> None:
        """Nothing is written before exchange()."""
        self._folder, self._own = folder, own
        self._names = set[str]()  # of the files left there, one for each name of the job
        self.found: list[NodeWord] = []  # this one too

    async def exchange(self, job: str, places: Sequence[Address], needs_token: bool) -> None:
        """Write how this node is reached, by the address from which it reaches the first of
        `places`, and read of the others of the same job; leave a token there if one is needed.
        Never raises.
        """
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            limited = call_with_limit(self._exchange, job, places, needs_token, limit=FILE_LIMIT)
            self.found = await limited

    async def end(self) -> None:
        """Remove what was left there. Never raises."""
        for name in self._names:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                await call_with_limit(os.unlink, self._folder / name, limit=FILE_LIMIT)

    def _exchange(self, job: str, places: Sequence[Address], needs_token: bool) -> list[NodeWord]:
        """Return the nodes that wait. May block; raises OSError."""
        address = find_own_address(places)
        if not address:
            return []
        node = blake2b(self._own.node.encode(), digest_size=8).hexdigest()
        name = f"waiting-{job}-{node}.json"
        self._names.add(name)
        own = replace(self._own, address=address)
        write({name: json.dumps(to_json(own))}, str(self._folder))
        if needs_token:
            self._leave_token()
        since = os.stat(self._folder / name).st_mtime - _FRESH
        found = []
        for path in sorted(self._folder.glob(f"waiting-{job}-*.json"))[:_MOST]:
            with contextlib.suppress(OSError, ValueError, Misfit):
                if path.lstat().st_mtime >= since:
                    found.append(from_json(NodeWord, read_own_json(path)))
        return found

    def _leave_token(self) -> None:
        path = self._folder / TOKEN_FILE
        with contextlib.suppress(OSError, ValueError):
            if read_token(path):
                return
        write({TOKEN_FILE: format_token(secrets.token_hex(16))}, str(self._folder))


_MOST_UNHEARD = 2  # hosts that are asked for: each may take seconds


async def find_unheard_nodes(joint: JointNodes, ports: Sequence[int]) -> list[LostNode]:
    """Return the hosts of ranks that no node has told of, where the network does not reach them any
    more: the host was lost before its monitor had found us.
    """
    from ..diagnosis.rank_connections import OFTEN

    absent, hosts = await call_in_thread(lambda: joint.unheard)
    lost = []
    for one in hosts[:_MOST_UNHEARD]:
        if one.resent < OFTEN and not (ports and await is_out_of_reach(one.address, ports[0])):
            continue
        name = await find_name(one.address) or one.address
        ranks = absent if len(hosts) == 1 else ()  # of several nothing says which has which
        lost.append(LostNode(name, ranks, None, "", one.address))
    return lost


_ASK_AFTER, _ASK_EVERY = 6.0, 4.0  # seconds without a lead, and between two questions


class NeighbourSearch:
    """How one node finds who leads its job, or is found by others, without an address."""

    def __init__(self, job: str) -> None:
        """`job` is the name by which all nodes know it. Nothing is sent or heard before that is
        asked for.
        """
        self._job, self._port = job, list_common_ports(job)[0]
        self._next = time.monotonic() + _ASK_AFTER
        self._beacon: Beacon | None = None

    async def be_found(self, where: Where) -> None:
        """Answer those that ask, from now on."""
        if self._beacon is None:
            self._beacon = Beacon(self._job, where)
            await self._beacon.listen(self._port)

    async def ask(self) -> list[FoundLead]:
        """Return who says that it leads; [] where it is too early to ask, or to ask again."""
        if time.monotonic() < self._next:
            return []
        found = await ask_neighbours(self._job, self._port)
        self._next = time.monotonic() + _ASK_EVERY
        return found

    def end(self) -> None:
        """Answer nobody any more."""
        if self._beacon is not None:
            self._beacon.close()


def find_own_address(places: Sequence[Address]) -> str:
    """Return the address from which this machine reaches a place, "" where there is no way. Nothing
    is sent for it (udp(7)).
    """
    for host, port in places:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((host, port))
            return str(asking.getsockname()[0])
    return ""
