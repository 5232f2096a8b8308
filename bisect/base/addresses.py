"""Addresses as sockets and variables spell them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

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
