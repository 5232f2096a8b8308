"""report.md of a run, an isolation or a matrix, put together from its sections; and its two tables:
how far each rank came, and where the ranks were when the verdict was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import JobFacts, RankFacts, describe_exit
from ..base.verdict_facts import Verdict
from ..base.words import format_count, format_rank_numbers, format_ranks, format_seconds
from ..search.isolation import Isolation
from .isolation_text import MOST_TRIAL_ROWS, list_rows, replay_answer, unused_lines
from .issue_sections import (
    MOST_CHARACTERS,
    NOTHING_MASKED,
    Masked,
    Section,
    code_block,
    culprit_stack_sections,
    details_block,
    difference_sections,
    environment_sections,
    fit_sections,
    inline_code,
    markdown_table,
    other_stack_sections,
    reproduce_sections,
    stack_tree_sections,
    unread_sections,
    version_sections,
)
from .issue_sections import count_characters as characters
from .run_reader.run import RecordedRun, read_rank_facts
from .run_reader.timeline import RankRow, Span, Timeline, read_timeline
from .terminal import replay_verdict
from .verdict_rows import job_of_verdict, label_blamed, short_stack

NEVER_CUT = 100  # of use: it is never cut


def run_page(run: RecordedRun, masked: Masked = NOTHING_MASKED) -> str:
    """Return what goes into an issue about a run, of which nothing secret is left: at most
    MOST_CHARACTERS characters as GitHub counts them.
    """
    return _assemble_page(run_sections(run), masked)


def run_sections(run: RecordedRun) -> list[Section]:
    """Return the parts about one run, in their order."""
    ranks = read_rank_facts(run)
    found = [
        Section(_format_issue_title(run.verdict), NEVER_CUT, ""),
        *_answer_sections(run, ranks),
    ]
    found += _titled_section("Checkpoints", checkpoint_table(read_timeline(run)), 85)
    if run.verdict and run.outcome != "ok":
        table = places_table(run.verdict, ranks, job_of_verdict(run.verdict))
        found += _titled_section("Where the ranks were", table, 80)
    found += culprit_stack_sections(run)
    found += stack_tree_sections(run)
    found += other_stack_sections(run)
    found += reproduce_sections(run)
    found += version_sections(run)
    found += difference_sections(run)
    found += environment_sections(run)
    return [*found, *unread_sections(run)]


def _assemble_page(found: Sequence[Section], masked: Masked) -> str:
    """Return the page of these parts, with what was cut from it, and what was masked."""
    foot = _foot(masked)
    text, left_out = fit_sections(found, MOST_CHARACTERS - characters(foot) - 4)
    said = f"\n\n{_left_out(left_out)}" if left_out else ""
    return f"{text}{said}\n\n{foot}\n"


def _format_issue_title(verdict: Verdict | None) -> str:
    """Return the title: "HANG at checkpoint 9 WandbLogger ready: rank 1 in wandb.init"."""
    if not verdict:
        return "## A run without a verdict"
    place, blamed = verdict.checkpoint, verdict.ranks.culprit
    title = f"## {verdict.outcome.upper()}"
    if place is not None:
        number = "" if place.number is None else f"checkpoint {place.number} "
        title += f" at {number}{inline_code(place.title, 80)}"
    if blamed:
        title += f": {format_ranks(blamed)}"
        title += f" in {inline_code(verdict.call, 120)}" if verdict.call else ""
    return title


def _answer_sections(run: RecordedRun, ranks: Sequence[RankFacts]) -> list[Section]:
    if not run.verdict:
        return []
    lines = replay_verdict(run.verdict, "", None, ranks)
    cause = run.verdict.cause.why if run.verdict.cause else ""
    found = [Section(code_block(lines), NEVER_CUT, "")]
    notes = [f"- {inline_code(note)}" for note in run.verdict.notes[:20]]
    if cause:
        found.append(Section(f"Why: {inline_code(cause, 2000)}", 95, "why"))
    return found + ([Section("\n".join(notes), 50, "notes")] if notes else [])


def _titled_section(title: str, text: str, useful: int) -> list[Section]:
    return [Section(f"### {title}\n\n{text}", useful, title.lower())] if text else []


def _left_out(names: Sequence[str]) -> str:
    shown = "; ".join(names[:20])
    more = f"; and {len(names) - 20} more" if len(names) > 20 else ""
    limit = f"to stay below the {MOST_CHARACTERS:,} characters that GitHub takes"
    return f"Left out {limit}: {shown}{more}. `hangbisect bundle` packs all of it."


def _foot(masked: Masked) -> str:
    masking = f"masked: {masked.words}" if masked.counts else "no secret was found in it"
    return f"<sub>Made by hangbisect; {masking}. Read before you post.</sub>"


_MOST_ANSWER_LINES = 60  # of the answer, that are never cut


def trials_page(run: RecordedRun, hang: RecordedRun | None, masked: Masked = NOTHING_MASKED) -> str:
    """Return what goes into an issue; `hang` is the first start that went wrong, if it is kept."""
    title = "The answer of an isolation" if run.kind == "isolation" else "What a matrix found"
    lines = replay_answer(run, "")
    found = [Section(f"## {title}\n\n{code_block(lines[:_MOST_ANSWER_LINES])}", NEVER_CUT, "")]
    if len(lines) > _MOST_ANSWER_LINES or (
        run.kind == "isolation" and len(run.trials) > MOST_TRIAL_ROWS
    ):
        text = details_block("All starts", code_block(list_rows(run)))
        found.append(Section(text, 65, "the table of all starts"))
    found += _unused_sections(run)
    if hang is not None:
        found.append(Section(f"The start in {inline_code(hang.folder.name)}:", NEVER_CUT, ""))
        found += run_sections(hang)
    return _assemble_page([*found, *unread_sections(run)], masked)


def _unused_sections(run: RecordedRun) -> list[Section]:
    """Return why toggles were not tried, folded."""
    isolation = run.answer
    if not isinstance(isolation, Isolation) or not isolation.unused:
        return []
    title = f"{format_count(len(isolation.unused), 'toggle')} not tried, and why"
    text = details_block(title, code_block(unused_lines(isolation.unused)))
    return [Section(text, 40, "why toggles were not tried (isolation.json)")]


MOST_RANK_COLUMNS = 8  # ranks that have a column of their own
MOST_STEPS = 60
BETWEEN = "between two steps"
_STEP_KINDS = ("step", "own step", "phase", "training")


@dataclass
class _Step:
    """One row: the same step of all ranks."""

    number: int | None
    title: str  # "": between two steps
    depth: int
    first: float  # when any rank began it first
    took: dict[RankId, float] = field(default_factory=dict)  # by rank: all times that it was done
    times: dict[RankId, int] = field(default_factory=dict)
    inside: dict[RankId, Span] = field(default_factory=dict)  # those that did not come out of it


def checkpoint_table(found: Timeline) -> str:
    """Return the table, "" where no rank reported a step."""
    steps = _collect_steps(found.rows)
    if not steps:
        return ""
    ranks = [row.rank for row in found.rows]
    shown, left = steps[:MOST_STEPS], len(steps) - MOST_STEPS
    whole = ranks if len(ranks) <= MOST_RANK_COLUMNS else None
    head = ["#", "checkpoint", *([f"rank {r}" for r in ranks] if whole else _HEAD)]
    by_rank = {row.rank: row for row in found.rows}
    rows = [
        [*_step_name(step), *_make_step_cells(step, by_rank, found.length, whole)] for step in shown
    ]
    more = f"\n\n{format_count(left, 'more step')}, begun later." if left > 0 else ""
    return markdown_table(head, rows) + more


_HEAD = ("done by", "seconds", "not by")


def _collect_steps(rows: Sequence[RankRow]) -> list[_Step]:
    """Return all steps, in the order in which ranks first began them."""
    steps: dict[tuple[str, str, int | None], _Step] = {}
    for row in rows:
        for span in row.spans:
            between = span.end is None and not span.depth and span.kind in ("hang", "wait")
            if span.kind not in _STEP_KINDS and not between:
                continue
            # A step of the user's own may have the name of a checkpoint's phase.
            key = ("", "", None) if between else (span.kind, span.name, span.number)
            title = "" if between else span.title
            step = steps.setdefault(key, _Step(span.number, title, span.depth, span.start))
            step.first = min(step.first, span.start)
            if span.end is None:
                step.inside[row.rank] = span
            else:
                step.took[row.rank] = step.took.get(row.rank, 0.0) + span.end - span.start
                step.times[row.rank] = step.times.get(row.rank, 0) + 1
    return sorted(steps.values(), key=lambda step: (step.first, step.depth))


def _step_name(step: _Step) -> tuple[str, str]:
    number = "" if step.number is None or step.depth else str(step.number)
    return number, f"{'· ' * step.depth}{inline_code(step.title, 60) or BETWEEN}"


def _make_step_cells(
    step: _Step, rows: Mapping[RankId, RankRow], length: float, ranks: Sequence[RankId] | None
) -> list[str]:
    if ranks is not None:
        return [_cell(step, rows[rank], length) for rank in ranks]
    done = {rank: took for rank, took in step.took.items() if rank not in step.inside}
    lacking = rows.keys() - done.keys()
    span = ""
    if done:
        low, high = format_seconds(min(done.values())), format_seconds(max(done.values()))
        span = low if low == high else f"{low} to {high}"
    return [
        f"{len(done)} of {len(rows)}",
        span,
        "; ".join(_ranks_without(step, rows, sorted(lacking))),
    ]


def _ranks_without(
    step: _Step, rows: Mapping[RankId, RankRow], ranks: Sequence[RankId]
) -> list[str]:
    """Return who did not end a step, by what became of them: "**hang** 3-5", "not begun 7"."""
    by_state: dict[str, list[RankId]] = {}
    for rank in ranks:
        by_state.setdefault(_state(step, rows[rank]), []).append(rank)
    return [f"{state}: {format_rank_numbers(them)}" for state, them in by_state.items()]


def _cell(step: _Step, row: RankRow, length: float) -> str:
    inside = step.inside.get(row.rank)
    if inside is not None:
        return f"{_state(step, row)} {format_seconds(max(0.0, length - inside.start))}"
    if row.rank not in step.took:
        return ""
    times = step.times[row.rank]
    return format_seconds(step.took[row.rank]) + (f" (×{times})" if times > 1 else "")  # noqa: RUF001  # a sign that is read at once


def _state(step: _Step, row: RankRow) -> str:
    """Return what a rank does that did not end a step."""
    if row.rank not in step.inside:
        return "left" if row.ended is not None else "not begun"
    kinds = {span.kind for span in row.spans if span.end is None}
    if "hang" in kinds:
        return "**hangs**"
    return "waits" if "wait" in kinds else "in it"


MOST_PLACES = 16
_MOST_HOSTS = 3


def places_table(verdict: Verdict, ranks: Sequence[RankFacts], job: JobFacts) -> str:
    """Return the table, "" where no process was looked at."""
    groups: dict[tuple[str, str], list[RankFacts]] = {}
    label = label_blamed(verdict, ranks)
    for one in ranks:
        role = _role(verdict, one, label)
        groups.setdefault((role, _describe_rank(one, job)), []).append(one)
    if not groups:
        return ""
    rows = [
        [format_rank_numbers(r.rank for r in them), role, inline_code(does), _format_hosts(them)]
        for (role, does), them in sorted(
            groups.items(), key=lambda item: _order(item[0][0], item[1])
        )
    ]
    left = len(rows) - MOST_PLACES
    more = f"\n\n{format_count(left, 'more row')}: see all stacks below." if left > 0 else ""
    return markdown_table(["ranks", "", "in", "host"], rows[:MOST_PLACES]) + more


_ROLES = {
    "culprit": "**to blame**",
    "never_started": "never started",
    "dead": "ended",
    "stuck": "stuck",
    "waiting": "waits, not at fault",
}


def _role(verdict: Verdict, one: RankFacts, label: str) -> str:
    if label != "culprit" and one.rank in verdict.ranks.culprit:
        return {"moves": "moves", "still": "stands still"}[label]
    roles = (words for name, words in _ROLES.items() if one.rank in getattr(verdict.ranks, name))
    return next(roles, "")


def _order(role: str, them: Sequence[RankFacts]) -> tuple[int, RankId]:
    known = list(_ROLES.values())
    return (known.index(role) if role in known else len(known), them[0].rank)


def _describe_rank(one: RankFacts, job: JobFacts) -> str:
    """Return the innermost frames that matter; of one that left how it ended."""
    if not one.alive or one.left:
        return describe_exit(one)
    if one.held:
        return "our barrier"
    return short_stack(one, job) or "no stack"


def _format_hosts(them: Sequence[RankFacts]) -> str:
    hosts = list(dict.fromkeys(one.host for one in them if one.host))
    names = ", ".join(inline_code(host, 60) for host in hosts[:_MOST_HOSTS])
    if len(them) == 1 and them[0].pid is not None:
        names += f" pid {them[0].pid}"
    return names + (f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else "")
