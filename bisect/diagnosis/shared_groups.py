"""Which ranks are together in process groups of some ranks, as their connections tell. Pure.

A group of gloo connects every two of its members once, and keeps these connections as long as it
is there (gloo/rendezvous/context.cc). A look shows no member of a group, which is an object of C++,
but it shows who is at the other end of a connection: two ranks with more of them than they have
with all others are in a group of some ranks together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from ..base.identity import RankId
from ..base.rank_facts import RankFacts

_MOST_RANKS = 64  # of a job that is looked into: the connections grow with their square


def find_group_partners(ranks: Sequence[RankFacts]) -> dict[RankId, frozenset[RankId]]:
    """Return by rank the others that are with it in groups of some ranks; {} if two ranks have no
    connection at all (they are made when they are first used, or by NCCL), or on several hosts.
    """
    living = [facts for facts in ranks if facts.looks and facts.pid is not None and facts.alive]
    if len(living) < max(len(ranks), 3) or len(living) > _MOST_RANKS:
        return {}
    if len({facts.host for facts in living}) > 1:
        return {}
    counts = _count_connections(living)
    numbers = [facts.rank for facts in living]
    if not all(counts.get(pair) for pair in permutations(numbers, 2)):
        return {}
    # Who serves the store has connections to all others besides.
    fewest = {a: min(counts[a, b] for b in numbers if b != a) for a in numbers}
    return {
        a: frozenset(b for b in numbers if b != a and counts[a, b] > max(fewest[a], fewest[b]))
        for a in numbers
    }


def _count_connections(ranks: Iterable[RankFacts]) -> dict[tuple[RankId, RankId], int]:
    """Return how many connections two ranks have, as that of both shows it that shows more."""
    rank_of = {facts.pid: facts.rank for facts in ranks}
    seen: dict[tuple[RankId, RankId], int] = {}
    for facts in ranks:
        for socket in facts.looks[-1].sockets:
            if socket.state == "ESTABLISHED" and socket.family.startswith("tcp"):
                for other in {rank_of[pid] for pid in socket.peer_pids if pid in rank_of}:
                    if other != facts.rank:
                        pair = facts.rank, other
                        seen[pair] = seen.get(pair, 0) + 1
    return {(a, b): max(count, seen.get((b, a), 0)) for (a, b), count in seen.items()} | {
        (b, a): max(count, seen.get((b, a), 0)) for (a, b), count in seen.items()
    }


def find_only_group(partners: Mapping[RankId, frozenset[RankId]]) -> frozenset[RankId]:
    """Return the members of the only group of some ranks, none if there are several, or none."""
    members = frozenset(rank for rank, others in partners.items() if others)
    is_one = all(partners[rank] | {rank} == members for rank in members)
    return members if is_one and 1 < len(members) < len(partners) else frozenset()
