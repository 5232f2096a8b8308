"""What is right and what is wrong in the answer to a case, the shares of many, and the table that
`zoo run` prints, a row a case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..base.facts import RankId, Verdict, Wait
from ..base.json_codec import to_json
from ..base.words import format_ranges, format_ranks
from .case import Case, Truth
from .case_files import CaseFile

FIRST_CANDIDATES = 3  # candidates among which the right one must be
TOO_SURE = 0.8  # a wrong cause must not be said with more confidence

Right = Literal["right", "unknown", "wrong", ""]  # "": not asked


@dataclass(frozen=True)
class Answer:
    """One case's answer, compared with the truth."""

    id: str
    title: str
    control: bool  # it must not be called a hang; else it is one that must be found
    wrong: tuple[str, ...] = ()  # what is wrong of outcome, culprit, checkpoint, ..., in words
    among_first: bool = True
    component: Right = ""
    cause: Right = ""
    said: Mapping[str, Any] = field(default_factory=dict)  # the tool's words on what was compared
    confidence: float | None = None  # of its cause
    blamed: tuple[int, ...] = ()  # ranks that only wait, and were called culprits
    to_verdict: float | None = None  # seconds after the clock ran out
    seconds: float = 0.0  # of the whole job
    skipped: str = ""  # why it was not run
    left: tuple[str, ...] = ()  # processes that the job left behind

    @property
    def located(self) -> bool:
        """Outcome, ranks, checkpoint and what is waited for are right."""
        return not self.wrong

    @property
    def good(self) -> bool:
        """Nothing that was said is wrong; that the cause is not known is not."""
        return self.located and "wrong" not in (self.component, self.cause)


def is_control(case: Case) -> bool:
    """Return whether a case must not be called a hang."""
    return case.truth.outcome in ("ok", "crash")


def compare_verdict(case: Case, verdict: Verdict | None, seconds: float = 0.0) -> Answer:
    """Return what is right of `verdict` (None: there was none)."""
    truth = case.truth
    if verdict is None:
        return Answer(
            case.id,
            case.title,
            is_control(case),
            wrong=("no verdict",),
            among_first=False,
            cause=_compare_cause(truth, None),
            seconds=seconds,
        )
    culprit, cause = verdict.ranks.culprit, verdict.cause
    wrong = _find_wrong(truth, verdict)
    return Answer(
        case.id,
        case.title,
        is_control(case),
        wrong=wrong,
        among_first=not wrong or _is_among_first(truth, verdict),
        component=_compare_component(truth, verdict),
        cause=_compare_cause(truth, cause.id if cause else None),
        said={
            "outcome": verdict.outcome,
            "culprit": list(culprit),
            "checkpoint": verdict.checkpoint.name if verdict.checkpoint else None,
            "component": verdict.component,
            "call": verdict.call,
            "waits_for": to_json(verdict.waits_for),
            "cause": cause.id if cause else None,
        },
        confidence=cause.confidence if cause else None,
        blamed=tuple(rank for rank in culprit if rank in truth.waiting),
        to_verdict=verdict.seconds.to_verdict,
        seconds=seconds,
    )


def _find_wrong(truth: Truth, verdict: Verdict) -> tuple[str, ...]:
    if verdict.outcome != truth.outcome:
        return (f"outcome {verdict.outcome}",)
    if truth.outcome == "ok":
        listed = [step.phase or step.name for step in verdict.slow_steps]
        listed += [step.name for step in verdict.slow_steps]
        return () if truth.slow in (None, *listed) else (f"slow steps {listed or 'none'}",)
    wrong = []
    culprit = set(verdict.ranks.culprit)
    if truth.outcome == "crash":
        right = bool(culprit) and culprit <= set(truth.culprit) if truth.culprit else True
    else:
        right = culprit == set(truth.culprit)
    if not right:
        wrong.append(f"culprit {_format_culprits(culprit)}")
    checkpoint = verdict.checkpoint.name if verdict.checkpoint else None
    if truth.checkpoint and checkpoint != truth.checkpoint:
        wrong.append(f"checkpoint {checkpoint}")
    return (*wrong, *_find_wrong_wait(truth, verdict.waits_for))


def _find_wrong_wait(truth: Truth, wait: Wait | None) -> tuple[str, ...]:
    kind = wait.kind if wait else "nothing"
    if truth.waits_for and kind not in truth.waits_for:
        return (f"waits for {kind}",)
    told = f"{wait.process or ''} {wait.detail}" if wait else ""
    return () if re.search(truth.detail, told) else (f"detail {told.strip()!r}",)


def _is_among_first(truth: Truth, verdict: Verdict) -> bool:
    return any(
        set(one.ranks) == set(truth.culprit)
        and (not truth.component or one.component in truth.component)
        for one in verdict.candidates[:FIRST_CANDIDATES]
    )


