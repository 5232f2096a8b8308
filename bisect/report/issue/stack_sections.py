"""The stacks of a report: the one that matters unfolded, one of each other kind folded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..kept.run import KeptRun
from ..words import brief, counted
from .length import Section
from .plain import as_html, fenced, folded, lines_of

MOST_LINES = 120  # of the stack that matters
_LINES_OF_OTHERS = 80
MOST_OTHERS = 24  # blocks
_FILE = re.compile(r"rank-(\d{1,8})(?:-(.+)-(\d+))?\.txt")
_THREAD = re.compile(r"Thread |Current thread ")
# What no two processes share, and no stack is about.
_OWN = re.compile(r"\b(pid|Process|Thread|time:) \S+|0x[0-9a-f]+|\(\d+\)")


def stack_that_matters(run: KeptRun) -> list[Section]:
    """Return the first culprit's main thread, unfolded; its other threads folded."""
    name = _name_of_it(run)
    if name is None:
        return []
    lines = lines_of(run.stacks[name])
    end = _end_of_main(lines)
    shown, rest = lines[:end][:MOST_LINES], lines[:end][MOST_LINES:]
    more = [f"({counted(len(rest), 'more line')} in stacks/{name})"] if rest else []
    title = f"### The stack of {_title(name)}"
    text = f"{title}\n\n{fenced([*shown, *more])}"
    short = f"{title}\n\n{fenced([*shown[:30], f'(the rest is in stacks/{name})'])}"
    found = [Section(text, 90, f"most of the stack of {_title(name)} (stacks/{name})", short)]
    others = lines[end:]
    if others:
        body = fenced(others[: 2 * MOST_LINES])
        threads = sum(1 for line in others if _THREAD.match(line))
        summary = f"{counted(threads, 'other thread')} of {_title(name)}"
        found.append(Section(folded(summary, body), 40, f"{summary} (stacks/{name})"))
    return found


def tree_of_all(run: KeptRun) -> list[Section]:
    """Return all stacks as one tree, folded."""
    lines = lines_of(run.merged)
    if not lines:
        return []
    text = folded("The stacks of all ranks as one tree", fenced(lines[:200]))
    return [Section(text, 70, "the tree of all stacks (stacks/merged.txt)")]


def other_stacks(run: KeptRun) -> list[Section]:
    """Return one stack of each other kind, folded: those of ranks, then those of children; what
    the culprit waits for first.
    """
    matters = _name_of_it(run)
    alike: dict[str, list[str]] = {}
    for name in sorted(run.stacks, key=_order):
        if name != matters and _FILE.fullmatch(name):
            alike.setdefault(_kind(run.stacks[name]), []).append(name)
    awaited = (run.verdict.get("waits_for") or {}).get("pid")
    groups = sorted(alike.values(), key=lambda names: not _is_of(names[0], awaited))
    sections = [_group(run, names, awaited) for names in groups[:MOST_OTHERS]]
    left = groups[MOST_OTHERS:]
    if left:
        count = sum(map(len, left))
        told = f"{counted(count, 'more stack')} in the folder stacks/"
        sections.append(Section(told, 10, told, told))
    return sections


def _group(run: KeptRun, names: Sequence[str], awaited: object) -> Section:
    """Return the first of the stacks that are alike."""
    name = names[0]
    lines = lines_of(run.stacks[name])
    left = len(lines) - _LINES_OF_OTHERS
    more = [f"({counted(left, 'more line')} in stacks/{name})"] if left > 0 else []
    alike = f" (the same: {_those(names[1:])})" if len(names) > 1 else ""
    is_awaited = _is_of(name, awaited)
    summary = _title(name) + alike + (", which is waited for" if is_awaited else "")
    innermost = _innermost(lines)
    summary += f": {as_html(innermost, 120)}" if innermost else ""
    useful = 60 if is_awaited else 30 if _is_rank(name) else 20
    text = folded(summary, fenced([*lines[:_LINES_OF_OTHERS], *more]))
    return Section(text, useful, f"{_title(name)}{alike}")


# ---- names of files ------------------------------------------------------------------------------


def _name_of_it(run: KeptRun) -> str | None:
    """Return the file of the rank that it is about: a culprit's, else one that is stuck or dead."""
    ranks: Mapping[str, Any] = run.verdict.get("ranks", {})
    for role in ("culprit", "dead", "stuck"):
        for rank in ranks.get(role, ()):
            if f"rank-{rank}.txt" in run.stacks:
                return f"rank-{rank}.txt"
    of_ranks = sorted((n for n in run.stacks if _is_rank(n)), key=_order)
    return of_ranks[0] if of_ranks else None


def _is_rank(name: str) -> bool:
    found = _FILE.fullmatch(name)
    return found is not None and found[2] is None


def _order(name: str) -> tuple[int, int, str]:
    found = _FILE.fullmatch(name)
    return (1, 0, name) if found is None else (int(found[2] is not None), int(found[1]), name)


def _title(name: str) -> str:
    found = _FILE.fullmatch(name)
    if found is None:
        return as_html(name)
    who = f"rank {found[1]}"
    return who if found[2] is None else f"{as_html(found[2], 60)} ({found[3]}) of {who}"


def _those(names: Sequence[str]) -> str:
    ranks = [int(found[1]) for name in names if (found := _FILE.fullmatch(name)) and not found[2]]
    if len(ranks) == len(names):
        return f"rank{'s' if len(ranks) > 1 else ''} {brief(ranks)}"
    return f"{len(names)} more"


def _is_of(name: str, pid: object) -> bool:
    found = _FILE.fullmatch(name)
    return found is not None and pid is not None and found[3] == str(pid)


# ---- what they hold ------------------------------------------------------------------------------


def _end_of_main(lines: Sequence[str]) -> int:
    """Return where the main thread ends: a thread after it begins, or a log."""
    threads = [i for i, line in enumerate(lines) if _THREAD.match(line)]
    main = next((i for i in threads if "MainThread" in lines[i]), threads[0] if threads else None)
    if main is None or main != threads[0]:
        return len(lines)
    return threads[1] if len(threads) > 1 else len(lines)


def _innermost(lines: Sequence[str]) -> str:
    """Return the innermost frame of Python, of the first thread; else the innermost."""
    begin = next((i for i, line in enumerate(lines) if _THREAD.match(line)), len(lines))
    frames = [
        line.strip() for line in lines[begin : _end_of_main(lines)] if line.startswith("    ")
    ]
    return next((frame for frame in frames if ".py:" in frame), frames[0] if frames else "")


def _kind(text: str) -> str:
    """Return what stacks have in common that are of one kind: their frames."""
    frames = [line for line in text.splitlines() if line.startswith(("    ", "no stack", "state:"))]
    return _OWN.sub("", "\n".join(frames))
