"""The interfaces that NCCL and gloo are set to use, in the spelling of each."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from ..base.addresses import Wanted, parse_gloo, parse_nccl
from ..base.lazy_dataclass import dataclass
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, unknown, warning

_GET_FLAGS, _GET_ADDRESS = 0x8913, 0x8915  # ioctls: netdevice(7)
_UP, _LOOPBACK = 0x1, 0x8
_INFINIBAND = "/sys/class/infiniband"
# What NCCL tries in turn when nothing is set (ncclFindInterfaces, src/misc/socket.cc).
_BY_ITSELF = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
_SHARED = "name one that all nodes have: ip -brief address"


@dataclass(frozen=True)
class Interface:
    """A network interface of this machine."""

    name: str
    up: bool = True
    loopback: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """It is up, and has an address."""
        return self.up and bool(self.addresses)


def chosen(value: str, known: Sequence[Interface]) -> tuple[Interface, ...]:
    """Return the interfaces that NCCL takes by a value of NCCL_SOCKET_IFNAME, which counts from two
    characters on; else those that it would find by itself.
    """
    usable = [one for one in known if one.usable]
    for text in (value,) if len(value) > 1 else _BY_ITSELF:
        wanted = parse_nccl(text)
        found = tuple(one for one in usable if wanted.fits(one.name))
        if found:
            return found
    return ()


# ---- reading -------------------------------------------------------------------------------------


def read_interfaces(setting: Setting) -> tuple[Interface, ...]:
    """Return the network interfaces of this machine."""
    sixes = _addresses_of_six()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return tuple(_interface(asked, name, sixes) for _, name in socket.if_nameindex())


def _interface(asked: socket.socket, name: str, sixes: Sequence[tuple[str, str]]) -> Interface:
    flags = struct.unpack_from("H", _ask_interface(asked, _GET_FLAGS, name), 16)[0]
    raw = _ask_interface(asked, _GET_ADDRESS, name)[20:24]
    four = (socket.inet_ntop(socket.AF_INET, raw),) if any(raw) else ()
    six = tuple(address for address, of in sixes if of == name)
    return Interface(name, bool(flags & _UP), bool(flags & _LOOPBACK), four + six)


def _ask_interface(asked: socket.socket, what: int, name: str) -> bytes:
    request = array.array("b", struct.pack("16s24x", os.fsencode(name)[:15]))
    try:
        fcntl.ioctl(asked, what, request)
    except OSError:  # no address of IPv4
        return bytes(40)
    return request.tobytes()


def _addresses_of_six() -> list[tuple[str, str]]:
    """Return (address, interface) for each address of IPv6."""
    try:
        with open("/proc/net/if_inet6") as file:
            return [found for line in file if (found := parse_six(line))]
    except OSError:
        return []


def parse_six(line: str) -> tuple[str, str] | None:
    """Return (address, interface) in a line of /proc/net/if_inet6, None if it is none."""
    fields = line.split()
    try:
        return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])), fields[5]
    except (IndexError, ValueError):
        return None


def read_cards(setting: Setting) -> tuple[str, ...]:
    """Return the InfiniBand and RoCE devices of this machine."""
    try:
        return tuple(sorted(os.listdir(_INFINIBAND)))
    except FileNotFoundError:
        return ()


def address_for_peers(value: str, known: Sequence[Interface]) -> str:
    """Return this machine's address on an interface that `value` names for NCCL, "" if it names
    none. Of IPv4 if there is one, as the kernel lists them; never one of a single link (fe80::).
    """
    found = chosen(value, known) if len(value) > 1 else ()
    addresses = [address for one in found for address in one.addresses if address[:4] != "fe80"]
    return min(addresses, key=lambda address: ":" in address, default="")


# ---- judged --------------------------------------------------------------------------------------


def nccl(setting: Setting, facts: tuple[Interface, ...]) -> Iterator[Finding]:
    """Judge NCCL_SOCKET_IFNAME."""
    value = setting.environ.get("NCCL_SOCKET_IFNAME", "")
    taken = chosen(value, facts)
    if len(value) < 2:
        would = ", ".join(one.name for one in taken[:3]) or "none: there is none with an address"
        yield ok(f"not set: NCCL takes {would}")
        return
    said = f"NCCL_SOCKET_IFNAME={value}"
    wanted = parse_nccl(value)
    blank = [name for name in wanted.names if name != name.strip()]
    there = [one.name for one in facts]
    missing = [n for n in wanted.names if not any(map(Wanted((n,), wanted.exact).fits, there))]
    if not taken:
        down = [one.name for one in facts if wanted.fits(one.name)]
        why = f"{', '.join(down)} is down or has no address" if down else _there(facts)
        yield problem(f"{said} leaves no interface: {why}", _SHARED)
    elif blank:
        yield problem(f"{said}: with the blank in it {blank[0]!r} is the name of none", _SHARED)
    elif setting.nodes > 1 and all(one.loopback for one in taken):
        yield problem(f"{said} is loopback, in a job of {setting.nodes} nodes", _SHARED)
    elif missing and not wanted.excluded and wanted.exact:
        yield warning(f"{said}: there is no {', '.join(missing)}; {_there(facts)}", _SHARED)
    else:
        where = ", ".join(f"{one.name} ({one.addresses[0]})" for one in taken[:3])
        yield ok(f"{said}: {where}")


def gloo(setting: Setting, facts: tuple[Interface, ...]) -> Iterator[Finding]:
    """Judge GLOO_SOCKET_IFNAME."""
    value = setting.environ.get("GLOO_SOCKET_IFNAME", "")
    names = parse_gloo(value)
    if not names:
        yield ok("not set: gloo takes the address of this machine's name")
        return
    said, known = f"GLOO_SOCKET_IFNAME={value}", {one.name: one for one in facts}
    missing = [name for name in names if name not in known]
    unusable = [name for name in names if name in known and not known[name].usable]
    if missing:
        like_nccl = value[0] in "^=" or any(one.startswith(tuple(names)) for one in known)
        spelled = "; gloo knows exact names only, no prefix, ^ or =" if like_nccl else ""
        odd = any(n != n.strip() or not n for n in missing)
        absent = ", ".join(map(repr, missing) if odd else missing)
        yield problem(f"{said}: there is no {absent}; {_there(facts)}{spelled}", _SHARED)
    elif unusable:
        yield problem(f"{said}: {', '.join(unusable)} is down or has no address", _SHARED)
    elif setting.nodes > 1 and all(known[name].loopback for name in names):
        yield problem(f"{said} is loopback, in a job of {setting.nodes} nodes", _SHARED)
    else:
        yield ok(f"{said}: {', '.join(f'{n} ({known[n].addresses[0]})' for n in names[:3])}")


def cards(setting: Setting, facts: tuple[str, ...]) -> Iterator[Finding]:
    """Judge NCCL_IB_HCA."""
    value = setting.environ.get("NCCL_IB_HCA", "")
    there = ", ".join(facts[:8]) or "none"
    if not value:
        yield ok(f"not set; InfiniBand devices: {there}")
    elif setting.environ.get("NCCL_IB_DISABLE") == "1":
        yield ok(f"NCCL_IB_HCA={value} does not count: NCCL_IB_DISABLE=1")
    elif any(map(parse_nccl(value).fits, facts)):
        yield ok(f"NCCL_IB_HCA={value}, of {there}")
    else:
        yield warning(
            f"NCCL_IB_HCA={value} names no device; there are: {there}",
            "NCCL goes over plain sockets then: name one of /sys/class/infiniband, or unset it",
        )


def _there(known: Sequence[Interface]) -> str:
    usable = [one.name for one in known if one.usable]
    return f"there are {', '.join(usable[:8])}" if usable else "there is none with an address"


def reachable(setting: Setting, facts: tuple[Interface, ...]) -> Iterator[Finding]:
    """Judge whether there is an interface to reach other nodes by."""
    outside = [one for one in facts if one.usable and not one.loopback]
    down = [one.name for one in facts if not one.usable]
    if outside:
        yield ok(", ".join(f"{one.name} {one.addresses[0]}" for one in outside[:4]))
    elif setting.nodes > 1:
        yield problem("no interface but loopback has an address", "ip -brief address")
    elif not facts:
        yield unknown("there is no network interface at all")
    else:
        yield ok("loopback alone" + f" ({', '.join(down[:4])} not up)" * bool(down))


FAMILY = CheckFamily(
    "Interfaces",
    (
        Check(
            id="interfaces",
            title="there is an interface to reach other nodes by",
            why="Without one ranks on other nodes are never reached.",
            read=read_interfaces,
            judge=reachable,
        ),
        Check(
            id="nccl-socket-ifname",
            title="NCCL_SOCKET_IFNAME leaves an interface that is up",
            why="NCCL ends or, where the nodes choose differently, waits for ever at the first "
            "collective.",
            read=read_interfaces,
            judge=nccl,
        ),
        Check(
            id="gloo-socket-ifname",
            title="GLOO_SOCKET_IFNAME names interfaces that exist and are up",
            why="gloo finds no address, and the other ranks wait for the one that failed.",
            read=read_interfaces,
            judge=gloo,
        ),
        Check(
            id="nccl-ib-hca",
            title="NCCL_IB_HCA names InfiniBand devices that exist",
            why="NCCL falls back to sockets on this node alone, and the nodes do not understand "
            "each other.",
            read=read_cards,
            judge=cards,
        ),
    ),
)
