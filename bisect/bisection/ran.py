"""What came of the cells of a matrix. Facts only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# "killed": what started or watched it was ended from outside, so nobody judged it. "not started":
# there was nothing to watch. "interrupted": the matrix was.
Came = Literal["ok", "slow", "hang", "crash", "killed", "not started", "interrupted"]

# A cell that ended in one of these has been judged: nobody needs to run it again.
JUDGED = ("ok", "slow", "hang", "crash")
# One that ended in another way ended at any time: how long others take it does not tell.
TO_THEIR_END = ("ok", "slow", "hang")
SIGNALLED = 128  # what a shell adds to the number of the signal that ended a process
EXIT_STATUS: Mapping[Came, int] = {
    "ok": 0,
    "slow": 4,
    "not started": 5,
    "killed": 5,
    "crash": 5,
    "hang": 3,
    "interrupted": 130,
}


@dataclass(frozen=True)
class Ran:
    """A cell that was run."""

    number: int
    name: str
    setting: Mapping[str, str]
    result: Came
    where: str  # "at checkpoint 9 in wandb.init, rank 0"; why it was not started; "" if well
    seconds: float
    command: tuple[str, ...]
    environment: Mapping[str, str]  # set beside the user's own
    run_dir: str
    mark: str  # tells a cell from all others, today and after an interruption
    cause: str | None = None  # id in the catalogue of causes


def result_of(verdict: Mapping[str, Any] | None, status: int | None, stopped: bool) -> Came:
    """Return the result of a cell. `status` is that of `hangbisect run`, None if it was killed;
    `stopped`: we ended it.
    """
    outcome = verdict["outcome"] if verdict else None
    if stopped:
        return "interrupted"
    if status is None or outcome == "interrupted" or (outcome is None and status > SIGNALLED):
        return "killed"
    if outcome not in JUDGED:
        return "not started"
    came: Came = outcome
    return came


def why_unjudged(came: Came, status: int | None, trouble: str) -> str:
    """Return why a cell was not judged; `trouble` is what its launch says of it."""
    if came != "killed" or status is None:
        return "" if came == "interrupted" else trouble
    by = f" by signal {status - SIGNALLED}" if status > SIGNALLED and status != 130 else ""
    return f"its launcher was ended from outside{by}"


def exit_status(results: Iterable[Came]) -> int:
    """Return the exit status of a matrix: of the worst cell."""
    worst = {"ok": 0, "slow": 1, "not started": 2, "killed": 3, "crash": 4, "hang": 5}
    order = {**worst, "interrupted": 6}
    return EXIT_STATUS[max(results, key=lambda result: order[result], default="ok")]


def seconds_left(
    ended: Iterable[float], under_way: Iterable[float], waiting: int, jobs: int
) -> float | None:
    """Return about how long the rest takes: as long a cell as those that have `ended` took, and
    those that have taken longer already.

    `under_way` are the seconds that running cells have had. None while nothing has ended.
    """
    known, now = list(ended), list(under_way)
    if not known:
        return None
    usual = sum(known) / len(known)
    known += [had for had in now if had > usual]
    each = sum(known) / len(known)
    running = [max(each - had, 0.0) for had in now]
    work = sum(running) + waiting * each
    return max([work / jobs, *running])
