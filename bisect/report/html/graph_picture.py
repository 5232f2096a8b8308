"""The wait-for graph as a picture: who waits for whom and on what, those that wait on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...facts import Verdict
from ..kept.run import KeptRun
from ..words import counted
from .alike import Knot, Wait, groups
from .evidence_graph import graph_of
from .graph_words import Named, sentence
from .layers import layout
from .shown import Shown

MOST = 40  # nodes in the picture
_MOST_ARROWS = 120
_WIDE, _HIGH = 264, 46  # of a node's box; pixels, as all below
_APART, _BELOW = 24, 46  # between boxes, and between layers
_EDGE = 16  # around the picture
_BESIDE = 18  # of two arrows between the same boxes each is moved aside
_LETTERS = 31  # of the first line in a box; of the second a few more


@dataclass(frozen=True)
class Box:
    """A node, or many that are alike."""

    x: int
    y: int
    name: str  # cut so that it fits
    says: str
    whole: str  # not cut
    kind: str
    part: str  # "culprit", "waiting", "" for all others


@dataclass(frozen=True)
class Arrow:
    """What a node waits for. The number leads to the sentence below the picture."""

    number: int
    path: str
    label_x: int
    label_y: int
    whole: str


@dataclass(frozen=True)
class Graph:
    """The picture, and the same in sentences."""

    width: int
    height: int
    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    sentences: tuple[str, ...] = ()  # by the number of the arrow
    left_out: int = 0  # nodes
    words: str = ""  # the picture in a sentence

    @property
    def box_width(self) -> int:
        return _WIDE

    @property
    def box_height(self) -> int:
        return _HIGH


def graph_picture(run: KeptRun, verdict: Verdict, shown: Shown) -> Graph | None:
    """Return the picture; None where it is not known who waits for whom."""
    knots, waits = graph_of(run, verdict)
    if not waits:
        return None
    part = {
        **{f"rank {rank}": "waiting" for rank in verdict.ranks.waiting},
        **{f"rank {rank}": "culprit" for rank in verdict.ranks.culprit},
    }
    bound = {wait.source for wait in waits} | {wait.target for wait in waits}
    found = groups([one for one in knots if one.name in bound], waits, part)
    found, left_out = _nearest(found, waits, part)
    first = {one.name: group[0].name for group in found for one in group}
    drawn: dict[tuple[str, str], list[Wait]] = {}
    for wait in waits:
        if wait.source in first and wait.target in first:
            drawn.setdefault((first[wait.source], first[wait.target]), []).append(wait)
    named = {group[0].name: Named(group, shown) for group in found}
    return _picture(named, drawn, part, left_out, shown)


def _nearest(
    found: list[list[Knot]], waits: Sequence[Wait], part: Mapping[str, str]
) -> tuple[list[list[Knot]], int]:
    """Return at most MOST of the groups, those nearest to a culprit, and how many nodes are left
    out.
    """
    if len(found) <= MOST:
        return found, 0
    group_of = {one.name: at for at, group in enumerate(found) for one in group}
    near: dict[int, set[int]] = {at: set() for at in range(len(found))}
    for wait in waits:
        a, b = group_of[wait.source], group_of[wait.target]
        near[a].add(b)
        near[b].add(a)
    blamed = [at for at, group in enumerate(found) if part.get(group[0].name) == "culprit"]
    kept = list(dict.fromkeys(blamed or [0]))
    reached = set(kept)
    for at in kept:  # it grows meanwhile
        kept += sorted(near[at] - reached)
        reached |= near[at]
    chosen = sorted(kept[:MOST])
    left = sum(len(group) for at, group in enumerate(found) if at not in chosen)
    return [found[at] for at in chosen], left


def _picture(
    named: Mapping[str, Named],
    drawn: Mapping[tuple[str, str], list[Wait]],
    part: Mapping[str, str],
    left_out: int,
    shown: Shown,
) -> Graph:
    placed = layout(list(named), drawn)
    width = max(placed.columns, 1) * (_WIDE + _APART) - _APART + 2 * _EDGE
    height = max(placed.layers, 1) * (_HIGH + _BELOW) - _BELOW + 2 * _EDGE

    def at(place: tuple[float, int]) -> tuple[int, int]:
        """Return the middle of the upper edge of a box at this place."""
        column, layer = place
        return round(width / 2 + column * (_WIDE + _APART)), _EDGE + layer * (_HIGH + _BELOW)

    boxes = []
    for name, words in named.items():
        x, y = at(placed.nodes[name])
        boxes.append(_box(words, x - _WIDE // 2, y, part.get(name, ""), shown))
    arrows, sentences = [], []
    downwards = sorted(drawn.items(), key=lambda one: [placed.nodes[name][1] for name in one[0]])
    for number, ((source, target), waits) in enumerate(downwards[:_MOST_ARROWS], 1):
        told = sentence(named[source], named[target], waits, shown)
        sentences.append(told)
        if source != target:
            stops = [at(place) for place in placed.links[source, target]]
            aside = _BESIDE if (target, source) in drawn else 0
            arrows.append(_arrow(number, stops, aside, told))
    words_of_it = f"Who waits for whom, {counted(len(arrows), 'arrow')}; the list says the same"
    return Graph(
        width, height, tuple(boxes), tuple(arrows), tuple(sentences), left_out, words_of_it
    )


def _box(words: Named, x: int, y: int, part: str, shown: Shown) -> Box:
    name, says = shown.text(words.name, _LETTERS), shown.text(words.says, _LETTERS + 5)
    return Box(x, y, name, says, words.whole, words.kind.replace(" ", "-"), part)


def _arrow(number: int, stops: Sequence[tuple[int, int]], aside: int, sentence: str) -> Arrow:
    if stops[0][1] > stops[-1][1]:
        aside = -aside
    stops = [(x - aside, y) for x, y in stops]
    path = list(_path(stops))
    (ax, ay), (bx, by) = stops[0], stops[1]
    if by > ay:
        ay += _HIGH
    else:
        by += _HIGH
    return Arrow(number, " ".join(path), (ax + bx) // 2, (ay + by) // 2, sentence)


def _path(stops: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a curve from box to box, through the gaps between those of the layers it passes."""
    down = stops[-1][1] > stops[0][1]
    x, y = stops[0]
    y += _HIGH if down else 0
    yield f"M{x} {y}"
    last = len(stops) - 1
    for at, (bx, top) in enumerate(stops[1:], 1):
        by = top if down else top + _HIGH
        half = (y + by) // 2
        yield f"C{x} {half} {bx} {half} {bx} {by}"
        x, y = bx, by
        if at < last:
            y = by + _HIGH if down else by - _HIGH
            yield f"V{y}"
