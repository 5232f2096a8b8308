"""Whether every node reaches every other: the doctors of all nodes meet, and each connects to every
other.

The one at rank 0 listens at MASTER_PORT, or at one of the ports behind it where that is taken
(torchrun's own store is there). The side that listens sends first: nothing is ever sent to a port
of another program. A line of JSON is all that either side sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from ..base.deadline import call_with_limit
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.words import format_count, format_seconds
from ..evidence.installed_versions import read_versions
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, run_in_threads, unknown
from .interfaces import address_for_peers
from .interfaces import read_interfaces as read_interfaces
from .libraries import as_versions, compare_versions
from .master_address import DEFAULT_PORT, LOOK_UP, addresses_of

MOST_PORTS = 8  # that are tried behind MASTER_PORT
_ANSWER_LIMIT = 3.0  # seconds for a connection, or for a line
_FOREIGN_LIMIT = 1.0  # seconds after which a port that sends nothing belongs to another program
_QUEUE = 1024  # connections that wait to be accepted
_SHARE_OF_WAITING = 0.6  # of the time: to wait until all have come
_LONGEST_LINE = 1 << 22  # bytes of a line: all members of a large job

Line = dict[str, Any]
# The third is why there is no connection.
Opened = tuple[asyncio.StreamReader | None, asyncio.StreamWriter | None, str]


@dataclass(frozen=True)
class Member:
    """A node's doctor: where the others reach it."""

    node: int
    host: str
    address: str = ""
    port: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)  # of its drivers and libraries


@dataclass(frozen=True)
class Reached:
    """How a connection to another node went; `error` is "" if it was answered."""

    member: Member
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Meeting:
    """What came of it, as this node sees it."""

    nodes: int
    place: str = ""  # where they met
    reached: tuple[Reached, ...] = ()
    missing: int = 0  # nodes that did not come
    error: str = ""  # why there was no meeting
    unnamed: bool = False  # the name of rank 0's machine is not known here
    waited: float = 0.0
    host: str = ""  # this node's
    versions: Mapping[str, str] = field(default_factory=dict)  # what this node has


@dataclass
class _Arrival:
    member: Member
    writer: asyncio.StreamWriter
    done: asyncio.Event = field(default_factory=asyncio.Event)


def meet_nodes(setting: Setting) -> Meeting:
    """Meet the doctors of the other nodes, and connect to each."""
    host, versions = setting.place.host, read_versions()
    if setting.nodes < 2 or not setting.is_launched or not setting.place.master:
        return Meeting(setting.nodes, host=host, versions=versions)
    return replace(asyncio.run(_meet(setting, versions)), host=host, versions=versions)


def greeting(setting: Setting) -> Line:
    """Return what who listens says first: that it is a doctor of this job."""
    environ, place = setting.environ, setting.place
    of_job = [name for words in DIALECTS.values() for name in words.job]
    names = (*of_job, "MASTER_ADDR", "MASTER_PORT")
    identity = [environ.get(name, "") for name in names] + [str(place.world_size)]
    return {"doctor": hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]}


async def _meet(setting: Setting, versions: Mapping[str, str]) -> Meeting:
    end = time.monotonic() + max(1.0, setting.limit - 0.5)
    hello = greeting(setting)
    async with _listening(0, hello) as port:
        known = read_interfaces(setting)
        wanted = setting.environ.get("NCCL_SOCKET_IFNAME", "")
        address = address_for_peers(wanted, known)
        me = Member(setting.place.node, setting.place.host, address, port, versions)
        if setting.place.rank == 0:
            return await _host(setting, me, hello, end)
        return await _visit(setting, me, hello, end)


@contextlib.asynccontextmanager
async def _listening(port: int, hello: Line) -> AsyncIterator[int]:
    """Send `hello` to every process that connects."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await _send_line(writer, hello)
        writer.close()

    server = await asyncio.start_server(greet, sock=_bound(port))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _bound(port: int) -> socket.socket:
    """Return a socket that listens on all addresses, of IPv6 too where there is IPv6."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_QUEUE
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("", port), backlog=_QUEUE)


# ---- at rank 0 -----------------------------------------------------------------------------------


async def _host(setting: Setting, me: Member, hello: Line, end: float) -> Meeting:
    begun, others = time.monotonic(), setting.nodes - 1
    came: dict[int, _Arrival] = {}
    complete = asyncio.Event()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _send_line(writer, hello)
            said = await _heard(reader, _ANSWER_LIMIT)
            peer = str(writer.get_extra_info("peername")[0]).removeprefix("::ffff:")
            member = as_member(said, peer)
            if member is None:
                return
            came[member.node] = mine = _Arrival(member, writer)
            if len(came) >= others:
                complete.set()
            try:
                await _heard(reader, max(0.1, end - time.monotonic()))
            finally:
                mine.done.set()
        except (OSError, TimeoutError):
            writer.close()

    server = await _first_free(setting, welcome)
    if server is None:
        port = base_port(setting.environ)
        return Meeting(setting.nodes, error=f"ports {port} to {port + MOST_PORTS} are all taken")
    place = f"{setting.place.master}:{server.sockets[0].getsockname()[1]}"
    try:
        with contextlib.suppress(TimeoutError):
            share = (end - begun) * _SHARE_OF_WAITING
            await asyncio.wait_for(complete.wait(), share)
        waited = time.monotonic() - begun
        reached = await _with_all(me, list(came.values()), hello, end)
        return Meeting(setting.nodes, place, reached, others - len(reached), waited=waited)
    finally:
        for one in came.values():
            one.writer.close()
        server.close()


