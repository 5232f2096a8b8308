"""Servers that a process asks again and again until one answers, by the locals of the function that
asks: who listens there, and who was started to do so and does not yet.

No descriptor shows a connection that is refused at once, and between two tries there is none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..base.addresses import host_of, is_loopback
from ..base.deadline import call_with_limit
from ..base.library_functions import Role, has_role, parse_text
from ..base.masking import mask_text
from ..base.proc import list_pids, walk_up
from ..base.process_facts import AskedServer, Socket, Thread
from ..base.process_roles import find_default_port, find_server_process, name_server_process
from .descriptors import find_holders, name_of, select_listening
from .process import descendants, words_of

if TYPE_CHECKING:
    from .look import PartialLook

_LOCALS = ("url", "base_url", "server_url")
_ANYWHERE = ("0.0.0.0", "::")  # as a client names it: this machine
_PORTS = {"http": 80, "https": 443}
_PORT_FLAG = "--port"
_MOST_PARENTS = 32
_LEAST, _MORE = 0.05, 0.3  # seconds that this has at the least, and beyond the end of a look


def find_asked_url(pid: int, threads: Iterable[Thread]) -> str:
    """Return the address that the main thread asks for again and again, "" if it asks for none."""
    for thread in threads:
        for frame in thread.frames if thread.os_id == pid else ():
            if has_role(frame.file, frame.name, Role.ASKS_SERVER):
                told = dict(frame.locals)
                found = (parse_text(told.get(name, "")) for name in _LOCALS)
                return next((one for one in found if _find_address(one) is not None), "")
    return ""


def _find_address(url: str) -> tuple[str, int] | None:
    """Return the host and the port of an address, None where it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:  # no number
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def find_listening(url: str, known: Mapping[int, Socket]) -> int | None:
    """Return the inode of the socket that listens at an address of this machine, None if none of
    the `known` ones does.
    """
    place = _find_address(url)
    if place is None or not is_here(url, known):
        return None
    return next(iter(select_listening(known, place[1])), None)


def is_here(url: str, known: Mapping[int, Socket]) -> bool:
    """Return whether an address is known to be one of this machine: a sign of it is a socket that
    has it.
    """
    place = _find_address(url)
    if place is None:
        return False
    host = place[0]
    return (
        is_loopback(host)
        or host in _ANYWHERE
        or any(host_of(k.local) == host for k in known.values())
    )


async def find_asked_servers(pids: Sequence[int], found: Sequence[PartialLook], end: float) -> None:
    """Fill in, until `end` and a little more, which server each of the main threads asks."""
    for pid, one in zip(pids, found, strict=True):
        url = find_asked_url(pid, one.threads)
        if not url:
            continue
        one.asked_server = AskedServer(mask_text(url), is_here(url, one.sockets))
        if one.asked_server.is_here:
            limit = max(_LEAST, end + _MORE - time.monotonic())
            reading = (describe_listener, pid, url, one.sockets)
            with contextlib.suppress(TimeoutError):
                one.asked_server = await call_with_limit(*reading, limit=limit, key="servers")


def describe_listener(pid: int, url: str, known: Mapping[int, Socket]) -> AskedServer:
    """Return who listens at an address of this machine that a process asks, else who was started to
    do so. May block.
    """
    about = AskedServer(mask_text(url), is_here=True)
    inode, place = find_listening(url, known), _find_address(url)
    if inode is not None:
        link = f"socket:[{inode}]"
        holders = find_holders([link]).get(link, ())
        listener = min((one.pid for one in holders), default=None)
        about = replace(about, listens=True)
    else:
        listener = find_starting(pid, place[1]) if place is not None else None
    if listener is None:
        return about
    name = name_server_process(words_of(listener), name_of(listener))
    return replace(about, process=listener, name=name)


def find_starting(pid: int, port: int) -> int | None:
    """Return a process that was started to listen at a port, as its command line says: neither one
    of the asker's own line, nor one that does the same as it. May block.
    """
    own = {pid, *walk_up(pid, _MOST_PARENTS), *descendants([pid])}
    mine = words_of(pid)
    others = {
        one: words for one in list_pids() if one not in own and (words := words_of(one)) != mine
    }
    named = [one for one, words in others.items() if names_port(words, port)]
    servers = [one for one in named if _is_server(others[one])]
    return min(servers or named, default=None)


def _is_server(words: Sequence[str]) -> bool:
    role = find_server_process(words)
    return role is not None and role.is_server


def names_port(words: Sequence[str], port: int) -> bool:
    """Return whether a command line says that a server is to listen at a port, or says nothing of
    ports and starts one whose port that is if nothing is said.
    """
    for at, word in enumerate(words):
        flag, _, value = word.partition("=")
        if flag == _PORT_FLAG:
            return (value or next(iter(words[at + 1 : at + 2]), "")) == str(port)
    return _is_server(words) and find_default_port(words) == port