def _compare_component(truth: Truth, verdict: Verdict) -> Right:
    if not truth.component:
        return ""
    return "right" if verdict.component in truth.component else "wrong"


def _compare_cause(truth: Truth, said: str | None) -> Right:
    """A truth without a cause: then none may be said of a hang, and nothing is asked of others."""
    if not truth.cause:
        return ""
    if said is None or said == "unknown":
        return "right" if "unknown" in truth.cause else "unknown"
    return "right" if said in truth.cause else "wrong"


def _format_culprits(ranks: set[RankId]) -> str:
    return format_ranges(ranks) or "none"


def format_shares(answers: Sequence[Answer]) -> str:
    """Return the last line: how many of all were right, skipped ones left out."""
    run = [answer for answer in answers if not answer.skipped]
    hangs = [answer for answer in run if not answer.control]
    controls = [answer for answer in run if answer.control]
    caused = [answer for answer in run if answer.cause]
    sure = [a for a in caused if a.cause == "wrong" and (a.confidence or 0.0) > TOO_SURE]
    blamed = sum(len(answer.blamed) for answer in run)
    false = [answer for answer in controls if answer.said.get("outcome") in ("hang", "slow")]
    among = sum(answer.among_first for answer in hangs)
    causes = sum(answer.cause == "right" for answer in caused)
    return ", ".join(
        [
            f"located {_format_share(sum(a.located for a in hangs), len(hangs))}",
            f"among the first three candidates {among} of {len(hangs)}",
            f"cause {_format_share(causes, len(caused))}",
            f"wrong above {TOO_SURE}: {len(sure)}" if sure else f"never wrong above {TOO_SURE}",
            f"waiting ranks blamed {blamed}",
            f"controls: {len(false)} false hangs of {len(controls)}",
        ]
    )


def _format_share(right: int, of: int) -> str:
    return f"{right} of {of}" + (f" ({100 * right / of:.0f} %)" if of else "")


_WIDTHS = (5, 46, 34, 10, 32, 5)
COLUMNS = ("case", "what", "located", "component", "cause", "s")


def format_head() -> str:
    """Return the row of names."""
    return _join_cells(COLUMNS)


def format_answer(answer: Answer) -> str:
    """Return the row of a case; the last column: seconds to the verdict after the clock ran out."""
    if answer.skipped:
        return _join_cells((answer.id, answer.title, f"skipped: {answer.skipped}"))
    located = "right" if answer.located else "WRONG " + ", ".join(answer.wrong)
    after = "" if answer.to_verdict is None else f"{answer.to_verdict:.1f}"
    component = _format_part(answer.component, answer.said.get("component"))
    cause = _format_part(answer.cause, answer.said.get("cause"))
    if answer.confidence is not None and answer.cause:
        cause += f" {answer.confidence:.2f}"
    return _join_cells((answer.id, answer.title, located, component, cause, after))


def _format_part(right: str, said: object) -> str:
    return f"WRONG {said}" if right == "wrong" else right or "-"


def _join_cells(cells: Sequence[str]) -> str:
    """Return cells side by side. One that is too wide pushes the others on: nothing is cut."""
    return "  ".join(
        f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=False)
    ).rstrip()


def list_cases(cases: Sequence[CaseFile], why_not: Sequence[str]) -> str:
    """Return the list of all cases; `why_not`: why each cannot be run here, "" if it can."""
    lines = []
    for kept, why in zip(cases, why_not, strict=True):
        case = kept.case
        size = f"{case.ranks} rank{'s' if case.ranks > 1 else ''}"
        lines.append(
            f"{case.id:5} {case.truth.outcome:5} {case.cluster:8} {size:8} {case.title}"
            + (f"  ({why})" if why else "")
        )
    return "\n".join(lines)


def describe_case(kept: CaseFile, why_not: str) -> str:
    """Return all there is to tell of one case."""
    case, truth = kept.case, kept.case.truth
    facts = {
        "outcome": truth.outcome,
        "culprit": format_ranks(truth.culprit),
        "waiting": format_ranks(truth.waiting),
        "checkpoint": truth.checkpoint,
        "component": _join_accepted(truth.component),
        "waits for": " ".join([_join_accepted(truth.waits_for), truth.detail]).strip(),
        "cause": _join_accepted(truth.cause),
        "avoided by": _join_accepted(truth.avoids),
        "slow step": truth.slow,
        "ranks": f"{case.ranks}, started by {case.launcher}",
        "reports": ", ".join(case.reports),
        "not here": why_not,
        "file": str(kept.file),
    }
    lines = [f"{name:11} {value}" for name, value in facts.items() if value]
    return "\n".join([f"{case.id}  {case.title}", "", kept.story, "", *lines])


def _join_accepted(accepted: Sequence[str]) -> str:
    return " or ".join(accepted)
