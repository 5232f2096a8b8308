"""Words: ranges of ranks, counts, bytes, durations, wrapped lines and the width of a terminal."""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .identity import RankId
    from .verdict_facts import Level, Wait, WaitKind


CAUSE_PAGES = "docs/causes"  # in the repository


def format_ranges(ranks: Iterable[RankId]) -> str:
    """Return ranks in the shortest form: "0-6,9"; those without a known number last: "0-6,?"."""
    return ",".join(_count_runs(set(ranks)))


def _count_runs(ranks: Collection[RankId]) -> dict[str, int]:
    """Return how many ranks each part of `format_ranges` is."""
    runs: list[list[int]] = []
    for rank in sorted(one for one in ranks if isinstance(one, int)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    unknown = Counter(str(one) for one in sorted(r for r in ranks if not isinstance(r, int)))
    return {str(a) if a == b else f"{a}-{b}": b - a + 1 for a, b in runs} | unknown


def format_rank_numbers(ranks: Iterable[RankId], most: int = 8) -> str:
    """Return ranks as `format_ranges` does, or "0-1022 step 2"; of more than `most` runs the first:
    "0-2,5,... and 12 more".
    """
    every = set(ranks)
    runs = _count_runs(every)
    if len(runs) <= most:
        return ",".join(runs)
    numbers = sorted(rank for rank in every if isinstance(rank, int))
    if len(numbers) == len(every):
        first, step = numbers[0], numbers[1] - numbers[0]
        if numbers == list(range(first, numbers[-1] + 1, step)):
            return f"{first}-{numbers[-1]} step {step}"
    shown = list(runs)[:most]
    return f"{','.join(shown)},... and {len(every) - sum(runs[run] for run in shown)} more"


def format_ranks(ranks: Iterable[RankId]) -> str:
    """Return "rank 3" or "ranks 0-6,9"; "" for none."""
    every = set(ranks)
    return f"rank{'s' if len(every) > 1 else ''} {format_rank_numbers(every)}" if every else ""


def format_seconds(value: float) -> str:
    """Return a duration as short as it tells enough: "7.9 s", "91 s", "9 min" or "2.5 h".

    For waits, ages, limits and starts. What a pipeline measured of itself is told by
    `format_duration`.
    """
    if value < 10:
        return f"{value:.1f} s"
    if value < 300:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def format_duration(seconds: float) -> str:
    """Return a duration as it was measured: "0.015 s", "12.5 s" or "45.2 s, 0.8 min".

    For what a pipeline measures or expects, which is compared and divided: in seconds always. All
    else is told by `format_seconds`.
    """
    if seconds < 1:
        return f"{seconds:.3f} s"
    if seconds < 30:
        return f"{seconds:.1f} s"
    return f"{seconds:.1f} s, {seconds / 60:.1f} min"


def cause_page(name: str) -> str:
    """Return where a cause is explained."""
    return f"{CAUSE_PAGES}/{name}.md"


def format_count(number: int, what: str) -> str:
    """Return "1 rank" or "2 ranks"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def begin_sentence(text: str) -> str:
    """Return a text as it begins a sentence."""
    return text[:1].upper() + text[1:]


def join_lines(text: str) -> str:
    """Return `text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def printable(line: str) -> str:
    """Return `line` on one line, its columns as they are."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()


def replace_unprintable(text: str) -> str:
    """Return `text` with "?" in place of what cannot be printed, its columns as they are."""
    return "".join(c if c.isprintable() else "?" for c in text)


def cut_line(line: str, width: int | None, mark: str = "...") -> str:
    """Return `line` cut to `width`, whole if that is None (a pipe, a file)."""
    if width is None or len(line) <= width:
        return line
    return line[: max(1, width - len(mark))] + mark


def wrap_line(line: str, width: int | None, indent: int) -> list[str]:
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


LEVELS: dict[Level, str] = {"seen": "seen", "fits": "fits", "guess": "a guess"}
# What is waited for, as far as its kind says it.
AWAITED: dict[WaitKind, str] = {
    "rank": "another rank",
    "absent_rank": "a rank that never came",
    "collective": "its peers in a collective",
    "store": "the store of the process group",
    "process": "its child",
    "thread": "a thread of its own",
    "lock": "a lock",
    "futex": "a futex",
    "gil": "the GIL",
    "file": "a file",
    "pipe": "a pipe",
    "socket": "a peer that does not answer",
    "input": "somebody to type",
    "device": "a device",
    "stopped": "whoever stopped it",
    "kernel": "the kernel",
    "sleep": "the end of a sleep",
    "itself": "its own work",
    "unknown": "something unknown",
}


def name_awaited(wait: Wait) -> str:
    """Return what is waited for, as the end of a sentence: "its child wandb-core (4899)"."""
    if wait.rank is not None and wait.kind in ("rank", "absent_rank"):
        return f"rank {wait.rank}" + ("" if wait.kind == "rank" else ", which never came")
    who = f"{wait.process} ({wait.pid})" if wait.process and wait.pid else ""
    who = who or (f"pid {wait.pid}" if wait.pid else "")
    with_process = {
        "process": f" {who}",
        "lock": f" that {who} holds",
        "pipe": f" to {who}",
        "socket": f", {who}",
        "stopped": f", {who}",
    }
    return AWAITED[wait.kind] + (with_process.get(wait.kind, "") if who else "")


def terminal_size(descriptor: int = 1) -> tuple[int | None, int | None]:
    """Return columns and lines of the terminal behind a descriptor, None and None where there is
    none; None for what it does not say.
    """
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return None, None
    return size.columns or None, size.lines or None


def terminal_width(descriptor: int = 1) -> int | None:
    """Return the columns of the terminal behind a descriptor, None where there is none, or it does
    not say: nothing is cut then.
    """
    return terminal_size(descriptor)[0]


def wrap_width(most: int) -> int:
    """Return the columns at which a text of whole sentences is broken, on a terminal or not."""
    return min(most, terminal_width() or most)


KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


def format_bytes(number: float) -> str:
    """Return bytes in words, in steps of 1024: "1.32 GiB", "640 KiB", "1 byte"."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if number >= unit - unit / 2048:  # what would be rounded to 1024 of the next unit
            value = number / unit
            text = f"{value:.2f}".rstrip("0").rstrip(".") if value < 10 else f"{value:.0f}"
            return f"{text} {name}"
    return format_count(round(number), "byte")


def format_rate(number: float, seconds: float = 1.0) -> str:
    """Return how fast so many bytes in so many seconds are: "41 MiB/s", "3 bytes/s"; where it is
    less than one a second "1 byte in 5 s".
    """
    rate = number / max(seconds, 1e-3)
    if rate >= 1:
        return f"{format_bytes(rate)}/s"
    return f"{format_bytes(number)} in {seconds:.0f} s"
