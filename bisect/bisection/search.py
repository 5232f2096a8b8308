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
           3 and 3 make p = 0.05, 5 and 5 make 0.004. A contradiction is "comes and goes".
`max_trials` ends it, recorded trials included.

A search for hangs that come and go has the same form and result: `flaky.search_flaky`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ..facts import Result, Setting
from .asking import Choice, Steps, Test, by_values
from .confirming import confirmed
from .found import Found
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
    steps = _to_the_end(plan(order), probes, confirm)
    found = driven(steps, record.answer)
    if found is None:
        found = Found("stopped", change=best_so_far(record))
    again = [one for one in record.tried if one.again]
    with_change = starts([one.result for one in again if one.setting])
    without = starts([one.result for one in again if not one.setting])
    return summed_up(found, order.choices, record, with_change, without)


def _to_the_end(steps: Steps[Found], probes: Sequence[Choice], confirm: int) -> Steps[Found]:
    """Return what `steps` find, confirmed, and described by the probes."""
    found = yield from steps
    if found.outcome in ("passes", "ends otherwise"):
        return found
    if found.outcome == "found" and not (yield from confirmed(found.change, confirm)):
        return replace(found, outcome="comes and goes")
    return replace(found, described=(yield from described(probes)))
