"""How two starts were made: the command, and the ranks that came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from ..kept.run import KeptRun
from ..kept.told import said
from .found import Difference
from .settings import differing

# They change only how a run is told, and where.
_OF_TELLING = ("--run-dir", "--json", "--plain", "--every-rank")


def launch_differences(a: KeptRun, b: KeptRun) -> Iterator[Difference]:
    """Yield what differs of command, number of ranks, hosts and launcher."""
    one, other = (_told_words(run.verdict.get("command", ())) for run in (a, b))
    if one and other and one != other:
        only_a, only_b = _only(one, other)
        yield Difference("command", "command", " ".join(only_a), " ".join(only_b))
    if a.world_size and b.world_size and a.world_size != b.world_size:
        yield Difference("ranks", "ranks", str(a.world_size), str(b.world_size))
    hosts, others = (_hosts(run) for run in (a, b))
    if hosts and others and hosts != others:
        yield Difference("ranks", "hosts", hosts, others)
    launchers = [said(run, ("launcher",)).get("launcher", {}) for run in (a, b)]
    yield from differing("ranks", "launcher", *launchers)


def _told_words(words: Iterable[Any]) -> list[str]:
    """Return a command without what changes only how it is told."""
    told: list[str] = []
    is_value = False
    for word in map(str, words):
        if not is_value and not word.startswith(_OF_TELLING):
            told.append(word)
        is_value = not is_value and word == "--run-dir"
    return told


def _only(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that only one of two commands has, each with the flag that it is for."""
    only: tuple[list[str], list[str]] = ([], [])
    for kind, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind != "equal":
            is_value = i > 0 and one[i - 1].startswith("-") and "=" not in one[i - 1]
            flag = [one[i - 1]] if is_value and kind == "replace" else []
            only[0].extend([*flag, *one[i:j]])
            only[1].extend([*flag, *other[k:m]])
    return only


def _hosts(run: KeptRun) -> str:
    return ", ".join(sorted({*said(run, ("host",)).get("host", {}).values()}))
