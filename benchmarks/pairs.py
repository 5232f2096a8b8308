"""Two things measured in alternating order, so that what else loads the machine loads both alike.

Benchmarks that have `--against PYTHON` measure this installation of hangbisect beside that of
another interpreter with it: the version before a change, say.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable, Sequence

MEASURE = Callable[[int], float]  # takes the number of the pair, from 0; returns what it measured


def measure_pairs(
    first: MEASURE, second: MEASURE, count: int, report: Callable[[int, float, float], None]
) -> tuple[list[float], list[float]]:
    """Measure `count` pairs (A B, B A, A B, ...); return the values of each side.

    `report` gets the number of a pair and its two values as soon as they are there.
    """
    firsts: list[float] = []
    seconds: list[float] = []
    for number in range(count):
        if number % 2:
            b = second(number)
            a = first(number)
        else:
            a = first(number)
            b = second(number)
        firsts.append(a)
        seconds.append(b)
        report(number, a, b)
    return firsts, seconds


def find_ratio(firsts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the median of the ratios second / first within each pair."""
    return statistics.median(_ratios(firsts, seconds))


def describe_ratio(firsts: Sequence[float], seconds: Sequence[float]) -> str:
    """Return the ratio in words, with its middle half: "ratio 1.012 (median of 20 pairs, ...)"."""
    ratios = _ratios(firsts, seconds)
    low, _, high = statistics.quantiles([*ratios, *ratios], n=4)  # twice: one pair will do
    return (
        f"ratio {statistics.median(ratios):.3f} (median of {len(ratios)} pairs, half of them from "
        f"{low:.3f} to {high:.3f})"
    )


def _ratios(firsts: Sequence[float], seconds: Sequence[float]) -> list[float]:
    return [b / a for a, b in zip(firsts, seconds, strict=True)]


def read_cpu() -> float:
    """Return the CPU seconds of all processes that were started here and have been waited for, and
    of theirs: what else loads the machine hardly changes it. Of monitors it knows nothing.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
