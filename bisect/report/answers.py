"""What an isolation or a matrix found, in words once more."""

from __future__ import annotations

from collections.abc import Sequence

from ..bisection.isolation import Isolation
from .isolation import answer_lines, clock, table_lines
from .kept.readers import reader
from .kept.run import KeptRun
from .kept.trials import Trial
from .words import counted, cut, one_line, printable

_SHORT = 60  # characters of a setting


def answer_again(run: KeptRun, folder: str, width: int | None = None) -> list[str]:
    """Return the lines of the answer, as at its end; as much of it as can be read."""
    found = isolation_of(run)
    if found is not None:
        return answer_lines(found, folder=folder, width=width)
    results = [trial.result or "not run" for trial in run.trials]
    counts = ", ".join(f"{results.count(one)} {one}" for one in dict.fromkeys(results))
    title = run.answer.get("title") or run.answer.get("scenario")
    head = f"{run.kind}  {one_line(title)}  " if isinstance(title, str) else f"{run.kind}  "
    return [cut(f"{head}{counted(len(results), 'start')}: {counts}", width), *rows(run, width)]


def rows(run: KeptRun, width: int | None = None) -> list[str]:
    """Return a head and a row for each trial, all of them."""
    found = isolation_of(run)
    if found is not None:
        return [cut(printable(line), width) for line in table_lines(found)]
    return [cut(printable(line), width) for line in _rows(run.trials)]


def isolation_of(run: KeptRun) -> Isolation | None:
    """Return what isolation.json was written from; None if it does not hold that."""
    if run.kind != "isolation":
        return None
    try:
        found: Isolation = reader(Isolation)(run.answer)
    except (TypeError, ValueError, OverflowError):
        return None
    return found


def _rows(trials: Sequence[Trial]) -> list[str]:
    names = [cut(one_line(trial.name), _SHORT) for trial in trials]
    wide = max(map(len, ["name", *names]))
    lines = [f" #  {'name':<{wide}}  {'time':>6}  result"]
    for trial, name in zip(trials, names, strict=True):
        took = "" if trial.seconds is None else clock(trial.seconds)
        told = " ".join(part for part in (trial.result or "not run", one_line(trial.where)) if part)
        lines.append(f"{trial.number:>2}  {name:<{wide}}  {took:>6}  {told}")
    return lines
