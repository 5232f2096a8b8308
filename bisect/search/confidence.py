"""How sure one can be of what was counted: intervals, p-values, numbers of starts, all exact; and
how many starts a search takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, comb, exp, lgamma, log, log1p

from ..toggles.command_toggles import find_usable_toggles
from ..toggles.table import TOGGLES
from ..toggles.toggle import Toggle


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

    About: a suspect of the diagnosis is it. Most: one toggle is, and nothing points to it.
    """
    back = max((len(toggle.values) - 2 for toggle in remedies), default=0)
    log = math.ceil(math.log2(max(2, len(remedies))))
    return StartEstimate(4 + back + 2 * confirm, 2 * log + 6 + back + 2 * confirm)


def estimate_proof(command: Sequence[str]) -> StartEstimate:
    """Return how many starts of a command to expect until it is proved what it hangs by."""
    remedies, _ = find_usable_toggles(command, {}, TOGGLES)
    return estimate_starts([toggle for toggle in remedies if toggle.kind == "remedy"])
