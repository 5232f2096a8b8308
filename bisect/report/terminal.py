"""A verdict on a terminal or in a log: at most 15 lines, in the same order every time; when it is
made, and again when it is read from verdict.json.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ..base.facts import Cause, Checkpoint, Frame, JobFacts, Place, RankFacts, RankId, Verdict
from ..base.masking import mask_lines, mask_text
from ..base.words import (
    cause_page,
    cut_line,
    format_count,
    format_ranks,
    format_seconds,
    join_lines,
    printable,
)
from ..diagnosis.frames import frame_owner, job_frames, unqualified_name
from ..diagnosis.process_snapshot import merge_looks
from ..search.confidence import estimate_starts
from ..toggles.command_toggles import find_usable_toggles
from ..toggles.table import TOGGLES
from . import verdict_parts
from .stacks import stack_text
from .verdict_parts import chain_lines, label_line, ok_lines

MOST_LINES = 15
_CONFIDENCE_AT = 72  # column, after most titles
_FRAMES = 3  # of the stack, in the one line that it gets


def verdict_lines(
    verdict: Verdict,
    job: JobFacts,
    ranks: Sequence[RankFacts],
    *,
    run_dir: str,
    state: str,
    width: int | None = None,
) -> list[str]:
    """Return the verdict on a job that did not end well in words (for one that did: `ok_lines`).
    `state` says what the job was left in; `width` is the terminal's, None for a pipe: nothing is
    cut. Secrets are masked.
    """
    lines = _whole_verdict(verdict, job, ranks, state, run_dir)
    return [cut_line(printable(mask_text(line)), width) for line in lines]


def _whole_verdict(
    verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts], state: str, run_dir: str
) -> list[str]:
    """Return what went wrong. The chain gets what room there is; how it ended is never cut."""
    head = [_headline(verdict, ranks), *verdict_parts.culprit_lines(verdict, ranks)]
    middle = verdict_parts.other_rank_lines(verdict, ranks)
    middle += _cause(verdict) + _evidence(verdict, job, ranks) + _next(verdict)
    end = label_line("job", state) + label_line("report", report_hint(run_dir))
    chain = chain_lines(verdict, MOST_LINES - len(head) - len(middle) - len(end))
    return [*[*head, *chain, *middle][: MOST_LINES - len(end)], *end]


def report_hint(run_dir: str) -> str:
    """Return which file of a run folder to attach; it is made once the verdict is told."""
    return f"{run_dir}/report.md: paste it into an issue" if run_dir else ""


# ---- the parts, in their order --------------------------------------------------------------


def _headline(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    place = verdict.checkpoint
    where = ""
    if place is not None:
        where = f"{format_place(place):<40}"
    hosts = len({r.host for r in ranks if r.host})
    size = format_count(verdict.world_size, "rank")
    if hosts > 1:
        size = f"{format_count(hosts, 'node')}, {size}"
    told = f"{format_seconds(verdict.seconds.total)} after start, {size}"
    return "  ".join(part for part in (verdict.outcome.upper(), where, told) if part)


def format_place(place: Place) -> str:
    """Return a checkpoint with its phase: "checkpoint 9 WandbLogger ready, phase login"."""
    number = f"checkpoint {place.number} " if place.number is not None else ""
    return f"{number}{place.title}{f', phase {place.phase}' if place.phase else ''}"


def _cause(verdict: Verdict) -> list[str]:
    cause = verdict.cause
    if cause is None:
        return label_line("cause", "unknown") if verdict.outcome == "hang" else []
    return cause_lines(cause)


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause, how sure it is and its page, and what speaks for it."""
    (line,) = label_line("cause", cause.title or "unknown")
    lines = [f"{line:<{_CONFIDENCE_AT}}  {cause.confidence:.2f}  {cause_page(cause.id)}"]
    return lines + label_line("because", "; ".join(cause.matched) or cause.why)


