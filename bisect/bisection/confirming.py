"""What was found, started again with and without."""

from __future__ import annotations

from ..facts import Result, Setting
from .asking import Ask, Steps
from .found import Answer


def confirmed(change: Setting, times: int) -> Steps[Answer]:
    """Return "found" if starts bear `change` out, "comes and goes" if one contradicts it.

    Both the job with it and the job without it are started `times` times, by turns, so that what
    changes on the machine meanwhile meets both; the first contradiction, a hang with it or a pass
    without, ends it. What ends otherwise says nothing for or against: where no start with it passed
    or none without it hung it is "not confirmed". Without any starts nothing is asked: "found".
    """
    with_it: list[Result] = []
    without: list[Result] = []
    for number in range(1, times + 1):
        why = f"confirms, {number} of {times}: "
        with_it.append((yield Ask(change, why + "with the change", again=True)))
        if with_it[-1] == "hang":
            return "comes and goes"
        without.append((yield Ask({}, why + "without it", again=True)))
        if without[-1] == "pass":
            return "comes and goes"
    return "found" if not times or ("pass" in with_it and "hang" in without) else "not confirmed"
