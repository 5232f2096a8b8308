"""A verdict on a terminal or in a log: at most 15 lines, in the same order every time; when it is
made, and again when it is read from verdict.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.checkpoints import Checkpoint
from ..base.identity import RankId
from ..base.masking import mask_lines
from ..base.rank_facts import JobFacts, RankFacts
from ..base.verdict_facts import Verdict
from ..base.words import format_count, format_ranks, format_seconds, join_lines, printable
from .rows import format_answer, format_good_run, make_rows, word_good_run
from .stacks import stack_text
from .verdict_rows import word_recorded_verdict, word_verdict

if TYPE_CHECKING:
    from ..diagnosis.wait_graph import WaitGraph


def verdict_lines(
    verdict: Verdict,
    job: JobFacts,
    ranks: Sequence[RankFacts],
    *,
    run_dir: str,
    state: str,
    width: int | None = None,
) -> list[str]:
    """Return the lines of a verdict on a job that did not end well; `state` as of `word_verdict`,
    `width` as of `format_answer`.
    """
    answer = word_verdict(verdict, job, ranks, run_dir=run_dir, state=state, tells_notes=True)
    return format_answer(answer, width)


def slow_line(
    table: Sequence[Checkpoint], ranks: Sequence[RankFacts], rank: RankId, moved: str, now: float
) -> str:
    """Return one line for a rank that is late but moves: what moves, and which ranks wait."""
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


def culprit_stack(
    ranks: Sequence[RankFacts], verdict: Verdict, graph: WaitGraph, limit: int = 40
) -> list[str]:
    """Return the first culprit's stack as text, at most `limit` lines, for a log. `graph`: what
    the verdict rests on.
    """
    for facts in ranks:
        looks = [look for look in facts.looks if look.threads or look.dump]
        if facts.rank in verdict.ranks.culprit and (looks or facts.looks):
            look = looks[-1] if looks else facts.looks[-1]
            wait = graph.find_wait(facts.rank, look)
            lines = mask_lines(stack_text(look, facts.rank, "rank", wait)).splitlines()
            cut_off = len(lines) - limit
            if cut_off > 0:
                kept = lines[: limit - 1]
                return [*kept, f"({format_count(cut_off + 1, 'more line')} in stacks/)"]
            return lines
    return []


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
        return format_good_run(word_good_run(verdict, run_dir=folder, runs_script=True), width)
    answer = word_recorded_verdict(verdict, folder, ranks)
    if not any(one.looks for one in ranks):
        frame, at = make_rows("frame", verdict.frame or ""), len(answer.rows) - bool(folder)
        answer = replace(answer, rows=(*answer.rows[:at], *frame, *answer.rows[at:]))
    return format_answer(answer, width)
