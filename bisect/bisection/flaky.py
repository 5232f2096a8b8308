"""The search for hangs that come and go. A pure function of `test`, as `search.search` is.

    found = search_flaky(choices, test, likely=("wandb",))

One hang under a setting proves that it does not avoid the hang, and ends it at once. Starts without
a hang prove nothing for certain, so "found" is said only where so many clean starts in a row would
be unlikely by chance:

1. The job is started as it is run until it has hung `HANGS` times, in n starts.
2. The search for the smallest change is the usual one. A setting passes there after few clean
   starts (in_doubt.py).
3. What it returns is claimed, and tested with new starts alone, so that what led to the claim does
   not count for it. It stands when Fisher's exact p-value of these against the n starts is at most
   (1 - confidence) / 2 for the first claim, half of that for the second, and so on: together all
   claims are wrong at most as often as 1 - confidence. One hang refutes a claim, and the search
   goes on with what it knows then.

The counts stop at the last of `HANGS` hangs, not after a fixed number of starts; the rule keeps its
level for every rate all the same (tests/bisection/test_flaky.py computes it).

A setting with a safer value is taken to hang no more often. A change that only makes the hang rarer
may stand: the interval of its starts (confidence.interval) says how rare it is at most. The caller
leaves out barriers between ranks, which may hide such a hang.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count
from math import ceil, log2

from ..facts import Result, Setting
from .asking import Ask, Choice, Test, by_values
from .confidence import clean_starts
from .found import Found, Starts
from .in_doubt import DOUBT, InDoubt, ends_otherwise, needed
from .outcome import starts, summed_up
from .plan import Order, ordered, plan
from .record import Record, checked, driven

HANGS = 4  # of the job as it is run, before the search


def search_flaky(
    choices: Sequence[Choice],
    test: Test,
    *,
    likely: Sequence[str] = (),
    recorded: Sequence[tuple[Setting, Result]] = (),
    same: Callable[[Setting], Hashable] = by_values,
    confidence: float = 0.95,
    rarest: float = 0.05,
    max_trials: int | None = None,
) -> Found:
    """Return the smallest change that avoids a hang that comes and goes, or why there is none.

    See search.search; `recorded` may come from there. `rarest`: a job that hangs less often is not
    waited for ("passes"). "stopped": `p_value` says how far `change` is from proven.

    What the diagnosis makes of the first hangs may say which choices there are, and which are
    `likely`: first_starts() makes these starts, to be handed in as `recorded`.

    Raises ValueError for a choice that stands twice or has no value, or a confidence not in (0, 1).
    """
    checked(choices, ())
    order = ordered(choices, likely)
    record = Record(test, recorded, same, max_trials)
    without, stopped = _as_run(record, clean_starts(rarest, confidence))
    if stopped:
        found = Found("stopped")
    elif without.hangs < HANGS:
        found = Found("passes" if without.starts else "ends otherwise")
    else:
        found = _proven(record, order, without, 1 - confidence)
    claimed = [one.result for one in record.tried if one.again and one.setting == found.change]
    with_change = starts(claimed or record.results(found.change)) if found.change else Starts()
    return summed_up(found, order.choices, record, with_change, without)


def first_starts(
    test: Test,
    *,
    recorded: Sequence[tuple[Setting, Result]] = (),
    confidence: float = 0.95,
    rarest: float = 0.05,
) -> None:
    """Make the starts as it is run with which search_flaky begins, those that are not recorded."""
    _as_run(Record(test, recorded, by_values, None), clean_starts(rarest, confidence))


def expected_starts(toggles: int, rate: float, confidence: float = 0.95) -> int:
    """Return about how many starts a search takes, at this rate of hangs.

    As it is run until `HANGS` hangs; three settings that pass for now, and two claims' worth of
    clean starts; and for each cut of the toggles one hang. Measured: benchmarks/flaky_search.py.
    """
    without = Starts(HANGS, ceil(HANGS / rate))
    passing = 3 * needed(without, DOUBT) + needed(without, (1 - confidence) / 2)
    return ceil(without.starts + passing + 2 * log2(max(2, toggles)) / rate)


def _as_run(record: Record, enough: int) -> tuple[Starts, bool]:
    """Return how often the job hangs as it is run, and whether the search is to stop.

    It is started until it has hung `HANGS` times. `enough` starts without a hang end it, and four
    times as many with fewer hangs: then it hangs too seldom to be searched.
    """
    results: list[Result] = []
    while results.count("hang") < HANGS and len(results) < enough * (4 if "hang" in results else 1):
        result = record.start(Ask({}, "as you run it"))
        if result is None:
            return starts(results), True
        results.append(result)
    return starts(results), False


def _proven(record: Record, order: Order, without: Starts, wrong: float) -> Found:
    """Return the first claim that stands. `wrong`: how often any may be wrong."""
    in_doubt = InDoubt(record, order.choices, without)
    for number in count(1):
        claim = driven(plan(order), in_doubt.answer)
        if claim is None:
            return Found("stopped", change=in_doubt.best())
        if claim.outcome != "found":
            return claim
        stands = _stands(record, claim, needed(without, wrong / 2**number))
        if stands is None:
            return replace(claim, outcome="stopped")
        if stands:  # of two toggles or more each is known to be needed by what hung without it
            return replace(claim, proof="every" if len(claim.change) == 1 else "implied")
        in_doubt.be_stricter()
    raise AssertionError("each claim that fell leaves fewer settings that have not hung")


def _stands(record: Record, claim: Found, clean: int) -> bool | None:
    """Return whether that many new starts with the claim's change do not hang; None: stopped."""
    results: list[Result] = []
    while results.count("pass") < clean:
        why = f"tests the claim: clean start {results.count('pass') + 1} of {clean}"
        result = record.start(Ask(claim.change, why, again=True))
        if result is None:
            return None
        results.append(result)
        if result == "hang" or ends_otherwise(results):
            return False
    return True
