"""The search: which smallest change makes a hang go away. A pure function of `test`.

    found = search(choices, test, likely=("wandb",))

`choices` are the remedies, in the order of preference: `Choice(name, values)`, with the values that
are safer than the user's, the safest last (`safer(toggle, current)`). `test(setting, why)` starts
the job under a setting (values by toggle; one that is not named is as the user runs it) and returns
"pass", "hang" or "other"; `why` is for the table of trials. It returns None to stop: then what is
known so far is returned as `SearchResult("stopped", ...)`.

`likely`   names that the diagnosis advises, the best first: each is tried alone. It comes from the
           verdict on the job as it is run: make that trial first, and hand it in as `recorded`.
`probes`   `Choice`s that describe the hang once it is found ("hangs at 2 ranks, not at 1").
`recorded` (setting, result) of an interrupted search, in order: it is answered from these first,
           and goes on at the same place. They are in `SearchResult.tried` like any other.
`same`     settings with an equal value of it are started once: what is really started, if two
           settings may come to the same (`format_command(apply_setting(...))`).
`confirm`  how often the change is started again, and as often the job without it; 0: not at all.
           3 and 3 make p = 0.05, 5 and 5 make 0.004. A contradiction is "comes and goes"; where all
           of them end otherwise it is "not confirmed".
`max_trials` ends it, recorded trials included. What was found before stands where only probes are
           left: then as many of them are told as there are answers of.

A search for hangs that come and go has the same form and result: `flaky_search.search_flaky`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import TypeVar

from ..base.lazy_dataclass import dataclass
from ..base.verdict_facts import Result, Setting
from .minimal_set import (
    HarmfulToggles,
    Holds,
    Names,
    ToggleSets,
    find_companions,
    find_harmful,
    find_smallest,
    prove_minimal,
)
from .trial_results import (
    Ask,
    Choice,
    ProbeResult,
    SearchOutcome,
    SearchResult,
    StartCounts,
    Steps,
    Test,
    TriedSetting,
    fisher,
    setting_key,
)


def search(
    choices: Sequence[Choice],
    test: Test,
    *,
    likely: Sequence[str] = (),
    probes: Sequence[Choice] = (),
    recorded: Sequence[tuple[Setting, Result]] = (),
    same: Callable[[Setting], Hashable] = setting_key,
    confirm: int = 3,
    max_trials: int | None = None,
) -> SearchResult:
    """Return the smallest change that makes the hang go away, or why there is none (see above).

    Raises ValueError for a choice that stands twice or has no value.
    """
    check_choices(choices, probes)
    order = order_choices(choices, likely)
    record = StartRecord(test, recorded, same, max_trials)
    found = drive_search(_confirm_result(plan_search(order), confirm), record.answer)
    if found is None:
        found = SearchResult("stopped", change=best_change_so_far(record))
    elif found.outcome in ("found", "not avoided", "harmed"):
        found = replace(found, described=_run_probes(probes, record))
    return _count_confirming_starts(found, order.choices, record)


def confirm_known_change(change: Setting, test: Test, confirm: int = 3) -> SearchResult:
    """Return what new starts say of a change that has avoided the hang once, as search() does."""
    record = StartRecord(test, (), setting_key, None)
    outcome = drive_search(confirm_change(change, confirm), record.answer)
    return _count_confirming_starts(SearchResult(outcome or "stopped", change=change), (), record)


def _count_confirming_starts(
    found: SearchResult, choices: Sequence[Choice], record: StartRecord
) -> SearchResult:
    """Return `found` with what the starts that confirm say."""
    again = [one for one in record.tried if one.again]
    with_change = count_starts([one.result for one in again if one.setting])
    without = count_starts([one.result for one in again if not one.setting])
    return summarize_search(found, choices, record, with_change, without)


def _confirm_result(steps: Steps[SearchResult], confirm: int) -> Steps[SearchResult]:
    """Return what `steps` find, confirmed."""
    found = yield from steps
    if found.outcome != "found":
        return found
    return replace(found, outcome=(yield from confirm_change(found.change, confirm)))


def _run_probes(probes: Sequence[Choice], record: StartRecord) -> tuple[ProbeResult, ...]:
    """Return what the probes say, up to the first that finds no answer: whoever starts stops."""
    found: list[ProbeResult] = []
    for probe in probes:
        one = drive_search(probe_hang(probe), record.answer)
        if one is None:
            break
        found.append(one)
    return tuple(found)


@dataclass(frozen=True)
class Order:
    """The remedies in the order of preference, and how many of the first are advised."""

    choices: tuple[Choice, ...]
    likely: int

    def without(self, names: Names) -> Order:
        """Return the order without these."""
        left = tuple(choice for choice in self.choices if choice.name not in names)
        advised = sum(choice.name not in names for choice in self.choices[: self.likely])
        return Order(left, advised)


def order_choices(choices: Sequence[Choice], likely: Sequence[str]) -> Order:
    """Return `choices` with those that are likely first, in that order; unknown names pass."""
    by_name = {choice.name: choice for choice in choices}
    first = [by_name[name] for name in dict.fromkeys(likely) if name in by_name]
    rest = [choice for choice in choices if choice not in first]
    return Order((*first, *rest), len(first))


def plan_search(order: Order) -> Steps[SearchResult]:
    """Return the smallest change that passes, each of its values walked back; or why there is none.

    Before any search, the job as it is run must hang, and with all toggles at their safest it must
    pass. Where that ends otherwise, the toggles that do the harm are found and left out.
    """
    sets = ToggleSets(order.choices)
    as_run = yield from sets.result((), "as you run it")
    if as_run != "hang":
        return SearchResult("passes" if as_run == "pass" else "ends otherwise")
    everything = frozenset(sets.choices)
    all_safe = yield from sets.result(everything, "everything at its safest")
    if all_safe == "hang":
        return SearchResult("not avoided")
    guess = yield from _find_single_toggle(sets, order)
    rest = HarmfulToggles(frozenset(), "pass")
    if all_safe == "other":
        rest = yield from find_harmful(sets)
    if rest.result != "pass":
        return SearchResult("harmed", harmful=sets.ordered(rest.harmful))
    names = guess or (yield from _find_by_halves(sets, order.without(rest.harmful)))
    return (yield from _prove_answer(sets, names, rest.harmful))


def _prove_answer(sets: ToggleSets, passing: Names, harm: Names) -> Steps[SearchResult]:
    names, proof = yield from prove_minimal(sets, passing)
    change = yield from walk_back_values([sets.choices[name] for name in sets.ordered(names)])
    return SearchResult(
        "found",
        change=change,
        proof=proof,
        companions=sets.ordered(find_companions(sets, names) & set(change)),
        harmful=sets.ordered(harm),
    )


def _find_single_toggle(sets: ToggleSets, order: Order) -> Steps[Names | None]:
    """Return the first of the likely ones that is enough alone, as far as few trials tell."""
    few = int(log2(max(2, len(order.choices))))
    for choice in order.choices[: min(order.likely, few)]:
        if (yield from sets.result({choice.name}, f"likely: {choice.name} alone")) == "pass":
            return frozenset({choice.name})
    return None


def _find_by_halves(sets: ToggleSets, order: Order) -> Steps[Names]:
    names = [choice.name for choice in order.choices]
    first = order.likely if order.likely > 1 else 0
    return (yield from find_smallest(names, _passes(sets), first))


def _passes(sets: ToggleSets) -> Holds:
    def passes(names: Names) -> Steps[bool]:
        why = f"are these {len(names)} of {len(sets.choices)} enough?"
        return (yield from sets.result(names, why)) == "pass"

    return passes


def confirm_change(change: Setting, times: int) -> Steps[SearchOutcome]:
    """Return "found" if starts bear `change` out, "comes and goes" if one contradicts it.

    Both the job with it and the job without it are started `times` times, by turns, so that what
    changes on the machine meanwhile meets both; the first contradiction, a hang with it or a pass
    without, ends it. What ends otherwise says nothing for or against: where no start with it passed
    or none without it hung it is "not confirmed". Without any starts nothing is asked: "found".
    """
    with_it: list[Result] = []
    without: list[Result] = []
    for number in range(1, times + 1):
        why = f"confirms, {number} of {times}: "
        with_it.append((yield Ask(change, why + "with the change", again=True)))
        if with_it[-1] == "hang":
            return "comes and goes"
        without.append((yield Ask({}, why + "without it", again=True)))
        if without[-1] == "pass":
            return "comes and goes"
    return "found" if not times or ("pass" in with_it and "hang" in without) else "not confirmed"


def probe_hang(probe: Choice) -> Steps[ProbeResult]:
    """Return what a probe says, everything else as the user runs it, where the job hangs.

    Its safest value first; if that passes, the others from the least change on, up to the first
    that passes.
    """
    why = f"a probe: does it hang with {probe.name}={{}}?"
    result = yield Ask({probe.name: probe.safest}, why.format(probe.safest))
    if result != "pass":
        return ProbeResult(probe.name, probe.safest if result == "hang" else None, None, result)
    hangs = None
    for value in probe.values[:-1]:
        milder = yield Ask({probe.name: value}, why.format(value))
        if milder == "pass":
            return ProbeResult(probe.name, hangs, value, "pass")
        if milder == "hang":
            hangs = value
    return ProbeResult(probe.name, hangs, probe.safest, "pass")


def walk_back_values(answer: Sequence[Choice]) -> Steps[Setting]:
    """Return the least values of these toggles that pass; at their safest they do.

    Of each toggle the values are tried from the least change on, with the others as they are then,
    so none below the one that is returned passes. A toggle that is no longer needed with the
    milder values of the others is left out.
    """
    setting: dict[str, str] = {choice.name: choice.safest for choice in answer}
    for choice in answer:
        for value in choice.values[:-1]:
            milder = {**setting, choice.name: value}
            why = f"does {choice.name}={value} do?"
            if (yield Ask(milder, why)) == "pass":
                setting = milder
                break
    milder_than_safest = any(setting[choice.name] != choice.safest for choice in answer)
    if milder_than_safest:
        return (yield from _leave_out_unneeded(setting))
    return setting


def _leave_out_unneeded(setting: Mapping[str, str]) -> Steps[Setting]:
    for name in reversed(list(setting)):
        less = {other: value for other, value in setting.items() if other != name}
        if less and (yield Ask(less, f"can {name} be left out?")) == "pass":
            return (yield from _leave_out_unneeded(less))
    return setting


def best_change_so_far(record: StartRecord) -> Setting:
    """Return the change with the fewest toggles that passed and never hung, the latest of them.

    Empty if none did.
    """
    passed = [
        one.setting
        for one in record.tried
        if one.setting and one.result == "pass" and "hang" not in record.results(one.setting)
    ]
    return min(reversed(passed), key=len, default={})


def count_starts(results: Sequence[Result]) -> StartCounts:
    """Return how many of these hung; what neither passed nor hung is counted apart."""
    others = results.count("other")
    return StartCounts(results.count("hang"), len(results) - others, others)


def p_value(with_change: StartCounts, without: StartCounts) -> float | None:
    """Return how likely so large a difference is by chance; None without starts on both sides."""
    if not with_change.starts or not without.starts:
        return None
    return fisher(with_change.hangs, with_change.starts, without.hangs, without.starts)


def summarize_search(
    found: SearchResult,
    choices: Sequence[Choice],
    record: StartRecord,
    with_change: StartCounts,
    without: StartCounts,
) -> SearchResult:
    """Return `found` with what follows from all that was tried: ruled out, not needed, p-value."""
    tried = tuple(record.tried)
    others = [c for c in choices if c.name not in found.change and c.name not in found.harmful]
    ruled_out = tuple(choice.name for choice in others if _hung_with(choice, tried))
    rest = tuple(choice.name for choice in others if choice.name not in ruled_out)
    return replace(
        found,
        ruled_out=ruled_out,
        not_needed=rest if found.change else (),
        with_change=with_change,
        without=without,
        p_value=p_value(with_change, without),
        tried=tried,
    )


def _hung_with(choice: Choice, tried: Sequence[TriedSetting]) -> bool:
    """Return whether it hung with this toggle at its safest."""
    return any(
        one.result == "hang" and one.setting.get(choice.name) == choice.safest for one in tried
    )


T = TypeVar("T")


class StartRecord:
    """All that was tried. What was recorded of an interrupted search comes before new starts."""

    def __init__(
        self,
        test: Test,
        recorded: Iterable[tuple[Setting, Result]],
        same: Callable[[Setting], Hashable],
        max_trials: int | None,
    ) -> None:
        self._test, self._same, self._max_trials = test, same, max_trials
        self._recorded: dict[Hashable, deque[Result]] = defaultdict(deque)
        for setting, result in recorded:
            self._recorded[same(setting)].append(result)
        self._results: dict[Hashable, list[Result]] = defaultdict(list)
        self.tried: list[TriedSetting] = []
        self.hung: list[Setting] = []  # each setting once

    def answer(self, ask: Ask) -> Result | None:
        """Return what is known of the setting, else what comes of a start; None: stop."""
        known = self._results[self._same(ask.setting)]
        return known[0] if known and not ask.again else self.start(ask)

    def start(self, ask: Ask) -> Result | None:
        """Return what comes of a start, whatever is known of the setting; None: stop."""
        if self._max_trials is not None and len(self.tried) >= self._max_trials:
            return None
        key = self._same(ask.setting)
        recorded = self._recorded[key]
        result = recorded.popleft() if recorded else self._test(ask.setting, ask.why)
        if result is not None:
            if result == "hang" and "hang" not in self._results[key]:
                self.hung.append(ask.setting)
            self._results[key].append(result)
            number = len(self.tried) + 1
            self.tried.append(TriedSetting(number, ask.setting, result, ask.why, ask.again))
        return result

    def results(self, setting: Setting) -> Sequence[Result]:
        """Return what came of every start under that setting so far."""
        return self._results[self._same(setting)]


def drive_search(steps: Steps[T], answer: Callable[[Ask], Result | None]) -> T | None:
    """Return what a search returns; None if a question has no answer: it is to stop."""
    try:
        ask = next(steps)
        while (result := answer(ask)) is not None:
            ask = steps.send(result)
    except StopIteration as end:
        found: T = end.value
        return found
    steps.close()
    return None


def check_choices(choices: Sequence[Choice], probes: Sequence[Choice]) -> None:
    """Raise ValueError for a toggle that stands twice, or has no safer value."""
    names = [choice.name for choice in (*choices, *probes)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"toggles that stand twice: {', '.join(twice)}")
    if empty := [choice.name for choice in (*choices, *probes) if not choice.values]:
        raise ValueError(f"toggles without a safer value: {', '.join(empty)}")
