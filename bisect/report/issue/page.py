"""report.md of a run, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...facts import RankFacts
from ..again import job_of, verdict_again
from ..as_json import from_json
from ..kept.facts import rank_facts
from ..kept.run import KeptRun
from ..kept.timeline import timeline
from ..words import of_ranks
from .checkpoints import checkpoint_table
from .facts_sections import differing, environment, unread, versions
from .length import MOST, Section, fitted
from .length import counted as characters
from .masked import NOTHING, Masked
from .places import places_table
from .plain import code, fenced
from .reproducing import reproducing
from .stack_sections import other_stacks, stack_that_matters, tree_of_all

ANSWER = 100  # of use: it is never cut


def page(run: KeptRun, masked: Masked = NOTHING, most: int = MOST) -> str:
    """Return what goes into an issue about a run, of which nothing secret is left: at most `most`
    characters as GitHub counts them.
    """
    return assembled(sections(run), masked, most)


def sections(run: KeptRun) -> list[Section]:
    """Return the parts about one run, in their order."""
    ranks = rank_facts(run)
    found = [Section(_headline(run.verdict), ANSWER, ""), *_answer(run, ranks)]
    found += _titled("Checkpoints", checkpoint_table(timeline(run)), 85)
    if run.verdict and run.outcome != "ok":
        told = places_table(run.verdict, ranks, job_of(from_json(run.verdict)))
        found += _titled("Where the ranks were", told, 80)
    found += stack_that_matters(run)
    found += tree_of_all(run)
    found += other_stacks(run)
    found += reproducing(run)
    found += versions(run)
    found += differing(run)
    found += environment(run)
    return [*found, *unread(run)]


def assembled(found: Sequence[Section], masked: Masked, most: int = MOST) -> str:
    """Return the page of these parts, with what was cut from it, and what was masked."""
    foot = _foot(masked)
    text, left_out = fitted(found, most - characters(foot) - 4)
    said = f"\n\n{_left_out(left_out)}" if left_out else ""
    return f"{text}{said}\n\n{foot}\n"


def _headline(verdict: Mapping[str, Any]) -> str:
    """Return the title: "HANG at checkpoint 9 WandbLogger ready: rank 1 in wandb.init"."""
    if not verdict:
        return "## A run without a verdict"
    place, blamed = verdict["checkpoint"], verdict["ranks"]["culprit"]
    title = f"## {verdict['outcome'].upper()}"
    if place is not None:
        number = "" if place["number"] is None else f"checkpoint {place['number']} "
        title += f" at {number}{code(place['title'], 80)}"
    if blamed:
        title += f": {of_ranks(blamed)}"
        title += f" in {code(verdict['call'], 120)}" if verdict["call"] else ""
    return title


def _answer(run: KeptRun, ranks: Sequence[RankFacts]) -> list[Section]:
    if not run.verdict:
        return []
    lines = verdict_again(run.verdict, "", None, ranks)
    cause = (run.verdict["cause"] or {}).get("why", "")
    found = [Section(fenced(lines), ANSWER, "")]
    notes = [f"- {code(note)}" for note in run.verdict["notes"][:20]]
    if cause:
        found.append(Section(f"Why: {code(cause, 2000)}", 95, "why"))
    return found + ([Section("\n".join(notes), 50, "notes")] if notes else [])


def _titled(title: str, text: str, useful: int) -> list[Section]:
    return [Section(f"### {title}\n\n{text}", useful, title.lower())] if text else []


def _left_out(names: Sequence[str]) -> str:
    shown = "; ".join(names[:20])
    more = f"; and {len(names) - 20} more" if len(names) > 20 else ""
    limit = f"to stay below the {MOST:,} characters that GitHub takes"
    return f"Left out {limit}: {shown}{more}. `hangbisect bundle` packs all of it."


def _foot(masked: Masked) -> str:
    told = f"masked: {masked.words}" if masked.counts else "no secret was found in it"
    return f"<sub>Made by hangbisect; {told}. Read before you post.</sub>"
