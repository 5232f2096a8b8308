"""What ended ranks that raised: their tracebacks, those that are the same once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup

from ...facts import Verdict
from ..kept.run import KeptRun
from ..words import of_ranks

_BEGIN = "Traceback (most recent call last):"
_MOST_LINES = 60  # the last of each: the innermost
_MOST = 8
_DEEPEST = 16  # spaces at the beginning of a line


@dataclass(frozen=True)
class Traceback:
    """One of them. `lines`: the indentation of each, and its words."""

    who: str
    culprit: bool
    lines: tuple[tuple[Markup, str], ...]
    left_out: int  # lines before these


def tracebacks(run: KeptRun, verdict: Verdict) -> tuple[Traceback, ...]:
    """Return the tracebacks of ranks that ended by an error, those of culprits first."""
    by_text: dict[str, list[int]] = {}
    for rank in range(run.world_size):
        text = run.stacks.get(f"rank-{rank}.txt", "")
        if text.startswith(_BEGIN):
            by_text.setdefault(text, []).append(rank)
    culprits = frozenset(verdict.ranks.culprit)
    found = sorted(by_text.items(), key=lambda one: culprits.isdisjoint(one[1]))
    return tuple(islice(_all(found, culprits), _MOST))


def _all(found: list[tuple[str, list[int]]], culprits: frozenset[int]) -> Iterator[Traceback]:
    for text, ranks in found:
        lines = text.rstrip("\n").split("\n")
        kept = tuple(map(_line, lines[-_MOST_LINES:]))
        blamed = not culprits.isdisjoint(ranks)
        yield Traceback(of_ranks(ranks), blamed, kept, len(lines) - len(kept))


def _line(line: str) -> tuple[Markup, str]:
    words = line.lstrip(" ")
    return Markup("\N{NO-BREAK SPACE}") * min(len(line) - len(words), _DEEPEST), words
