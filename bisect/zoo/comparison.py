"""What is right and what is wrong in the answer to a case, the shares of many, and the table that
`zoo run` prints, a row a case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from ..base.identity import RankId
from ..base.json_codec import to_json
from ..base.outcomes import STANDS_STILL
from ..base.verdict_facts import Cause, Level, Verdict, Wait
from ..base.words import format_ranges, format_ranks
from .case import Case, Truth, Under
from .case_files import CaseFile

Asks = Literal["hang", "crash", "control"]  # a control must not be called either
Right = Literal["right", "unknown", "wrong", ""]  # "": not asked


@dataclass(frozen=True)
class ComparedAnswer:
    """One case's answer, compared with the truth."""

    id: str
    title: str
    asks: Asks
    wrong: tuple[str, ...] = ()  # what is wrong of outcome, culprit, checkpoint, ..., in words
    component: Right = ""
    cause: Right = ""
    untold: tuple[str, ...] = ()  # what is wrong of call, chain and explanation, in words
    explained: Right = ""
    said: Mapping[str, Any] = field(default_factory=dict)  # the tool's words on what was compared
    level: Level | None = None  # of its cause
    blamed: tuple[int, ...] = ()  # ranks that only wait, and were called culprits
    to_verdict: float | None = None  # seconds after the clock ran out
    seconds: float = 0.0  # of the whole job
    skipped: str = ""  # why it was not run
    left: tuple[str, ...] = ()  # processes that the job left behind
    under: Under = "pipeline"

    @property
    def located(self) -> bool:
        """Outcome, ranks, checkpoint and what is waited for are right."""
        return not self.wrong

    @property
    def good(self) -> bool:
        """Nothing that was said is wrong; that the cause is not known is not."""
        return self.located and "wrong" not in (self.component, self.cause, self.explained)


def find_what_is_asked(case: Case) -> Asks:
    """Return what is to be seen in a case. A job that is slow beyond its limit counts as a hang."""
    outcomes: dict[str, Asks] = {"ok": "control", "crash": "crash"}
    return outcomes.get(case.truth.outcome, "hang")


def compare_verdict(
    case: Case, verdict: Verdict | None, seconds: float = 0.0, under: Under = "pipeline"
) -> ComparedAnswer:
    """Return what is right of `verdict` (None: there was none).

    A script of one's own has neither the steps nor the parts of a pipeline: under `run` and
    `attach` checkpoint and component are not compared.
    """
    truth = case.truth
    if under != "pipeline":
        truth = replace(truth, checkpoint=None, component=(), slow=None)
    asked = find_what_is_asked(case)
    if verdict is None:
        # A control may have ended well before `attach` had looked: then nothing was called a hang.
        ended_well = under == "attach" and asked == "control"
        return ComparedAnswer(
            case.id,
            case.title,
            asked,
            wrong=() if ended_well else ("no verdict",),
            cause=_compare_cause(truth, None),
            seconds=seconds,
            under=under,
        )
    culprit, cause = verdict.ranks.culprit, verdict.cause
    right_cause = _compare_cause(truth, cause.id if cause else None)
    untold = tuple(_find_untold(truth, verdict, right_cause == "right"))
    return ComparedAnswer(
        case.id,
        case.title,
        asked,
        wrong=_find_wrong(truth, verdict, under),
        component=_compare_component(truth, verdict),
        cause=right_cause,
        untold=untold,
        explained="wrong" if untold else "right" if _asks_for_words(truth) else "",
        said=_what_is_said(verdict),
        level=cause.level if cause else None,
        blamed=tuple(rank for rank in culprit if rank in truth.waiting),
        to_verdict=verdict.seconds.to_verdict,
        seconds=seconds,
        under=under,
    )


