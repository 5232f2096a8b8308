"""Ranks that make the process group where the others never find them: they look for the store at
another address, or come as a rank that another one is.

All wait in the same code then; the addresses and numbers that they go by tell them apart. Every
rank connects to the store at MASTER_ADDR and MASTER_PORT, which rank 0 serves, or torchrun's agent
(torch/distributed/rendezvous.py, _create_c10d_store).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..facts import Frame, RankFacts, Socket, Wait
from .causes.addresses import host_of, is_loopback, port_of
from .view import seen

_MAKES_IT = ("torch/distributed/rendezvous.py", "torch/distributed/distributed_c10d.py")
_INSIDE = "_new_process_group_helper"  # its numbers are those in the group that is made


@dataclass(frozen=True)
class _Goes:
    """What a rank goes by."""

    rank: int
    store: tuple[str, str]  # host and port, "" where that is not known
    connected: bool  # to a store there
    serves: bool  # the store there itself
    claims: int | None  # which rank it says that it is


def astray(ranks: Sequence[RankFacts]) -> dict[int, Wait]:
    """Return which of `ranks`, all of which make the first process group, the others wait for in
    vain, with what each waits for itself.
    """
    if len(ranks) < 2:
        return {}
    servers = {r.pid for r in ranks} | {look.ppid for r in ranks for look in r.looks[-1:]}
    going = [_goes(facts, servers) for facts in ranks]
    return _twice(going) or _elsewhere(going)


def _twice(going: Sequence[_Goes]) -> dict[int, Wait]:
    counted = Counter(one.claims for one in going if one.claims is not None)
    return {
        one.rank: Wait(
            "store", f"as rank {one.claims}, which another process is", what="of the process group"
        )
        for one in going
        if one.claims not in (None, one.rank) and counted[one.claims] > 1
    }


def _elsewhere(going: Sequence[_Goes]) -> dict[int, Wait]:
    """Return those without a store, if they look where no other rank found one; where all others
    look at one place, and the store of those that have one is their own, those that have it.
    """
    told = [one for one in going if one.store[1]]
    there = [one for one in told if one.connected]
    places = {one.store for one in there}
    lost = [one for one in told if not one.connected and one.store not in places]
    if not there or not lost:
        return {}
    agreed = len({one.store for one in lost}) == 1 and len(lost) > len(there)
    if agreed and all(one.serves for one in there):
        return {one.rank: _at(one, "where no other rank looks") for one in there}
    return {one.rank: _at(one, "to which it has no connection") for one in lost}


def _at(one: _Goes, words: str) -> Wait:
    address = ":".join(one.store)
    return Wait("store", f"{address}, {words}", what=address)


def _goes(facts: RankFacts, servers: Collection[int | None]) -> _Goes:
    view = seen(facts.looks)
    told = _told(view.frames) if view is not None else {}
    host, port = _store(told, facts.environment)
    sockets = view.look.sockets if view is not None else ()
    serves = any(s.state == "LISTEN" and port_of(s.local) == port for s in sockets)
    connected = any(_is_store(s, port, servers) for s in sockets)
    claims = told.get("rank") or facts.environment.get("RANK", "")
    return _Goes(
        facts.rank,
        ("localhost" if is_loopback(host) else host, port),
        connected or serves,
        serves,
        int(claims) if claims.isascii() and claims.isdecimal() and len(claims) < 7 else None,
    )


def _is_store(socket: Socket, port: str, servers: Collection[int | None]) -> bool:
    """Return True for a connection to a store: not one that a stranger serves at the same port."""
    known = not socket.peer_pids or any(pid in servers for pid in socket.peer_pids)
    return socket.state == "ESTABLISHED" and port_of(socket.peer) == port and known


def _store(told: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, str]:
    """Return host and port of the store that a rank uses, "" for what is not known."""
    if told.get("port"):
        return told.get("hostname", ""), told["port"]
    method = told.get("init_method", "")
    if method.startswith("tcp://"):
        address = method.removeprefix("tcp://").partition("/")[0].partition("?")[0]
        return host_of(address), port_of(address)
    if method not in ("", "None", "env://"):
        return "", ""
    return environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")


def _told(frames: Sequence[Frame]) -> dict[str, str]:
    """Return what torch's own frames say of the group that is made, the innermost first."""
    found: dict[str, str] = {}
    for frame in frames:
        if frame.file.endswith(_MAKES_IT) and frame.name != _INSIDE:
            for name, value in frame.locals:
                found.setdefault(name, value.strip("'\""))
    return found
