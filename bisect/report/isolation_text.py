"""What an isolation found, as lines of a terminal in the same order every time; and the answer of
an isolation or a matrix again, when it is read from its run folder.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.verdict_facts import Setting, Trial
from ..base.words import (
    cut_line,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    printable,
    wrap_line,
)
from ..search.isolation import Count, Isolation, ObservedHang, ToggleChange, format_setting
from ..search.trial_results import interval
from ..toggles.command_toggles import UNREACHED
from .rows import LABEL, Answer, Row, make_rows, wrap_rows

if TYPE_CHECKING:
    from .run_reader.run import RecordedRun, RecordedTrial


MOST_TRIAL_ROWS = 8  # of the table of trials, on a terminal
_ALREADY = "as safe as can be already"
_PROBABILITY_AT = 62  # column
_MOST_WHY = 100  # characters of how a start ended
_MOST_WORDS = 58  # characters of a setting in a row


def answer_lines(
    isolation: Isolation,
    *,
    folder: str,
    width: int | None = None,
    rows: int | None = MOST_TRIAL_ROWS,
) -> list[str]:
    """Return the answer. `width` is the terminal's, None for a pipe: no line is broken or cut then.
    `rows`: how many trials the table shows, None: all of them, and all else that is known. `folder`
    is that of report.md, which has the rest; "" in that file itself.
    """
    answer = word_isolation(isolation, None if rows is None else folder)
    table = table_lines(isolation, rows)
    if rows is not None and len(isolation.trials) > rows:
        table.append(f"   ({len(isolation.trials) - rows} more {_rest_in(folder)})")
    report = f"{folder}/report.md" if folder else ""
    end = [*make_rows("report", report), *word_next_step(isolation)]
    return [
        *wrap_line(printable(answer.headline), width, LABEL),
        *wrap_rows(answer.rows, width),
        *(cut_line(printable(line), width) for line in table),
        *wrap_rows(end, width),
    ]


def word_isolation(isolation: Isolation, folder: str | None) -> Answer:
    """Return the answer in words, but for the table of trials, and what stands below that. With a
    `folder` it is short: the file report.md in there, or in "" itself, has the rest.
    """
    rows = [*_change(isolation), *_proof(isolation), *_remaining_rows(isolation, folder)]
    return Answer(_word_isolation_headline(isolation), tuple(rows))


def word_next_step(isolation: Isolation) -> list[Row]:
    """Return the row that ends the answer, below the table."""
    # isolation.json has the next step as one text, with a command in it or not.
    has_command = "hangbisect " in isolation.next
    return [replace(row, is_whole=has_command) for row in make_rows("next", isolation.next)]


def _rest_in(folder: str) -> str:
    return f"in {folder}/report.md" if folder else "below"


def report_text(isolation: Isolation, *, folder: str) -> str:
    """Return the answer with every trial, to be pasted into an issue."""
    lines = answer_lines(isolation, folder=folder, rows=None)
    return "\n".join(["```", *lines, "```", ""])


# ---- the parts, in their order -------------------------------------------------------------------


def _word_isolation_headline(isolation: Isolation) -> str:
    starts = format_count(len(isolation.trials), "start")
    size = f"{starts}, {format_seconds(isolation.seconds)}"
    if isolation.outcome == "isolated":
        return f"ISOLATED  {size}: {_only_with(isolation)}"
    if isolation.outcome == "no_hang":
        what = _noun(isolation).upper()
        return f"NO {what} in {starts}, {format_seconds(isolation.seconds)}: {isolation.why}"
    if isolation.outcome == "hangs_all_safe":
        return f"{_verb(isolation).upper()} EVEN WITH ALL SAFE  {size}: {isolation.why}"
    first = "INTERRUPTED" if isolation.outcome == "interrupted" else "NOT ISOLATED"
    return f"{first}  {size}: {isolation.why}"


def _noun(isolation: Isolation) -> str:
    return "crash" if isolation.of_a_crash else "hang"


def _verb(isolation: Isolation) -> str:
    """Return what it does, which is also the plural of what that is called."""
    return "crashes" if isolation.of_a_crash else "hangs"


def _only_with(isolation: Isolation) -> str:
    """Return "it hangs with wandb=logger, not with wandb=offline"."""
    if len(isolation.changes) == 1 and isolation.changes[0].package:
        return _only_with_version(isolation, isolation.changes[0])
    before = [f"{c.toggle}={c.before}" for c in isolation.changes if c.before is not None]
    hangs = "comes and goes" if isolation.flaky else _verb(isolation)
    whole = len(before) == len(isolation.changes) == 1
    setting = f"with {before[0]}" if whole else "as you run it"
    after = format_setting({c.toggle: c.value for c in isolation.changes})
    both = " together" if len(isolation.changes) > 1 else ""
    return f"it {hangs} {setting}, not with {after.replace(' ', ' and ')}{both}"


def _only_with_version(isolation: Isolation, change: ToggleChange) -> str:
    """Return "it hangs with filelock 3.20.0, starts with 3.21.0"."""
    hangs = "comes and goes" if isolation.flaky else _verb(isolation)
    hung = " and ".join(change.hung or ([change.before] if change.before else []))
    return f"it {hangs} with {change.package} {hung}, starts with {change.value}"


def _change(isolation: Isolation) -> list[Row]:
    rows: list[Row] = []
    for change in isolation.changes:
        rows += make_rows("change", f"{change.toggle}: {change.before or '?'} -> {change.value}")
    for change in isolation.changes:
        rows += make_rows("in code", change.in_code)
        if change.package:
            rows += make_rows("install", f"pip install {change.package}=={change.value}")
    return rows + [replace(row, is_whole=True) for row in make_rows("command", isolation.paste)]


def _proof(isolation: Isolation) -> list[Row]:
    seen, rows = isolation.seen, list[Row]()
    if isolation.with_it is not None:
        past = f", past checkpoint {seen.number}" if seen and seen.number else ""
        clean = past if not (isolation.with_it.hangs or isolation.with_it.others) else ""
        count = _describe_count(isolation.with_it, isolation)
        rows += make_rows("with it", count + clean + _bound_of_hangs(isolation))
    elif isolation.changes and isolation.outcome == "isolated":
        rows += make_rows("with it", f"not started again: --confirm {isolation.confirm}")
    if isolation.without is not None:
        where = f", {_describe_place(seen)}" if seen and isolation.without.hangs else ""
        text = f"{_describe_count(isolation.without, isolation)}{where}"
        sure = ""
        if isolation.p_value is not None:
            sure = f"p = {format_probability(isolation.p_value)}{_if_more(isolation)}"
        rows.append(Row("without", join_lines(text), aside=sure, column=_PROBABILITY_AT))
    elif seen is not None:
        rows += make_rows(_verb(isolation), _describe_place(seen))
    if seen is not None and seen.cause_title and isolation.outcome != "isolated":
        rows += make_rows("cause", seen.cause_title)
    return rows


def _describe_place(seen: ObservedHang) -> str:
    call = f" in {seen.place.call}" if seen.place.call else ""
    crash = f", {seen.place.crash}" if seen.place.crash else ""
    who = format_ranks(seen.culprit) if seen.culprit else "nobody to blame"
    phase = f", phase {seen.place.phase}" if seen.place.phase else ""
    at = f" at checkpoint {seen.number}{phase}" if seen.number else ""
    return f"{who}{call}" if call else f"{who}{at}{crash}"


def _describe_count(count: Count, isolation: Isolation) -> str:
    others = f", {format_count(count.others, 'other failure')}" if count.others else ""
    of_those = f"{count.hangs} {_noun(isolation) if count.hangs == 1 else _verb(isolation)}"
    return f"{of_those} in {format_count(count.starts, 'start')}{others}"


def _if_more(isolation: Isolation) -> str:
    """Return what more starts would give, where all went one way and the figure is weak."""
    with_it, without = isolation.with_it, isolation.without
    if isolation.flaky or isolation.p_value is None or isolation.p_value < 0.01:
        return ""
    if with_it is None or without is None or with_it.hangs or without.passes:
        return ""
    more = max(isolation.confirm + 2, 5)
    return f"  (--confirm {more}: {format_probability(1 / math.comb(2 * more, more))})"


def _bound_of_hangs(isolation: Isolation) -> str:
    """Return how often it may hang all the same, where clean starts cannot tell never from rare."""
    count = isolation.with_it
    if not isolation.flaky or count is None or count.hangs or not count.passes:
        return ""
    _, most = interval(0, count.passes, isolation.confidence)
    return f" (by {isolation.confidence:.0%} confidence at most {most:.1%} of them hang)"


def _remaining_rows(isolation: Isolation, folder: str | None) -> list[Row]:
    rows: list[Row] = []
    if isolation.companions:
        companions = ", ".join(isolation.companions)
        rows += make_rows("along", f"{companions}: without it the job fails or hangs elsewhere")
    if isolation.not_it:
        rows += make_rows("not it", f"{', '.join(isolation.not_it)}: still {_verb(isolation)}")
    rows += make_rows("harmful", ", ".join(isolation.harmful))
    if folder is None:
        rows += make_rows("unused", *unused_lines(isolation.unused))
    elif isolation.unused:
        rows += make_rows("unused", _count_unused(isolation.unused, folder))
    several = len(isolation.changes) > 1
    each = [f"{c.toggle}: {c.cost}" if several else c.cost for c in isolation.changes if c.cost]
    rows += make_rows("costs", "; ".join(each))
    for sentence in isolation.described:
        rows += make_rows("probe", sentence)
    return rows


def _count_unused(unused: Mapping[str, str], folder: str) -> str:
    """Return how many toggles were not tried, and where the reasons are."""
    never = list(unused.values()).count(UNREACHED)
    reached = f" ({never} never reached by the script)" if never else ""
    return f"{format_count(len(unused), 'toggle')}{reached}, for reasons {_rest_in(folder)}"


def unused_lines(unused: Mapping[str, str]) -> list[str]:
    """Return why toggles were not tried, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in unused.items():
        by_reason.setdefault(_ALREADY if why.endswith(" already") else why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]