def _what_is_said(verdict: Verdict) -> dict[str, Any]:
    cause = verdict.cause
    return {
        "outcome": verdict.outcome,
        "culprit": list(verdict.ranks.culprit),
        "checkpoint": verdict.checkpoint.name if verdict.checkpoint else None,
        "component": verdict.component,
        "call": verdict.call,
        "waits_for": to_json(verdict.waits_for),
        "chain": [f"{edge.source} -> {edge.target}" for edge in verdict.chain],
        "cause": cause.id if cause else None,
        "why": _join_explanation(cause),
    }


def _asks_for_words(truth: Truth) -> bool:
    return bool(truth.call or truth.chain or truth.explained_by)


def _find_untold(truth: Truth, verdict: Verdict, is_cause_right: bool) -> Iterable[str]:
    """Yield what the call, the chain and the explanation lack. What explains another cause than
    the right one counts as a wrong cause alone.
    """
    if not re.search(truth.call, verdict.call or ""):
        yield f"call {verdict.call}"
    edges = [f"{edge.source} -> {edge.target}" for edge in verdict.chain]
    for asked in truth.chain:
        if not any(re.search(asked, edge) for edge in edges):
            yield f"chain without {asked}"
    explanation = _join_explanation(verdict.cause)
    for fact in truth.explained_by if is_cause_right else ():
        if not re.search(fact, explanation):
            yield f"not said {fact}"


def _join_explanation(cause: Cause | None) -> str:
    """Return the sentences of a cause that explain it: why, and the facts that speak for it."""
    return " ".join((cause.why, *cause.matched)) if cause else ""


def _find_wrong(truth: Truth, verdict: Verdict, under: Under) -> tuple[str, ...]:
    if truth.outcome == "ok" and under == "attach":
        # It looks in the middle of a wait that will end: that it stands still is no accusation.
        return ("outcome hang",) if verdict.outcome == "hang" else ()
    outcome = "hang" if verdict.outcome in STANDS_STILL else verdict.outcome
    if outcome != truth.outcome:
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
        right = culprit == set(truth.culprit) or (
            under == "attach" and culprit == set(truth.culprit_by_stacks) and bool(culprit)
        )
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
    text = f"{wait.process or ''} {wait.detail}" if wait else ""
    return () if re.search(truth.detail, text) else (f"detail {text.strip()!r}",)


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


def format_shares(answers: Sequence[ComparedAnswer]) -> str:
    """Return the last line: how many of all were right, skipped ones left out."""
    run = [answer for answer in answers if not answer.skipped]
    hangs, crashes, controls = (
        [answer for answer in run if answer.asks == asked] for asked in get_args(Asks)
    )
    caused = [answer for answer in run if answer.cause]
    wrong = [a.level for a in caused if a.cause == "wrong"]
    fitting = [a for a in caused if a.level == "fits"]
    blamed = sum(len(answer.blamed) for answer in run)
    false = [a for a in controls if a.wrong and a.said.get("outcome") in ("hang", "slow")]
    causes = sum(answer.cause == "right" for answer in caused)
    worded = [answer.explained == "right" for answer in run if answer.explained]
    return ", ".join(
        [
            f"located {_format_share(sum(a.located for a in hangs), len(hangs))}",
            f"crashes {_format_share(sum(a.located for a in crashes), len(crashes))}",
            f"cause {_format_share(causes, len(caused))}",
            f"explained {_format_share(sum(worded), len(worded))}",
            f"wrong of those called seen {wrong.count('seen')}",
            f"wrong of those that fit {wrong.count('fits')} of {len(fitting)}",
            f"waiting ranks blamed {blamed}",
            f"controls: {len(false)} false hangs of {len(controls)}",
        ]
    )


def format_shares_of_ways(answers: Sequence[ComparedAnswer]) -> str:
    """Return the last lines: the shares of each way in which cases were started."""
    ways = list(dict.fromkeys(answer.under for answer in answers))
    if len(ways) < 2:
        return format_shares(answers)
    lines = [f"{way:8}  {format_shares([a for a in answers if a.under == way])}" for way in ways]
    both = [_format_sameness(answers)] if {"run", "attach"} <= {*ways} else []
    return "\n".join(lines + both)


