"""From what a search found to the answer that a person gets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ..bisection.applying import applied, pasted
from ..bisection.found import Described, Found
from ..bisection.found import Starts as Counted
from ..bisection.isolation import Change, Count, Isolation, IsolationOutcome, Seen, words
from ..bisection.suspicion import CACHES
from ..bisection.toggle import Toggle
from ..facts import Setting, Trial
from ..report.words import counted
from .isolation_plan import OWN_CACHES, Plan, Usable, before
from .starts import Enough


def told(
    plan: Plan,
    usable: Usable,
    *,
    trials: tuple[Trial, ...],
    seen: Seen | None,
    found: Found | None,
    flaky: bool,
    end: Enough | None,
    why: str,
) -> Isolation:
    """Return what is known. `end`: why no more is started; `why`: what ended it before a search."""
    outcome = _outcome(found, trials, seen, end)
    sure = found is not None and found.outcome in ("found", "stopped")
    change = dict(found.change) if found and sure else {}
    confirmed = found is not None and found.with_change.starts + found.with_change.others > 0
    changes = _changes(change, plan, usable.remedies)
    return Isolation(
        outcome=outcome,
        command=plan.command,
        trials=trials,
        seconds=sum(trial.seconds for trial in trials),
        seen=seen,
        changes=changes,
        paste=_paste(plan, change, usable.remedies),
        with_it=_count(found.with_change) if found and confirmed else None,
        without=_count(found.without) if found and confirmed else None,
        p_value=found.p_value if found else None,
        confidence=plan.confidence,
        confirm=plan.confirm,
        flaky=flaky,
        not_it=_not_it(found, usable.remedies),
        harmful=tuple(_safest(name, usable.remedies) for name in found.harmful) if found else (),
        companions=tuple(f"{n}={change[n]}" for n in found.companions if n in change)
        if found
        else (),
        unused=usable.unused,
        described=tuple(described(one, usable.probes) for one in found.described) if found else (),
        why=why or _why(outcome, found, trials, seen, end, flaky),
        next=_next(outcome, plan, trials, any(one.in_code for one in changes)),
        options=plan.options,
    )


def _outcome(
    found: Found | None, trials: Sequence[Trial], seen: Seen | None, end: Enough | None
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


def _changes(change: Setting, plan: Plan, remedies: Sequence[Toggle]) -> tuple[Change, ...]:
    by_name = {toggle.name: toggle for toggle in remedies}
    found = []
    for name, value in change.items():
        if {name: value} == OWN_CACHES:
            cost = "what lies in the shared caches is downloaded or built again"
            found.append(Change(name, "filesystem", "shared", value, cost))
        elif name in by_name:
            toggle = by_name[name]
            in_code = "" if plan.ours else toggle.change_in_code(value)
            as_run = before(toggle)
            found.append(Change(name, toggle.component, as_run, value, toggle.cost, in_code))
    return tuple(found)


def _paste(plan: Plan, change: Setting, remedies: Sequence[Toggle]) -> str:
    """Return the command with the change, ready to paste; "" if there is none."""
    if not change:
        return ""
    toggles = {name: value for name, value in change.items() if name not in OWN_CACHES}
    known = {toggle.name: toggle for toggle in remedies}
    table = [known.get(toggle.name, toggle) for toggle in plan.table]
    made = applied(plan.command, toggles, table, plan.environ, plan.ours)
    first = [f"cd {shlex.quote(plan.folder)} &&"] if plan.folder else []
    first += [f"{name}=$(mktemp -d)" for name in CACHES if len(toggles) < len(change)]
    own = dict(plan.environment)
    if "PATH" in own:  # whose rest is the person's own
        first.append(f'PATH={shlex.quote(own.pop("PATH").partition(":")[0])}:"$PATH"')
    words = pasted(replace(made, environment={**own, **made.environment}))
    return " ".join([*first, words])


def _count(starts: Counted) -> Count:
    return Count(starts.starts + starts.others, starts.hangs, starts.others)


def _not_it(found: Found | None, remedies: Sequence[Toggle]) -> tuple[str, ...]:
    return tuple(_safest(name, remedies) for name in found.ruled_out) if found else ()


def _safest(name: str, remedies: Sequence[Toggle]) -> str:
    """Return "wandb=off" for the toggle of that name."""
    if name in OWN_CACHES:
        return f"{name}={OWN_CACHES[name]}"
    found = next((toggle for toggle in remedies if toggle.name == name), None)
    return f"{name}={found.values[-1]}" if found else name


def described(one: Described, probes: Sequence[Toggle]) -> str:
    """Return what a probe says in a sentence: "hangs at 2 ranks, not at 1"."""
    toggle = next((probe for probe in probes if probe.name == one.probe), None)
    before_it = one.hangs or (before(toggle) if toggle else None)
    safest = toggle.values[-1] if toggle else ""
    if toggle is not None and toggle.unit:
        if one.passes is not None:
            from_ = f"at {before_it} {toggle.unit}" if before_it else "as you run it"
            return f"hangs {from_}, not at {one.passes}"
        return f"hangs at {safest} too" if one.result == "hang" else _fails(one, safest)
    if one.passes is not None:
        as_it_is = f"with {one.probe}={before_it}" if before_it else "as you run it"
        return f"hangs {as_it_is}, not with {one.probe}={one.passes}"
    if one.result == "hang":
        return f"hangs with {one.probe}={safest} too"
    return _fails(one, safest)


def _fails(one: Described, safest: str) -> str:
    return f"with {one.probe}={safest} it fails in another way, which says nothing"


def _why(
    outcome: IsolationOutcome,
    found: Found | None,
    trials: Sequence[Trial],
    seen: Seen | None,
    end: Enough | None,
    flaky: bool,
) -> str:
    """Return in a sentence why it is not isolated, "" where it is."""
    if outcome == "isolated":
        return ""
    if outcome == "hangs_all_safe":
        unknown = f"; what describes it is not all known: {end}" if end is not None else ""
        return f"no toggle avoids it{_component(seen)}{unknown}"
    if end is not None:
        return f"{end}{_hung_as_run(found) if flaky else ''}{_best(found)}"
    if outcome == "no_hang":
        return "as you run it it was past its start-up every time"
    answer = found.outcome if found else ""
    if found is not None and answer == "not confirmed":
        where = "without it" if found.with_change.starts else "with it"
        return (
            f"{words(found.change)} avoided it, and was not confirmed: no start {where} that was "
            f"to confirm it {'hung' if found.with_change.starts else 'passed'}"
        )
    if answer == "harmed":
        last = next((t for t in reversed(trials) if t.result == "other"), None)
        told = f": {last.why}" if last else ""
        return f"with all safe it fails in another way{told}"
    if answer == "comes and goes":
        return "under one setting it hung and passed"
    if found is not None and answer == "passes" and found.without.hangs:
        return f"it hangs too seldom to be searched{_hung_as_run(found)}"
    if answer == "passes":
        return "no hang was seen as you run it"
    if answer == "ends otherwise":
        return "as you run it it fails in another way"
    return "nothing was found that avoids it"


def _hung_as_run(found: Found | None) -> str:
    """Return the end of a sentence: how often a hang that comes and goes has come."""
    if found is None or not found.without.starts:
        return ""
    return f"; as you run it {found.without.hangs} of {found.without.starts} starts hung"


def _best(found: Found | None) -> str:
    """Return the end of a sentence: what was known when it had to stop."""
    if found is None or found.outcome != "stopped" or not found.change:
        return ""
    sure = f" (p = {found.p_value:.2g})" if found.p_value is not None else ""
    return f"; the best so far, not proven: {words(found.change)}{sure}"


def _component(seen: Seen | None) -> str:
    if seen is None or seen.component is None:
        return ""
    return f"; the component that {'crashes' if seen.place.crash else 'hangs'} is {seen.component}"


def _next(outcome: IsolationOutcome, plan: Plan, trials: Sequence[Trial], in_code: bool) -> str:
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
    return (
        f"{counted(len(trials), 'start')} are in the report; --max-trials and --max-time allow more"
    )
