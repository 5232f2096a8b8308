"""What a trial's verdict means for the question that was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..facts import HangPlace, Result
from .hang_place import same


def result_of(
    verdict: Mapping[str, Any] | None, place: HangPlace | None, known: HangPlace | None
) -> Result:
    """Return the result of a run that hung at `place` (None: it did not), or crashed there where a
    crash is in question; `known` is the one in question (None: any is).

    Only the same hang counts as one, and only a run that went well as a pass: another crash, a hang
    elsewhere or a run that was interrupted says nothing about it.
    """
    outcome = verdict["outcome"] if verdict else None
    if outcome == "ok":
        return "pass"
    return "hang" if place is not None and (known is None or same(known, place)) else "other"


def in_words(verdict: Mapping[str, Any] | None, trouble: str, *, with_outcome: bool = True) -> str:
    """Return in a line how a run ended: "hang at checkpoint 9 in wandb.init, rank 0".

    `trouble` is what is known of one that could not be judged, or of a crash, in a sentence.
    Without the outcome: where it ended, and why.
    """
    if verdict is None:
        return f"not judged: {trouble}" if trouble else "not judged"
    outcome = str(verdict["outcome"])
    if outcome == "ok":
        past = [note for note in verdict.get("notes", ()) if note.startswith("ended on purpose")]
        return past[0].partition(": ")[2].replace("every rank was ", "") if past else "to its end"
    parts = [outcome]
    if where := verdict.get("checkpoint"):
        numbered = where["number"] is not None
        parts.append(f"at checkpoint {where['number']}" if numbered else f"at {where['name']}")
        parts += [f"({where['phase']})"] if where.get("phase") else []
    parts += [f"in {verdict['call']}"] if verdict.get("call") else []
    text = " ".join(parts)
    if culprit := verdict["ranks"]["culprit"]:
        text += f", rank{'s' if len(culprit) > 1 else ''} {', '.join(map(str, culprit[:4]))}"
        text += " ..." if len(culprit) > 4 else ""
    cause = verdict.get("cause")
    if outcome == "crash" and (cause or trouble):
        text += f": {cause['title'] if cause else trouble}"
    return text if with_outcome else text.removeprefix(outcome).lstrip(" ,:")
