"""The search for hangs that come and go. A pure function of `test`, as `search.search` is.

    found = search_flaky(choices, test, likely=("wandb",))

One hang under a setting proves that it does not avoid the hang, and ends it at once. Starts without
a hang prove nothing for certain, so "found" is said only where so many clean starts in a row would
be unlikely by chance:

1. The job is started as it is run until it has hung `HANGS` times, in n starts.
2. The search for the smallest change is the usual one. A setting passes there after few clean
   starts (`ProvisionalAnswers`).
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
from functools import cache
from itertools import count
from math import ceil, log2

from ..base.verdict_facts import Result, Setting
from .search import (
    Order,
    StartRecord,
    check_choices,
    count_starts,
    drive_search,
    order_choices,
    plan_search,
    summarize_search,
)
from .trial_results import (
    Ask,
    Choice,
    SearchResult,
    StartCounts,
    Test,
    clean_starts,
    fisher,
    setting_key,
)

HANGS = 4  # of the job as it is run, before the search


def search_flaky(
    choices: Sequence[Choice],
    test: Test,
    *,
    likely: Sequence[str] = (),
    recorded: Sequence[tuple[Setting, Result]] = (),
    same: Callable[[Setting], Hashable] = setting_key,
    confidence: float = 0.95,
    rarest: float = 0.05,
    max_trials: int | None = None,
) -> SearchResult:
    """Return the smallest change that avoids a hang that comes and goes, or why there is none.

    See search.search; `recorded` may come from there. `rarest`: a job that hangs less often is not
    waited for ("passes"). "stopped": `p_value` says how far `change` is from proven.

    What the diagnosis makes of the first hangs may say which choices there are, and which are
    `likely`: make_first_starts() makes these starts, to be handed in as `recorded`.

    Raises ValueError for a choice that stands twice or has no value, or a confidence not in (0, 1).
    """
    check_choices(choices, ())
    order = order_choices(choices, likely)
    record = StartRecord(test, recorded, same, max_trials)
    without, stopped = _start_as_run(record, clean_starts(rarest, confidence))
    if stopped:
        found = SearchResult("stopped")
    elif without.hangs < HANGS:
        found = SearchResult("passes" if without.starts else "ends otherwise")
    else:
        found = _prove_claim(record, order, without, 1 - confidence)
    claimed = [one.result for one in record.tried if one.again and one.setting == found.change]
    with_change = (
        count_starts(claimed or record.results(found.change)) if found.change else StartCounts()
    )
    return summarize_search(found, order.choices, record, with_change, without)


def make_first_starts(
    test: Test,
    *,
    recorded: Sequence[tuple[Setting, Result]] = (),
    confidence: float = 0.95,
    rarest: float = 0.05,
) -> None:
    """Make the starts as it is run with which search_flaky begins, those that are not recorded."""
    _start_as_run(StartRecord(test, recorded, setting_key, None), clean_starts(rarest, confidence))


def estimate_flaky_starts(toggles: int, rate: float, confidence: float = 0.95) -> int:
    """Return about how many starts a search takes, at this rate of hangs.

    As it is run until `HANGS` hangs; three settings that pass for now, and two claims' worth of
    clean starts; and for each cut of the toggles one hang. Measured: benchmarks/flaky_search.py.
    """
    without = StartCounts(HANGS, ceil(HANGS / rate))
    passing = 3 * clean_starts_needed(without, DOUBT) + clean_starts_needed(
        without, (1 - confidence) / 2
    )
    return ceil(without.starts + passing + 2 * log2(max(2, toggles)) / rate)


def _start_as_run(record: StartRecord, enough: int) -> tuple[StartCounts, bool]:
    """Return how often the job hangs as it is run, and whether the search is to stop.

    It is started until it has hung `HANGS` times. `enough` starts without a hang end it, and four
    times as many with fewer hangs: then it hangs too seldom to be searched.
    """
    results: list[Result] = []
    while results.count("hang") < HANGS and len(results) < enough * (4 if "hang" in results else 1):
        result = record.start(Ask({}, "as you run it"))
        if result is None:
            return count_starts(results), True
        results.append(result)
    return count_starts(results), False


def _prove_claim(
    record: StartRecord, order: Order, without: StartCounts, wrong: float
) -> SearchResult:
    """Return the first claim that stands. `wrong`: how often any may be wrong."""
    in_doubt = ProvisionalAnswers(record, order.choices, without)
    for number in count(1):
        claim = drive_search(plan_search(order), in_doubt.answer)
        if claim is None:
            return SearchResult("stopped", change=in_doubt.best())
        if claim.outcome != "found":
            return claim
        stands = _claim_stands(record, claim, clean_starts_needed(without, wrong / 2**number))
        if stands is None:
            return replace(claim, outcome="stopped")
        if stands:  # of two toggles or more each is known to be needed by what hung without it
            return replace(claim, proof="every" if len(claim.change) == 1 else "implied")
        in_doubt.be_stricter()
    raise AssertionError("each claim that fell leaves fewer settings that have not hung")


def _claim_stands(record: StartRecord, claim: SearchResult, clean: int) -> bool | None:
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


# How unlikely by chance the clean starts must be with which a setting passes for now; and by how
# much more for each setting that hung and is no safer. Of 0.05 to 0.4, and of 0.5 to 1, these took
# the fewest starts in benchmarks/flaky_search.py.
DOUBT = 0.2
_STRICTER = 0.9
_CRASHES = 3  # from so many on a setting may be said to crash


class ProvisionalAnswers:
    """Answers "hang" for certain, and "pass" for now: after few clean starts.

    A setting that hung once hangs, and so does every setting that is no safer. Whoever was wrong
    about a pass finds out by a hang later, and asks again, more strictly.
    """

    def __init__(
        self, record: StartRecord, choices: Sequence[Choice], without: StartCounts
    ) -> None:
        self._record, self._without = record, without
        self._values = {choice.name: choice.values for choice in choices}
        self._doubt = DOUBT
        self._passing: list[Setting] = []  # for now

    def answer(self, ask: Ask) -> Result | None:
        """Return what comes of a setting, by new starts as far as they are needed; None: stop."""
        hung = len(self._record.hung)
        result = self._started(ask, self._doubt)
        if result == "pass" and ask.setting not in self._passing:
            self._passing.append(ask.setting)
        if len(self._record.hung) > hung and not self._looked_above(ask.setting):
            return None
        return result

    def _started(self, ask: Ask, doubt: float) -> Result | None:
        clean = clean_starts_needed(self._without, doubt)
        results = self._record.results(ask.setting)
        while not self.hangs(ask.setting):
            if ends_otherwise(results):
                return "other"
            if results.count("pass") >= clean:
                return "pass"
            why = f"{ask.why} (clean start {results.count('pass') + 1} of {clean})"
            if self._record.start(replace(ask, why=why)) is None:
                return None
        return "hang"

    def _looked_above(self, setting: Setting) -> bool:
        """Start the next safer setting that passes for now again; return False to stop.

        The more hangs that is no safer than it, the likelier it hangs as well. To find that out
        late is dear: all that is no safer would be searched in vain.
        """
        safer = [one for one in self._passing if self._no_safer(setting, one)]
        safer = [one for one in safer if not self.hangs(one)]
        if not safer:
            return True
        least = min(safer, key=len)
        hung = sum(self._no_safer(one, least) for one in self._record.hung)
        ask = Ask(least, "does it pass, now that so much hangs?")
        return self._started(ask, self._doubt * _STRICTER**hung) is not None

    def be_stricter(self) -> None:
        """Halve the doubt: a setting that passed for now is asked for more clean starts."""
        self._doubt /= 2

    def hangs(self, setting: Setting) -> bool:
        """Return whether this setting hung, or one that is safer."""
        return any(self._no_safer(setting, hung) for hung in self._record.hung)

    def best(self) -> Setting:
        """Return the setting with the most clean starts, of these the one with the fewest toggles.

        None that hung, or that is no safer than one that did. Empty if there is none.
        """
        settings = [one.setting for one in self._record.tried if not self.hangs(one.setting)]

        def clean(setting: Setting) -> tuple[int, int]:
            return self._record.results(setting).count("pass"), -len(setting)

        best = max(settings, key=clean, default={})
        return best if clean(best)[0] else {}

    def _no_safer(self, one: Setting, other: Setting) -> bool:
        return all(
            name in other and values.index(one[name]) <= values.index(other[name])
            for name, values in self._values.items()
            if name in one
        )


def ends_otherwise(results: Sequence[Result]) -> bool:
    """Return whether a setting neither hangs nor passes: most starts, and three of them, crash."""
    crashes = results.count("other")
    return crashes >= _CRASHES and crashes > results.count("pass")


@cache
def clean_starts_needed(without: StartCounts, level: float) -> int:
    """Return how many clean starts against these make Fisher's exact p-value at most `level`."""

    def enough(clean: int) -> bool:
        return fisher(0, clean, without.hangs, without.starts) <= level

    most = 1
    while not enough(most):
        most *= 2
    too_few = most // 2
    while most - too_few > 1:
        middle = (most + too_few) // 2
        too_few, most = (too_few, middle) if enough(middle) else (middle, most)
    return most
