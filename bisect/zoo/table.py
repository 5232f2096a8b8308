"""The table that `zoo run` prints, a row a case."""

from __future__ import annotations

from collections.abc import Sequence

from .comparing import Answer
from .shelf import Kept

_WIDTHS = (5, 46, 34, 10, 32, 5)
HEAD = ("case", "what", "located", "component", "cause", "s")


def head() -> str:
    """Return the row of names."""
    return _row(HEAD)


def row(answer: Answer) -> str:
    """Return the row of a case; the last column: seconds to the verdict after the clock ran out."""
    if answer.skipped:
        return _row((answer.id, answer.title, f"skipped: {answer.skipped}"))
    located = "right" if answer.located else "WRONG " + ", ".join(answer.wrong)
    after = "" if answer.to_verdict is None else f"{answer.to_verdict:.1f}"
    component = _said(answer.component, answer.said.get("component"))
    cause = _said(answer.cause, answer.said.get("cause"))
    if answer.confidence is not None and answer.cause:
        cause += f" {answer.confidence:.2f}"
    return _row((answer.id, answer.title, located, component, cause, after))


def _said(right: str, said: object) -> str:
    return f"WRONG {said}" if right == "wrong" else right or "-"


def _row(cells: Sequence[str]) -> str:
    """Return cells side by side. One that is too wide pushes the others on: nothing is cut."""
    return "  ".join(
        f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=False)
    ).rstrip()


def listed(shelf: Sequence[Kept], why_not: Sequence[str]) -> str:
    """Return the list of all cases; `why_not`: why each cannot be run here, "" if it can."""
    lines = []
    for kept, why in zip(shelf, why_not, strict=True):
        case = kept.case
        size = f"{case.ranks} rank{'s' if case.ranks > 1 else ''}"
        lines.append(
            f"{case.id:5} {case.truth.outcome:5} {case.cluster:8} {size:8} {case.title}"
            + (f"  ({why})" if why else "")
        )
    return "\n".join(lines)


def shown(kept: Kept, why_not: str) -> str:
    """Return all there is to tell of one case."""
    case, truth = kept.case, kept.case.truth
    facts = {
        "outcome": truth.outcome,
        "culprit": _numbers(truth.culprit),
        "waiting": _numbers(truth.waiting),
        "checkpoint": truth.checkpoint,
        "component": _any(truth.component),
        "waits for": " ".join([_any(truth.waits_for), truth.detail]).strip(),
        "cause": _any(truth.cause),
        "avoided by": _any(truth.avoids),
        "slow step": truth.slow,
        "ranks": f"{case.ranks}, started by {case.launcher}",
        "reports": ", ".join(case.reports),
        "not here": why_not,
        "file": str(kept.file),
    }
    lines = [f"{name:11} {value}" for name, value in facts.items() if value]
    return "\n".join([f"{case.id}  {case.title}", "", kept.story, "", *lines])


def _any(accepted: Sequence[str]) -> str:
    return " or ".join(accepted)


def _numbers(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks)) if ranks else ""
