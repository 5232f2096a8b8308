"""What an isolation prints: before the first start how many starts to expect and what each writes;
at the end the answer, made from what the search found.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.command_words import given, ranks
from ..base.verdict_facts import Setting, Trial
from ..base.words import format_count, format_seconds
from ..search.flaky_search import estimate_flaky_starts
from ..search.isolation import (
    CACHE_VARIABLES,
    Count,
    Isolation,
    IsolationOutcome,
    ObservedHang,
    ToggleChange,
    format_setting,
)
from ..search.trial_results import ProbeResult, SearchResult, clean_starts, estimate_starts
from ..search.trial_results import StartCounts as Counted
from ..toggles.command_toggles import format_command
from ..toggles.toggle import Toggle
from .isolation_plan import OWN_CACHES, IsolationPlan, NoMoreStarts, UsableToggles, value_before


def make_answer(
    plan: IsolationPlan,
    usable: UsableToggles,
    *,
    trials: tuple[Trial, ...],
    seen: ObservedHang | None,
    found: SearchResult | None,
    flaky: bool,
    end: NoMoreStarts | None,
    why: str,
) -> Isolation:
    """Return what is known. `end`: why no more is started; `why`: what ended it before a search."""
    outcome = _decide_outcome(found, trials, seen, end)
    known = found or SearchResult("stopped")  # nothing is known without a search
    change = dict(known.change) if known.outcome in ("found", "stopped") else {}
    confirmed = known.with_change.starts + known.with_change.others > 0
    changes = _list_changes(change, plan, usable.remedies, trials)
    return Isolation(
        outcome=outcome,
        command=plan.command,
        trials=trials,
        seconds=sum(trial.seconds for trial in trials),
        seen=seen,
        changes=changes,
        paste=_format_paste(plan, change, usable.remedies),
        with_it=_count_starts(known.with_change) if confirmed else None,
        without=_count_starts(known.without) if confirmed else None,
        p_value=known.p_value,
        confidence=plan.confidence,
        confirm=plan.confirm,
        flaky=flaky,
        not_it=tuple(_format_safest(name, usable.remedies) for name in known.ruled_out),
        harmful=tuple(_format_safest(name, usable.remedies) for name in known.harmful),
        companions=tuple(f"{n}={change[n]}" for n in known.companions if n in change),
        unused=usable.unused,
        described=tuple(describe_probe(one, usable.probes) for one in known.described),
        why=why or _explain_outcome(outcome, found, trials, seen, end, flaky),
        next=_next_step(outcome, plan, trials, any(one.in_code for one in changes)),
        options=plan.options,
    )


def _decide_outcome(
    found: SearchResult | None,
    trials: Sequence[Trial],
    seen: ObservedHang | None,
    end: NoMoreStarts | None,
) -> IsolationOutcome:
    if end is not None and end.interrupted:
        return "interrupted"
    if found is not None and found.outcome == "found":
        return "isolated"
    if found is not None and found.outcome == "not avoided":
        return "hangs_all_safe"
    if seen is None and all(trial.result == "pass" for trial in trials):
        return "no_hang"
    return "not_isolated"


def _list_changes(
    change: Setting, plan: IsolationPlan, remedies: Sequence[Toggle], trials: Sequence[Trial]
) -> tuple[ToggleChange, ...]:
    by_name = {toggle.name: toggle for toggle in remedies}
    found = []
    for name, value in change.items():
        if {name: value} == OWN_CACHES:
            cost = "what lies in the shared caches is downloaded or built again"
            found.append(ToggleChange(name, "filesystem", "shared", value, cost))
        elif name in by_name:
            toggle = by_name[name]
            in_code = "" if plan.ours else toggle.change_in_code(value)
            as_run = value_before(toggle)
            found.append(
                ToggleChange(
                    *(name, toggle.component, as_run, value, toggle.cost, in_code),
                    package=toggle.package,
                    hung=_list_hung(toggle, trials) if toggle.package else (),
                )
            )
    return tuple(found)


def _list_hung(toggle: Toggle, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return the values with which it hung, all else as it is run, the installed one first."""
    settings = [trial.setting for trial in trials if trial.result == "hang"]
    found = {one[toggle.name] for one in settings if len(one) == 1 and toggle.name in one}
    as_run = toggle.values[:1] if {} in settings else ()
    return (*as_run, *(value for value in toggle.values[1:] if value in found))


