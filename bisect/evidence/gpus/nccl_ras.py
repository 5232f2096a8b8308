"""NCCL's RAS service (2.24 and later, on by default): which ranks of each communicator answer, and
how many operations each has begun, asked over its socket.

The service listens in each process of the job, at localhost:28028 or where NCCL_RAS_ADDR says, and
asks all others. Processes of one user share the port (SO_REUSEPORT, rasClientInitSocket), those of
two jobs as well, and the kernel chooses who gets a connection: a process that is stopped says
nothing, one of the other job tells of that (NCCL's manual, NCCL_RAS_ADDR). So it may be asked more
than once.

The protocol is one line each way (NCCL's src/ras/client.cc and client_support.cc, v2.24.3-1 to
v2.32.3-1): "CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json" (2.28.7 and later; older ones call
it an unknown command and answer in words), "VERBOSE STATUS". After the status the service closes
the connection. "DIAGNOSTICS" (2.31) is not asked for: the processes of the job would start
rdma_topo, lspci and dmesg for it.

What is counted are the collectives that a rank has launched, by their function: not those that are
done, and no sends. In a job at work the counts of its ranks may differ at any moment.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ...base.addresses import is_loopback
from ...base.identity import RankId
from ...base.rank_facts import Collective, CollectiveLog, RankFacts
from ...base.words import format_ranks
from ..other_network import connect_beside, is_elsewhere, read_local_addresses
from ..syscall_arguments import read_inner_id
from .ras_answers import ALL_FUNCTIONS, Communicator, MissingRank, RasAnswer, RasRank

DEFAULT_ADDRESS = ("localhost", 28028)  # NCCL_RAS_CLIENT_PORT, src/ras/ras_internal.h
ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
_ANY = ("0.0.0.0", "::")
LIMIT = 3.0  # seconds for the whole conversation
_OTHERS_LIMIT = 1  # seconds that the service waits for a process which does not answer
_CONNECT_LIMIT = 1.0
GREETING_LIMIT = 1.0  # seconds for its first line, which it has at once
_LONGEST_LINE = 4096
_LARGEST = 32 << 20  # bytes: a rank is some 700 in JSON
_MOST_NAMED = 8  # ranks in a sentence
_Named = TypeVar("_Named", RasRank, MissingRank)


class NoRasAnswer(ValueError):
    """What answers there is not NCCL's RAS service, or says more than it can have to say."""


class NoGreeting(TimeoutError):
    """Who has the connection says nothing at all: another process at the same port may."""


# ---- the protocol --------------------------------------------------------------------------------


