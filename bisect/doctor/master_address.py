"""MASTER_ADDR and the name of this machine: whether they resolve, how fast, and to what;
MASTER_PORT: whether rank 0 can listen there, and whether it is reached.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from ..base.addresses import is_loopback, port_of
from ..base.lazy_dataclass import dataclass
from ..base.words import format_seconds
from ..evidence.descriptors import find_holders, read_sockets
from .examination import (
    Check,
    CheckedProcess,
    CheckFamily,
    Finding,
    Setting,
    ok,
    problem,
    process,
    run_in_threads,
    unknown,
    warning,
)

LOOK_UP = 5.0  # seconds for a name server to answer; the resolver itself tries for 10 and more
SLOW = 1.0
_LOCAL = "the ranks of other nodes would look for rank 0 on their own machine"


@dataclass(frozen=True)
class NameAnswer:
    """What a name server (or /etc/hosts) answered, after how many seconds; None: it did not."""

    said: tuple[str, ...] = ()
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Named:
    """A host's name, its addresses, and the name of the first address."""

    name: str
    forward: NameAnswer
    backward: NameAnswer


@dataclass(frozen=True)
class Names:
    """MASTER_ADDR (None where no variable has it) and the name of this machine."""

    master: Named | None
    own: Named
    own_addresses: tuple[str, ...]  # of MASTER_ADDR, those that this machine has


def read_names(setting: Setting) -> Names:
    """Look both names up, forward and backward."""
    wanted = {"own": socket.gethostname()}
    if setting.place.master:
        wanted["master"] = setting.place.master
    calls = {key: partial(_look_up, name) for key, name in wanted.items()}
    found = run_in_threads(2 * LOOK_UP + 0.5, calls)
    named = {
        key: one if isinstance(one, Named) else Named(wanted[key], NameAnswer(), NameAnswer())
        for key, one in found.items()
    }
    master = named.get("master")
    addresses = master.forward.said if master else ()
    return Names(master, named["own"], tuple(a for a in addresses if is_own_address(a)))


def _look_up(name: str) -> Named:
    forward = _timed(partial(addresses_of, name))
    if not forward.said:
        return Named(name, forward, NameAnswer())
    return Named(name, forward, _timed(partial(_name_of, forward.said[0])))


def _timed(call: partial[tuple[str, ...]]) -> NameAnswer:
    begun = time.monotonic()
    answer = run_in_threads(LOOK_UP, {"": call})[""]
    took = time.monotonic() - begun
    if isinstance(answer, TimeoutError):
        return NameAnswer()
    if isinstance(answer, Exception):
        return NameAnswer(error=getattr(answer, "strerror", None) or str(answer), seconds=took)
    return NameAnswer(answer, took)


def addresses_of(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def _name_of(address: str) -> tuple[str, ...]:
    return (socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0],)


def is_own_address(address: str) -> bool:
    """Return whether this machine has an address: to itself it speaks from there. Nothing is sent.

    Not by bind(): in a network without routes it takes any address.
    """
    if is_loopback(address):
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0]) == address
    return False


def master_address(setting: Setting, facts: Names) -> Iterator[Finding]:
    """Judge MASTER_ADDR: whether it is a name, resolves, and is not loopback for several nodes."""
    named = facts.master
    if named is None:
        several = setting.nodes > 1 and setting.environ.get("SLURM_JOB_ID")
        yield ok("not set: the launcher or Lightning sets it" + " on each node" * bool(several))
        return
    # Without it Lightning takes the first node of Slurm's list.
    given = "MASTER_ADDR" in setting.environ
    what = f"MASTER_ADDR={named.name}" if given else f"{named.name}, the first of Slurm's nodes,"
    odd = misspelled(named.name)
    if odd:
        yield problem(f"{what} {odd}", "it is a name or an address alone")
        return
    if not named.forward.said:
        yield _no_address(named, what)
        return
    said = f"{named.name} is {', '.join(named.forward.said[:3])} ({_took(named.forward)})"
    next = "MASTER_ADDR=$(hostname -I | cut -d' ' -f1) of the first node, or its name in the DNS"
    if setting.nodes > 1 and is_loopback(named.name):
        yield problem(f"{what} in a job of {setting.nodes} nodes: {_LOCAL}", next)
    elif setting.nodes > 1 and all(map(is_loopback, named.forward.said)):
        yield problem(f"{said}, in a job of {setting.nodes} nodes: {_LOCAL}", next)
    elif _slow(named.forward):
        yield warning(f"{said}: every rank looks it up", "an address, or a line in /etc/hosts")
    else:
        yield ok(said)
    first = setting.place.launcher is not None and setting.place.rank == 0
    if first and setting.nodes > 1 and not facts.own_addresses:
        yield warning(
            f"rank 0 is here, and none of {', '.join(named.forward.said[:3])} is an address of "
            f"{facts.own.name}",
            "MASTER_ADDR names the machine of rank 0 (unless something forwards it)",
        )


