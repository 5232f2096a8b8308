"""Ranks, times, sizes and waits in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..facts import Wait

CAUSE_PAGES = "docs/causes"  # in the repository


def ranges(ranks: Iterable[int]) -> str:
    """Return ranks in the shortest form: "0-6,9"."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def brief(ranks: Iterable[int], most: int = 8) -> str:
    """Return ranks as `ranges` does, or "0-1022 step 2"; of more than `most` runs the first ones:
    "0-2,5,... and 12 more".
    """
    numbers = sorted(set(ranks))
    text = ranges(numbers)
    runs = text.split(",")
    if len(runs) <= most:
        return text
    step = numbers[1] - numbers[0]
    if all(b - a == step for a, b in pairwise(numbers)):
        return f"{numbers[0]}-{numbers[-1]} step {step}"
    told = sum(int(run.rpartition("-")[2]) - int(run.partition("-")[0]) + 1 for run in runs[:most])
    return f"{','.join(runs[:most])},... and {len(numbers) - told} more"


def of_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3" or "ranks 0-6,9"."""
    numbers = sorted(set(ranks))
    return f"rank{'s' if len(numbers) != 1 else ''} {brief(numbers)}"


def seconds(value: float) -> str:
    """Return "7.9 s", "91 s", "9 min" or "2.5 h"."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 300:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def cause_page(name: str) -> str:
    """Return where a cause is explained."""
    return f"{CAUSE_PAGES}/{name}.md"


def counted(number: int, what: str) -> str:
    """Return "1 rank" or "2 ranks"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """Return `text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable(line: str) -> str:
    """Return `line` on one line, its columns as they are."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()


def plain(text: str) -> str:
    """Return `text` with "?" in place of what cannot be printed, its columns as they are."""
    return "".join(c if c.isprintable() else "?" for c in text)


def cut(line: str, width: int | None, mark: str = "...") -> str:
    """Return `line` cut to `width`, whole if that is None (a pipe, a file)."""
    if width is None or len(line) <= width:
        return line
    return line[: max(1, width - len(mark))] + mark


def wrapped(line: str, width: int | None, indent: int) -> list[str]:
    """Return `line` as lines of at most `width`, broken between words, the further ones indented by
    so many columns; whole if `width` is None. A word that is longer stays whole.
    """
    if width is None or len(line) <= width:
        return [line]
    close = line[:indent] + re.sub(" {3,}", "  ", line[indent:])  # a column has no place there
    return textwrap.wrap(
        close,
        max(width, indent + 10),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def waited_for(wait: Wait) -> str:
    """Return what is waited for, as the end of a sentence: "its child wandb-core (4899)"."""
    who = f"{wait.process} ({wait.pid})" if wait.process and wait.pid else ""
    who = who or (f"pid {wait.pid}" if wait.pid else "")
    by_kind = {
        "rank": f"rank {wait.rank}" if wait.rank is not None else "another rank",
        "absent_rank": f"rank {wait.rank}, which never came"
        if wait.rank is not None
        else "a rank that never came",
        "collective": "its peers in a collective",
        "store": "the store of the process group",
        "process": f"its child {who}".rstrip(),
        "thread": "a thread of its own",
        "lock": "a lock" + (f" that {who} holds" if who else ""),
        "futex": "a futex",
        "gil": "the GIL",
        "file": "a file",
        "pipe": "a pipe" + (f" to {who}" if who else ""),
        "socket": "a peer that does not answer" + (f", {who}" if who else ""),
        "input": "somebody to type",
        "device": "a device",
        "stopped": f"whoever stopped it{', ' + who if who else ''}",
        "kernel": "the kernel",
        "sleep": "the end of a sleep",
        "itself": "nothing but itself",
        "unknown": "something unknown",
    }
    return by_kind[wait.kind]
