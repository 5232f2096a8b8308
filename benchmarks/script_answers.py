"""What is right in the answer to a script, and the shares of many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from script_shelf import NO_NUMBER, Script, Truth

PARTS = ("rank", "step", "call")


@dataclass(frozen=True)
class Answer:
    """The answer to one script, compared with its truth."""

    name: str
    flavour: str
    outcome: str  # that it says; "no verdict"
    right: Mapping[str, bool]  # by PARTS
    said: Mapping[str, Any] = field(default_factory=dict)
    blamed: tuple[int, ...] = ()  # ranks that only wait
    seconds: float = 0.0  # run: from the start to the verdict; attach: of the command
    false_hang: bool = False  # it must not be called one
    cause: Literal["right", "unknown", "WRONG", ""] = ""  # "": not asked
    unsaid: tuple[str, ...] = ()  # what is to be said, and is not
    denied: tuple[int, ...] = ()  # ranks that are there, or were, called never started

    @property
    def good(self) -> bool:
        """All of it is right; that the cause is not known is not wrong."""
        return (
            all(self.right.values())
            and not self.blamed
            and self.cause != "WRONG"
            and not self.unsaid
        )


def compare(
    script: Script, verdict: Mapping[str, Any], seconds: float, watched: bool = True
) -> Answer:
    """Return what is right of `verdict`, the object of verdict.json ({}: there was none).

    Not `watched` from its start, a script that hangs in its own code has no step that is known.
    """
    truth = script.truth
    if not verdict and truth.outcome == "ok" and not watched:  # it has ended before it was asked
        fine = dict.fromkeys(PARTS, True)
        return Answer(script.name, script.flavour, "ended", fine, seconds=seconds)
    if not verdict:
        none = dict.fromkeys(PARTS, False)
        return Answer(script.name, script.flavour, "no verdict", none, seconds=seconds)
    outcome = verdict["outcome"]
    culprit = frozenset(
        one if isinstance(one, int) else NO_NUMBER for one in verdict["ranks"]["culprit"]
    )
    hang = truth.outcome == "hang"
    # A hang of which nothing but the silence is known is called one only at its step's deadline.
    found = "hang" if outcome == "silent" else outcome
    same = found == truth.outcome or (truth.busy and not watched and outcome == "slow")
    same = same or (truth.ends and outcome == "crash")
    same = same or (not hang and outcome not in ("hang", "crash"))
    accepted = truth.culprits if watched else (*truth.culprits, *truth.culprits_by_stacks)
    right = {
        "rank": same and (not hang or culprit in accepted),
        "step": same and (not hang or _step(truth, verdict, watched)),
        "call": same and (not hang or _call(truth, verdict)),
    }
    return Answer(
        script.name,
        script.flavour,
        outcome,
        right,
        said=said(verdict),
        blamed=() if culprit in accepted else tuple(sorted(culprit & truth.waiting)),
        seconds=seconds,
        false_hang=not hang and outcome == "hang",
        cause=_cause(truth, verdict),
        denied=tuple(
            one
            for one in verdict["ranks"]["never_started"]
            if isinstance(one, int) and one not in truth.absent
        ),
        unsaid=tuple(one for one in truth.says if not re.search(one, _words(verdict))),
    )


def said(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a verdict that are compared, and those that explain them."""
    checkpoint = verdict["checkpoint"] or {}
    cause = verdict.get("cause") or {}
    return {
        "culprit": verdict["ranks"]["culprit"],
        "step": checkpoint.get("name"),
        "title": checkpoint.get("title"),
        "phase": checkpoint.get("phase"),
        "call": verdict["call"],
        "frame": verdict["frame"],
        "component": verdict["component"],
        "waits_for": verdict["waits_for"],
        "cause": cause.get("id"),
        "never_started": verdict["ranks"]["never_started"],
        "dead": verdict["ranks"]["dead"],
    }


