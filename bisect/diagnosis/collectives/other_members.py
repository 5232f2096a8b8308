"""Calls that a few ranks make over a group of other members than its members do, as their logs have
it: at one line of a program each rank has one group, and all members of that group have it there
too. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from ...base.identity import RankId
from ...base.rank_facts import Collective, CollectiveLog, RankFacts
from .collective_mismatch import (
    BACKWARD_KINDS,
    GROUP_MAKING_KINDS,
    Mismatch,
    add_sentence,
    is_to_one_peer,
)
from .collective_rounds import CallKey, call_key

_MOST_GROUPS = 64  # of one line, by which ranks are told apart


class _Made(NamedTuple):
    """What a rank does at a line: the last time, and over a group of which members."""

    last: Collective
    members: frozenset[RankId]


def find_other_members(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the first call that a few ranks make over a group of other members than its members
    do; None if there is none, where a member has not come to that line, or where one of all ranks
    does not wait in a collective.

    Only of a line at which each rank has one group: who goes round several is in one of them now
    and in another one later.
    """
    logs = {r.rank: log for r in ranks for log in r.collectives if log.source == "ring"}
    waiting = [log.operations[-1] for log in logs.values() if log.operations]
    if len(waiting) < len(ranks) or any(one.done is not False for one in waiting):
        return None
    found = [one for made in _list_made(logs).values() if (one := _compare(made, logs))]
    return min(found, key=lambda one: one.operation.at, default=None)


def _list_made(logs: Mapping[RankId, CollectiveLog]) -> dict[CallKey, dict[RankId, _Made]]:
    """Return by line what each rank does there, without lines at which one has several groups."""
    found: dict[CallKey, dict[RankId, _Made]] = {}
    several: set[CallKey] = set()
    for rank, log in logs.items():
        for one in log.operations:
            members = frozenset(log.groups.get(one.group, ()))
            if not members or is_to_one_peer(one) or one.kind in _NO_MEETINGS:
                continue
            key = call_key(replace(one, group=""))
            before = found.setdefault(key, {}).get(rank)
            if before is not None and before.members != members:
                several.add(key)
            found[key][rank] = _Made(one, members)
    return {key: made for key, made in found.items() if key not in several}


_NO_MEETINGS = GROUP_MAKING_KINDS | BACKWARD_KINDS


def _compare(made: Mapping[RankId, _Made], logs: Mapping[RankId, CollectiveLog]) -> Mismatch | None:
    groups = {one.members for one in made.values()}
    if len(groups) > _MOST_GROUPS or not frozenset[RankId]().union(*groups) <= made.keys():
        return None
    wrong = {
        pair
        for pair in combinations(made, 2)
        if made[pair[0]].members != made[pair[1]].members
        and (pair[0] in made[pair[1]].members or pair[1] in made[pair[0]].members)
    }
    culprits = _find_odd_group(wrong, made)
    if not culprits or not any(logs[r].operations[-1] is made[r].last for r in culprits):
        return None
    others = sorted({one for pair in wrong if {*pair} & {*culprits} for one in pair} - {*culprits})
    mine, theirs = made[culprits[0]], made[others[-1]]
    return add_sentence(
        Mismatch(
            kind="members",
            group=mine.last.group,
            number=mine.last.number,
            ranks=culprits,
            operation=mine.last,
            sites={rank: one.last.site for rank, one in made.items()},
            sentence="",
            others=tuple(others),
            paired=theirs.last,
            members=tuple(sorted(mine.members)),
        )
    )


def _find_odd_group(
    wrong: set[tuple[RankId, RankId]], made: Mapping[RankId, _Made]
) -> tuple[RankId, ...]:
    """Return the fewest ranks without which all agree: of one group, and with less than half of
    those that do not agree; () if there are none, or several such sets.
    """
    involved = {one for pair in wrong for one in pair}
    by_group: dict[frozenset[RankId], set[RankId]] = {}
    for rank in involved:
        by_group.setdefault(made[rank].members, set()).add(rank)
    sets = [ranks for ranks in by_group.values() if all({*pair} & ranks for pair in wrong)]
    fewest = min(map(len, sets), default=0)
    chosen = [ranks for ranks in sets if len(ranks) == fewest]
    if len(chosen) != 1 or 2 * fewest >= len(involved):
        return ()
    return tuple(sorted(chosen[0]))
