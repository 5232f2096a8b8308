"""The search: which smallest change makes a hang go away. A pure function of `test`.

    found = search(choices, test, likely=("wandb",))

`choices` are the remedies, in the order of preference: `Choice(name, values)`, with the values that
are safer than the user's, the safest last (`safer(toggle, current)`). `test(setting, why)` starts
the job under a setting (values by toggle; one that is not named is as the user runs it) and returns
"pass", "hang" or "other"; `why` is for the table of trials. It returns None to stop: then what is
known so far is returned as `Found("stopped", ...)`.

`likely`   names that the diagnosis advises, the best first: each is tried alone. It comes from the
           verdict on the job as it is run: make that trial first, and hand it in as `recorded`.
`probes`   `Choice`s that describe the hang once it is found ("hangs at 2 ranks, not at 1").
`recorded` (setting, result) of an interrupted search, in order: it is answered from these first,
           and goes on at the same place. They are in `Found.tried` like any other.
`same`     settings with an equal value of it are started once: what is really started, if two
           settings may come to the same (`pasted(applied(...))`).
`confirm`  how often the change is started again, and as often the job without it; 0: not at all.
           3 and 3 make p = 0.05, 5 and 5 make 0.004. A contradiction is "comes and goes"; where all
           of them end otherwise it is "not confirmed".
`max_trials` ends it, recorded trials included. What was found before stands where only probes are
           left: then as many of them are told as there are answers of.

A search for hangs that come and go has the same form and result: `flaky.search_flaky`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ..facts import Result, Setting
from .asking import Choice, Steps, Test, by_values
from .confirming import confirmed
from .found import Described, Found
from .outcome import best_so_far, starts, summed_up
from .plan import ordered, plan
from .probing import described
from .record import Record, checked, driven


def search(
    choices: Sequence[Choice],
    test: Test,
    *,
    likely: Sequence[str] = (),
    probes: Sequence[Choice] = (),
    recorded: Sequence[tuple[Setting, Result]] = (),
    same: Callable[[Setting], Hashable] = by_values,
    confirm: int = 3,
    max_trials: int | None = None,
) -> Found:
    """Return the smallest change that makes the hang go away, or why there is none (see above).

    Raises ValueError for a choice that stands twice or has no value.
    """
    checked(choices, probes)
    order = ordered(choices, likely)
    record = Record(test, recorded, same, max_trials)
    found = driven(_confirmed(plan(order), confirm), record.answer)
    if found is None:
        found = Found("stopped", change=best_so_far(record))
    elif found.outcome in ("found", "not avoided", "harmed"):
        found = replace(found, described=_described(probes, record))
    return _counted(found, order.choices, record)


def only_confirmed(change: Setting, test: Test, confirm: int = 3) -> Found:
    """Return what new starts say of a change that has avoided the hang once, as search() does."""
    record = Record(test, (), by_values, None)
    outcome = driven(confirmed(change, confirm), record.answer)
    return _counted(Found(outcome or "stopped", change=change), (), record)


def _counted(found: Found, choices: Sequence[Choice], record: Record) -> Found:
    """Return `found` with what the starts that confirm say."""
    again = [one for one in record.tried if one.again]
    with_change = starts([one.result for one in again if one.setting])
    without = starts([one.result for one in again if not one.setting])
    return summed_up(found, choices, record, with_change, without)


def _confirmed(steps: Steps[Found], confirm: int) -> Steps[Found]:
    """Return what `steps` find, confirmed."""
    found = yield from steps
    if found.outcome != "found":
        return found
    return replace(found, outcome=(yield from confirmed(found.change, confirm)))


def _described(probes: Sequence[Choice], record: Record) -> tuple[Described, ...]:
    """Return what the probes say, up to the first that finds no answer: whoever starts stops."""
    found: list[Described] = []
    for probe in probes:
        one = driven(described(probe), record.answer)
        if one is None:
            break
        found.append(one)
    return tuple(found)