def own_name(setting: Setting, facts: Names) -> Iterator[Finding]:
    """Judge the name of this machine, which torchrun and gloo look up."""
    named = facts.own
    if not named.forward.said:
        yield _no_address(named, f"this machine's name {named.name}")
        return
    said = f"{named.name} is {', '.join(named.forward.said[:3])} ({_took(named.forward)})"
    chosen = setting.environ.get("GLOO_SOCKET_IFNAME", "")
    if setting.nodes > 1 and is_loopback(named.forward.said[0]) and len(chosen) < 2:
        yield problem(
            f"{said}, in a job of {setting.nodes} nodes: gloo tells the others that address",
            "GLOO_SOCKET_IFNAME=<the interface that the nodes share>, or mend /etc/hosts",
        )
    elif _slow(named.forward):
        yield warning(f"{said}: torchrun and gloo look it up", f"add {named.name} to /etc/hosts")
    else:
        yield ok(said)


def backward(setting: Setting, facts: Names) -> Iterator[Finding]:
    """Judge how long an address takes to be looked up backwards."""
    for label, named in (("MASTER_ADDR", facts.master), ("this machine", facts.own)):
        if named is None or not named.forward.said:
            continue
        address, answer = named.forward.said[0], named.backward
        if answer.seconds is None:
            yield problem(
                f"{address} ({label}): the name server gave no name within "
                f"{format_seconds(LOOK_UP)}",
                f"add {address} to /etc/hosts, or mend /etc/resolv.conf: torchrun waits for this "
                "before it starts a rank, and each connection for its line in the log",
            )
        elif answer.seconds > SLOW:
            yield warning(
                f"{address} ({label}): looked up backwards in {format_seconds(answer.seconds)}",
                f"add {address} to /etc/hosts: torchrun waits for this before it starts a rank",
            )
        else:
            what = answer.said[0] if answer.said else "no name"
            yield ok(f"{address} ({label}) is {what} ({_took(answer)})")


def misspelled(address: str) -> str:
    """Return what is wrong with the spelling of MASTER_ADDR, "" if nothing is."""
    if address != address.strip() or any(c.isspace() for c in address):
        return "has a blank in it"
    if "/" in address:
        return "is a URL"
    if address.count(":") == 1:
        return f"has a port, which belongs in MASTER_PORT ({port_of(address)})"
    return ""


def _no_address(named: Named, what: str) -> Finding:
    if named.forward.seconds is None:
        return problem(
            f"{what}: the name server gave no answer within {format_seconds(LOOK_UP)}",
            "mend /etc/resolv.conf, or use an address, or a line in /etc/hosts",
        )
    return problem(
        f"{what} is no name that is known here: {named.forward.error}",
        f"getent hosts {named.name}; use an address, or a line in /etc/hosts",
    )


def _slow(answer: NameAnswer) -> bool:
    return answer.seconds is not None and answer.seconds > SLOW


def _took(answer: NameAnswer) -> str:
    took = answer.seconds or 0.0
    return f"{took * 1000:.0f} ms" if took < SLOW else format_seconds(took)


FAMILY = CheckFamily(
    "Names",
    (
        Check(
            id="master-addr",
            title="MASTER_ADDR is an address that every node reaches",
            why="Every rank connects to it before anything else; with loopback each node waits for "
            "itself.",
            read=read_names,
            judge=master_address,
        ),
        Check(
            id="host-name",
            title="this machine's own name resolves, and not to loopback for several nodes",
            why="torchrun looks it up, and gloo listens on the address that comes of it.",
            read=read_names,
            judge=own_name,
        ),
        Check(
            id="reverse-lookup",
            title="addresses are looked up backwards at once",
            why="torchrun and its store do so for their log; a name server that is silent holds up "
            "each of them.",
            read=read_names,
            judge=backward,
        ),
    ),
)


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
    holders: tuple[CheckedProcess, ...] = ()  # who listens there
    listened: bool = False  # a process does, whichever it is
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
        if elsewhere or not any(map(is_own_address, addresses)):
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
    """Return why no process could listen on a port, "" if one could. It is bound for a moment.

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


def _listeners(port: int) -> tuple[bool, tuple[CheckedProcess, ...]]:
    """Return whether another process listens on a port of this machine, and which ones."""
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


PORT = CheckFamily(
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
