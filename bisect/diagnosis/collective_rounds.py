"""Rounds of a loop of collectives, as logs show them: what came round before, and where who makes
another call now is in the loop. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from ..base.rank_facts import Collective
from .collective_mismatch import LoopState

CallKey = tuple[str, str, str, str, tuple[str, ...]]
_STARTS_A_THREAD = re.compile(r"threading\.py:\d+ (?:Thread\.)?_bootstrap\b")


def call_key(one: Collective) -> CallKey:
    """Return what tells one call from another, on every rank the same."""
    return one.kind, one.site, one.between, one.group, one.path


def read_loop(made: Sequence[Collective], loop: Collective, other: Collective) -> LoopState:
    """Return where who makes the `other` call now is in the loop of the `loop` call, by what all
    made before: rounds, each from one such call to the next.
    """
    if _is_of_a_thread(other) and not _is_of_a_thread(loop):
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
