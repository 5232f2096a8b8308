"""What a mismatch between the collectives of ranks is, and which ranks it is put down to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..facts import Collective
from .collective_logs import MAKES_GROUPS, WRAPS, Group
from .mismatch_words import sentence

MismatchKind = Literal[
    "extra",  # the culprits made a call that the others did not
    "skipped",  # the others made a call that the culprits left out
    "order",  # the same calls, in another order
    "different",  # another operation in the same place
    "shape",  # the same operation, of another size or type
    "uneven",  # the culprits left a loop that the others still go round, or go round it still
    "missing",  # the others wait in an operation that the culprits never entered
]


@dataclass(frozen=True)
class Mismatch:
    """The first place where the ranks of a group do not do the same."""

    kind: MismatchKind
    group: str
    number: int  # of the operation in question
    ranks: tuple[int, ...]  # the culprits
    operation: Collective  # the call in question: the extra one, the one that was left out ...
    sites: Mapping[int, str]  # where each rank is at that place; "" where it is nowhere
    sentence: str
    others: tuple[int, ...] = ()  # the ranks that they were compared with
    paired: Collective | None = None  # what the others did in its place
    source: str = "ring"
    rounds: int = 0  # how often all had made that call before, as in a loop

    @property
    def is_sure(self) -> bool:
        """Whether it is more than that some ranks are behind."""
        return self.kind != "missing"


@dataclass(frozen=True)
class Difference:
    """How one log parts from another: the first operation in question of each."""

    kind: MismatchKind
    mine: Collective | None = None
    theirs: Collective | None = None
    # How often the same calls had been made before, by both.
    my_count: int = 0
    their_count: int = 0

    @property
    def at(self) -> float:
        """When it happened first."""
        return min(one.at for one in (self.mine, self.theirs) if one is not None)


def told(found: Mismatch) -> Mismatch:
    """Return a mismatch with its sentence."""
    return replace(found, sentence=sentence(found))


def blame(
    group: Group,
    found: Difference,
    mine: Sequence[int],
    theirs: Sequence[int],
) -> Mismatch:
    """Return the mismatch that a difference is: `mine` are the ranks that part from `theirs`.

    The fewer are at fault. Of equally many those are that made a call more (somebody wrote it, and
    the others do not come by it), that come by a call which the source has only some ranks make, or
    that left a loop, be it by a condition in it; else all are, for it cannot be told.
    """
    kind, culprits, operation, paired = _judged(found, tuple(mine), tuple(theirs))
    sites = {rank: _site(found.mine) for rank in mine}
    sites |= {rank: _site(found.theirs) for rank in theirs}
    others = tuple(sorted({*mine, *theirs} - set(culprits)))
    rounds = found.my_count if operation is found.mine else found.their_count
    operation, paired = _as_the_jobs(operation), _as_the_jobs(paired) if paired else None
    made = Mismatch(
        kind=kind,
        group=group.name,
        number=operation.number,
        ranks=tuple(sorted(culprits)),
        operation=operation,
        sites=dict(sorted(sites.items())),
        sentence="",
        others=others,
        paired=paired,
        source=group.source,
        rounds=rounds,
    )
    return told(made)


_Judged = tuple[MismatchKind, tuple[int, ...], Collective, Collective | None]


def _judged(found: Difference, mine: tuple[int, ...], theirs: tuple[int, ...]) -> _Judged:
    a, b, few = found.mine, found.theirs, len(mine) < len(theirs)
    one = b if found.kind == "skipped" else a or b
    assert one is not None  # a difference has at least one operation
    if found.kind == "extra":
        return "extra", mine, one, b
    if found.kind == "skipped":
        if few:
            return "skipped", mine, one, None
        return "extra", theirs, one, a
    if found.kind == "missing":
        return "missing", mine if a is None else theirs, one, None
    both = mine if few else (*mine, *theirs)
    if found.kind != "different" or a is None or b is None:
        return found.kind, both, one, b
    if bool(a.condition) != bool(b.condition) and not _goes_round(found):
        if few and b.condition:
            return "skipped", mine, b, None
        return ("extra", mine, a, b) if a.condition else ("extra", theirs, b, a)
    if found.my_count != found.their_count:
        # What both did before is a loop; who does something else has left it.
        left = found.my_count < found.their_count
        return "uneven", mine if left or few else theirs, a if left or few else b, b if left else a
    if not few and _is_for_all(a) != _is_for_all(b):
        return ("extra", mine, a, b) if _is_for_all(a) else ("extra", theirs, b, a)
    return "different", both, a, b


def _goes_round(found: Difference) -> bool:
    """Return True if the call under a condition is that of a loop which all have gone round, more
    often than they made the other call: the condition is what ends the loop.
    """
    mine_is_below = found.mine is not None and bool(found.mine.condition)
    rounds = found.my_count - found.their_count
    return rounds > 0 if mine_is_below else rounds < 0


def _is_for_all(one: Collective) -> bool:
    """Making a group, or wrapping a model: what every rank has to do once, and some forget."""
    return one.kind in MAKES_GROUPS or one.kind in WRAPS


def _site(one: Collective | None) -> str:
    return "" if one is None else one.origin or one.site


def _as_the_jobs(one: Collective) -> Collective:
    """Return an operation with the job's own line as its site, where that is known."""
    if not one.origin:
        return one
    between = " < ".join(filter(None, [one.between, one.site]))
    return replace(one, site=one.origin, between=between)
