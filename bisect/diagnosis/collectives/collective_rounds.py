"""Rounds of a loop of collectives, as logs show them: what came round before, where in the loop who
makes another call now is, and which rounds are those of a training, by the backward that each
has. Pure.

A log of ours has each backward, and not the reductions that C++ makes in it: those torch's recorder
has. So both together show a rank that made the same backward as the others and reduced nothing in
it (its loss left a part of the model out, or it was in no_sync), which by the recorder alone looks
as if it had gone round less often.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from ...base.files import PACKAGE
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import Collective, RankFacts
from ..process.process_snapshot import merge_looks
from .collective_mismatch import BACKWARD_KINDS, WRAPPER_KINDS, LoopState, Mismatch, add_sentence
from .common_path import are_in_one_loop, find_collective_place, find_ways_in_library
from .peer_calls import ROOTED

CallKey = tuple[str, str, str, str, tuple[str, ...], str]
_STARTS_A_THREAD = re.compile(r"threading\.py:\d+ (?:Thread\.)?_bootstrap\b")


def call_key(one: Collective) -> CallKey:
    """Return what tells one call from another, on every rank the same."""
    return one.kind, one.site, one.between, one.group, one.path, one.origin


_SAME_CALL, _SAME_WAY, _SAME_SITE, _SAME_KIND = 8, 7, 6, 1  # scores of two operations


@dataclass(frozen=True)
class LoggedCall:
    """A call as it is compared with those of another rank."""

    key: CallKey
    condition: str = field(default="", compare=False)  # below which only some ranks come by
    is_open: bool = field(default=False, compare=False)  # its rank waits in it

    @classmethod
    def of(cls, one: Collective) -> LoggedCall:
        """Return the call that an operation is."""
        return cls(call_key(one), one.condition, one.done is False)


def score_pair(a: LoggedCall, b: LoggedCall) -> int:
    """Return how well two calls of two ranks go together, 0 if they cannot be the same. One line of
    a library's, or of a helper, is reached by several ways: the call that one rank makes below a
    condition is not the one that another makes by another way, without a condition,
    but where a root does something else than the others; nor is one of another line, as long as
    they wait in it.
    """
    if a.key[0] != b.key[0] or a.key[3] != b.key[3]:
        return 0
    by_condition = bool(a.condition) != bool(b.condition) and a.key[0] not in ROOTED
    if a.key[1] != b.key[1]:  # who sends often does so in another line than who receives
        return 0 if by_condition and (a.is_open or b.is_open) else _SAME_KIND
    same_way = a.key[4:] == b.key[4:]
    if not same_way and bool(a.condition) != bool(b.condition):
        return 0 if by_condition else _SAME_KIND
    if a.key[2] != b.key[2]:
        return _SAME_SITE
    return _SAME_CALL if same_way else _SAME_WAY


def read_loop(made: Sequence[Collective], loop: Collective, other: Collective) -> LoopState:
    """Return where who makes the `other` call now is in the loop of the `loop` call, by what all
    made before: rounds, each from one such call to the next.
    """
    if _is_of_a_thread(other) and not _is_of_a_thread(loop):
        return "beside"
    # A callback in a thread of C++ has no line of a module at its outer end.
    if _begins_at_a_module(loop) and not _begins_at_a_module(other):
        return "beside"
    keys = list(map(call_key, made))
    places = [place for place, key in enumerate(keys) if key == call_key(loop)]
    if not places:
        return "left"
    last = keys[places[-1] + 1 :]
    if call_key(other) in last:
        return "inside"
    rounds = [keys[one + 1 : after] for one, after in pairwise(places)]
    return "left" if not rounds or last in rounds else "over"


def find_expected(
    made: Sequence[Collective], mine: Collective, theirs: Collective
) -> Literal["mine", "theirs", ""]:
    """Return whose call is the one that has followed the last of those that both made each time
    that it was made before; "" where there is none, or where it is that of both or of neither.
    """
    keys = list(map(call_key, made))
    followed = {after for one, after in pairwise(keys) if one == keys[-1]}
    if len(followed) != 1 or call_key(mine) == call_key(theirs):
        return ""
    if call_key(mine) in followed:
        return "mine"
    return "theirs" if call_key(theirs) in followed else ""


def _is_of_a_thread(one: Collective) -> bool:
    return bool(one.path) and _STARTS_A_THREAD.match(one.path[-1]) is not None


def _begins_at_a_module(one: Collective) -> bool:
    return (one.path[-1] if one.path else one.origin or one.site).endswith(" <module>")


def name_left_out_reduction(found: Mismatch, ranks: Sequence[RankFacts]) -> Mismatch:
    """Return a mismatch of what C++ called, "uneven" or not: "skipped" if the others wait in a
    backward with which its ranks are through.
    """
    if found.kind != "uneven" or found.paired is None or not found.others:
        return found
    logs = {facts.rank: _list_called(facts) for facts in ranks}
    waits = [log[-1] for rank in found.others if (log := logs.get(rank))]
    inside = [one for one in waits if one.kind in BACKWARD_KINDS and one.done is False]
    if len(inside) < len(found.others) or not all(
        _is_reduced(logs.get(rank, ()), inside[0]) for rank in found.ranks
    ):
        return found
    skipped = replace(found, kind="skipped", operation=found.paired, paired=None)
    return add_sentence(replace(skipped, number=found.paired.number))


def name_call_in_the_loop(found: Mismatch, ranks: Sequence[RankFacts]) -> Mismatch:
    """Return a mismatch, "uneven" or not: "different" where its ranks are in the loop still that
    the others go round, as the source of the lines shows in which they stand.
    """
    if found.kind != "uneven" or found.paired is None or not found.others:
        return found
    named = {*found.ranks, *found.others}
    places = [
        place
        for facts in ranks
        if facts.rank in named
        if (place := find_collective_place(facts.rank, merge_looks(facts.looks), PACKAGE))
    ]
    if len(places) < len(named) or not are_in_one_loop(places):
        return found
    ways = find_ways_in_library(places)
    mine, theirs = (
        next((ways[rank] for rank in ranks if rank in ways), "")
        for ranks in (found.ranks, found.others)
    )
    operation, paired = _add_way(found.operation, mine), _add_way(found.paired, theirs)
    return add_sentence(replace(found, kind="different", operation=operation, paired=paired))


def _add_way(one: Collective, way: str) -> Collective:
    return replace(one, site=f"{one.site}, in {way}") if way else one


def _is_reduced(log: Sequence[Collective], backward: Collective) -> bool:
    """Return whether a rank has made that backward, as the others count it."""
    same = (one for one in log if one.kind == backward.kind and one.number == backward.number)
    return any(one.done and call_key(one) == call_key(backward) for one in same)


def goes_round_a_training(found: Mismatch, ranks: Sequence[RankFacts]) -> bool:
    """Return whether the rounds in which ranks differ are those of a training: a backward is in
    each. Where logs have no two rounds, a training is all that a wrapped model is for.
    """
    logs = [log for facts in ranks if (log := _list_called(facts))]
    called = [one for log in logs for one in log]
    if not any(one.kind in BACKWARD_KINDS | WRAPPER_KINDS for one in called):
        return False
    if found.source != "ring":
        return True
    both = [one for one in (found.operation, found.paired) if one is not None]
    rounds = [last for log in logs for one in both if (last := _find_last_round(log, one))]
    most = max((one.times for one in rounds), default=0)
    return not rounds or any(one.trains for one in rounds if one.times == most)


def starts_over(found: Mismatch, ranks: Sequence[RankFacts]) -> bool:
    """Return whether ranks left a loop for a call that wraps the model, which they made before the
    loop in the same place: they train anew, or are done with one training of several.
    """
    call = found.operation
    if found.kind != "uneven" or call.kind not in WRAPPER_KINDS:
        return False
    logs = [_list_called(facts) for facts in ranks if facts.rank in found.ranks]
    place = call.kind, call.origin or call.site
    made = [sum((one.kind, one.origin or one.site) == place for one in log) for log in logs if log]
    return min(made, default=0) > 1


class _Round(NamedTuple):
    """The last round of a loop, from one call in it to the next time it is made."""

    times: int  # that the call was made
    trains: bool  # there is a backward in it


def _find_last_round(log: Sequence[Collective], call: Collective) -> _Round | None:
    made = (call.kind, call.group, call.site)
    places = [
        at for at, one in enumerate(log) if (one.kind, one.group, one.origin or one.site) == made
    ]
    if len(places) < 2:
        return None
    within = log[places[-2] : places[-1]]
    return _Round(len(places), any(one.kind in BACKWARD_KINDS for one in within))


def _list_called(facts: RankFacts) -> tuple[Collective, ...]:
    """Return what our own log has of a rank."""
    logs = (log for log in facts.collectives if log.source == "ring")
    return next((log.operations for log in logs), ())