# ---- the table of trials -------------------------------------------------------------------------


def table_lines(isolation: Isolation, rows: int | None = None) -> list[str]:
    """Return a head and a row for each trial, the first `rows` of them."""
    if not isolation.trials:
        return []
    most = max((trial.setting for trial in isolation.trials), key=len)
    shown = isolation.trials if rows is None else isolation.trials[:rows]
    settings = [shorten_setting(trial.setting, most) for trial in shown]
    wide = min(_MOST_WORDS, max(len("setting"), *map(len, settings)))
    results = [_describe_result(trial) for trial in shown]
    lines = [f" #  {'setting':<{wide}}  {'time':>6}  result"]
    for trial, setting, result in zip(shown, settings, results, strict=True):
        shortened = textwrap.shorten(setting, wide, placeholder=" ...")
        lines.append(
            f"{trial.number:>2}  {shortened:<{wide}}  {format_seconds(trial.seconds):>6}  {result}"
        )
    return lines


def shorten_setting(setting: Setting, all_safe: Setting) -> str:
    """Return a setting in few words: "all safe but wandb" where most toggles are as in
    `all_safe`.
    """
    if not setting:
        return "as you run it"
    same = [name for name, value in setting.items() if all_safe.get(name) == value]
    left = [name for name in all_safe if name not in setting]
    changed = {name: value for name, value in setting.items() if name not in same}
    if len(all_safe) < 3 or len(same) <= len(all_safe) / 2:
        return format_setting(setting)
    parts = [*left, *(f"{name}={value}" for name, value in changed.items())]
    return f"all safe but {', '.join(parts)}" if parts else "all safe"