def _evidence(verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts]) -> list[str]:
    lines = []
    culprit = next((r for r in ranks if r.rank in verdict.ranks.culprit), None)
    if culprit is not None:
        lines += label_line("stack", short_stack(culprit, job, verdict.call or ""))
        if culprit.last_line:
            age = next((w.last_line_age for w in verdict.where if w.rank == culprit.rank), None)
            ago = f", {format_seconds(age)} ago" if age is not None else ""
            line = join_lines(culprit.last_line)
            lines += label_line("last line", f'rank {culprit.rank}{ago}: "{line}"')
        if culprit.output:
            lines += label_line("wrote", f'rank {culprit.rank}: "{join_lines(culprit.output[-1])}"')
    elif verdict.outcome != "crash":
        lines += _where_they_were(job, ranks)
    return lines + _seen_by(verdict, job, ranks)


def _where_they_were(job: JobFacts, ranks: Sequence[RankFacts]) -> list[str]:
    """Where the ranks were, the furthest behind first, when nobody can be blamed."""
    lines = []
    for one in sorted((r for r in ranks if r.alive and not r.held), key=lambda r: r.reached)[:3]:
        stack = short_stack(one, job)
        if stack:
            who = f"rank {one.rank}" if job.world_size else "the launcher"
            lines += label_line("was in", f"{who}: {stack}")
    return lines


def short_stack(facts: RankFacts, job: JobFacts, call: str = "") -> str:
    """Return the innermost frames of the library and of the user's code, innermost first:
    "wandb_init.py:1012 init < train.py:88 main".
    """
    view = merge_looks(facts.looks)
    frames = job_frames(view.frames, job.package) if view else ()
    shown = [f for f in frames if frame_owner(f, job.package) != "import"]
    own = [i for i, f in enumerate(shown) if frame_owner(f, job.package) in ("user", "step")]
    library = [i for i in range(len(shown)) if i not in own and (not own or i < own[0])]
    # The innermost, and the call that it hangs in: between them lie the library's own ways.
    entered = [i for i in library if f"/{call.partition('.')[0]}/" in shown[i].file] or library
    chosen = library[:1] + [i for i in entered[-1:] if i != library[0]] + own[:1]
    rest = [i for i in range(len(shown)) if i not in chosen]
    chosen += rest[: _FRAMES - len(chosen)]
    return " < ".join(_short_frame(shown[i]) for i in sorted(chosen))


def _short_frame(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line} {unqualified_name(frame.name)}"


def _seen_by(verdict: Verdict, job: JobFacts, ranks: Sequence[RankFacts]) -> list[str]:
    looked = [r for r in ranks if r.looks]
    if not looked:
        return []
    most = max(looked, key=lambda r: len(r.looks))
    span = most.looks[-1].at - most.looks[0].at
    rung = "/proc" if verdict.seen_by == "proc" else f"{verdict.seen_by} and /proc"
    size = format_count(verdict.world_size, "rank")
    on = f"{len(looked)} of {size}" if verdict.world_size else "the launcher"
    text = f"{rung} on {on}, "
    text += f"{format_count(len(most.looks), 'look')} in {format_seconds(max(0.0, span))}"
    moved = [r.rank for r in looked if r.moved]
    if verdict.outcome == "hang" and not moved and len(most.looks) > 1:
        text += ", nothing moved"
    if job.still is not None and verdict.outcome == "hang" and len(most.looks) > 1:
        text += f", still for {format_seconds(job.still)}"
    return label_line("seen by", text)


def _next(verdict: Verdict) -> list[str]:
    lines = label_line("try", _advice(verdict))
    if verdict.outcome == "hang":
        lines += label_line("prove it", _proof(verdict))
    return lines


def _proof(verdict: Verdict) -> str:
    """Return the command that proves it, and how many starts that takes, of what length at most."""
    remedies, _ = find_usable_toggles(verdict.command, {}, TOGGLES)
    about = estimate_starts([toggle for toggle in remedies if toggle.kind == "remedy"]).about
    size = f"about {format_count(about, 'start')} of up to {format_seconds(verdict.seconds.total)}"
    return f"{size}: hangbisect isolate -- {shlex.join(verdict.command)}"


