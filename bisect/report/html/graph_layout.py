"""Where the nodes of a directed graph stand in a picture: in layers, from those that no node waits
for down to what is waited for in the end (Sugiyama's method, its simplest form).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from ...base.lazy_dataclass import dataclass

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
