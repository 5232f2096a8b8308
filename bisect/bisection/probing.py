"""What probes say about a hang: "hangs at 2 ranks, not at 1". They describe, and accuse nobody."""

from __future__ import annotations

from collections.abc import Sequence

from .asking import Ask, Choice, Steps
from .found import Described


def described(probes: Sequence[Choice]) -> Steps[tuple[Described, ...]]:
    """Return what each probe says, everything else as the user runs it, where the job hangs.

    Its safest value first; if that passes, the others from the least change on, up to the first
    that passes.
    """
    found = []
    for probe in probes:
        found.append((yield from _described(probe)))
    return tuple(found)


def _described(probe: Choice) -> Steps[Described]:
    why = f"a probe: does it hang with {probe.name}={{}}?"
    result = yield Ask({probe.name: probe.safest}, why.format(probe.safest))
    if result != "pass":
        return Described(probe.name, probe.safest if result == "hang" else None, None, result)
    hangs = None
    for value in probe.values[:-1]:
        milder = yield Ask({probe.name: value}, why.format(value))
        if milder == "pass":
            return Described(probe.name, hangs, value, "pass")
        if milder == "hang":
            hangs = value
    return Described(probe.name, hangs, probe.safest, "pass")


def told(one: Described, as_run: str | None) -> str | None:
    """Return what a probe says as words, None if it says nothing. `as_run`: its value as run."""
    before = (
        f"{one.probe}={one.hangs or as_run}" if one.hangs or as_run else "the value as you run it"
    )
    if one.passes is not None:
        return f"hangs with {before}, not with {one.probe}={one.passes}"
    return f"hangs with {one.probe}={one.hangs} as well" if one.hangs else None
