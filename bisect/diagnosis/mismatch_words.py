"""A mismatch between the collectives of ranks, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..facts import Collective
from .collective_logs import MARKS

if TYPE_CHECKING:
    from .mismatch import Mismatch

_MOST_NAMED = 6
_SPELLED = {"ddp": "the construction of DDP", "fsdp": "the construction of FSDP"}


def sentence(found: Mismatch) -> str:
    """Return a mismatch in a sentence or two."""
    say = {
        "extra": _extra,
        "skipped": _skipped,
        "missing": _missing,
        "uneven": _uneven,
        "order": _order,
        "shape": _shape,
        "different": _different,
    }[found.kind]
    return say(found, ranks_in_words(found.ranks), ranks_in_words(found.others))


def _extra(found: Mismatch, who: str, rest: str) -> str:
    text = f"{who} made a call that {rest} did not: {_call(found.operation)}"
    text += _under(found.operation)
    met = found.paired if found.paired and found.paired.kind not in MARKS else None
    return text + (f". It met {_call(met)} of {rest}" if met else "")


def _skipped(found: Mismatch, who: str, rest: str) -> str:
    call = _call(found.operation) + _under(found.operation)
    return f"{who} left out a call that {rest} made: {call}"


def _missing(found: Mismatch, who: str, rest: str) -> str:
    what = f"operation {found.number} of group {found.group}, {_call(found.operation)}"
    return f"{who} never entered {what}, in which {rest} wait{_s(found.others)}"


def _uneven(found: Mismatch, who: str, rest: str) -> str:
    text = f"{who} went on to {_call(found.operation)}"
    if found.paired is None or not rest:
        return text
    text += f" while {rest} still go{'es' if _s(found.others) else ''} round {_call(found.paired)}"
    return text + (" (uneven batches?)" if found.paired.kind in MARKS else "")


def _order(found: Mismatch, who: str, rest: str) -> str:
    calls = f"{_call(found.operation)} and {_call(found.paired)}"
    if not rest:
        return f"{who} made the same calls in different orders: {calls}"
    return f"{who} made the same calls as {rest} in another order: {calls}"


def _shape(found: Mismatch, who: str, rest: str) -> str:
    one, other = found.operation, found.paired
    sizes = f"{one.shape} and {other.shape}" if other is not None else one.shape
    if not rest:
        return f"{who} called {_call(one)} with tensors of different sizes: {sizes}"
    return f"{who} called {_call(one)} with a tensor of another size than {rest}: {sizes}"


def _different(found: Mismatch, who: str, rest: str) -> str:
    one, other = _call(found.operation), _call(found.paired)
    if not rest:
        return f"{who} called different operations in the same place: {one} and {other}"
    return f"{who} entered {one} where {rest} entered {other}"


def _call(one: Collective | None) -> str:
    if one is None:
        return "another one"
    kind = _SPELLED.get(one.kind, one.kind)
    return f"{kind} ({one.site})" if one.site else kind


def _under(one: Collective) -> str:
    return f", below `{one.condition}`" if one.condition else ""


def _s(ranks: Sequence[int]) -> str:
    return "s" if len(ranks) == 1 else ""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Return "rank 3", "ranks 0 and 1", "ranks 0, 1, 2 and 5 others"; "" for none."""
    names = [str(rank) for rank in ranks]
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} others"]
    if len(names) < 2:
        return f"rank {names[0]}" if names else ""
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
