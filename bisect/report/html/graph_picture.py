"""The wait-for graph as a picture: who waits for whom and on what, those that wait on top.

Nodes that wait for the same and are waited for by the same are one: a thousand ranks that wait
for one are one box. Boxes stand in layers, from those that no box waits for down to what is
waited for in the end (Sugiyama's method, its simplest form).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from ...base.identity import name_rank, parse_rank
from ...base.lazy_dataclass import dataclass
from ...base.verdict_facts import Edge, Verdict
from ...base.words import format_count, format_ranks
from ...diagnosis.wait_graph import Node, NodeKind, find_components, group_targets
from ..run_reader.run import RecordedRun
from .templates import ShownTexts

_SWEEPS = 6  # up and down; further ones change next to nothing
Link = tuple[str, str]
# A node, or the place where a link that is longer passes through a layer: (source, target, layer).
_Stop = str | tuple[str, str, int]


@dataclass(frozen=True)
class Layout:
    """Places as (column, layer); columns lie around 0, layers count from 0 at the top."""

    nodes: Mapping[str, tuple[float, int]]
    links: Mapping[Link, tuple[tuple[float, int], ...]]  # all stops, from source to target
    columns: int  # of the widest layer
    layers: int


def lay_out_graph(nodes: Sequence[str], links: Iterable[Link]) -> Layout:
    """Return where each node stands and where each link runs. What comes first in `nodes` stands
    further up where a ring has to be cut. Links of a node to itself are left out.
    """
    links = [link for link in dict.fromkeys(links) if link[0] != link[1]]
    turned = _find_turned_links(nodes, links)
    down = [(b, a) if (a, b) in turned else (a, b) for a, b in links]
    layer = _layers(nodes, down)
    stops = {link: _stops(link, layer) for link in dict.fromkeys(down)}
    rows = _order_rows(_arrange_rows(nodes, layer, stops.values()), stops.values())
    places = {
        stop: (at - (len(row) - 1) / 2, depth)
        for depth, row in enumerate(rows)
        for at, stop in enumerate(row)
    }
    ways = {}
    for a, b in links:
        way = stops[b, a][::-1] if (a, b) in turned else stops[a, b]
        ways[a, b] = tuple(places[stop] for stop in way)
    return Layout({n: places[n] for n in nodes}, ways, max(map(len, rows), default=0), len(rows))


def _find_turned_links(nodes: Sequence[str], links: Sequence[Link]) -> set[Link]:
    """Return the links that have to be turned round so that there is no ring."""
    ahead: dict[str, list[str]] = {node: [] for node in nodes}
    entered = {b for _, b in links}
    for a, b in links:
        ahead[a].append(b)
    turned: set[Link] = set()
    done: set[str] = set()
    for root in sorted(nodes, key=lambda node: node in entered):  # no node waits for the first
        way: dict[str, list[str]] = {} if root in done else {root: list(ahead[root])}
        while way:
            node, left = next(reversed(way.items()))
            if not left:
                done.add(node)
                del way[node]
            elif (further := left.pop(0)) in way:
                turned.add((node, further))
            elif further not in done:
                way[further] = list(ahead[further])
    return turned


def _layers(nodes: Sequence[str], down: Sequence[Link]) -> dict[str, int]:
    """Return the length of the longest way to each node."""
    left = dict.fromkeys(nodes, 0)
    for _, b in down:
        left[b] += 1
    layer = dict.fromkeys(nodes, 0)
    todo = [node for node in nodes if not left[node]]
    for node in todo:
        for a, b in down:
            if a == node:
                layer[b] = max(layer[b], layer[a] + 1)
                left[b] -= 1
                if not left[b]:
                    todo.append(b)
    return layer


def _stops(link: Link, layer: Mapping[str, int]) -> tuple[_Stop, ...]:
    a, b = link
    return (a, *((a, b, at) for at in range(layer[a] + 1, layer[b])), b)


def _arrange_rows(
    nodes: Sequence[str], layer: Mapping[str, int], ways: Iterable[tuple[_Stop, ...]]
) -> list[list[_Stop]]:
    rows: list[list[_Stop]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    for way in ways:
        for stop in way[1:-1]:
            rows[int(stop[2])].append(stop)
    return rows


def _order_rows(rows: list[list[_Stop]], ways: Iterable[tuple[_Stop, ...]]) -> list[list[_Stop]]:
    """Return the rows in an order in which few links cross: each stop near its neighbours."""
    above: dict[_Stop, list[_Stop]] = {stop: [] for row in rows for stop in row}
    below: dict[_Stop, list[_Stop]] = {stop: [] for row in rows for stop in row}
    for way in ways:
        for a, b in pairwise(way):
            below[a].append(b)
            above[b].append(a)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        pairs = list(pairwise(rows if downwards else rows[::-1]))
        for before, row in pairs:
            at = {stop: i - len(before) / 2 for i, stop in enumerate(before)}
            near = above if downwards else below
            own = {stop: i - len(row) / 2 for i, stop in enumerate(row)}
            row.sort(key=lambda s: fmean(at[n] for n in near[s]) if near[s] else own[s])
    return rows


_ROUNDS = 12  # of refinement; chains of waits are shorter
_FEW = 3  # fewer that are alike stay apart
_RING = 12  # nodes of a ring that is drawn whole


def group_nodes(
    knots: Sequence[Node], waits: Sequence[Edge], marks: Mapping[str, Hashable]
) -> list[list[Node]]:
    """Return the nodes by what they are, what they wait for and who waits for them, in the order
    of the first of each group. `marks`: what tells a node from others besides (a culprit). Those
    that wait for one another in a small ring stay apart: the ring is what matters.
    """
    ring = _rings(waits)
    found: dict[int, list[Node]] = {}
    colour = _colours(knots, waits, marks)
    for one in knots:
        found.setdefault(colour[one.name], []).append(one)
    return [part for group in found.values() for part in _keep_rings_apart(group, ring)]


def _keep_rings_apart(group: list[Node], ring: Mapping[str, int]) -> Iterator[list[Node]]:
    rings = [ring[one.name] for one in group if one.name in ring]
    if len(group) < _FEW or len(set(rings)) < len(rings):
        yield from ([one] for one in group)
    else:
        yield group


def _rings(waits: Sequence[Edge]) -> dict[str, int]:
    """Return a number for each node of a small ring: the same one for those of one ring."""
    parts = find_components(group_targets((wait.source, wait.target) for wait in waits))
    rings = [part for part in parts if 1 < len(part) <= _RING]
    return {name: number for number, part in enumerate(rings) for name in part}


def _colours(
    knots: Sequence[Node], waits: Sequence[Edge], marks: Mapping[str, Hashable]
) -> dict[str, int]:
    """Return a number for each node: the same one for those that are alike (colour refinement)."""
    colour = _number_by_key({one.name: (one.kind, marks.get(one.name)) for one in knots})
    for _ in range(_ROUNDS):
        ahead: dict[str, set[Hashable]] = {one.name: set() for one in knots}
        behind: dict[str, set[Hashable]] = {one.name: set() for one in knots}
        for wait in waits:
            ahead[wait.source].add((wait.kind, colour[wait.target]))
            behind[wait.target].add((wait.kind, colour[wait.source]))
        finer = _number_by_key(
            {n: (colour[n], frozenset(ahead[n]), frozenset(behind[n])) for n in colour}
        )
        if len(set(finer.values())) == len(set(colour.values())):
            break
        colour = finer
    return colour


def _number_by_key(keys: Mapping[str, Hashable]) -> dict[str, int]:
    """Return a number for each name: the same one for equal keys."""
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in keys.items()}


def read_graph(run: RecordedRun, verdict: Verdict) -> tuple[list[Node], list[Edge]]:
    """Return nodes and edges of all nodes of the cluster; without evidence those of the chain that
    the verdict has. Every edge has both its ends.
    """
    knots: dict[str, Node] = {}
    waits: dict[tuple[str, str], Edge] = {}
    for part in run.everywhere:
        graph = part.facts.graph
        for one in graph.nodes:
            knots.setdefault(one.name, one)
        for wait in graph.edges:
            waits.setdefault((wait.source, wait.target), wait)
    if not waits:
        for edge in verdict.chain:
            waits[edge.source, edge.target] = edge
    for ends in waits:
        for name in ends:
            knots.setdefault(name, _node_of_name(name))
    return list(knots.values()), [
        wait for wait in waits.values() if not _is_at_meeting(wait, knots, waits)
    ]


def _is_at_meeting(
    wait: Edge, knots: Mapping[str, Node], waits: Mapping[tuple[str, str], Edge]
) -> bool:
    """Return True if a meeting waits for a rank that is at the same meeting: it is not that."""
    meets = knots[wait.source].kind in ("collective", "store", "barrier")
    return meets and (wait.target, wait.source) in waits


_NAMED: tuple[NodeKind, ...] = (
    *("process", "thread", "lock", "file", "device", "collective", "store"),
)


def _node_of_name(name: str) -> Node:
    """Return a node of which only the name is known."""
    word, _, who = name.partition(" ")
    if word == "rank" and (rank := parse_rank(who)) is not None:
        return Node(name, "rank", rank=rank)
    return Node(name, next((kind for kind in _NAMED if kind == word), "other"))


_COUNTABLE = ("thread", "lock", "pipe", "peer", "file", "device", "store", "collective")


class NodeGroup:
    """A group of nodes in words."""

    def __init__(self, group: Sequence[Node], shown: ShownTexts) -> None:
        first = group[0]
        ranks = [one.rank for one in group if one.rank is not None]
        self.kind = first.kind
        self.many = len(group) > 1
        self.says = shown.text(first.says)
        self.name = shown.text(first.name)
        if self.many and first.kind in ("rank", "absent rank"):
            self.name = format_ranks(ranks)
            self.says = "each of them" if first.kind == "rank" else "none of them came"
        elif self.many:
            self.name = _count_nodes(len(group), first.kind)
            example = first.says.partition(", of rank")[0] or first.name
            self.says = shown.text(
                f"{example}, ..." + (f" of {format_ranks(ranks)}" if ranks else "")
            )
        self.whole = ": ".join(filter(None, (self.name, self.says)))


def _count_nodes(number: int, kind: str) -> str:
    """Return "7 processes", "3 pipes"."""
    return f"{number} processes" if kind == "process" else format_count(number, _noun(kind))


def _noun(kind: str) -> str:
    return kind if kind in _COUNTABLE else "thing"


def edge_sentence(
    source: NodeGroup, target: NodeGroup, waits: Sequence[Edge], shown: ShownTexts
) -> str:
    """Return that one waits for the other, with the evidence."""
    evidence = list(dict.fromkeys(shown.text(wait.evidence) for wait in waits if wait.evidence))
    if source is target:
        text = f"{source.name} wait for one another"
    else:
        text = f"{source.name} {'wait' if source.many else 'waits'} for {target.name}"
    more = f" (and {len(evidence) - 1} more like this)" if len(evidence) > 1 else ""
    return f"{text}: {evidence[0]}{more}" if evidence else text


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


def graph_picture(run: RecordedRun, verdict: Verdict, shown: ShownTexts) -> Graph | None:
    """Return the picture; None where it is not known who waits for whom."""
    knots, waits = read_graph(run, verdict)
    if not waits:
        return None
    part = {
        **{name_rank(rank): "waiting" for rank in verdict.ranks.waiting},
        **{name_rank(rank): "culprit" for rank in verdict.ranks.culprit},
    }
    bound = {wait.source for wait in waits} | {wait.target for wait in waits}
    found = group_nodes([one for one in knots if one.name in bound], waits, part)
    found, left_out = _nearest(found, waits, part)
    first = {one.name: group[0].name for group in found for one in group}
    drawn: dict[tuple[str, str], list[Edge]] = {}
    for wait in waits:
        if wait.source in first and wait.target in first:
            drawn.setdefault((first[wait.source], first[wait.target]), []).append(wait)
    named = {group[0].name: NodeGroup(group, shown) for group in found}
    return _picture(named, drawn, part, left_out, shown)


def _nearest(
    found: list[list[Node]], waits: Sequence[Edge], part: Mapping[str, str]
) -> tuple[list[list[Node]], int]:
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
    named: Mapping[str, NodeGroup],
    drawn: Mapping[tuple[str, str], list[Edge]],
    part: Mapping[str, str],
    left_out: int,
    shown: ShownTexts,
) -> Graph:
    placed = lay_out_graph(list(named), drawn)
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
        sentence = edge_sentence(named[source], named[target], waits, shown)
        sentences.append(sentence)
        if source != target:
            stops = [at(place) for place in placed.links[source, target]]
            aside = _BESIDE if (target, source) in drawn else 0
            arrows.append(_arrow(number, stops, aside, sentence))
    words_of_it = (
        f"Who waits for whom, {format_count(len(arrows), 'arrow')}; the list says the same"
    )
    return Graph(
        width, height, tuple(boxes), tuple(arrows), tuple(sentences), left_out, words_of_it
    )


def _box(words: NodeGroup, x: int, y: int, part: str, shown: ShownTexts) -> Box:
    name, says = shown.text(words.name, _LETTERS), shown.text(words.says, _LETTERS + 5)
    return Box(x, y, name, says, words.whole, words.kind.replace(" ", "-"), part)


def _arrow(number: int, stops: Sequence[tuple[int, int]], aside: int, sentence: str) -> Arrow:
    if stops[0][1] > stops[-1][1]:
        aside = -aside
    stops = [(x - aside, y) for x, y in stops]
    path = list(_draw_curve(stops))
    (ax, ay), (bx, by) = stops[0], stops[1]
    if by > ay:
        ay += _HIGH
    else:
        by += _HIGH
    return Arrow(number, " ".join(path), (ax + bx) // 2, (ay + by) // 2, sentence)


def _draw_curve(stops: Sequence[tuple[int, int]]) -> Iterator[str]:
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
