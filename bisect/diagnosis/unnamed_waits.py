"""Ranks that stand still and wait for nobody by name, and those whose wait has a name.

Whoever looks for something again and again, or hears whether anybody connects, has no wait that
says for whom it is; beside a rank that is kept by a lock, a service, a pipe or a long sleep, it
most likely waits for that one to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..base.identity import RankId
from ..base.process_facts import Look
from ..base.rank_facts import NOTHING_MOVES, RankFacts
from ..base.verdict_facts import WAITS_FOR_RANKS
from .blocked_syscalls import is_open_to_peers
from .blocking_reason import ProcessContext, find_blocking_reason_of_child
from .case import Case
from .rank_waits import is_anonymous
from .single_ranks import is_gone
from .time_limits import is_asleep, read_time_left, waits_anew

_LONGEST_PAUSE = 60.0  # seconds: whoever sleeps for longer in one go does not look again and again


def split_by_named_wait(
    case: Case, ranks: Sequence[RankId]
) -> tuple[tuple[RankId, ...], tuple[RankId, ...]]:
    """Return those of `ranks` that wait for nobody by name, and those whose wait has a name; who is
    gone, or waits in any other way, is neither.
    """
    living = [facts for rank in ranks if (facts := case.facts(rank)) and not is_gone(facts)]
    unnamed = tuple(
        r.rank
        for r in living
        if _looks_again(r) or hears_who_comes(case, r.rank) or _asks_own_server(case, r)
    )
    named = tuple(r.rank for r in living if r.rank not in unnamed and _has_reason(case, r))
    return unnamed, named


def _looks_again(facts: RankFacts) -> bool:
    """Return whether a rank sleeps for a short time, again and again."""
    if not facts.looks or not is_asleep(facts.looks[-1]):
        return False
    left = [seconds for look in facts.looks if (seconds := read_time_left(look)) is not None]
    anew = any(waits_anew(*pair) for pair in pairwise(facts.looks))
    return anew and max(left) <= _LONGEST_PAUSE


def hears_who_comes(case: Case, rank: RankId) -> bool:
    """Return whether a rank waits for anybody to connect, or to open a pipe with a name: those of
    another host cannot, even where they see its name in a shared folder (fifo(7)). Where a thread
    of it takes connections, its main thread may wait for what these bring.
    """
    found, facts = case.rank_waits[rank], case.facts(rank)
    call = found.view.call if found.view is not None else None
    if found.view is not None and is_anonymous(found.wait) and not found.waits_for_peers:
        return _takes_connections(found.view.look)
    if found.wait is None or call is None or not is_open_to_peers(found.wait, call):
        return False
    is_alone = facts is None or all(r.host != facts.host for r in case.ranks if r.rank != rank)
    return not (is_alone and any(one.kind == "fifo" for one in call.descriptors))


def wait_for_others(case: Case, ranks: Sequence[RankId]) -> bool:
    """Return whether a job stands still, and each of these ranks waits in a call that ends by what
    others send.
    """
    waits = [case.rank_waits.get(rank) for rank in ranks]
    return case.job.ended in NOTHING_MOVES and all(
        one is not None
        and (
            one.waits_for_peers
            or (one.own_wait is not None and one.own_wait.kind in ("socket", *WAITS_FOR_RANKS))
        )
        for one in waits
    )


def _asks_own_server(case: Case, facts: RankFacts) -> bool:
    """Return whether a rank waits for a process of its own that takes connections, and that waits
    for nobody by name either: a manager's queue, into which another rank is to put.
    """
    wait = case.rank_waits[facts.rank].own_wait
    served = (looks for looks in facts.children if looks and wait and looks[-1].pid == wait.pid)
    looks = next(served, ())
    if not looks or not _takes_connections(looks[-1]):
        return False
    context = ProcessContext(facts, case.snapshot.single_ranks.processes)
    return is_anonymous(find_blocking_reason_of_child(looks, context))


def _takes_connections(look: Look) -> bool:
    """Return whether a thread of a process waits for connections to come."""
    calls = [task.syscall for task in look.kernel if task.syscall is not None]
    sockets = [one.socket for call in calls for one in call.descriptors]
    return any(socket is not None and socket.state == "LISTEN" for socket in sockets)


def _has_reason(case: Case, facts: RankFacts) -> bool:
    """Return whether the wait of a rank is for something that has a name, or is one long sleep."""
    found = case.rank_waits[facts.rank]
    if found.wait is None or found.waits_for_peers:
        return False
    if facts.looks and is_asleep(facts.looks[-1]):
        return (read_time_left(facts.looks[-1]) or 0.0) > _LONGEST_PAUSE
    return not is_anonymous(found.wait)
