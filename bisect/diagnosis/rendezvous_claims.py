"""Ranks that make the first process group, and by which address, number and world size each one
goes: as variables say it, and torch's own frames. Pure.

Ranks that look for the store at another address than the others, or come as a rank that another
one is, wait in the same code as all others; the addresses and numbers that they go by tell them
apart. Every rank connects to the store at MASTER_ADDR and MASTER_PORT, which rank 0 serves, or
torchrun's agent (torch/distributed/rendezvous.py, _create_c10d_store).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..base.addresses import host_of, is_loopback, port_of
from ..base.identity import ProcessId, RankId
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Socket
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait
from .process.frames import keep_by_stack, unqualified_name
from .process.process_snapshot import ProcessSnapshot
from .single_ranks import SingleRank

RENDEZVOUS_FILES = ("torch/distributed/rendezvous.py", "torch/distributed/distributed_c10d.py")
GROUP_HELPER = "_new_process_group_helper"  # its numbers are those in the group that is made
_MAKES_PARTS = frozenset(["new_group", "split_group", "_new_group_with_tag", "new_subgroups"])
LARGEST_WORLD = 1 << 16  # a WORLD_SIZE beyond this is a typing error
_STEP_SIZES = {words.step_size for words in DIALECTS.values() if words.step_size}


def number(text: str) -> int | None:
    """Return a sane whole number, None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


@keep_by_stack
def read_group_values(frames: tuple[Frame, ...]) -> Mapping[str, int]:
    """Return `rank` and `world_size` with which the group of all ranks is made, by name; what is
    not told is not there.
    """
    found: dict[str, int] = {}
    # In the group of all ranks these are the job's; in another one its own members'.
    is_part = any(unqualified_name(frame.name) in _MAKES_PARTS for frame in frames)
    renamed = {} if is_part else {"group_rank": "rank", "group_size": "world_size"}
    for frame in frames:
        if not frame.file.endswith(RENDEZVOUS_FILES):
            continue
        helper = unqualified_name(frame.name) == GROUP_HELPER
        for name, value in frame.locals:
            if not helper or name in renamed:
                name, size = renamed.get(name, name), number(value)
                if name in ("rank", "world_size") and size is not None:
                    found.setdefault(name, size)
    return found


_MAKES_WORLD = ("torch/distributed/distributed_c10d.py", "init_process_group")


def read_worlds(stacks: Mapping[RankId, tuple[Frame, ...]]) -> dict[RankId, int]:
    """Return for how many ranks each makes the group of all, of those that make it. Copies of
    torch's function make a further group, of a trainer and the workers of an engine: that has a
    size of its own.
    """
    file, name = _MAKES_WORLD
    making = {
        rank: read_group_values(frames)
        for rank, frames in stacks.items()
        if any(f.file.endswith(file) and unqualified_name(f.name) == name for f in frames)
    }
    return {rank: told["world_size"] for rank, told in making.items() if "world_size" in told}


def find_other_worlds(
    ranks: Sequence[RankFacts], worlds: Mapping[RankId, int], past: Collection[RankId]
) -> frozenset[RankId]:
    """Return those of `ranks` that make the group of all for another number of ranks than most do,
    who make it for as many as these are; none where it is not so, or where variables of any other
    rank tell of more. `worlds`: of each that makes it; `past`: those that are past it, for which as
    many as there are were enough.
    """
    here = len(ranks)
    others = frozenset(rank for rank, size in worlds.items() if size != here)
    agree = len(worlds) - len(others) + len({*past} - {*worlds})
    if not others or agree <= len(others):
        return frozenset()
    rest = (facts.environment for facts in ranks if facts.rank not in others)
    told = [number(one.get(name, "")) or 0 for one in rest for name in ("WORLD_SIZE", *_STEP_SIZES)]
    return others if max(told, default=0) <= here else frozenset()


@dataclass(frozen=True)
class LocalGroup:
    """A group whose members alone meet to make it: no other rank has to come."""

    name: str  # a hash of its members and of how often it was made
    members: frozenset[RankId]
    shown: str  # "[1, 2]", in the order in which they were given


