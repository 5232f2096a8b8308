"""Wall clocks of nodes that are apart: what checks the time believes one of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.rank_facts import ClockOffset
from ..base.words import format_seconds

FAR = 2.0  # seconds: what synchronises clocks keeps them within a few milliseconds (chrony, ntpd)


def describe_clocks_apart(clocks: Sequence[ClockOffset]) -> str:
    """Return in words which two clocks are farthest apart, "" where that is less than FAR, or less
    than what is known of them.
    """
    if len(clocks) < 2:
        return ""
    first = min(clocks, key=lambda one: one.ahead)
    last = max(clocks, key=lambda one: one.ahead)
    apart = last.ahead - first.ahead
    if apart - first.error - last.error <= FAR:
        return ""
    return f"the clock of {first.host} is {format_seconds(apart)} behind that of {last.host}"
