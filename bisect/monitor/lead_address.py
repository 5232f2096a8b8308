"""Where who leads several nodes listens, and by what nodes prove that they belong to its job: the
same for the monitors of ranks (other_nodes.py) and, before there is a rank, for the watches around
launchers (other_agents.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..base.addresses import is_loopback
from ..base.deadline import call_with_limit
from ..base.variables import LEAD_VARIABLE
from ..link.handshake import Credentials
from ..link.lead import Lead
from ..link.munge import has_munge
from ..link.node import Address

FIRST_PORT, LAST_PORT = 1, 8  # behind that of the job; the last first: jobs take the first ones
TOKEN_FILE = "link.json"  # in the run folder, for nodes that share it
RESOLVE_LIMIT = 3.0  # seconds
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


async def resolve_places(places: Sequence[Address]) -> dict[str, list[Address]]:
    """Return by name the addresses and ports of places; nothing of a name that is not known."""
    found: dict[str, list[Address]] = {}
    for host in dict.fromkeys(host for host, _ in places):
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            known = await call_with_limit(_resolve, host, limit=RESOLVE_LIMIT)
            found[host] = [(one, port) for name, port in places if name == host for one in known]
    return found


async def listen_at(lead: Lead, addresses: Sequence[Address]) -> str:
    """Have the lead listen at the first address that is this machine's and that others reach;
    return "", else why there is none.
    """
    why = "no address for it"
    for address, port in addresses:
        if is_loopback(address):
            why = f"{address} is this machine for every node"
            continue
        try:
            await lead.listen(address, port)
            return ""
        except OSError as error:
            why = f"{address}:{port}: {error.strerror or error}"
    return why


def read_token(path: Path) -> str:
    """Return the token that the lead has left in a run folder that nodes share, "" if there is none
    of our own that nobody else can read. May block; raises OSError, ValueError.
    """
    return str(read_own_json(path).get("token", ""))


def format_token(token: str) -> str:
    """Return what TOKEN_FILE holds, for read_token()."""
    return json.dumps({"token": token})


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