def find_local_group(frames: Iterable[Frame]) -> LocalGroup | None:
    """Return the group that a rank makes with its members alone, as the frames of torch tell; None
    where it makes none. Those that all ranks make are named by a counter (_process_group_name).
    """
    for frame in frames:
        if unqualified_name(frame.name) == GROUP_HELPER and frame.file.endswith(RENDEZVOUS_FILES):
            told = dict(frame.locals)
            name, shown = told.get("group_name", "").strip("\"'"), told.get(_MEMBERS, "")
            members = [number(one.strip()) for one in shown.strip("[]").split(",")]
            if not name or name.isdecimal() or None in members:
                return None
            return LocalGroup(name, frozenset(one for one in members if one is not None), shown)
    return None


_MEMBERS = "global_ranks_in_group"


def find_world_size(stacks: Iterable[tuple[Frame, ...]]) -> int:
    """Return the largest world for which one of these stacks makes the group of all, 0 if none."""
    sizes = (read_group_values(frames).get("world_size", 0) for frames in stacks)
    return max((size for size in sizes if size <= LARGEST_WORLD), default=0)


def claimed_world_size(ranks: Sequence[RankFacts]) -> int:
    """Return the largest WORLD_SIZE that a rank has in its environment, 0 if none.

    One that was exported by hand, where srun or mpirun started the ranks, is not theirs.
    """
    sizes = [
        facts.environment.get("WORLD_SIZE", "")
        for facts in ranks
        if "TORCHELASTIC_RUN_ID" in facts.environment or not _STEP_SIZES & facts.environment.keys()
    ]
    numbers = [int(s) for s in sizes if s.isascii() and s.isdecimal() and len(s) < 7]
    return max((n for n in numbers if n <= LARGEST_WORLD), default=0)


_CONNECTS = "_create_c10d_store"
_SLEEPS = frozenset(["clock_nanosleep", "nanosleep"])


@dataclass(frozen=True)
class _RendezvousClaim:
    """What a rank goes by."""

    rank: RankId
    host: str
    store: tuple[str, str]  # host and port, "" where that is not known
    connected: bool  # to a store there
    serves: bool  # the store there itself
    tries_again: bool  # it sleeps between two tries to connect, and no answer is awaited
    claims: int | None  # which rank it says that it is


def find_rendezvous_mismatch(members: Sequence[SingleRank]) -> dict[RankId, Wait]:
    """Return which of these ranks, all of which make the first process group, the others wait for
    in vain, with what each waits for itself.
    """
    twins = {one.facts.rank: _make_twin_wait(one.facts) for one in members if one.facts.twin}
    if twins or len(members) < 2:
        return twins
    servers = {
        ProcessId(single_rank.facts.host, pid)
        for single_rank in members
        for pid in (single_rank.facts.pid, *(look.ppid for look in single_rank.facts.looks[-1:]))
        if pid is not None
    }
    going = [_read_rendezvous_claim(single_rank, servers) for single_rank in members]
    return _find_same_number(going) or _find_other_store(going)


def find_own_masters(members: Sequence[SingleRank], masters: Collection[str]) -> dict[RankId, Wait]:
    """Return which of these ranks, of a node without rank 0, look for the store on their own
    machine, where nobody serves one, with what each waits for. `masters` are addresses that the
    master's name means here.
    """
    found: dict[RankId, Wait] = {}
    for one in members:
        claim = _read_rendezvous_claim(one, ())
        host, port = claim.store
        means = masters if one.facts.environment.get("MASTER_ADDR") == host and masters else (host,)
        if claim.tries_again and not claim.connected and all(map(is_loopback, means)):
            words = "which means this machine, and rank 0 is on another"
            found[claim.rank] = Wait("store", f"{host}:{port}, {words}", what=f"{host}:{port}")
    return found


def _make_twin_wait(facts: RankFacts) -> Wait:
    where = f" on {facts.twin_host}" if facts.twin_host else ""
    return Wait(
        "store",
        f"as rank {facts.rank}, which process {facts.twin}{where} is too",
        what="of the process group",
    )


