"""What probes say about a hang: "hangs at 2 ranks, not at 1". They describe, and accuse nobody."""

from __future__ import annotations

from .asking import Ask, Choice, Steps
from .found import Described


def described(probe: Choice) -> Steps[Described]:
    """Return what a probe says, everything else as the user runs it, where the job hangs.

    Its safest value first; if that passes, the others from the least change on, up to the first
    that passes.
    """
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