def _format_paste(plan: IsolationPlan, change: Setting, remedies: Sequence[Toggle]) -> str:
    """Return the command with the change, ready to paste; "" if there is none."""
    if not change:
        return ""
    toggles = {name: value for name, value in change.items() if name not in OWN_CACHES}
    known = {toggle.name: toggle for toggle in remedies}
    table = [known.get(toggle.name, toggle) for toggle in plan.table]
    made = plan.apply(toggles, table)
    first = [f"cd {shlex.quote(plan.folder)} &&"] if plan.folder else []
    first += [f"{name}=$(mktemp -d)" for name in CACHE_VARIABLES if len(toggles) < len(change)]
    whole = {**plan.environment, **made.environment}
    if "PATH" in whole:  # whose rest is the person's own
        count = ("PATH" in plan.environment) + bool(made.versions)
        added = os.pathsep.join(whole.pop("PATH").split(os.pathsep)[:count])
        first.append(f'PATH={shlex.quote(added)}:"$PATH"')
    words = format_command(replace(made, environment=whole))
    return " ".join([*first, words])


def _count_starts(starts: Counted) -> Count:
    return Count(starts.starts + starts.others, starts.hangs, starts.others)


def _format_safest(name: str, remedies: Sequence[Toggle]) -> str:
    """Return "wandb=off" for the toggle of that name."""
    if name in OWN_CACHES:
        return f"{name}={OWN_CACHES[name]}"
    found = next((toggle for toggle in remedies if toggle.name == name), None)
    return f"{name}={found.values[-1]}" if found else name


def describe_probe(one: ProbeResult, probes: Sequence[Toggle]) -> str:
    """Return what a probe says in a sentence: "hangs at 2 ranks, not at 1"."""
    toggle = next((probe for probe in probes if probe.name == one.probe), None)
    before_it = one.hangs or (value_before(toggle) if toggle else None)
    safest = toggle.values[-1] if toggle else ""
    if toggle is not None and toggle.unit:
        if one.passes is not None:
            from_ = f"at {before_it} {toggle.unit}" if before_it else "as you run it"
            return f"hangs {from_}, not at {one.passes}"
        return f"hangs at {safest} too" if one.result == "hang" else _format_failure(one, safest)
    if one.passes is not None:
        as_it_is = f"with {one.probe}={before_it}" if before_it else "as you run it"
        return f"hangs {as_it_is}, not with {one.probe}={one.passes}"
    if one.result == "hang":
        return f"hangs with {one.probe}={safest} too"
    return _format_failure(one, safest)


def _format_failure(one: ProbeResult, safest: str) -> str:
    return f"with {one.probe}={safest} it fails in another way, which says nothing"


def _explain_outcome(
    outcome: IsolationOutcome,
    found: SearchResult | None,
    trials: Sequence[Trial],
    seen: ObservedHang | None,
    end: NoMoreStarts | None,
    flaky: bool,
) -> str:
    """Return in a sentence why it is not isolated, "" where it is."""
    if outcome == "isolated":
        return ""
    if outcome == "hangs_all_safe":
        unknown = f"; what describes it is not all known: {end}" if end is not None else ""
        return f"no toggle avoids it{_format_component(seen)}{unknown}"
    if end is not None:
        return f"{end}{_format_hang_rate(found) if flaky else ''}{_format_best(found)}"
    if outcome == "no_hang":
        return "as you run it it was past its start-up every time"
    answer = found.outcome if found else ""
    if found is not None and answer == "not confirmed":
        where = "without it" if found.with_change.starts else "with it"
        return (
            f"{format_setting(found.change)} avoided it, and was not confirmed: no start {where} "
            f"that was to confirm it {'hung' if found.with_change.starts else 'passed'}"
        )
    if answer == "harmed":
        last = next((t for t in reversed(trials) if t.result == "other"), None)
        reason = f": {last.why}" if last else ""
        return f"with all safe it fails in another way{reason}"
    if answer == "comes and goes":
        return "under one setting it hung and passed"
    if found is not None and answer == "passes" and found.without.hangs:
        return f"it hangs too seldom to be searched{_format_hang_rate(found)}"
    if answer == "passes":
        return "no hang was seen as you run it"
    if answer == "ends otherwise":
        return "as you run it it fails in another way"
    return "nothing was found that avoids it"


def _format_hang_rate(found: SearchResult | None) -> str:
    """Return the end of a sentence: how often a hang that comes and goes has come."""
    if found is None or not found.without.starts:
        return ""
    return f"; as you run it {found.without.hangs} of {found.without.starts} starts hung"


def _format_best(found: SearchResult | None) -> str:
    """Return the end of a sentence: what was known when it had to stop."""
    if found is None or found.outcome != "stopped" or not found.change:
        return ""
    sure = f" (p = {found.p_value:.2g})" if found.p_value is not None else ""
    return f"; the best so far, not proven: {format_setting(found.change)}{sure}"


def _format_component(seen: ObservedHang | None) -> str:
    if seen is None or seen.component is None:
        return ""
    return f"; the component that {'crashes' if seen.place.crash else 'hangs'} is {seen.component}"


