"""Ranks that stand still and wait for nobody by name, and those whose wait has a name.

Whoever looks for something again and again, or hears whether anybody connects, has no wait that
says for whom it is; beside a rank that is kept by a lock, a service, a pipe or a long sleep, it
most likely waits for that one to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..base.identity import RankId
from ..base.rank_facts import RankFacts
from .blocked_syscalls import is_open_to_peers
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
    unnamed = tuple(r.rank for r in living if _looks_again(r) or hears_who_comes(case, r.rank))
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
    another host cannot, even where they see its name in a shared folder (fifo(7)).
    """
    found, facts = case.rank_waits[rank], case.facts(rank)
    call = found.view.call if found.view is not None else None
    if found.wait is None or call is None or not is_open_to_peers(found.wait, call):
        return False
    is_alone = facts is None or all(r.host != facts.host for r in case.ranks if r.rank != rank)
    return not (is_alone and any(one.kind == "fifo" for one in call.descriptors))


def _has_reason(case: Case, facts: RankFacts) -> bool:
    """Return whether the wait of a rank is for something that has a name, or is one long sleep."""
    found = case.rank_waits[facts.rank]
    if found.wait is None or found.waits_for_peers:
        return False
    if facts.looks and is_asleep(facts.looks[-1]):
        return (read_time_left(facts.looks[-1]) or 0.0) > _LONGEST_PAUSE
    return not is_anonymous(found.wait)
