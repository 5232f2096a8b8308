"""Where torch's own logs of ranks part: they have every operation, and no call sites. Pure.

torch numbers the operations of a group on each rank, and those of the same number meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..facts import Collective
from .collective_logs import Group
from .mismatch import Difference, Mismatch, blame
from .parting import SAME_SHAPE

Numbered = Mapping[int, Collective]


def first_mismatch(group: Group) -> Mismatch | None:
    """Return the first number at which ranks have different operations, or at which some wait and
    others never came; None if there is none.
    """
    logs = {s.rank: {o.number: o for o in s.operations} for s in group.streams}
    if len(logs) < 2 or not any(logs.values()):
        return None
    first = max(min(log, default=1) for log in logs.values())
    last = max(max(log, default=0) for log in logs.values())
    for number in range(first, last + 1):
        found = _at(number, group, logs)
        if found is not None:
            return found
    return None


def _at(number: int, group: Group, logs: Mapping[int, Numbered]) -> Mismatch | None:
    there = {rank: log[number] for rank, log in logs.items() if number in log}
    absent = [rank for rank in logs if rank not in there]
    kinds = Counter(_what(one) for one in there.values())
    if len(kinds) > 1:
        usual = _usual(kinds, there)
        mine = [rank for rank, one in there.items() if _what(one) != usual]
        theirs = [rank for rank, one in there.items() if _what(one) == usual]
        return blame(group, _difference(there[mine[0]], there[theirs[0]], logs), mine, theirs)
    waits = [rank for rank, one in there.items() if not one.done]
    if absent and waits:
        return blame(group, Difference("missing", None, there[waits[0]]), absent, [*there])
    return None


def _what(one: Collective) -> tuple[str, str]:
    return one.kind, one.shape if one.kind in SAME_SHAPE else ""


def _usual(kinds: Counter[tuple[str, str]], there: Mapping[int, Collective]) -> tuple[str, str]:
    """Return what most ranks do; of equally many, what the last of them does."""
    most = max(kinds.values())
    return next(w for w in map(_what, reversed(list(there.values()))) if kinds[w] == most)


def _difference(mine: Collective, theirs: Collective, logs: Mapping[int, Numbered]) -> Difference:
    if mine.kind == theirs.kind:
        return Difference("shape", mine, theirs)
    before: Sequence[Collective] = [
        one for one in next(iter(logs.values())).values() if one.number < mine.number
    ]
    counts = Counter(map(_what, before))
    return Difference("different", mine, theirs, counts[_what(mine)], counts[_what(theirs)])
