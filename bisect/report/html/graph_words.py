"""Nodes and edges of the wait-for graph in words, one or many that are alike."""

from __future__ import annotations

from collections.abc import Sequence

from ..words import counted, of_ranks
from .alike import Knot, Wait
from .shown import Shown

_COUNTED = ("thread", "lock", "pipe", "peer", "file", "device", "store", "collective")


class Named:
    """A group of nodes in words."""

    def __init__(self, group: Sequence[Knot], shown: Shown) -> None:
        first = group[0]
        ranks = [one.rank for one in group if one.rank is not None]
        self.kind = first.kind
        self.many = len(group) > 1
        self.says = shown.text(first.says)
        self.name = shown.text(first.name)
        if self.many and first.kind in ("rank", "absent rank"):
            self.name = of_ranks(ranks)
            self.says = "each of them" if first.kind == "rank" else "none of them came"
        elif self.many:
            self.name = _counted(len(group), first.kind)
            example = first.says.partition(", of rank")[0] or first.name
            self.says = shown.text(f"{example}, ..." + (f" of {of_ranks(ranks)}" if ranks else ""))
        self.whole = ": ".join(filter(None, (self.name, self.says)))


def _counted(number: int, kind: str) -> str:
    """Return "7 processes", "3 pipes"."""
    return f"{number} processes" if kind == "process" else counted(number, _word(kind))


def _word(kind: str) -> str:
    return kind if kind in _COUNTED else "thing"


def sentence(source: Named, target: Named, waits: Sequence[Wait], shown: Shown) -> str:
    """Return that one waits for the other, with the evidence."""
    evidence = list(dict.fromkeys(shown.text(wait.evidence) for wait in waits if wait.evidence))
    if source is target:
        text = f"{source.name} wait for one another"
    else:
        text = f"{source.name} {'wait' if source.many else 'waits'} for {target.name}"
    more = f" (and {len(evidence) - 1} more like this)" if len(evidence) > 1 else ""
    return f"{text}: {evidence[0]}{more}" if evidence else text
