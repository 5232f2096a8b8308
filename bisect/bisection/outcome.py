"""What all trials of a search say, beside the change it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..facts import Result, Setting
from .asking import Choice, Tried
from .confidence import fisher
from .found import Found, Starts
from .record import Record


def best_so_far(record: Record) -> Setting:
    """Return the change with the fewest toggles that passed and never hung, the latest of them.

    Empty if none did.
    """
    passed = [
        one.setting
        for one in record.tried
        if one.setting and one.result == "pass" and "hang" not in record.results(one.setting)
    ]
    return min(reversed(passed), key=len, default={})


def starts(results: Sequence[Result]) -> Starts:
    """Return how many of these hung; what neither passed nor hung is counted apart."""
    others = results.count("other")
    return Starts(results.count("hang"), len(results) - others, others)


def p_value(with_change: Starts, without: Starts) -> float | None:
    """Return how likely so large a difference is by chance; None without starts on both sides."""
    if not with_change.starts or not without.starts:
        return None
    return fisher(with_change.hangs, with_change.starts, without.hangs, without.starts)


def summed_up(
    found: Found, choices: Sequence[Choice], record: Record, with_change: Starts, without: Starts
) -> Found:
    """Return `found` with what follows from all that was tried: ruled out, not needed, p-value."""
    tried = tuple(record.tried)
    others = [c for c in choices if c.name not in found.change and c.name not in found.harmful]
    ruled_out = tuple(choice.name for choice in others if _hung_with(choice, tried))
    rest = tuple(choice.name for choice in others if choice.name not in ruled_out)
    return replace(
        found,
        ruled_out=ruled_out,
        not_needed=rest if found.change else (),
        with_change=with_change,
        without=without,
        p_value=p_value(with_change, without),
        tried=tried,
    )


def _hung_with(choice: Choice, tried: Sequence[Tried]) -> bool:
    """Return whether it hung with this toggle at its safest."""
    return any(
        one.result == "hang" and one.setting.get(choice.name) == choice.safest for one in tried
    )