def _find_same_number(going: Sequence[_RendezvousClaim]) -> dict[RankId, Wait]:
    counted = Counter(one.claims for one in going if one.claims is not None)
    return {
        one.rank: Wait(
            "store", f"as rank {one.claims}, which another process is", what="of the process group"
        )
        for one in going
        if one.claims not in (None, one.rank) and counted[one.claims] > 1
    }


def _find_other_store(going: Sequence[_RendezvousClaim]) -> dict[RankId, Wait]:
    """Return those without a store, if they look where no other rank found one; where all others
    look at one place, and the store of those that have one is their own, those that have it.
    """
    with_store = [one for one in going if one.store[1]]
    there = [one for one in with_store if one.connected]
    places = {one.store for one in there}
    hosts = {one.host for one in there}
    lost = [
        one
        for one in with_store
        if not one.connected
        and (one.store not in places or (one.tries_again and one.host not in hosts))
    ]
    if not there or not lost:
        return {}
    agreed = len({one.store for one in lost}) == 1 and len(lost) > len(there)
    if agreed and all(one.serves for one in there):
        return {one.rank: _make_rendezvous_wait(one, "where no other rank looks") for one in there}
    return {one.rank: _make_rendezvous_wait(one, "to which it has no connection") for one in lost}


def _make_rendezvous_wait(one: _RendezvousClaim, words: str) -> Wait:
    address = ":".join(one.store)
    return Wait("store", f"{address}, {words}", what=address)


def _read_rendezvous_claim(
    single_rank: SingleRank, servers: Collection[ProcessId]
) -> _RendezvousClaim:
    facts, view = single_rank.facts, single_rank.view
    values = _read_group_locals(view.frames) if view is not None else {}
    host, port = _find_store_address(values, facts.environment)
    sockets = view.look.sockets if view is not None else ()
    serves = any(s.state == "LISTEN" and port_of(s.local) == port for s in sockets)
    connected = any(_is_store_connection(s, port, facts.host, servers) for s in sockets)
    claims = values.get("rank") or facts.environment.get("RANK", "")
    return _RendezvousClaim(
        facts.rank,
        facts.host,
        ("localhost" if is_loopback(host) else host, port),
        connected or serves,
        serves,
        tries_again(single_rank.facts, single_rank.view, port),
        number(claims),
    )


def tries_again(facts: RankFacts, view: ProcessSnapshot | None, port: str) -> bool:
    """Return whether a rank is seen to sleep between two tries to reach the store: nobody listens
    where it looks, and what is lost on the way would be asked for still.
    """
    if view is None or not any(frame.name == _CONNECTS for frame in view.frames):
        return False
    tasks = (task for look in facts.looks for task in look.kernel)
    calls = [task.syscall for task in tasks if task.tid == view.look.pid]
    sleeps = view.call_name in _SLEEPS or any(call and call.name in _SLEEPS for call in calls)
    return sleeps and not any(port_of(one.peer) == port for one in view.look.sockets)


def _is_store_connection(
    socket: Socket, port: str, host: str, servers: Collection[ProcessId]
) -> bool:
    """Return True for a connection to a store: not one that a stranger serves at the same port."""
    ends = socket.peer_pids
    known = not ends or any(ProcessId(host, pid) in servers for pid in ends)
    return socket.state == "ESTABLISHED" and port_of(socket.peer) == port and known


def _find_store_address(
    values: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, str]:
    """Return host and port of the store that a rank uses, "" for what is not known."""
    if values.get("port"):
        return values.get("hostname", ""), values["port"]
    method = values.get("init_method", "")
    if method.startswith("tcp://"):
        address = method.removeprefix("tcp://").partition("/")[0].partition("?")[0]
        return host_of(address), port_of(address)
    if method not in ("", "None", "env://"):
        return "", ""
    return environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")


def _read_group_locals(frames: Sequence[Frame]) -> dict[str, str]:
    """Return what torch's own frames say of the group that is made, the innermost first."""
    found: dict[str, str] = {}
    for frame in frames:
        if frame.file.endswith(RENDEZVOUS_FILES) and frame.name != GROUP_HELPER:
            for name, value in frame.locals:
                found.setdefault(name, value.strip("'\""))
    return found
