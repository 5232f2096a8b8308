"""Whether a rank that computes in the same few places waits in a loop, or is at work. Pure.

A loop that waits by looking runs Python, in a few lines of one function of the job's own, and keeps
nothing. Who works for so long in one place is in a library's or a native function, or needs more
memory for what it makes. What neither tells stays open.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnosis.frames import owner
from ..facts import Frame, Look, RankFacts

LOOKS = 6  # at the least
SPAN = 8.0  # seconds from the first to the last
LINES = 3  # of a loop that waits
KEPT = 1 << 20  # bytes by which its memory may change


def spins(facts: RankFacts, package: str) -> bool:
    """Return whether all looks at a rank show it in the same few lines of its own, running Python,
    and keeping nothing.
    """
    looks = [look for look in facts.looks if look.main is not None and look.main.frames]
    if not facts.busy or len(looks) < LOOKS or looks[-1].at - looks[0].at < SPAN:
        return False
    innermost = [_innermost(look) for look in looks]
    places = {(f.file, f.name) for f in innermost}
    lines = {f.line for f in innermost}
    own = all(owner(f, package) == "user" for f in innermost)
    return (
        own and len(places) == 1 and len(lines) <= LINES and _runs_python(looks) and _keeps(looks)
    )


def _innermost(look: Look) -> Frame:
    assert look.main is not None
    return look.main.frames[0]


def _runs_python(looks: Sequence[Look]) -> bool:
    """Return whether the main thread had the GIL in most looks."""
    return 2 * sum(look.main is not None and look.main.owns_gil for look in looks) > len(looks)


def _keeps(looks: Sequence[Look]) -> bool:
    sizes = [look.memory for look in looks if look.memory is not None]
    return bool(sizes) and max(sizes) - min(sizes) <= KEPT