def _describe_result(trial: Trial) -> str:
    if trial.result == "pass":
        return "pass"
    which = "other: " if trial.result == "other" else ""  # it counts for neither
    return which + cut_line(join_lines(trial.why) or trial.result, _MOST_WHY)


def trial_line(trial: Trial, about: int, all_safe: Setting) -> str:
    """Return a line of the story: "trial 3 of about 8: wandb=offline ... pass, 21 s"."""
    shortened = shorten_setting(trial.setting, all_safe)
    whole = (
        f"{shortened}, others as you run it"
        if shortened == format_setting(trial.setting)
        else shortened
    )
    setting = whole if trial.setting else shortened
    result = _describe_result(trial)
    expected = f" of about {about}" if trial.number <= about else f", more than about {about}"
    number = f"trial {trial.number}{expected}"
    return printable(f"{number}: {setting} ... {result}, {format_seconds(trial.seconds)}")


# ---- probabilities -------------------------------------------------------------------------------


def format_probability(value: float) -> str:
    """Return "0.05", "0.004" or "4e-05"."""
    return f"{value:.1g}" if value < 0.095 else f"{value:.2g}"


_MOST_NAME = 60  # characters of a setting


def replay_answer(run: RecordedRun, folder: str, width: int | None = None) -> list[str]:
    """Return the lines of the answer, as at its end; as much of it as can be read."""
    if isinstance(run.answer, Isolation):
        return answer_lines(run.answer, folder=folder, width=width)
    results = [trial.result or "not run" for trial in run.trials]
    counts = ", ".join(f"{results.count(one)} {one}" for one in dict.fromkeys(results))
    title = run.answer.title or run.answer.scenario if run.answer else ""
    head = "  ".join(filter(None, (run.kind, join_lines(title))))
    return [
        cut_line(f"{head}  {format_count(len(results), 'start')}: {counts}", width),
        *list_rows(run, width),
    ]


def list_rows(run: RecordedRun, width: int | None = None) -> list[str]:
    """Return a head and a row for each trial, all of them."""
    answer = run.answer
    lines = table_lines(answer) if isinstance(answer, Isolation) else _list_cells(run.trials)
    return [cut_line(printable(line), width) for line in lines]


def _list_cells(trials: Sequence[RecordedTrial]) -> list[str]:
    names = [cut_line(join_lines(trial.name), _MOST_NAME) for trial in trials]
    wide = max(map(len, ["name", *names]))
    lines = [f" #  {'name':<{wide}}  {'time':>6}  result"]
    for trial, name in zip(trials, names, strict=True):
        took = "" if trial.seconds is None else format_seconds(trial.seconds)
        result = " ".join(
            part for part in (trial.result or "not run", join_lines(trial.where)) if part
        )
        lines.append(f"{trial.number:>2}  {name:<{wide}}  {took:>6}  {result}")
    return lines
