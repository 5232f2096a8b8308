"""What starts show: where one hung or crashed, whether two hung in the same way, and what that
makes the result of a trial; how sure one can be of what was counted (intervals, p-values, numbers
of starts, all exact); and what a search asks, is told and returns.

A search is a generator: it yields an `Ask`, is sent the `Result` of a start, and returns a
`SearchResult`. It knows nothing of processes, limits or interruptions; the caller that drives it
may stop at any question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from math import ceil, comb, exp, lgamma, log, log1p
from typing import Literal, TypeVar

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Look
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import HangPlace, Result, Setting, Verdict
from ..base.words import format_ranks
from ..diagnosis.process.frames import unqualified_name
from ..toggles.command_toggles import find_usable_toggles
from ..toggles.table import TOGGLES
from ..toggles.toggle import Toggle

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
        trained=verdict.trained,
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
        trained=verdict.trained,
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
    """Return the Python stack of a process's main thread, () where none was seen. Without classes,
    which not every look tells.
    """
    main = look.main
    if main is None:
        return ()
    return tuple((f.file, unqualified_name(f.name)) for f in main.frames if not f.native)


def _stacks_in(ranks: Iterable[RankFacts], stuck: set[RankId]) -> Iterable[Stack]:
    for facts in ranks:
        if facts.rank in stuck:
            looks = [look for look in facts.looks if look.main and look.main.frames]
            yield from (main_stack(look) for look in looks[-1:])


def judge_trial(
    verdict: Verdict | None, place: HangPlace | None, known: HangPlace | None
) -> Result:
    """Return the result of a run that hung at `place` (None: it did not), or crashed there where a
    crash is in question; `known` is the one in question (None: any is).

    Only the same hang counts as one, and only a run that went well as a pass, or that trained until
    its limit, past the place in question: another crash, a hang elsewhere or a run that was
    interrupted says nothing about it.
    """
    if verdict and (verdict.outcome == "ok" or _trained_past(verdict, known)):
        return "pass"
    return (
        "hang" if place is not None and (known is None or is_same_place(known, place)) else "other"
    )


def _trained_past(verdict: Verdict, known: HangPlace | None) -> bool:
    """Return whether a run came to its limit in the midst of training, past the known hang."""
    if verdict.outcome != "slow" or verdict.trained is None:
        return False
    if known is None or known.trained is None:
        return True
    return 0 < known.trained < verdict.trained


def describe_ending(verdict: Verdict | None, trouble: str, *, with_outcome: bool = True) -> str:
    """Return in a line how a run ended: "hang at checkpoint 9 in wandb.init, rank 0".

    `trouble` is what is known of one that could not be judged, or of a crash, in a sentence.
    Without the outcome: where it ended, and why.
    """
    if verdict is None:
        return f"not judged: {trouble}" if trouble else "not judged"
    outcome = verdict.outcome
    if _trained_past(verdict, None):
        return "trained until --limit"
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


def interval(hangs: int, starts: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval for the rate of hangs, after `hangs` in `starts` starts.

    It covers the true rate with at least this confidence, whatever the rate: Clopper and Pearson,
    "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
    26 (1934). Raises ValueError for counts or a confidence that cannot be.
    """
    _check(hangs, starts, confidence)
    tail = (1 - confidence) / 2
    low, high = 0.0, 1.0
    if hangs > 0:
        low = _where(lambda rate: 1 - _at_most(hangs - 1, starts, rate), tail)
    if hangs < starts:
        high = 1 - _where(lambda rest: _at_most(hangs, starts, 1 - rest), tail)
    return low, high


def fisher(with_hangs: int, with_starts: int, hangs: int, starts: int) -> float:
    """Return how likely so few hangs with a change are by chance if the change does nothing.

    Fisher's exact test of two by two counts, one-sided: with the change against without it. 0 of 3
    against 3 of 3 is 0.05; 0 of 5 against 5 of 5 is 0.004. Raises ValueError for counts that
    cannot be.
    """
    _check(with_hangs, with_starts)
    _check(hangs, starts)
    all_hangs = with_hangs + hangs
    ways = sum(
        comb(with_starts, count) * comb(starts, all_hangs - count)
        for count in range(max(0, all_hangs - starts), with_hangs + 1)
    )
    return ways / comb(with_starts + starts, all_hangs)


def clean_starts(rate: float, confidence: float = 0.95) -> int:
    """Return after how many starts without a hang a rate as high as `rate` is ruled out.

    The fewest n with (1 - rate)^n <= 1 - confidence: 29 at 10 % and 95 %. Raises ValueError where
    one of them is not between 0 and 1.
    """
    if not 0 < rate <= 1 or not 0 < confidence < 1:
        raise ValueError(f"rate {rate}, confidence {confidence}: not between 0 and 1")
    if rate == 1:
        return 1
    return max(1, ceil(log(1 - confidence) / log1p(-rate) - 1e-9))


def _at_most(hangs: int, starts: int, rate: float) -> float:
    """Return the chance of at most `hangs` in `starts` starts at this rate (binomial)."""
    if rate <= 0:
        return 1.0
    if rate >= 1:
        return float(hangs >= starts)
    ways = lgamma(starts + 1)
    return sum(
        exp(
            ways
            - lgamma(count + 1)
            - lgamma(starts - count + 1)
            + count * log(rate)
            + (starts - count) * log1p(-rate)
        )
        for count in range(hangs + 1)
    )


