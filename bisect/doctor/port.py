"""MASTER_PORT: whether rank 0 can listen there, and whether it is reached."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..base.addresses import port_of
from ..base.words import format_seconds
from ..evidence.descriptors import find_holders, read_sockets
from .checks import Check, Family, Finding, Setting, ok, problem, run_in_threads, unknown, warning
from .names import LOOK_UP, addresses_of, is_ours
from .processes import Process, process

_CONNECT = 3.0  # seconds
_LOOKS = 3
DEFAULT_PORT = 29500  # of torchrun, DeepSpeed and accelerate
_STORE_OF_TORCHRUN = "TORCHELASTIC_USE_AGENT_STORE"
Reached = Literal["answers", "refused", "silent", "unreachable"]


@dataclass(frozen=True)
class Port:
    """MASTER_PORT, or the one that launchers take without it."""

    text: str  # "" where it is not set
    here: bool  # rank 0 listens on this machine, as far as one can tell
    taken: str = ""  # why it cannot be bound
    holders: tuple[Process, ...] = ()  # who listens there
    listened: bool = False  # somebody does, whoever it is
    reached: Reached | None = None  # of another machine
    seconds: float = 0.0
    dynamic: tuple[int, int] = (0, 0)  # ports that the kernel gives to outgoing connections

    @property
    def number(self) -> int | None:
        """The port; None for a text that is none."""
        text = self.text or str(DEFAULT_PORT)
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None


def read_port(setting: Setting) -> Port:
    """Try the port: bind it where rank 0 is here, connect to it elsewhere."""
    text = setting.environ.get("MASTER_PORT", "").strip()
    asked = Port(text, here=True)
    if asked.number is None:
        return asked
    if setting.place.master:
        addresses = run_in_threads(LOOK_UP, {"": partial(addresses_of, setting.place.master)})[""]
        if isinstance(addresses, Exception):
            return Port(text, here=False)
        elsewhere = setting.is_launched and setting.place.rank != 0
        if elsewhere or not any(map(is_ours, addresses)):
            reached, took = connected(addresses, asked.number)
            return Port(text, False, reached=reached, seconds=took)
    # Our own meeting may just be over: who cannot be seen is looked for again.
    for _ in range(_LOOKS):
        taken = _binds(asked.number)
        listening, found = _listeners(asked.number) if taken else (False, ())
        if not listening or found:
            break
        time.sleep(0.2)
    return Port(text, True, taken, found, listening, dynamic=_dynamic())


def _binds(port: int) -> str:
    """Return why nobody could listen on a port, "" if one could. It is bound for an instant only.

    As torch does (TCPStoreLibUvBackend.cpp): on all addresses, of IPv6 and IPv4 or of IPv4 alone.
    """
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                one.bind(("", port))
                return ""
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return error.strerror or str(error)
    return ""


def _listeners(port: int) -> tuple[bool, tuple[Process, ...]]:
    """Return whether anybody but us listens on a port of this machine, and who does."""
    end = str(port)
    links = {
        f"socket:[{one.inode}]"
        for one in read_sockets().values()
        if one.family.startswith("tcp") and port_of(one.local) == end and one.state == "LISTEN"
    }
    owners = {end.pid for ends in find_holders(links).values() for end in ends}
    others = sorted(owners - {os.getpid()})
    return bool(links) and owners != {os.getpid()}, tuple(process(pid) for pid in others)


def _dynamic() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = file.read().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 0, 0


def connected(addresses: Sequence[str], port: int) -> tuple[Reached, float]:
    """Return what became of a connection to the first address that does not refuse at once."""
    reached: Reached = "unreachable"
    begun = time.monotonic()
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=_CONNECT):
                return "answers", time.monotonic() - begun
        except TimeoutError:
            reached = "silent"
        except ConnectionRefusedError:
            return "refused", time.monotonic() - begun
        except OSError:
            continue
    return reached, time.monotonic() - begun


def master_port(setting: Setting, facts: Port) -> Iterator[Finding]:
    """Judge whether rank 0 can listen, or can be reached."""
    port, name = facts.number, "MASTER_PORT" if facts.text else "port"
    if port is None:
        yield problem(f"MASTER_PORT={facts.text} is no port", "a number from 1024 to 65535")
    elif facts.here:
        yield _here(setting, facts, f"{name} {port}", port)
    else:
        yield _elsewhere(setting, facts, f"{setting.place.master}:{port}")


def _here(setting: Setting, facts: Port, what: str, port: int) -> Finding:
    if not facts.taken or (not facts.listened and not facts.holders and not _denied(facts)):
        first, last = facts.dynamic
        if facts.text and first <= port <= last:
            return ok(f"{what} is free, but among those of outgoing connections ({first}-{last})")
        return ok(f"{what} is free")
    if _denied(facts):
        return problem(f"{what}: {facts.taken}", "MASTER_PORT from 1024 on: lower ones are root's")
    if not facts.holders:
        return problem(f"{what} is taken by a process that cannot be seen", _another(port))
    said = f"{what} is taken by {facts.holders[0]}"
    pids = {holder.pid for holder in facts.holders}
    if setting.environ.get(_STORE_OF_TORCHRUN) == "True" or pids & {*setting.pids}:
        return ok(f"{what} is served by {facts.holders[0]}")
    if not facts.text:
        return warning(f"{said}: torchrun takes that one unless told otherwise", _another(port))
    left = f"kill {facts.holders[0].pid} if it was left behind; else {_another(port)}"
    return problem(f"{said}: rank 0 cannot listen there, or meets a stranger", left)


def _denied(facts: Port) -> bool:
    return facts.taken == os.strerror(errno.EACCES)


def _another(port: int) -> str:
    other = port + 1 if port < 65000 else DEFAULT_PORT
    return f"MASTER_PORT={other}, torchrun --master-port {other}"


def _elsewhere(setting: Setting, facts: Port, what: str) -> Finding:
    took = f"{facts.seconds * 1000:.0f} ms"
    if facts.reached is None:
        return unknown(f"{what}: the name is not known here")
    if facts.reached == "answers":
        return ok(f"{what} answers ({took})")
    if facts.reached == "refused":
        return ok(f"{what} is reached ({took}), nobody listens there yet")
    if facts.reached == "unreachable":
        return problem(f"{what}: there is no way there", f"ip route get {setting.place.master}")
    return problem(
        f"{what} does not answer within {format_seconds(_CONNECT)}: a firewall drops it, or "
        "the machine is down",
        "open the ports between the nodes, or name another interface's address",
    )


FAMILY = Family(
    "The port",
    (
        Check(
            id="master-port",
            title="MASTER_PORT is free, or answered by the job's own store",
            why="Rank 0 cannot listen on a port that another process has; the others may meet that "
            "process and wait for ever.",
            read=read_port,
            judge=master_port,
        ),
    ),
)
