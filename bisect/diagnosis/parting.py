"""Where the logs of a group's ranks part. Pure.

torch's own analyser compares operations of the same number (torch.distributed.flight_recorder:
another kind, size or dtype). That names the symptom: once a rank has made one call more, every
later operation pairs with the wrong one, and the first that differs in kind may be far from the
call that is to blame. So logs are aligned by where their calls come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..facts import Collective
from .alignment import align
from .collective_logs import MARKS, Group, Stream
from .mismatch import Difference, Mismatch, MismatchKind, blame

Key = tuple[str, str, str, str]

_SAME_CALL, _SAME_SITE, _SAME_KIND = 6, 5, 1  # scores of two operations
# Kinds whose tensors must be the same on every rank; the others gather or scatter.
SAME_SHAPE = frozenset(["all_reduce", "reduce", "broadcast", "allreduce", "_broadcast_oop"])
_MOST_CLASSES = 24  # of ranks with the same log
_MOST_REFERENCES = 5


@dataclass(frozen=True)
class _Class:
    """Ranks with the same log."""

    ranks: tuple[int, ...]
    stream: Stream


def first_mismatch(group: Group) -> Mismatch | None:
    """Return the first difference between the logs of a group's ranks, None if there is none."""
    classes = _classes(group)
    parted = _from_the_usual(classes, len(group.streams))
    if not parted:
        return None
    _, first = min(parted, key=lambda one: (one[1].kind == "missing", one[1].at))
    mine = sorted(r for c, d in parted if _same(d, first) for r in c.ranks)
    deviating = {r for c, _ in parted for r in c.ranks}
    theirs = [s.rank for s in group.streams if s.rank not in deviating]
    return blame(group, first, mine, theirs)


def _from_the_usual(classes: Sequence[_Class], ranks: int) -> list[tuple[_Class, Difference]]:
    """Return the classes that part from the usual log, which is the one from which the fewest
    ranks part.
    """
    fewest: list[tuple[_Class, Difference]] = []
    least = ranks + 1
    for usual in classes[:_MOST_REFERENCES]:
        parted = _against(usual, classes)
        parting = sum(len(c.ranks) for c, _ in parted)
        if parting < least:
            fewest, least = parted, parting
        if 2 * least < ranks:
            break
    return fewest


def _against(usual: _Class, classes: Sequence[_Class]) -> list[tuple[_Class, Difference]]:
    """Return the classes that part from the usual one, and how."""
    found = [(c, difference(c.stream, usual.stream)) for c in classes if c is not usual]
    return [(c, d) for c, d in found if d is not None]


def _same(a: Difference, b: Difference) -> bool:
    """Return True for the same difference on two ranks."""
    return a.kind == b.kind and all(
        (x is None) == (y is None) and (x is None or y is None or key(x) == key(y))
        for x, y in ((a.mine, b.mine), (a.theirs, b.theirs))
    )


def _classes(group: Group) -> list[_Class]:
    """Return the ranks by their logs: the most usual log first, of two the longer one."""
    found: dict[tuple[object, ...], list[Stream]] = {}
    for stream in group.streams:
        same = (stream.since, *((key(o), o.shape, o.done) for o in stream.operations))
        found.setdefault(same, []).append(stream)
    classes = [_Class(tuple(s.rank for s in same), same[0]) for same in found.values()]
    classes.sort(key=lambda c: (-len(c.ranks), -len(c.stream.operations), c.ranks))
    return classes[:_MOST_CLASSES]


# ---- two logs ------------------------------------------------------------------------------------


def key(one: Collective) -> Key:
    """Return what tells one call from another, on every rank the same."""
    return one.kind, one.site, one.between, one.group


def _score(a: Key, b: Key) -> int:
    if a[0] != b[0] or a[3] != b[3]:
        return 0
    if a[1] != b[1]:
        return _SAME_KIND  # who sends often does so in another line than who receives
    return _SAME_CALL if a[2] == b[2] else _SAME_SITE


@dataclass(frozen=True)
class _Aligned:
    """Two logs side by side, up to the last operation that they have in common, and after it."""

    both: tuple[tuple[Collective, Collective], ...]
    alone: tuple[tuple[int, Collective], ...]  # in order: side 0 (mine) or 1, and what it has alone
    tails: tuple[tuple[Collective, ...], tuple[Collective, ...]]