def _next_step(
    outcome: IsolationOutcome, plan: IsolationPlan, trials: Sequence[Trial], in_code: bool
) -> str:
    """Return the next step."""
    if outcome == "isolated" and in_code:
        return (
            "make the change in the code; the command above shows it without. Attach the report "
            "to an issue"
        )
    if outcome == "isolated":
        return "take the command above; attach the report to an issue"
    if outcome == "interrupted":
        return plan.again
    hung = next((trial for trial in trials if trial.result == "hang"), None)
    if outcome == "hangs_all_safe" and hung is not None:
        return f"its stacks are in {hung.run_dir}/stacks: it may be in your own code, or outside it"
    if outcome == "no_hang":
        repeat = f"hangbisect run --repeat 50 --until-hang -- {shlex.join(plan.command)}"
        return f"wait for one: {repeat}"
    other = next((trial for trial in trials if trial.result == "other"), None)
    if other is not None:
        said = f"see what it said: {other.run_dir}/output.txt"
        if plan.crash or other.outcome != "crash" or other.setting:
            return said
        return f"{said}; what avoids it: hangbisect isolate --crash -- {shlex.join(plan.command)}"
    starts = format_count(len(trials), "start")
    return f"{starts} are in the report; --max-trials and --max-time allow more"


RARE_RATE = 0.1  # a hang in one of ten starts
# Arguments of people's scripts that name what a start writes.
_OUTPUT_FLAGS = (
    *("--output-dir", "--output", "--out-dir", "--out", "--logs-dir", "--log-dir", "--logging-dir"),
    *("--logdir", "--save-dir", "--checkpoint-dir", "--ckpt-dir", "--default-root-dir"),
    *("--results-dir", "--work-dir", "--save-path", "--output-path"),
)


def format_expectation(
    command: Sequence[str],
    environ: Mapping[str, str],
    remedies: Sequence[Toggle],
    confirm: int,
    *,
    folder: str,
    limit: float | None,
    gpus: int,
    flaky: float | None = None,
) -> list[str]:
    """Return what to tell before the first start of a user's own command. `flaky`: the confidence
    that is wanted where it is taken for a hang that comes and goes, None where it is not.
    """
    size = estimate_starts(remedies, confirm)
    times = f"about {size.about} times, {size.most} if nothing points to the culprit"
    minutes = f"{size.about} to {size.most} min"
    if flaky is not None:
        starts = estimate_flaky_starts(len(remedies), RARE_RATE, flaky)
        times, minutes = f"about {starts} times if it hangs in one start of ten", f"{starts} min"
    count = ranks(command, environ)
    own = f"{format_count(count, 'rank')} each" if count else "as many ranks as your command starts"
    devices = f"up to {format_count(gpus, 'GPU')}" if gpus else "no GPU here"
    each = f", none longer than {format_seconds(limit)}" if limit is not None else ""
    return [
        f"isolate starts your command again and again: {times}; {own}, {devices}, one start at a "
        f"time{each}.",
        f"If a start takes a minute until it hangs or is past it, that is {minutes}; the first one "
        "tells. --max-trials and --max-time end it sooner.",
        *([] if flaky is None else format_flaky_expectation(len(remedies), (), flaky)[:1]),
        _format_writes(command, folder),
    ]


def _format_writes(command: Sequence[str], folder: str) -> str:
    """Return in a sentence what each start writes."""
    found = {flag: given(command, flag) for flag in _OUTPUT_FLAGS}
    own = [f"{flag} {value}" for flag, value in found.items() if value]
    named = f" (it names {', '.join(own)})" if own else ""
    return (
        f"Each start writes a folder below {folder}, and whatever your command writes{named}: "
        "checkpoints, logs, a run in W&B."
    )


def format_flaky_expectation(
    remedies: int, trials: Sequence[Trial], confidence: float
) -> list[str]:
    """Return what to tell before the search for what avoids a hang that comes and goes."""
    clean = clean_starts(RARE_RATE, confidence)
    starts = estimate_flaky_starts(remedies, RARE_RATE, confidence)
    took = [trial.seconds for trial in trials]
    each = sum(took) / len(took) if took else None
    long = (
        f", {format_seconds(each * starts)} at {format_seconds(each)} each"
        if each is not None
        else ""
    )
    seen = "taken for a hang that comes and goes"
    if trials and all(trial.result == "pass" for trial in trials):
        seen = (
            f"{format_count(len(trials), 'start')} and no hang: if there is one, it comes and goes"
        )
    return [
        f"{seen}. If it hangs in one start of ten, {clean} clean starts in a row say that a "
        f"setting avoids it ({confidence:.0%}).",
        f"With {format_count(remedies, 'toggle')} that is about {starts} starts{long}. "
        "--max-trials and --max-time end it sooner, with what is known by then.",
    ]
