"""Where a run hung or crashed, whether two runs hung in the same way, and what that makes the
result of a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base.facts import HangPlace, Look, RankFacts, RankId, Result, Verdict
from ..base.words import format_ranks

Stack = tuple[tuple[str, str], ...]  # (file, function), innermost first


def hang_place_of(verdict: Verdict, ranks: Iterable[RankFacts]) -> HangPlace:
    """Return where a run hung, by its verdict and what was seen of its ranks."""
    where = verdict.checkpoint
    stuck = {*verdict.ranks.culprit, *verdict.ranks.stuck}
    return HangPlace(
        checkpoint=where.name if where else None,
        phase=where.phase if where else None,
        call=verdict.call,
        component=verdict.component,
        stacks=tuple(dict.fromkeys(_stacks_in(ranks, stuck))),
    )


def crash_place_of(verdict: Verdict, ranks: Iterable[RankFacts]) -> HangPlace:
    """Return where a run crashed, and by what kind of error, by the same."""
    where = verdict.checkpoint
    errors = [one.error for one in ranks if one.rank in verdict.ranks.culprit]
    kind = next((error.partition(":")[0].strip() for error in errors if error), "")
    return HangPlace(
        checkpoint=where.name if where else None,
        phase=where.phase if where else None,
        component=verdict.component,
        crash=kind or "an exit",
    )


def is_same_place(known: HangPlace, other: HangPlace) -> bool:
    """Return whether two runs hung in the same way: in the same step and phase, and in the same
    call or with a stack in common. Lines do not count: a loop may wait at any of its own.

    Two crashes are the same in the same step and phase, by the same kind of error.
    """
    if (known.checkpoint, known.phase) != (other.checkpoint, other.phase):
        return False
    if known.crash or other.crash:
        return known.crash == other.crash
    if known.call is not None and known.call == other.call:
        return True
    if set(known.stacks) & set(other.stacks):
        return True
    unseen = not (known.stacks and other.stacks) and None in (known.call, other.call)
    return unseen and known.component == other.component


def shows_known_hang(known: HangPlace, looks: Sequence[Look]) -> bool:
    """Return whether the last of `looks` that has a stack has one of those of the known hang."""
    found = next((stack for look in reversed(looks) if (stack := main_stack(look))), None)
    return found in known.stacks if found else False


def main_stack(look: Look) -> Stack:
    """Return the Python stack of a process's main thread, () where none was seen."""
    main = look.main
    if main is None:
        return ()
    return tuple((f.file, _without_class(f.name)) for f in main.frames if not f.native)


def _stacks_in(ranks: Iterable[RankFacts], stuck: set[RankId]) -> Iterable[Stack]:
    for facts in ranks:
        if facts.rank in stuck:
            looks = [look for look in facts.looks if look.main and look.main.frames]
            yield from (main_stack(look) for look in looks[-1:])


def _without_class(name: str) -> str:
    """Return a function's name without its class, which not every look tells."""
    return name.rpartition(".")[2]


def judge_trial(
    verdict: Verdict | None, place: HangPlace | None, known: HangPlace | None
) -> Result:
    """Return the result of a run that hung at `place` (None: it did not), or crashed there where a
    crash is in question; `known` is the one in question (None: any is).

    Only the same hang counts as one, and only a run that went well as a pass: another crash, a hang
    elsewhere or a run that was interrupted says nothing about it.
    """
    if verdict and verdict.outcome == "ok":
        return "pass"
    return (
        "hang" if place is not None and (known is None or is_same_place(known, place)) else "other"
    )


def describe_ending(verdict: Verdict | None, trouble: str, *, with_outcome: bool = True) -> str:
    """Return in a line how a run ended: "hang at checkpoint 9 in wandb.init, rank 0".

    `trouble` is what is known of one that could not be judged, or of a crash, in a sentence.
    Without the outcome: where it ended, and why.
    """
    if verdict is None:
        return f"not judged: {trouble}" if trouble else "not judged"
    outcome = verdict.outcome
    if outcome == "ok":
        past = [note for note in verdict.notes if note.startswith("ended on purpose")]
        return past[0].partition(": ")[2].replace("every rank was ", "") if past else "to its end"
    parts: list[str] = [outcome]
    if where := verdict.checkpoint:
        numbered = where.number is not None
        parts.append(f"at checkpoint {where.number}" if numbered else f"at {where.name}")
        parts += [f"({where.phase})"] if where.phase else []
    parts += [f"in {verdict.call}"] if verdict.call else []
    text = " ".join(parts)
    if culprit := verdict.ranks.culprit:
        text += f", {format_ranks(culprit)}"
    if outcome == "crash" and (verdict.cause or trouble):
        text += f": {verdict.cause.title if verdict.cause else trouble}"
    return text if with_outcome else text.removeprefix(outcome).lstrip(" ,:")