def find_address(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of the service of a rank with this environment."""
    host, _, port = environment.get(ADDRESS_VARIABLE, "").rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    return (host.strip("[]"), number) if host and 0 < number < 1 << 16 else DEFAULT_ADDRESS


def find_service(ranks: Sequence[RankFacts]) -> tuple[str, int, int | None] | None:
    """Return host and port of these ranks' service, and a process in whose network it is (None:
    ours), where one of them listens, or where their environment names an address of another
    machine; None without.

    Nobody else's port is connected to.
    """
    for facts in ranks:
        host, port = find_address(facts.environment)
        sockets = facts.looks[-1].sockets if facts.looks else ()
        listens = any(s.state == "LISTEN" and s.local.endswith(f":{port}") for s in sockets)
        if listens:
            return host, port, _pid_elsewhere(facts)
    named = next((facts for facts in ranks if facts.environment.get(ADDRESS_VARIABLE)), None)
    if named is None:
        return None
    (host, port), pid = find_address(named.environment), _pid_elsewhere(named)
    ours = is_loopback(host) or host in _ANY or host in read_local_addresses(pid)
    return None if ours else (host, port, pid)


def _pid_elsewhere(facts: RankFacts) -> int | None:
    """Return the process of a rank that is in another network than ours, None for another one."""
    return facts.pid if facts.pid is not None and is_elsewhere(facts.pid) else None


def ask_service(host: str, port: int, limit: float = LIMIT, pid: int | None = None) -> bytes:
    """Return what the service answers to VERBOSE STATUS, JSON where it can; in the network of
    process `pid`, None: in ours. Blocks for `limit` seconds at most, beside the time to look a name
    up. Raises OSError, TimeoutError, NoGreeting, and NoRasAnswer for another server.
    """
    began = time.monotonic()
    with connect_beside(pid, host, port, min(limit, _CONNECT_LIMIT)) as connection:
        talk = _Conversation(connection, began + min(limit, GREETING_LIMIT))
        try:
            greeting = talk.ask("CLIENT PROTOCOL 2")
        except TimeoutError:
            raise NoGreeting(f"{host}:{port} says nothing") from None
        if not greeting.startswith("SERVER PROTOCOL "):
            raise NoRasAnswer(f"{host}:{port} is not NCCL's RAS service")
        talk.deadline = began + limit
        talk.ask(f"TIMEOUT {_OTHERS_LIMIT}")
        talk.ask("SET FORMAT json")
        talk.send("VERBOSE STATUS")
        return talk.read_to_end()


class _Conversation:
    """A connection that is given up at `deadline` (monotonic)."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self.deadline = deadline
        self._rest = b""

    def ask(self, command: str) -> str:
        self.send(command)
        while b"\n" not in self._rest:
            part = self._receive()
            if not part or len(self._rest) > _LONGEST_LINE:
                raise NoRasAnswer(f"no line in answer to {command}")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").strip()

    def send(self, command: str) -> None:
        self._wait()
        self._connection.sendall(f"{command}\n".encode())

    def read_to_end(self) -> bytes:
        parts, size = [self._rest], len(self._rest)
        while part := self._receive():
            parts.append(part)
            size += len(part)
            if size > _LARGEST:
                raise NoRasAnswer(f"a status of more than {_LARGEST} bytes")
        return b"".join(parts)

    def _receive(self) -> bytes:
        self._wait()
        return self._connection.recv(1 << 16)

    def _wait(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("NCCL's RAS service did not come to an end")
        self._connection.settimeout(left)


# ---- what it means -------------------------------------------------------------------------------

_ERRORS = {
    **{1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument"},
    **{5: "invalid usage", 6: "remote process error"},
}
_FUNCTIONS = {
    **{"Broadcast": "broadcast", "Reduce": "reduce", "AllGather": "all_gather"},
    **{"ReduceScatter": "reduce_scatter", "AllReduce": "all_reduce"},
}


def describe_status(answer: RasAnswer, pids: Collection[int] = ()) -> tuple[str, ...]:
    """Return in sentences what is amiss with communicators that have a process of `pids`: the
    others are another job's. Without `pids` of all.
    """
    found: list[str] = []
    for one in answer.communicators:
        there = {*(rank.pid for rank in one.ranks), *(rank.pid for rank in one.missing)}
        if not pids or there & set(pids):
            name = f"NCCL RAS: communicator {one.name} of {one.size}"
            found += [f"{name} {words}" for words in _describe_communicator(one)]
    for many, size in answer.unnamed:
        which = "a communicator" if many == 1 else f"{many} communicators"
        are, whose = ("is", "its") if many == 1 else ("are", "their")
        found.append(f"NCCL RAS: {which} of {size} {are} still being made on all {whose} ranks")
    return tuple(found)


def _describe_communicator(one: Communicator) -> Iterator[str]:
    for lost in one.missing[:_MOST_NAMED]:
        where = f"pid {lost.pid} on {lost.host}" if lost.pid is not None else "process unknown"
        if lost.answered:
            yield f"does not have rank {lost.rank} ({where}), which answers"
        else:
            dead = ", considered dead" if lost.dead else ""
            yield f"has no answer from rank {lost.rank} ({where}{dead})"
    making = sorted(rank.rank for rank in one.ranks if rank.making)
    if making:
        yield f"is still being made on {format_ranks(making)}"
    leaving = sorted(rank.rank for rank in one.ranks if rank.leaving)
    if leaving:
        yield f"is given up by {format_ranks(leaving)}"
    for rank in [rank for rank in one.ranks if rank.error][:_MOST_NAMED]:
        words = _ERRORS.get(rank.error, f"error {rank.error}")
        yield f"is in error on rank {rank.rank} ({words})"
    for function in sorted({name for rank in one.ranks for name, _ in rank.counts}):
        counts = {rank.rank: dict(rank.counts).get(function, 0) for rank in one.ranks}
        usual, _ = Counter(counts.values()).most_common(1)[0]
        others = [rank for rank, count in sorted(counts.items()) if count != usual]
        if others:
            what = "operations" if function == ALL_FUNCTIONS else function
            some = ", ".join(f"rank {r}: {counts[r]}" for r in others[:_MOST_NAMED])
            yield f"has begun {usual} {what}, but {some}"


def find_moving(before: RasAnswer, after: RasAnswer) -> frozenset[str]:
    """Return the communicators in which an operation was begun between two answers."""
    counts = {one.name: [(r.rank, r.counts) for r in one.ranks] for one in before.communicators}
    return frozenset(
        one.name
        for one in after.communicators
        if counts.get(one.name, []) != [(r.rank, r.counts) for r in one.ranks]
    )


def make_ras_logs(
    answer: RasAnswer,
    ranks: Sequence[RankFacts],
    moving: Collection[str] = (),
    world: int = 0,
    here: Collection[str] = (),
) -> dict[RankId, CollectiveLog]:
    """Return for these ranks how many operations each has begun in every communicator in which not
    all have begun as many, but those `moving`. A rank is known by its process, at one of the
    addresses `here` of its machine; where all ranks of the job are in a communicator, and those
    that are known have their own number in it, by that.
    """
    known = _ranks_by_process(answer, ranks, here)
    numbers: list[RankId] = [facts.rank for facts in ranks]
    found: dict[RankId, list[tuple[str, Collective | None, int]]] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for one in answer.communicators:
        members = _identify_ranks(one, known, numbers, world or len(numbers))
        counts = {members[r.rank]: dict(r.counts) for r in one.ranks if r.rank in members}
        if one.name in moving or not _differ(counts):
            continue
        groups[one.name] = tuple(sorted(rank for rank in counts if isinstance(rank, int)))
        for rank, of_rank in counts.items():
            operation, total = _find_last_operation(one.name, of_rank, counts)
            found.setdefault(rank, []).append((one.name, operation, total))
    return {
        rank: CollectiveLog(
            "ras",
            tuple(operation for _, operation, _ in answers if operation is not None),
            groups,
            {name: total for name, _, total in answers},
        )
        for rank, answers in found.items()
    }


def find_unheard_ranks(
    answer: RasAnswer,
    ranks: Sequence[RankFacts],
    moving: Collection[str] = (),
    world: int = 0,
    here: Collection[str] = (),
) -> dict[RankId, str]:
    """Return which of these ranks the service misses in a communicator, in words: it has no answer
    from them, or they are not, or not yet, in what the others make or have made. Ranks are known as
    in `make_ras_logs`. Where no more than half of a communicator is there it is the network that is
    silent, and nobody is in it.
    """
    known = _ranks_by_process(answer, ranks, here)
    numbers: list[RankId] = [facts.rank for facts in ranks]
    found: dict[RankId, str] = {}
    for one in answer.communicators:
        missed = _find_missed(one)
        if one.name in moving or not missed or len(missed) * 2 >= one.size:
            continue
        members = _identify_ranks(one, known, numbers, world or len(numbers))
        whole = one.size == (world or len(numbers)) and all(
            mine == theirs for mine, theirs in members.items()
        )
        for lost, words in missed:
            rank = known.get((lost.pid, lost.host)) if lost.pid is not None else None
            if rank is None and lost.pid is None and members and whole and lost.rank in numbers:
                rank = lost.rank
            if rank is not None:
                found.setdefault(rank, f"communicator {one.name} of {one.size} {words}")
    return found


def _find_missed(one: Communicator) -> list[tuple[RasRank | MissingRank, str]]:
    """Return each rank that a communicator misses, and in words how."""
    making = [rank for rank in one.ranks if rank.making]
    found: list[tuple[RasRank | MissingRank, str]] = []
    for lost in one.missing:
        if not lost.answered:
            dead = " (considered dead)" if lost.dead else ""
            found.append((lost, f"has no answer from it{dead}"))
        elif making:
            found.append((lost, "is being made by the others, and it is not in it"))
    if found or len(making) == len(one.ranks):
        return found
    return [(rank, "is made on the others, and not yet on it") for rank in making]


_ByProcess = Mapping[tuple[int | None, str], RankId]


def _ranks_by_process(
    answer: RasAnswer, ranks: Sequence[RankFacts], here: Collection[str]
) -> _ByProcess:
    """Return these ranks by process and host, as the service names these. Where it tells of none of
    the addresses `here`, without processes whose numbers are there on several hosts: in containers
    the first rank of each node often has the same.
    """
    hosts: dict[int | None, set[str]] = {}
    for one in _list_ranks(answer):
        hosts.setdefault(one.pid, set()).add(one.host)
    mine = set().union(*hosts.values()) & {*here}
    found: dict[tuple[int | None, str], RankId] = {}
    for facts in ranks:
        there = hosts.get(facts.pid, set()) if facts.pid is not None else set()
        there = there & mine if mine else there
        if len(there) == 1:
            found[facts.pid, there.pop()] = facts.rank
    return found


def _list_ranks(answer: RasAnswer) -> Iterator[RasRank | MissingRank]:
    for one in answer.communicators:
        yield from one.ranks
        yield from one.missing


def is_of_others(answer: RasAnswer, pids: Collection[int]) -> bool:
    """Return whether an answer that tells of all ranks of a job has no process of `pids`."""
    return (
        answer.is_whole
        and bool(answer.communicators)
        and not ({one.pid for one in _list_ranks(answer)} & {*pids})
    )


def name_processes(
    answer: RasAnswer, outer: Mapping[int, int], here: Collection[str] = ()
) -> RasAnswer:
    """Return an answer with the numbers that processes of this machine, which has the addresses
    `here`, have to us: `outer` has them by those in their container, which NCCL tells.
    """
    mine = {one.host for one in _list_ranks(answer)} & {*here}

    def rename(one: _Named) -> _Named:
        if one.pid is None or (mine and one.host not in mine):
            return one
        return replace(one, pid=outer.get(one.pid, one.pid))

    return replace(
        answer,
        communicators=tuple(
            replace(
                one,
                ranks=tuple(map(rename, one.ranks)),
                missing=tuple(map(rename, one.missing)),
            )
            for one in answer.communicators
        ),
    )


def find_outer_pids(ranks: Sequence[RankFacts]) -> dict[int, int]:
    """Return the numbers that processes of these ranks have here by those that they have in their
    container, without such as several have, or as another rank has here.
    """
    found: dict[int, list[int]] = {}
    for facts in ranks:
        if facts.pid is not None:
            inner = read_inner_id(f"/proc/{facts.pid}/status")
            found.setdefault(facts.pid if inner is None else inner, []).append(facts.pid)
    return {inner: pids[0] for inner, pids in found.items() if len(pids) == 1 and inner != pids[0]}


def _identify_ranks(
    one: Communicator, known: _ByProcess, numbers: Collection[RankId], world: int
) -> dict[int, RankId]:
    """Return which rank of the job each rank of a communicator is, as far as that is known."""
    found = {
        rank.rank: known[rank.pid, rank.host]
        for rank in one.ranks
        if (rank.pid, rank.host) in known
    }
    if found and one.size == world and all(mine == theirs for mine, theirs in found.items()):
        found.update({r.rank: r.rank for r in one.ranks if r.pid is None and r.rank in numbers})
    return found


def _differ(counts: Mapping[RankId, Mapping[str, int]]) -> bool:
    return len({tuple(sorted(of.items())) for of in counts.values()}) > 1


def _find_last_operation(
    name: str, mine: Mapping[str, int], all_counts: Mapping[RankId, Mapping[str, int]]
) -> tuple[Collective | None, int]:
    """Return the operation by which a rank is ahead of others, None for one that is not, and how
    many it has begun in all. Where it is ahead in several functions nobody knows which came last.
    """
    total = sum(mine.values())
    ahead = [
        function
        for function, count in mine.items()
        if count > min(other.get(function, 0) for other in all_counts.values())
    ]
    if not ahead:
        return None, total
    kind = _FUNCTIONS.get(ahead[0], ahead[0]) if len(ahead) == 1 else "operation"
    return Collective(name, "operation" if kind == ALL_FUNCTIONS else kind, total), total
