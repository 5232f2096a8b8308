"""Connections between two nodes of a job over which nothing gets through: the kernel of one sends
the same data again and again, and nothing of it is acknowledged, while the process at the other end
is there.

A kernel that is up acknowledges what reaches it whatever its process does, also where that is
stopped or reads nothing: then a window of zero is told, and nothing is sent again (RFC 9293,
3.8.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..base.identity import ProcessId, name_rank
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look, Socket
from ..base.rank_facts import RankFacts

# Each time is twice as long as the last, from 0.2 s on (RFC 6298): for 1.4 s nothing came back.
OFTEN = 3  # times in a row


@dataclass(frozen=True)
class CutConnection:
    """One of them, as the end that sends has it."""

    socket: Socket
    sender: RankFacts
    receiver: RankFacts

    def __str__(self) -> str:
        here = f"{name_rank(self.sender.rank)} on {self.sender.host}"
        there = f"{name_rank(self.receiver.rank)} on {self.receiver.host}"
        return (
            f"what {here} has sent from {self.socket.local} to {self.socket.peer} ({there}) was "
            f"sent again {self.socket.resent} times, and nothing is acknowledged"
        )


def find_cut_connection(ranks: Iterable[RankFacts]) -> CutConnection | None:
    """Return that over which data was sent again most often, None where there is none."""
    ranks = [*ranks]
    resent = [
        (facts, one) for facts in ranks for one in _list_connections(facts) if one.resent >= OFTEN
    ]
    if not resent:
        return None
    by_process: dict[ProcessId, RankFacts] = {}
    for facts in ranks:
        for looks in (facts.looks, *facts.children):
            if looks:
                by_process.setdefault(ProcessId(facts.host, looks[-1].pid), facts)
    found = [
        CutConnection(socket, facts, by_process[socket.remote])
        for facts, socket in resent
        if socket.remote in by_process
    ]
    return max(found, key=lambda one: one.socket.resent, default=None)


def _list_connections(facts: RankFacts) -> Iterator[Socket]:
    last: list[Look] = [looks[-1] for looks in (facts.looks, *facts.children) if looks]
    for look in last:
        yield from (one for one in look.sockets if one.state == "ESTABLISHED")