def difference(mine: Stream, theirs: Stream) -> Difference | None:
    """Return how one rank's log parts from another's first, None if they go together."""
    found = _aligned(mine, theirs)
    if found is None:
        return None
    for looked_for in (_calls, _sizes, _ends):
        different = looked_for(found)
        if different is not None:
            return different
    return None


def _aligned(mine: Stream, theirs: Stream) -> _Aligned | None:
    a, b = _kept(mine, theirs), _kept(theirs, mine)
    is_open = bool(mine.since or theirs.since)
    pairs = align([key(o) for o in a], [key(o) for o in b], _score, head_is_open=is_open)
    matched = [n for n, (i, j) in enumerate(pairs) if i is not None and j is not None]
    if is_open and not matched:
        return None  # nothing is kept that both did
    first = matched[0] if matched and is_open else 0
    end = matched[-1] + 1 if matched else 0
    sides = (a, b)
    alone = [
        (side, sides[side][place])
        for pair in pairs[first:end]
        for side in (0, 1)
        if pair[1 - side] is None and (place := pair[side]) is not None
    ]
    return _Aligned(
        tuple((a[i], b[j]) for i, j in pairs[:end] if i is not None and j is not None),
        tuple((side, one) for side, one in alone if one.kind not in MARKS),
        (
            tuple(a[i] for i, _ in pairs[end:] if i is not None),
            tuple(b[j] for _, j in pairs[end:] if j is not None),
        ),
    )


def _kept(mine: Stream, theirs: Stream) -> list[Collective]:
    """Return the operations of a log from where both are kept on."""
    since = max(mine.since, theirs.since)
    return [o for o in mine.operations if o.number > since or o.kind in MARKS]


def _calls(found: _Aligned) -> Difference | None:
    """A call that one made and the other did not, or not yet, before they did the same again."""
    if not found.alone:
        return None
    side, one = found.alone[0]
    other = 1 - side
    elsewhere = [o for s, o in found.alone if s == other] + [*found.tails[other]]
    later = next((o for o in elsewhere if key(o) == key(one)), None)
    met = _met(one, found, other)
    kind: MismatchKind = "extra" if side == 0 else "skipped"
    if later is not None:
        kind, met = "order", met or later
    return Difference(kind, one, met) if side == 0 else Difference(kind, met, one)


def _met(one: Collective, found: _Aligned, side: int) -> Collective | None:
    """Return the operation of the other side with the same number: what it paired with."""
    return next(
        (p[side] for p in found.both if p[side].number == one.number and p[side].kind not in MARKS),
        None,
    )


def _sizes(found: _Aligned) -> Difference | None:
    """The same call with tensors of different sizes, where somebody still waits in it."""
    for mine, theirs in found.both:
        waits = not (mine.done and theirs.done) and mine.kind in SAME_SHAPE
        if waits and mine.shape and theirs.shape and mine.shape != theirs.shape:
            return Difference("shape", mine, theirs)
    return None


def _ends(found: _Aligned) -> Difference | None:
    """What each does after the last call that both made."""
    mine, theirs = map(_first, found.tails)
    counts = Counter(key(a) for a, _ in found.both)
    mine_before = 0 if mine is None else counts[key(mine)]
    theirs_before = 0 if theirs is None else counts[key(theirs)]
    if mine is not None and theirs is not None:
        return Difference("different", mine, theirs, mine_before, theirs_before)
    if theirs is not None and _is_through(found, 0) and not theirs.done:
        return Difference("missing", None, theirs, 0, theirs_before)
    if mine is not None and _is_through(found, 1) and not mine.done:
        return Difference("missing", mine, None, mine_before, 0)
    return None


def _first(tail: Sequence[Collective]) -> Collective | None:
    """Return the first operation of a tail; backward counts only where it is waited in."""
    return next((o for o in tail if o.kind not in MARKS or not o.done), None)


def _is_through(found: _Aligned, side: int) -> bool:
    """Return True if the last call that both made is over on one side."""
    return not found.both or found.both[-1][side].done is not False