async def _with_all(
    me: Member, came: list[_Arrival], hello: Line, end: float
) -> tuple[Reached, ...]:
    """Tell all who came of each other, connect to them, and wait until they have done so."""
    # Without an address of ours the others take the one at which they reached us.
    members = [me, *(one.member for one in came)]
    for one in came:
        with contextlib.suppress(OSError):
            await _send_line(one.writer, {"members": [vars(member) for member in members]})
    reached = await _connect_members(me, members, hello)
    for one in came:  # until then our own listener stays
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(one.done.wait(), max(0.1, end - time.monotonic()))
    return reached


async def _first_free(setting: Setting, welcome: Any) -> asyncio.Server | None:
    first = base_port(setting.environ)
    for port in range(first, min(first + MOST_PORTS + 1, 65536)):
        with contextlib.suppress(OSError):
            return await asyncio.start_server(welcome, sock=_bound(port))
    return None


# ---- at the others -------------------------------------------------------------------------------


async def _visit(setting: Setting, me: Member, hello: Line, end: float) -> Meeting:
    begun, why = time.monotonic(), ""
    share = (end - begun) * _SHARE_OF_WAITING
    # Not by asyncio: its threads for look-ups are waited for at the end.
    looked_up = partial(
        run_in_threads, LOOK_UP, {"": partial(addresses_of, str(setting.place.master))}
    )
    addresses = (await call_with_limit(looked_up, limit=LOOK_UP + 1.0))[""]
    if isinstance(addresses, Exception):
        return Meeting(setting.nodes, unnamed=True)
    while time.monotonic() < begun + share:
        reader, writer, why = await _found(addresses[0], base_port(setting.environ), hello)
        if reader is not None and writer is not None:
            try:
                return await _stay(setting, me, hello, reader, writer, end)
            except (OSError, TimeoutError):
                why = "rank 0's doctor ended early"
            finally:
                writer.close()
        await asyncio.sleep(1.0)
    waited = time.monotonic() - begun
    error = f"no doctor of rank 0 was met at {setting.place.master} ({why})"
    return Meeting(setting.nodes, error=error, waited=waited)


async def _found(address: str, first: int, hello: Line) -> Opened:
    """Look for the doctor of rank 0 at all ports that it may have; the third is why in vain."""
    ports = range(first, min(first + MOST_PORTS + 1, 65536))
    tried = await asyncio.gather(*(_opened(address, port, hello) for port in ports))
    answered = [one for one in tried if one[1] is not None]
    for _, writer, _ in answered[1:]:
        if writer is not None:
            writer.close()
    return answered[0] if answered else (None, None, f"port {first} {tried[0][2]}")


async def _stay(
    setting: Setting,
    me: Member,
    hello: Line,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    end: float,
) -> Meeting:
    begun = time.monotonic()
    host, port = writer.get_extra_info("peername")[:2]
    await _send_line(writer, vars(me))
    said = await _heard(reader, max(0.1, end - time.monotonic()))
    waited = time.monotonic() - begun
    found = [as_member(one, str(host)) for one in said.get("members", ())]
    members = [one for one in found if one is not None]
    reached = await _connect_members(me, members, hello)
    await _send_line(writer, {"done": True})
    with contextlib.suppress(OSError, TimeoutError):  # the others still connect to our listener
        await _heard(reader, max(0.1, end - time.monotonic()))
    missing = setting.nodes - 1 - len(reached)
    return Meeting(setting.nodes, f"{setting.place.master}:{port}", reached, missing, waited=waited)


# ---- both ----------------------------------------------------------------------------------------


async def _connect_members(me: Member, members: list[Member], hello: Line) -> tuple[Reached, ...]:
    others = [one for one in members if one.node != me.node]
    return tuple(await asyncio.gather(*(_reach(one, hello) for one in others)))


async def _reach(member: Member, hello: Line) -> Reached:
    begun = time.monotonic()
    _, writer, error = await _opened(member.address, member.port, hello, _ANSWER_LIMIT)
    if writer is not None:
        writer.close()
    return Reached(member, time.monotonic() - begun, error)


