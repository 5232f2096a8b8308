"""The way from a command that hangs to the smallest change that avoids it, proven."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ..bisection.applying import applied, pasted
from ..bisection.asking import Choice
from ..bisection.effort import expected
from ..bisection.flaky import expected_starts, first_starts, search_flaky
from ..bisection.found import Found
from ..bisection.isolation import Isolation, Seen
from ..bisection.reached import Reached, both
from ..bisection.search import only_confirmed, search
from ..bisection.suspicion import host_in_question, is_cache_lock, likely, seen_in
from ..bisection.toggle import Toggle
from ..facts import Result, Setting, Trial
from ..report.isolation import trial_line
from .expecting import RARE, flaky_lines
from .isolation_plan import OWN_CACHES, Plan, all_safe, base_of_flaky, usable_toggles
from .starts import Ask, Enough, Start, Starts
from .telling import told
from .trial import Question

UNDER_WAY = Enough("under way", interrupted=True)  # what is on disk if we are killed
_OF_ITS_OWN = "caches of its own, empty ones that are removed after it: it downloads what it needs"
LEAST_STILL = 3.0  # seconds that the known stacks must stand still, whatever passing trials took


class Isolating:
    """One isolation. What is known so far can be had at any time."""

    def __init__(
        self,
        plan: Plan,
        start: Start,
        *,
        tell: Callable[[str], None],
        keep: Callable[[Isolation], None],
        verdict_of: Callable[[Trial], Mapping[str, Any]],
        may_go_on: Callable[[Sequence[str]], bool],
        reached_by: Callable[[Trial], Reached | None] = lambda trial: None,
        recorded: Sequence[Trial] = (),
        stopping: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` gets the story, a line each; `keep` what is known after every trial. `may_go_on`
        is asked, with lines to read, before a search that takes far more starts than was said.
        """
        self._plan = plan
        self._tell = tell
        self._keep = keep
        self._verdict_of = verdict_of
        self._reached_by = reached_by
        self._reached: Reached | None = None
        self._may_go_on = may_go_on
        self._starts = Starts(start, self._note, plan.budget, recorded, stopping, clock)
        self._usable = usable_toggles(plan)
        self._about = expected(self._usable.remedies, plan.confirm).about
        self._base: dict[str, str] = {}
        self._seen: Seen | None = None
        self._found: Found | None = None
        self._flaky = plan.flaky
        self._end: Enough | None = UNDER_WAY
        self._why = ""

    def run(self) -> Isolation:
        """Start until it is known, or until no more may be started; return what is known."""
        try:
            self._isolate()
        except Enough as end:
            self._end = end
        if self._end is UNDER_WAY:
            self._end = None
        return self.known()

    def known(self) -> Isolation:
        """Return what is known so far."""
        return told(
            self._plan,
            self._usable,
            trials=self._starts.all,
            seen=self._seen,
            found=self._found,
            flaky=self._flaky,
            end=self._end,
            why=self._why,
        )

    def _isolate(self) -> None:
        first = None if self._plan.flaky else self._try({}, "as you run it")
        if first is None or first.result == "pass":
            self._search_flaky()
        elif first.result == "other":
            failure = "crash" if self._plan.crash else "hang"
            self._why = f"as you run it it does not {failure}: {first.why}"
        else:
            self._learn_from(first)
            if not self._is_the_cache():
                self._search()
            if self._found is not None and self._found.outcome == "comes and goes":
                self._search_flaky()

    def _learn_from(self, trial: Trial) -> None:
        """Take over what the first hang's verdict says."""
        if trial.place is not None:
            self._seen = seen_in(self._verdict_of(trial), trial.place)
            self._choose()

    def _learn_what_it_reaches(self, trial: Trial) -> None:
        """Leave out what a script of the user's own does not come to as it is run."""
        if not (self._plan.ours or set(trial.setting) - set(self._base)):
            self._reached = both(self._reached, self._reached_by(trial))
            self._choose()
            if not self._flaky:
                self._about = expected(self._usable.remedies, self._plan.confirm).about

    def _choose(self) -> None:
        host = host_in_question(self._seen, self._plan.environ) if self._seen else None
        self._usable = usable_toggles(self._plan, host, self._reached)

    # ---- one start -------------------------------------------------------------------------------

    def _try(self, setting: Setting, why: str) -> Trial:
        trial, is_new = self._starts.start(Ask({**self._base, **setting}, self._question(), why))
        self._learn_what_it_reaches(trial)
        safest = {**self._base, **all_safe(self._usable.remedies)}
        if is_new:
            self._tell(trial_line(trial, self._about, safest))
        return trial

    def _test(self, setting: Setting, why: str) -> Result | None:
        if self._end is not UNDER_WAY:
            return None
        try:
            trial = self._try(setting, why)
        except Enough as end:
            self._end = end
            return None
        if self._seen is None and trial.result == "hang":
            self._learn_from(trial)
        return trial.result

    def _question(self) -> Question:
        """Return which hang is in question, and when its stacks are called hung."""
        if self._seen is None:
            return Question(None, None, self._plan.crash)
        spent = [t.at_place for t in self._starts.trials if t.result == "pass"]
        known = [seconds for seconds in spent if seconds is not None]
        still = max(LEAST_STILL, 2 * max(known)) if known else None
        return Question(self._seen.place, still, self._plan.crash)

    def _note(self) -> None:
        self._keep(self.known())

    # ---- the searches ----------------------------------------------------------------------------

    def _search(self) -> None:
        """Search for the change, the first start's hang being known."""
        if not self._usable.remedies:
            self._why = "no toggle changes anything about this command"
            return
        wants = self._plan.describe
        self._found = self._searched(wants)
        if self._found.outcome == "not avoided" and not wants:
            # Nothing to live with helps: now at least what the probes say.
            self._found = self._searched(True, self._found)

    def _searched(self, probes: bool, before: Found | None = None) -> Found:
        assert self._seen is not None
        recorded: list[tuple[Setting, Result]] = [({}, "hang")]
        if before is not None:
            recorded = [(one.setting, one.result) for one in before.tried]
        return search(
            _choices(self._usable.remedies),
            self._test,
            likely=likely(self._usable.remedies, self._seen),
            probes=_choices(self._usable.probes) if probes else (),
            recorded=recorded,
            same=self._same,
            confirm=self._plan.confirm,
        )

    def _search_flaky(self) -> None:
        """Search for what avoids a hang that comes and goes."""
        self._flaky = True
        confidence, remedies = self._plan.confidence, self._usable.remedies
        told = flaky_lines(len(remedies), self._starts.trials, confidence)
        if not (self._plan.flaky or self._may_go_on(told)):  # asked for, and told before the first
            self._end = Enough("not agreed to", interrupted=True)
            self._why = "the hang comes and goes, or there is none: nothing further was started"
            return
        self._about = expected_starts(len(remedies), RARE, confidence)
        self._base.update(base_of_flaky(self._plan))
        first_starts(self._test, recorded=self._as_run(), confidence=confidence)
        choices, first = self._after_first_hangs()
        self._found = search_flaky(
            choices,
            self._test,
            likely=first,
            recorded=self._as_run(),
            same=self._same,
            confidence=confidence,
        )

    def _as_run(self) -> list[tuple[Setting, Result]]:
        """Return what came of the starts so far of the job as it is run now."""
        known = [trial for trial in self._starts.trials if dict(trial.setting) == self._base]
        return [({}, trial.result) for trial in known]

    def _after_first_hangs(self) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
        """Return what to change, and what of it first, as the diagnosis of a hang has it."""
        remedies = self._usable.remedies
        choices = _choices(remedies)
        if self._seen is None:
            return choices, ()
        first = likely(remedies, self._seen)
        own = set(OWN_CACHES) - set(self._base)
        if own and is_cache_lock(self._seen, self._plan.environ):
            self._tell(f"a lock in a cache is suspected: tried first are {_OF_ITS_OWN}")
            choices = (*(Choice(name, (OWN_CACHES[name],)) for name in own), *choices)
            first = (*own, *first)
        return choices, first

    def _is_the_cache(self) -> bool:
        """Return whether it goes away with caches of one's own.

        Where a lock in a cache is suspected each start gets such from now on, unless it cannot do
        without what lies in the shared ones: a start that was ended may leave a lock behind.
        """
        if self._seen is None or not is_cache_lock(self._seen, self._plan.environ):
            return False
        self._tell(f"a lock in a cache is suspected: the next start gets {_OF_ITS_OWN}")
        result = self._try(OWN_CACHES, "caches of its own").result
        if result == "hang":
            self._tell(f"it is not that lock; each start from now on gets {_OF_ITS_OWN}")
            self._base.update(OWN_CACHES)
        if result == "pass":
            self._confirm_the_cache()
        return result == "pass"

    def _confirm_the_cache(self) -> None:
        """Start again with caches of one's own and without, in turn."""
        self._found = Found("stopped", OWN_CACHES)  # if the starts that are allowed end meanwhile
        self._found = only_confirmed(OWN_CACHES, self._test, self._plan.confirm)

    def _same(self, setting: Setting) -> Hashable:
        whole = {name: value for name, value in setting.items() if name not in OWN_CACHES}
        plan = self._plan
        made = applied(plan.command, whole, plan.table, plan.environ, plan.ours)
        return len(whole) < len(setting), pasted(made)


def _choices(toggles: Sequence[Toggle]) -> tuple[Choice, ...]:
    return tuple(Choice(toggle.name, toggle.values[1:]) for toggle in toggles)