def _where(rising: Callable[[float], float], target: float) -> float:
    """Return where a function that rises from 0 to 1 reaches `target`, within 1e-12."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return (low + high) / 2


def _check(hangs: int, starts: int, confidence: float = 0.95) -> None:
    if not 0 <= hangs <= starts:
        raise ValueError(f"{hangs} hangs in {starts} starts")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence}: not between 0 and 1")


CONFIRM = 3  # starts with what was found, and as many without it


@dataclass(frozen=True)
class StartEstimate:
    """How many starts a search takes."""

    about: int
    most: int  # if one toggle is to blame


def estimate_starts(remedies: Sequence[Toggle], confirm: int = CONFIRM) -> StartEstimate:
    """Return how many starts to expect: as it is, all safe, the search, walking back, confirming.

    About: if the first suspect is right. Most: if one toggle is to blame and nothing points to it.
    """
    back = max((len(toggle.values) - 2 for toggle in remedies), default=0)
    log = math.ceil(math.log2(max(2, len(remedies))))
    return StartEstimate(4 + back + 2 * confirm, 2 * log + 6 + back + 2 * confirm)


def estimate_proof(command: Sequence[str]) -> StartEstimate:
    """Return how many starts of a command to expect until it is proved what it hangs by."""
    remedies, _ = find_usable_toggles(command, {}, TOGGLES)
    return estimate_starts([toggle for toggle in remedies if toggle.kind == "remedy"])


T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """A toggle, and its values that are safer than the one the user runs, the safest last."""

    name: str
    values: tuple[str, ...]  # at least one

    @property
    def safest(self) -> str:
        """Its last value."""
        return self.values[-1]


@dataclass(frozen=True)
class Ask:
    """A setting to start, and why. `again`: a new start, even if the result is known."""

    setting: Setting
    why: str
    again: bool = False


@dataclass(frozen=True)
class TriedSetting:
    """A question that was answered, by a start of the job or by what was recorded of one."""

    number: int  # from 1
    setting: Setting
    result: Result
    why: str
    again: bool = False  # one of the starts that confirm what was found


# Starts the job under a setting, for the reason given. None: stop, there is no result.
Test = Callable[[Setting, str], Result | None]
Steps = Generator[Ask, Result, T]


def setting_key(setting: Setting) -> Hashable:
    """Return what two settings have in common if they name the same values."""
    return frozenset(setting.items())


def safest_setting(choices: Mapping[str, Choice], names: frozenset[str]) -> dict[str, str]:
    """Return the setting with those toggles at their safest, in the order of `choices`."""
    return {name: choice.safest for name, choice in choices.items() if name in names}


SearchOutcome = Literal[
    "found",  # `change` makes the hang go away
    "passes",  # as the user runs it, it does not hang, or more seldom than is waited for
    "ends otherwise",  # as the user runs it, it is neither past the place nor hung there
    "not avoided",  # with every toggle at its safest it still hangs
    "harmed",  # with every toggle at its safest it ends otherwise, and no set was seen to pass
    "comes and goes",  # a setting hung and passed
    "not confirmed",  # `change` passed once; of the starts that confirm no one with it did, or none
    # without it hung, and nothing speaks against it
    "stopped",  # a limit, or whoever runs it, ended the search: `change` is the best so far
]
# How well it is known that no smaller change passes. "every": each part of it was tried. "implied":
# each part was tried, or belongs to a set that hung. "each": no toggle of it can be left out, and
# not all parts that lack more were tried. "": not looked at to the end.
Proof = Literal["every", "implied", "each", ""]


@dataclass(frozen=True)
class StartCounts:
    """How often a setting was started, and how often it hung."""

    hangs: int = 0
    starts: int = 0  # that hung or passed
    others: int = 0  # crashes and the like, beside them


@dataclass(frozen=True)
class ProbeResult:
    """What a probe says about the hang, everything else as the user runs it."""

    probe: str
    hangs: str | None  # the safest value tried with which it hangs; None: as the user runs it
    passes: str | None  # the least value with which it passes; None: with none
    result: Result  # with its safest value


@dataclass(frozen=True)
class SearchResult:
    """The end of a search. Sets of names are in the order of preference."""

    outcome: SearchOutcome
    # The smallest change: values by toggle. Empty: none is known.
    change: Mapping[str, str] = field(default_factory=dict)
    proof: Proof = ""
    # Of `change`: without this one it does not hang, it crashes or hangs elsewhere. It goes along,
    # and is not accused.
    companions: tuple[str, ...] = ()
    harmful: tuple[str, ...] = ()  # left out: their safest values do harm of their own
    ruled_out: tuple[str, ...] = ()  # it hung with these at their safest: not it
    not_needed: tuple[str, ...] = ()  # it passes without these, and nothing more is known of them
    with_change: StartCounts = StartCounts()  # the starts that confirm, and no others
    without: StartCounts = StartCounts()
    p_value: float | None = None  # Fisher's, one-sided, of these; None: none were made
    described: tuple[ProbeResult, ...] = ()
    tried: tuple[TriedSetting, ...] = ()

    @property
    def minimal(self) -> bool:
        """Whether no smaller change passes, as far as a hang does not come back by safer values."""
        return self.proof in ("every", "implied")