def _format_sameness(answers: Sequence[ComparedAnswer]) -> str:
    """Return for how many hangs and crashes the same was said under `run` and by `attach`: who is
    to blame, and why; and which others those are.
    """
    asked = [a for a in answers if a.asks != "control" and not a.skipped]
    by_attach = {answer.id: answer for answer in asked if answer.under == "attach"}
    pairs = [(a, by_attach[a.id]) for a in asked if a.under == "run" and a.id in by_attach]
    found = {run.id: _find_differences(run, attach) for run, attach in pairs}
    others = [f"{id} ({', '.join(words)})" for id, words in found.items() if words]
    text = f"same answer in both ways: {_format_share(len(found) - len(others), len(found))}"
    return f"{text}, not {', '.join(others)}" if others else text


def _find_differences(run: ComparedAnswer, attach: ComparedAnswer) -> list[str]:
    """Return in what two answers to one case differ, in words."""
    for one in (run, attach):
        if not one.said:
            by = "attach" if one.under == "attach" else "run"
            return [] if not (run.said or attach.said) else [f"no verdict by {by}"]
    pairs = {
        "outcome": [_name_outcome(one.said["outcome"]) for one in (run, attach)],
        "culprit": [_format_culprits({*one.said["culprit"]}) for one in (run, attach)],
        "cause": [one.said["cause"] or "unknown" for one in (run, attach)],
    }
    return [f"{name} {a} and {b}" for name, (a, b) in pairs.items() if a != b]


def _name_outcome(outcome: str) -> str:
    """Return an outcome; what stands still is one, whether a proof came by then or not."""
    return "hang" if outcome in STANDS_STILL else outcome


def _format_share(right: int, of: int) -> str:
    return f"{right} of {of}" + (f" ({100 * right / of:.0f} %)" if of else "")


_WIDTHS = (5, 46, 34, 10, 32, 5)
COLUMNS = ("case", "what", "located", "component", "cause", "s")


def format_head() -> str:
    """Return the row of names."""
    return _join_cells(COLUMNS)


def format_answer(answer: ComparedAnswer) -> str:
    """Return the row of a case; the last column: seconds to the verdict after the clock ran out."""
    if answer.skipped:
        return _join_cells((answer.id, answer.title, f"skipped: {answer.skipped}"))
    located = "right" if answer.located else "WRONG " + ", ".join(answer.wrong)
    after = "" if answer.to_verdict is None else f"{answer.to_verdict:.1f}"
    component = _format_part(answer.component, answer.said.get("component"))
    cause = _format_part(answer.cause, answer.said.get("cause"))
    if answer.level is not None and answer.cause:
        cause += f" {answer.level}"
    if answer.untold:
        cause += f", WRONG {', '.join(answer.untold)}"
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


_WHERE = {
    "": "",
    "anywhere": "on any rank",
    "first": "on rank 0",
    "everywhere": "on every rank",
}


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
        "call": truth.call,
        "chain": ", ".join(truth.chain),
        "explained": ", ".join(truth.explained_by),
        "avoided by": _join_accepted(truth.avoids),
        "slow step": truth.slow,
        "ranks": f"{case.ranks}, started by {case.launcher}",
        "other worlds": case.culprit_goes and f"the culprit goes {_WHERE[case.culprit_goes]}",
        "ways": ", ".join(case.under),
        "reports": ", ".join(case.reports),
        "not here": why_not,
        "file": str(kept.file),
    }
    lines = [f"{name:12} {value}" for name, value in facts.items() if value]
    return "\n".join([f"{case.id}  {case.title}", "", kept.story, "", *lines])


def _join_accepted(accepted: Sequence[str]) -> str:
    return " or ".join(accepted)


def _format_culprits(ranks: set[RankId]) -> str:
    return format_ranges(ranks) or "none"
