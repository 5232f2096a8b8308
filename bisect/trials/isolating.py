"""The way from a command that hangs to the smallest change that avoids it, proven."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ..bisection.applying import applied, pasted
from ..bisection.asking import Choice
from ..bisection.confidence import fisher
from ..bisection.effort import expected
from ..bisection.flaky import expected_starts, search_flaky
from ..bisection.found import Found
from ..bisection.found import Starts as Counted
from ..bisection.isolation import Isolation, Seen
from ..bisection.search import search
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
        recorded: Sequence[Trial] = (),
        stopping: threading.Event | None = None,
    ) -> None:
        """`tell` gets the story, a line each; `keep` what is known after every trial. `may_go_on`
        is asked, with lines to read, before a search that takes far more starts than was said.
        """
        self._plan = plan
        self._tell = tell
        self._keep = keep
        self._verdict_of = verdict_of
        self._may_go_on = may_go_on
        self._starts = Starts(start, self._note, plan.budget, recorded, stopping)
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
            self._why = f"as you run it it does not hang: {first.why}"
        else:
            self._learn_from(first)
            environ = self._plan.environ
            host = host_in_question(self._seen, environ) if self._seen else None
            self._usable = usable_toggles(self._plan, host)
            if not self._is_the_cache():
                self._search()
            if self._found is not None and self._found.outcome == "comes and goes":
                self._search_flaky()

    def _learn_from(self, trial: Trial) -> None:
        """Take over what the first hang's verdict says."""
        if trial.place is not None:
            self._seen = seen_in(self._verdict_of(trial), trial.place)

    # ---- one start -------------------------------------------------------------------------------

    def _try(self, setting: Setting, why: str) -> Trial:
        trial, is_new = self._starts.start(Ask({**self._base, **setting}, self._question(), why))
        safest = {**self._base, **all_safe(self._usable.remedies)}
        if is_new:
            self._tell(trial_line(trial, self._about, safest))
        return trial

    def _test(self, setting: Setting, why: str) -> Result | None:
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
            return Question(None, None)
        spent = [t.at_place for t in self._starts.trials if t.result == "pass"]
        known = [seconds for seconds in spent if seconds is not None]
        still = max(LEAST_STILL, 2 * max(known)) if known else None
        return Question(self._seen.place, still)

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
        trials, confidence = self._starts.trials, self._plan.confidence
        remedies = self._usable.remedies
        if not self._may_go_on(flaky_lines(len(remedies), trials, confidence)):
            self._why = "the hang comes and goes, or there is none: nothing further was started"
            return
        self._about = expected_starts(len(remedies), RARE, confidence)
        self._base.update(base_of_flaky(self._plan))
        known = [] if self._base else [(t.setting, t.result) for t in trials if not t.setting]
        self._found = search_flaky(
            _choices(remedies),
            self._test,
            likely=likely(remedies, self._seen) if self._seen else (),
            recorded=known,
            same=self._same,
            confidence=confidence,
        )

    def _is_the_cache(self) -> bool:
        """Return whether it goes away with caches of one's own.

        Where a lock in a cache is suspected each start gets such from now on, unless it cannot do
        without what lies in the shared ones: a start that was ended may leave a lock behind.
        """
        if self._seen is None or not is_cache_lock(self._seen, self._plan.environ):
            return False
        self._tell("a lock in a cache is suspected: the next start gets caches of its own")
        result = self._try(OWN_CACHES, "caches of its own").result
        if result == "hang":
            self._base.update(OWN_CACHES)
        if result == "pass":
            self._confirm_the_cache()
        return result == "pass"

    def _confirm_the_cache(self) -> None:
        """Start again with caches of one's own and without, in turn."""
        results: dict[bool, list[Result]] = {True: [], False: []}
        for _ in range(self._plan.confirm):
            results[True].append(self._try(OWN_CACHES, "confirmed").result)
            results[False].append(self._try({}, "confirmed").result)
        with_it, without = (_counted(results[own]) for own in (True, False))
        clean = not with_it.hangs and without.hangs == without.starts
        self._found = Found(
            "found" if clean else "comes and goes",
            OWN_CACHES,
            with_change=with_it,
            without=without,
            p_value=fisher(with_it.hangs, with_it.starts, without.hangs, without.starts),
        )

    def _same(self, setting: Setting) -> Hashable:
        whole = {name: value for name, value in setting.items() if name not in OWN_CACHES}
        plan = self._plan
        return pasted(applied(plan.command, whole, plan.table, plan.environ, plan.ours))


def _choices(toggles: Sequence[Toggle]) -> tuple[Choice, ...]:
    return tuple(Choice(toggle.name, toggle.values[1:]) for toggle in toggles)


def _counted(results: Sequence[Result]) -> Counted:
    told = [result for result in results if result != "other"]
    return Counted(told.count("hang"), len(told))
