"""Addresses and interfaces as sockets and variables spell them: host and port, and what
NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from .lazy_dataclass import dataclass
from .process_facts import Socket

_SILENT = frozenset(["", "LISTEN", "CLOSE", "CLOSED", "TIME_WAIT"])
_LOCAL_NAMES = frozenset(["localhost", "localhost.localdomain", "::1", "ip6-localhost"])
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_PORTS = {"https": "443", "http": "80", "socks5": "1080", "socks5h": "1080", "": "80"}


def host_of(address: str) -> str:
    """Return the host of "host:port" or "[host]:port"."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> str:
    """Return the port of "host:port" or "[host]:port"."""
    return address.rpartition(":")[2]


def plain_address(address: str) -> str:
    """Return "10.0.0.2:9" for "[::ffff:10.0.0.2]:9", which is the same (RFC 4291, 2.5.5.2)."""
    host = host_of(address).lower()
    return f"{host.removeprefix('::ffff:') if '.' in host else host}:{port_of(address)}"


def is_loopback(host: str) -> bool:
    """Return True for a name or an address of the machine itself."""
    return host in _LOCAL_NAMES or host.startswith("127.")


def may_be(name: str, host: str, port: str) -> bool:
    """Return True if `name` may stand for the address `host`: the same, both of this machine, or
    a name that is not looked up here, at a port that tells it from any other server.
    """
    if name == host or (is_loopback(name) and is_loopback(host)):
        return True
    is_address = name.replace(".", "").isdigit() or ":" in name
    return not (is_address or is_loopback(name) or is_loopback(host)) and port not in ("80", "443")


def is_talking(socket: Socket) -> bool:
    """Return True for a socket of the internet that has, or is getting, another end."""
    inet = socket.family.startswith(("tcp", "udp"))
    return inet and bool(socket.peer) and socket.state not in _SILENT


def is_local(socket: Socket) -> bool:
    """Return True for a Unix socket whose other end another process has."""
    return socket.family == "unix" and bool(socket.peer_pids)


def proxies(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return host and port of each proxy that variables name, by the variable."""
    found = {}
    for name in _PROXIES:
        value = environment.get(name, "")
        if value:
            parts = urlsplit(value if "//" in value else f"//{value}")
            try:
                port = str(parts.port or _PORTS.get(parts.scheme, "80"))
            except ValueError:  # not a number
                continue
            found[name] = (parts.hostname or "", port)
    return found


@dataclass(frozen=True)
class Wanted:
    """What a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA says."""

    names: tuple[str, ...]
    exact: bool = False
    excluded: bool = False

    def fits(self, name: str) -> bool:
        """Return whether NCCL would take an interface of this name."""
        if not self.names:  # NCCL: without a list every name is in it
            return not self.excluded
        among = name in self.names if self.exact else name.startswith(self.names)
        return among != self.excluded


def parse_nccl(value: str) -> Wanted:
    """Return what a value means to NCCL: prefixes, separated by commas, each with an optional port
    (`mlx5_0:1`); `=` before the list for exact names, `^` for all others, `^=` for both.

    As parseStringList and ncclFindInterfaces have it (src/misc of NCCL).
    """
    excluded = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = (word.partition(":")[0] for word in value.removeprefix("=").split(","))
    return Wanted(tuple(name for name in names if name), exact, excluded)


def parse_gloo(value: str) -> tuple[str, ...]:
    """Return the interfaces that a value of GLOO_SOCKET_IFNAME names: exact, separated by commas;
    one character alone counts as not set (createProcessGroupGloo, torch's c10d/init.cpp).
    """
    return tuple(value.removesuffix(",").split(",")) if len(value) > 1 else ()
