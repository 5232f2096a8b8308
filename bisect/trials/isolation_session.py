"""One isolation, from the question to the person up to the answer on the terminal: the way from a
command that hangs to the smallest change that avoids it, proven.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from ..base.errors import UsageError
from ..base.verdict_facts import Result, Setting, Trial, Verdict
from ..base.words import terminal_width, wrap_line
from ..monitor.child_processes import make_reports_now
from ..report.isolation_text import answer_lines, trial_line
from ..search.flaky_search import estimate_flaky_starts, make_first_starts, search_flaky
from ..search.isolation import (
    Isolation,
    ObservedHang,
    host_in_question,
    is_cache_lock,
    likely_toggles,
    observe_hang,
)
from ..search.search import confirm_known_change, search
from ..search.trial_results import Choice, SearchResult, estimate_starts
from ..toggles.command_toggles import (
    ReachedToggles,
    format_command,
    merge_reached,
    parse_reached,
)
from ..toggles.toggle import Toggle
from .isolation_answer import RARE_RATE, format_expectation, format_flaky_expectation, make_answer
from .isolation_plan import (
    OWN_CACHES,
    IsolationPlan,
    NoMoreStarts,
    Start,
    Starter,
    StartRequest,
    Starts,
    all_at_safest,
    base_of_flaky,
    choose_toggles,
)
from .isolation_request import (
    IsolationJob,
    IsolationRecord,
    IsolationRequest,
    isolation_json,
    make_job,
)
from .launch import check_program, find_verdict, read_reached_toggles, stopping_by_signals
from .trial import Question

ISOLATED, NO_HANG, HANGS, FAILS, INTERRUPTED = 0, 1, 3, 5, 130
ANSWER_LIMIT = 600.0  # seconds for a person to answer


def isolate(request: IsolationRequest) -> int:
    """Do what is asked, print the answer, and return the exit status.

    Raises UsageError, and CannotStart for a program that there is not.
    """
    work = make_job(request)
    check_program(work.plan.command[0], work.plan.environ)
    remedies = choose_toggles(work.plan).remedies
    expectation = format_expectation(
        work.plan.command,
        work.plan.environ,
        remedies,
        work.plan.confirm,
        folder=str(work.folder),
        limit=work.limit,
        gpus=work.gpus,
        flaky=work.plan.confidence if work.plan.flaky else None,
    )
    if work.plan.environments is not None:
        expectation.append(work.plan.environments.describe())
    asks = not (work.plan.ours or request.yes)
    if not asks:
        tell(
            expectation[0].replace("your command", "it")
            if work.plan.ours
            else "\n".join(expectation)
        )
    elif not ask_person(expectation):
        tell("nothing was started")
        return INTERRUPTED
    record = IsolationRecord(work.folder)
    with stopping_by_signals() as stopping:
        found = _run_isolation(work, record, stopping, asks)
    if work.plan.environments is not None and found.outcome != "interrupted":
        work.plan.environments.remove_others(
            {c.package: c.value for c in found.changes if c.package}
        )
    return _print_answer(found, record, work, request)


def _run_isolation(
    work: IsolationJob, record: IsolationRecord, stopping: threading.Event, asks: bool
) -> Isolation:
    starter = Starter(work.plan, work.folder, work.watch, work.limit, stopping, tell)
    return IsolationSearch(
        work.plan,
        starter.start,
        tell=tell,
        keep=_record_writer(record),
        verdict_of=_verdict_of,
        reached_by=_reached_by,
        may_go_on=(lambda lines: ask_person(lines, stopping)) if asks else _tell_and_go_on,
        recorded=work.recorded,
        stopping=stopping,
    ).run()


def _record_writer(record: IsolationRecord) -> Callable[[Isolation], None]:
    """Return what writes down all that is known; where it cannot, it says so, once, and goes on."""
    failed: list[str] = []

    def keep(isolation: Isolation) -> None:
        try:
            record.write(isolation)
        except OSError as error:
            if not failed:
                tell(f"{record.folder} cannot be written, going on: {error.strerror}")
            failed.append(str(error))

    return keep


def _verdict_of(trial: Trial) -> Verdict | None:
    return find_verdict(Path(trial.run_dir))


def _reached_by(trial: Trial) -> ReachedToggles:
    return parse_reached(*read_reached_toggles(Path(trial.run_dir)))


def _print_answer(
    found: Isolation, record: IsolationRecord, work: IsolationJob, request: IsolationRequest
) -> int:
    _record_writer(record)(found)
    try:
        record.report(found)
    except OSError as error:
        tell(f"no report: {error.strerror}")
    if request.json:
        print(json.dumps(isolation_json(found), indent=2, ensure_ascii=False))
    else:
        width = None if request.plain else terminal_width()
        print("\n".join(answer_lines(found, folder=str(work.folder), width=width)), flush=True)
    if found.outcome not in ("no_hang", "interrupted"):
        make_reports_now(str(work.folder), trials=True)
    return _exit_status(found)


def _exit_status(found: Isolation) -> int:
    if found.outcome in ("isolated", "no_hang", "interrupted"):
        return {"isolated": ISOLATED, "no_hang": NO_HANG, "interrupted": INTERRUPTED}[found.outcome]
    return HANGS if found.seen is not None else FAILS


# ---- talking to a person -------------------------------------------------------------------------


def tell(text: str) -> None:
    width = terminal_width(2)
    lines = [part for line in text.split("\n") for part in wrap_line(line, width, 2) or [""]]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _tell_and_go_on(lines: Sequence[str]) -> bool:
    tell("\n".join(lines))
    return True


def ask_person(lines: Sequence[str], stopping: threading.Event | None = None) -> bool:
    """Return whether the person at the terminal agrees. Raises UsageError where there is none."""
    tell("\n".join(lines))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at, and --yes is not given", "Add --yes.")
    print("Start? [y/N] ", end="", file=sys.stderr, flush=True)
    until = time.monotonic() + ANSWER_LIMIT
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        if time.monotonic() > until or (stopping is not None and stopping.is_set()):
            tell("\nno answer")
            return False
    return os.read(sys.stdin.fileno(), 100).strip().lower() in (b"y", b"yes")


UNDER_WAY = NoMoreStarts("under way", interrupted=True)  # what is on disk if we are killed
_OWN_CACHES_IN_WORDS = (
    "caches of its own, empty ones that are removed after it: it downloads what it needs"
)
_WATCHED_TO_ITS_END = (
    "the first start is watched to its end or to --limit: a hang may come later than the first "
    "training steps. The next ones end past the hang."
)
_OTHERS_END_SOONER = (
    "it did not hang: the next starts end once they train. For a hang that comes later: "
    "--keep-watching"
)
LEAST_STILL = 3.0  # seconds that the known stacks must stand still, whatever passing trials took


class IsolationSearch:
    """One isolation. What is known so far can be had at any time."""

    def __init__(
        self,
        plan: IsolationPlan,
        start: Start,
        *,
        tell: Callable[[str], None],
        keep: Callable[[Isolation], None],
        verdict_of: Callable[[Trial], Verdict | None],
        may_go_on: Callable[[Sequence[str]], bool],
        reached_by: Callable[[Trial], ReachedToggles | None] = lambda trial: None,
        recorded: Sequence[Trial] = (),
        stopping: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` gets the story, a line each; `keep` what is known after every trial. `may_go_on`
        is asked, with lines to read, before a search that takes far more starts than was said.
        """
        self._plan = plan
        self._tell = tell
        self._verdict_of = verdict_of
        self._reached_by = reached_by
        self._reached: ReachedToggles | None = None
        self._may_go_on = may_go_on
        self._starts = Starts(
            start, lambda: keep(self.known()), plan.budget, recorded, stopping, clock
        )
        self._usable = choose_toggles(plan)
        self._about = estimate_starts(self._usable.remedies, plan.confirm).about
        self._base: dict[str, str] = {}
        self._tried: list[tuple[Setting, Result]] = []  # versions of packages, each alone
        self._useless: dict[str, tuple[str, ...]] = {}  # values that fail in another way, by toggle
        self._seen: ObservedHang | None = None
        self._found: SearchResult | None = None
        self._flaky = plan.flaky
        self._end: NoMoreStarts | None = UNDER_WAY
        self._why = ""

    def run(self) -> Isolation:
        """Start until it is known, or until no more may be started; return what is known."""
        try:
            self._isolate()
        except NoMoreStarts as end:
            self._end = end
        if self._end is UNDER_WAY:
            self._end = None
        return self.known()

    def known(self) -> Isolation:
        """Return what is known so far."""
        return make_answer(
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
        if not (self._plan.flaky or self._plan.ours):
            self._tell(_WATCHED_TO_ITS_END)
        first = None if self._plan.flaky else self._try({}, "as you run it")
        if first is None or first.result == "pass":
            if not (first is None or self._plan.ours or self._plan.to_end):
                self._tell(_OTHERS_END_SOONER)
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
            self._seen = observe_hang(self._verdict_of(trial), trial.place)
            self._choose()

    def _learn_what_it_reaches(self, trial: Trial) -> None:
        """Leave out what a script of the user's own does not come to as it is run."""
        if not (self._plan.ours or set(trial.setting) - set(self._base)):
            self._reached = merge_reached(self._reached, self._reached_by(trial))
            self._choose()
            if not self._flaky:
                self._about = estimate_starts(self._usable.remedies, self._plan.confirm).about

    def _choose(self) -> None:
        host = host_in_question(self._seen, self._plan.environ) if self._seen else None
        self._usable = choose_toggles(self._plan, host, self._reached).without_values(self._useless)

    # ---- one start -------------------------------------------------------------------------------

    def _try(self, setting: Setting, why: str) -> Trial:
        trial, is_new = self._starts.start(
            StartRequest({**self._base, **setting}, self._question(), why)
        )
        self._learn_what_it_reaches(trial)
        safest = {**self._base, **all_at_safest(self._usable.remedies)}
        if is_new:
            self._tell(trial_line(trial, self._about, safest))
        return trial

    def _test(self, setting: Setting, why: str) -> Result | None:
        if self._end is not UNDER_WAY:
            return None
        try:
            trial = self._try(setting, why)
        except NoMoreStarts as end:
            self._end = end
            return None
        if self._seen is None and trial.result == "hang":
            self._learn_from(trial)
        return trial.result

    def _question(self) -> Question:
        """Return which hang is in question, and when its stacks are called hung."""
        if self._seen is None:
            is_first = not (self._starts.trials or self._plan.flaky)
            return Question(None, None, self._plan.crash, self._plan.to_end or is_first)
        spent = [t.at_place for t in self._starts.trials if t.result == "pass"]
        known = [seconds for seconds in spent if seconds is not None]
        still = max(LEAST_STILL, 2 * max(known)) if known else None
        return Question(self._seen.place, still, self._plan.crash)

    # ---- the searches ----------------------------------------------------------------------------

    def _search(self) -> None:
        """Search for the change, the first start's hang being known."""
        if self._try_versions():
            return
        if not self._usable.remedies:
            nothing = "no toggle changes anything about this command"
            self._why = "no version that was named could be tried" if self._useless else nothing
            return
        wants = self._plan.describe
        self._found = self._run_search(wants)
        if self._found.outcome == "not avoided" and not wants:
            # Nothing to live with helps: now at least what the probes say.
            self._found = self._run_search(True, self._found)
        hung = [name for setting, came in self._tried if came == "hang" for name in setting]
        ruled_out = dict.fromkeys([*hung, *self._found.ruled_out])
        self._found = replace(self._found, ruled_out=tuple(ruled_out))

    def _try_versions(self) -> bool:
        """Start with each version of a package alone, from the last named on. Return whether one
        avoids the hang: then no other toggle is tried, and the least change that does is confirmed.

        What cannot be installed, or fails in another way, is no value of the toggle any more.
        """
        for toggle in [one for one in self._usable.remedies if one.package]:
            values = toggle.values[1:]
            for value in reversed(values):
                setting = {toggle.name: value}
                result = self._test(setting, f"{toggle.package} {value} alone")
                if result is None:
                    return False
                self._tried.append((setting, result))
                if result == "pass":
                    self._found = self._search_among(
                        [Choice(toggle.name, values[: values.index(value) + 1])]
                    )
                    return True
                if result == "other":
                    self._useless[toggle.name] = (*self._useless.get(toggle.name, ()), value)
                    self._choose()
        return False

    def _run_search(self, probes: bool, before: SearchResult | None = None) -> SearchResult:
        assert self._seen is not None
        remedies = self._usable.remedies
        tried = [(one.setting, one.result) for one in before.tried] if before is not None else None
        return self._search_among(
            _make_choices(remedies),
            likely=likely_toggles(remedies, self._seen),
            probes=_make_choices(self._usable.probes) if probes else (),
            tried=tried,
        )

    def _search_among(
        self,
        choices: Sequence[Choice],
        likely: Sequence[str] = (),
        probes: Sequence[Choice] = (),
        tried: list[tuple[Setting, Result]] | None = None,
    ) -> SearchResult:
        return search(
            choices,
            self._test,
            likely=likely,
            probes=probes,
            recorded=[({}, "hang"), *self._tried] if tried is None else tried,
            same=self._setting_key,
            confirm=self._plan.confirm,
        )

    def _search_flaky(self) -> None:
        """Search for what avoids a hang that comes and goes."""
        self._flaky = True
        confidence, remedies = self._plan.confidence, self._usable.remedies
        expectation = format_flaky_expectation(len(remedies), self._starts.trials, confidence)
        if not (
            self._plan.flaky or self._may_go_on(expectation)
        ):  # asked for, and told before the first
            self._end = NoMoreStarts("not agreed to", interrupted=True)
            self._why = "the hang comes and goes, or there is none: nothing further was started"
            return
        self._about = estimate_flaky_starts(len(remedies), RARE_RATE, confidence)
        self._base.update(base_of_flaky(self._plan))
        make_first_starts(self._test, recorded=self._as_run(), confidence=confidence)
        choices, first = self._choices_after_first_hangs()
        self._found = search_flaky(
            choices,
            self._test,
            likely=first,
            recorded=self._as_run(),
            same=self._setting_key,
            confidence=confidence,
        )

    def _as_run(self) -> list[tuple[Setting, Result]]:
        """Return what came of the starts so far of the job as it is run now."""
        known = [trial for trial in self._starts.trials if dict(trial.setting) == self._base]
        return [({}, trial.result) for trial in known]

    def _choices_after_first_hangs(self) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
        """Return what to change, and what of it first, as the diagnosis of a hang has it."""
        remedies = self._usable.remedies
        choices = _make_choices(remedies)
        if self._seen is None:
            return choices, ()
        first = likely_toggles(remedies, self._seen)
        own = set(OWN_CACHES) - set(self._base)
        if own and is_cache_lock(self._seen, self._plan.environ):
            self._tell(f"a lock in a cache is suspected: tried first are {_OWN_CACHES_IN_WORDS}")
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
        self._tell(f"a lock in a cache is suspected: the next start gets {_OWN_CACHES_IN_WORDS}")
        result = self._try(OWN_CACHES, "caches of its own").result
        if result == "hang":
            self._tell(f"it is not that lock; each start from now on gets {_OWN_CACHES_IN_WORDS}")
            self._base.update(OWN_CACHES)
        if result == "pass":
            self._confirm_the_cache()
        return result == "pass"

    def _confirm_the_cache(self) -> None:
        """Start again with caches of one's own and without, in turn."""
        # If the starts that are allowed end meanwhile.
        self._found = SearchResult("stopped", OWN_CACHES)
        self._found = confirm_known_change(OWN_CACHES, self._test, self._plan.confirm)

    def _setting_key(self, setting: Setting) -> Hashable:
        whole = {name: value for name, value in setting.items() if name not in OWN_CACHES}
        plan = self._plan
        made = plan.apply(whole, plan.table)
        versions = tuple(sorted(made.versions.items()))
        return len(whole) < len(setting), versions, format_command(made)


def _make_choices(toggles: Sequence[Toggle]) -> tuple[Choice, ...]:
    return tuple(Choice(toggle.name, toggle.values[1:]) for toggle in toggles)