def _advice(verdict: Verdict) -> str:
    """Return what to change: what avoids the cause before what is safer in general."""
    # Not at the top: a job that ends well needs none of the catalogue, and its ranks wait for us.
    from ..diagnosis.causes.catalogue import find_known_cause

    cause = verdict.cause
    known = find_known_cause(cause.id) if cause else None
    has_a_toggle = known is not None and bool(known.toggles)
    if cause is not None and cause.avoid and not (has_a_toggle and verdict.try_):
        return cause.avoid[0]
    return verdict.try_[0].command if verdict.try_ else ""


# ---- while it goes on, and after --------------------------------------------------------------


def slow_line(
    table: Sequence[Checkpoint], ranks: Sequence[RankFacts], rank: RankId, moved: str, now: float
) -> str:
    """Return one line for a rank that is late but moves: what moves, and who waits meanwhile."""
    facts = next((r for r in ranks if r.rank == rank), None)
    place = ""
    if facts is not None:
        row = next((c for c in table if c.number == facts.reached + 1), None)
        step = facts.step or row
        place = step.words if step else ""
        place += f", phase {facts.phase}" if facts.phase else ""
    took = f", {format_seconds(now - facts.entered)}" if facts and facts.entered is not None else ""
    waiting = [r.rank for r in ranks if r.rank != rank and (r.held or r.awaits)]
    waits = "waits" if len(waiting) == 1 else "wait"
    tail = f"; {format_ranks(waiting)} {waits}" if waiting else ""
    return printable(f"SLOW  {place}   rank {rank}{took}: {join_lines(moved)}{tail}")


def culprit_stack(ranks: Sequence[RankFacts], verdict: Verdict, limit: int = 40) -> list[str]:
    """Return the first culprit's stack as text, at most `limit` lines, for a log."""
    for facts in ranks:
        looks = [look for look in facts.looks if look.threads or look.dump]
        if facts.rank in verdict.ranks.culprit and (looks or facts.looks):
            look = looks[-1] if looks else facts.looks[-1]
            lines = mask_lines(stack_text(look, facts.rank, "rank")).splitlines()
            cut_off = len(lines) - limit
            if cut_off > 0:
                kept = lines[: limit - 1]
                return [*kept, f"({format_count(cut_off + 1, 'more line')} in stacks/)"]
            return lines
    return []


_UNKNOWN_COMMAND = ("python",)  # in place of a command that nobody knows


def replay_verdict(
    verdict: Verdict,
    folder: str,
    width: int | None = None,
    ranks: Sequence[RankFacts] = (),
) -> list[str]:
    """Return the lines of a verdict that was read in `folder`: the same as when it was made if
    `ranks` are those that it was made of, else as far as the verdict holds them.
    """
    if verdict.outcome == "ok":
        return ok_lines(verdict, (), "", folder, width, own=True)
    lines = replay_lines(verdict, folder, width, ranks)
    if any(one.looks for one in ranks):
        return lines
    frame = [cut_line(line, width) for line in label_line("frame", verdict.frame or "")]
    return [*lines[:-1], *frame, *lines[-1:]] if folder else [*lines, *frame]


def replay_lines(
    verdict: Verdict, folder: str, width: int | None = None, ranks: Sequence[RankFacts] = ()
) -> list[str]:
    """Return the lines of a verdict on a job that did not end well; without a command none that is
    to prove it.
    """
    known = replace(verdict, command=verdict.command or _UNKNOWN_COMMAND)
    told = ranks or _ranks_of_verdict(verdict)
    lines = verdict_lines(
        known, job_of_verdict(verdict), told, run_dir=folder, state="", width=width
    )
    return [line for line in lines if verdict.command or not line.startswith("prove it")]


def job_of_verdict(verdict: Verdict) -> JobFacts:
    """Return what a verdict tells of its job, as those that word it take it."""
    return JobFacts(
        ended="still",
        pipeline=verdict.pipeline,
        command=verdict.command,
        attempt=verdict.attempt,
        world_size=verdict.world_size,
        still=verdict.seconds.still,
    )


def _ranks_of_verdict(verdict: Verdict) -> list[RankFacts]:
    return [
        RankFacts(one.rank, pid=one.pid, host=one.host, last_line=one.last_line)
        for one in verdict.where
    ]
