"""Where ranks differ in how many operations were counted: NCCL's watchdog and its RAS service tell
how many operations each rank has begun in a group, and the watchdog which ones do not end.

Of an operation that some wait in it can so be told who has not begun it, and whether those that
gave up on the same number gave up on the same operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...base.identity import RankId
from ...base.rank_facts import Collective, RankFacts
from ...base.words import format_ranks
from .collective_mismatch import (
    SAME_SHAPE,
    LogDifference,
    LoggedGroup,
    LogSource,
    Mismatch,
    Stream,
    is_to_one_peer,
    list_logged_groups,
    make_mismatch,
)

COUNTED_SOURCES: tuple[LogSource, ...] = ("watchdog", "ras")


def find_counted_mismatch(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the first operation that ranks of a group wait in and others have not begun, or began
    as another one; None if there is none.
    """
    found = []
    for source in COUNTED_SOURCES:
        for group in list_logged_groups(ranks, source):
            mismatch = _compare_counts(group, _read_counts(ranks, source, group.name))
            found += [] if mismatch is None else [mismatch]
        if found:
            return min(found, key=lambda one: (not one.is_sure, one.operation.at))
    return None


def describe_common_operation(ranks: Sequence[RankFacts]) -> str:
    """Return in a sentence which operation all ranks that tell have begun and none has ended, ""
    if there is none: nobody is late then, and a network, a GPU or an earlier call is at fault.
    """
    for group in list_logged_groups(ranks, "watchdog"):
        counts = _read_counts(ranks, "watchdog", group.name)
        there = _by_number(group)
        number = min(there, default=0)
        waits = there.get(number, {})
        if len(waits) > 1 and all(count >= number for count in counts.values()):
            one = next(iter(waits.values()))
            text = f"operation {number} of group {group.name}, {one.kind}"
            who = format_ranks(sorted(waits))
            return f"all that tell have entered {text}, and {who} gave up on it"
    return ""


def _read_counts(ranks: Sequence[RankFacts], source: LogSource, group: str) -> Mapping[RankId, int]:
    return {
        facts.rank: log.sequence[group]
        for facts in ranks
        for log in facts.collectives
        if log.source == source and group in log.sequence
    }


def _by_number(group: LoggedGroup) -> dict[int, dict[RankId, Collective]]:
    """Return the operations that do not end, by number and rank."""
    found: dict[int, dict[RankId, Collective]] = {}
    for stream in group.streams:
        for one in stream.operations:
            if not one.done and not is_to_one_peer(one):
                found.setdefault(one.number, {})[stream.rank] = one
    return found


def _compare_counts(group: LoggedGroup, counts: Mapping[RankId, int]) -> Mismatch | None:
    members = LoggedGroup(
        group.name,
        group.source,
        tuple(sorted({*counts, *(stream.rank for stream in group.streams)})),
        tuple(Stream(stream.rank, stream.operations) for stream in group.streams),
    )
    for number, there in sorted(_by_number(group).items()):
        kinds = Counter(_kind_and_shape(one) for one in there.values())
        if len(kinds) > 1:
            usual = kinds.most_common(1)[0][0]
            mine = [rank for rank, one in there.items() if _kind_and_shape(one) != usual]
            theirs = [rank for rank, one in there.items() if _kind_and_shape(one) == usual]
            a, b = there[mine[0]], there[theirs[0]]
            difference = LogDifference("shape" if a.kind == b.kind else "different", a, b)
            return make_mismatch(members, difference, mine, theirs)
        behind = [rank for rank, count in counts.items() if count < number and rank not in there]
        if behind:
            one = next(iter(there.values()))
            return make_mismatch(members, LogDifference("missing", None, one), behind, [*there])
    return None


def _kind_and_shape(one: Collective) -> tuple[str, str]:
    return one.kind, one.shape if one.kind in SAME_SHAPE else ""