def _step(truth: Truth, verdict: Mapping[str, Any], watched: bool) -> bool:
    checkpoint = verdict["checkpoint"]
    if checkpoint is None:
        return truth.own_code and not watched
    if checkpoint["number"] is None and checkpoint["name"] == "script":
        return checkpoint["title"].partition(" after ")[2] in truth.after
    return bool({checkpoint["name"], checkpoint["phase"]} & set(truth.steps))


def _cause(truth: Truth, verdict: Mapping[str, Any]) -> Literal["right", "unknown", "WRONG", ""]:
    said = (verdict.get("cause") or {}).get("id") or "unknown"
    if not truth.causes:
        return ""
    return "right" if said in truth.causes else "unknown" if said == "unknown" else "WRONG"


def _words(verdict: Mapping[str, Any]) -> str:
    """Return what a verdict says to a reader: its reason, its cause, what it waits for."""
    cause = verdict.get("cause") or {}
    roles = [(one.get("role"), one.get("ended")) for one in verdict.get("where", ())]
    told = (verdict["waits_for"], verdict["chain"], cause.get("why"), *cause.get("matched", ()))
    told = (*told, roles)
    return "\n".join(map(str, told))


def _call(truth: Truth, verdict: Mapping[str, Any]) -> bool:
    call = verdict["call"] or ""
    return any(re.search(one, call) for one in truth.calls)


def head() -> str:
    """Return the row of names."""
    return _row(("script", "flavour", "outcome", *PARTS, "cause", "s", "said where it is wrong"))


def row(answer: Answer) -> str:
    """Return the row of a script."""
    marks = ["right" if answer.right[part] else "WRONG" for part in PARTS]
    wrong = [f"{name} {value}" for name, value in _wrong(answer).items()]
    return _row(
        (
            answer.name,
            answer.flavour,
            answer.outcome,
            *marks,
            answer.cause or "-",
            f"{answer.seconds:.1f}",
            "; ".join(wrong),
        )
    )


def _wrong(answer: Answer) -> dict[str, Any]:
    names = {"rank": ("culprit",), "step": ("step", "title", "phase"), "call": ("call",)}
    cause = {"cause": answer.said.get("cause")} if answer.cause == "WRONG" else {}
    if answer.unsaid:
        cause["unsaid"] = answer.unsaid
    if answer.denied:
        cause["denied"] = answer.denied
    return cause | {
        name: answer.said.get(name)
        for part in PARTS
        if not answer.right[part]
        for name in names[part]
    }


def shares(answers: Sequence[Answer]) -> str:
    """Return the last lines: how many are right, by part and by flavour."""
    of = len(answers)
    parts = [f"{part} {_share(sum(a.right[part] for a in answers), of)}" for part in PARTS]
    asked = [answer for answer in answers if answer.cause]
    if asked:
        parts.append(f"cause {_share(sum(a.cause == 'right' for a in asked), len(asked))}")
        parts.append(f"wrong cause {sum(a.cause == 'WRONG' for a in asked)}")
    lines = [f"all right {_share(sum(a.good for a in answers), of)}: {', '.join(parts)}"]
    for flavour in sorted({answer.flavour for answer in answers}):
        own = [answer for answer in answers if answer.flavour == flavour]
        lines.append(f"  {flavour}: {_share(sum(a.good for a in own), len(own))}")
    blamed = sum(len(answer.blamed) for answer in answers)
    denied = sum(bool(answer.denied) for answer in answers)
    lines += [f"waiting ranks blamed: {blamed}"]
    return "\n".join([*lines, f"who exists called never started: {_share(denied, of)}"])


def _share(right: int, of: int) -> str:
    return f"{right} of {of}" + (f" ({100 * right / of:.0f} %)" if of else "")


def _row(cells: Sequence[str]) -> str:
    widths = (36, 12, 11, 5, 5, 5, 7, 6, 0)
    return "  ".join(f"{c:{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()