async def _opened(address: str, port: int, hello: Line, limit: float = _FOREIGN_LIMIT) -> Opened:
    """Connect to who greets as we do; the third is why not."""
    writer = None
    try:
        opening = asyncio.open_connection(address, port, limit=_LONGEST_LINE)
        reader, writer = await asyncio.wait_for(opening, _ANSWER_LIMIT)
        if await _heard(reader, limit) == hello:
            return reader, writer, ""
        error = "is another program's"
    except TimeoutError:
        error = "does not answer" if writer is None else "is another program's"
    except ConnectionRefusedError:
        error = "refuses: nobody listens there"
    except OSError as failed:
        error = failed.strerror or str(failed)
    if writer is not None:
        writer.close()
    return None, None, error


async def _send_line(writer: asyncio.StreamWriter, line: Mapping[str, Any]) -> None:
    writer.write(json.dumps(dict(line)).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), _ANSWER_LIMIT)


async def _heard(reader: asyncio.StreamReader, limit: float) -> Line:
    """Return the next line. Raises TimeoutError, OSError for the end or what is no line of ours."""
    try:
        text = await asyncio.wait_for(reader.readline(), limit)
        found = json.loads(text)
    except ValueError as error:
        raise OSError("no line of a doctor") from error
    if not isinstance(found, dict):
        raise OSError("no line of a doctor")
    return found


def as_member(said: object, peer: str) -> Member | None:
    """Return who a line is from, None if it is not of a member. `peer` is where it came from."""
    if not isinstance(said, dict):
        return None
    node, host, port, address = (said.get(key) for key in ("node", "host", "port", "address"))
    if type(node) is not int or type(port) is not int or not 0 < port < 65536:
        return None
    versions = as_versions(said.get("versions"))
    return Member(node, str(host or "?")[:64], str(address or peer)[:64], port, versions)


def base_port(environ: Mapping[str, str]) -> int:
    """Return MASTER_PORT, or the one that launchers take without it."""
    text = environ.get("MASTER_PORT", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return number if 0 < number < 65536 else DEFAULT_PORT


_OPEN = "open all ports between the nodes (NCCL and gloo take any), or NCCL_SOCKET_IFNAME elsewhere"


def judge_meeting(setting: Setting, facts: Meeting) -> Iterator[Finding]:
    """Judge whether this node reached all others."""
    if facts.nodes < 2:
        yield ok("one node")
    elif not setting.is_launched:
        each = f"srun --nodes={facts.nodes} --ntasks-per-node=1 hangbisect doctor"
        yield Finding("unknown", f"not tried: this is one of {facts.nodes} nodes alone", each)
    elif not setting.place.master:
        yield unknown("not tried: without MASTER_ADDR nobody knows where to meet")
    elif facts.unnamed:
        yield unknown(f"not tried: {setting.place.master} is not known here")
    elif facts.error:
        yield problem(f"{facts.error}, within {format_seconds(facts.waited)}", _OPEN)
    else:
        yield from _judge_connections(facts)


def _judge_connections(facts: Meeting) -> Iterator[Finding]:
    failed = [one for one in facts.reached if one.error]
    for one in failed:
        who = f"node {one.member.node} ({one.member.host}, {one.member.address}:{one.member.port})"
        yield problem(f"from here {who} is not reached: {one.error}", _OPEN)
    if facts.missing:
        others = facts.nodes - 1
        came = ", ".join(one.member.host for one in facts.reached[:8]) or "none"
        yield problem(
            f"{facts.missing} of {format_count(others, 'other node')} did not come to "
            f"{facts.place} within {format_seconds(facts.waited)}; came: {came}",
            "see what the doctor says there, or whether it was started there at all",
        )
    if not failed and not facts.missing:
        slowest = max(facts.reached, key=lambda one: one.seconds)
        yield ok(
            f"all {format_count(len(facts.reached), 'other node')} reached, the slowest "
            f"{slowest.member.host} in {slowest.seconds * 1000:.0f} ms; met at {facts.place}"
        )


def judge_versions(setting: Setting, facts: Meeting) -> Iterator[Finding]:
    """Judge whether the nodes that were met have the same drivers and libraries."""
    there = {facts.host: facts.versions}
    there.update({one.member.host: one.member.versions for one in facts.reached})
    yield from compare_versions({host: told for host, told in there.items() if told})


FAMILY = CheckFamily(
    "Between nodes",
    (
        Check(
            id="nodes",
            title="every node reaches every other",
            why="A firewall between two nodes lets them meet at rank 0 and hang in the first "
            "collective.",
            read=meet_nodes,
            judge=judge_meeting,
        ),
        Check(
            id="versions",
            title="all nodes have the same GPUs, driver, CUDA runtime, NCCL, torch and Python",
            why="Ranks with different versions of NCCL wait for bytes that never come; other "
            "differences make some nodes slower, or fail alone.",
            read=meet_nodes,
            judge=judge_versions,
        ),
    ),
)
