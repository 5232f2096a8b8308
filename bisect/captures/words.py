"""Captures in words: the list, and what each rank does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from ..report.words import plain
from .listing import Listed, Listing, forms, total
from .state import State, gone, of_now
from .switch import Switch


def list_lines(listing: Listing, folder: str, width: int | None) -> Iterator[str]:
    """Yield a head, and a line for each capture, cut at `width`."""
    captures = listing.captures
    ranks = len({one.record.rank for one in captures})
    yield (
        f"{len(captures):,} captured input{_s(len(captures))} of {ranks} rank{_s(ranks)}, "
        f"{total(captures) / 1e6:,.1f} MB, in {folder}"
    )
    if not captures:
        return
    longest = max(len("module"), *(len(one.record.name) for one in captures))
    yield f"rank  at (UTC)             {'module':{longest}}  ended     inputs"
    for one in captures:
        line = _line(one, longest)
        yield line if width is None else line[:width]


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _line(one: Listed, longest: int) -> str:
    said = one.record
    outcome = one.outcome.partition(" ")[0] or "no"
    when = _utc(said.at)
    line = f"{said.rank:4}  {when}  {said.name:{longest}}  {outcome:8}  {forms(said)}"
    return plain(line)


def _utc(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) if at else f"{'unknown':19}"
    except (OverflowError, ValueError, OSError):
        return f"{'unknown':19}"


def status_lines(
    seen: Switch | None, states: Sequence[State], captures: Counter[int], host: str, folder: str
) -> Iterator[str]:
    """Yield whether it is on, and a line for each process that has seen it."""
    if seen is None:
        yield f"off, in {folder}; {captures.total():,} captured inputs are there"
        return
    limits = seen.limits
    yield (
        f"on since {_utc(seen.at)} UTC, in {folder}: at most {limits.captures:,} of each rank, "
        f"{limits.gigabytes:g} GB in all"
    )
    now = of_now(states, seen.at)
    if not now:
        yield (
            "no module has answered yet: each does at its next forward, if its job has the same "
            "folder and called hangbisect.capture(module)"
        )
    for one in now:
        does = f"stopped: {one.stopped}" if one.stopped else "captures"
        ended = ", has ended" if gone(one, host) else ""
        whose = f"rank {one.rank} ({one.host} pid {one.pid}{ended})"
        line = f"{whose}  {', '.join(one.modules)}  {captures[one.rank]:,} inputs  {does}"
        yield plain(line)
