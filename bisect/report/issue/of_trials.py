"""report.md of an isolation or a matrix: its answer, and the hang that it is about."""

from __future__ import annotations

from ..answers import answer_again, isolation_of, rows
from ..isolation import MOST_ROWS, unused_lines
from ..kept.run import KeptRun
from ..words import counted
from .facts_sections import unread
from .length import MOST, Section
from .masked import NOTHING, Masked
from .page import ANSWER, assembled, sections
from .plain import code, fenced, folded

_LINES = 60  # of the answer, that are never cut


def page_of_trials(
    run: KeptRun, hang: KeptRun | None, masked: Masked = NOTHING, most: int = MOST
) -> str:
    """Return what goes into an issue; `hang` is the first start that went wrong, if it is kept."""
    title = "The answer of an isolation" if run.kind == "isolation" else "What a matrix found"
    lines = answer_again(run, "")
    found = [Section(f"## {title}\n\n{fenced(lines[:_LINES])}", ANSWER, "")]
    if len(lines) > _LINES or (run.kind == "isolation" and len(run.trials) > MOST_ROWS):
        text = folded("All starts", fenced(rows(run)))
        found.append(Section(text, 65, "the table of all starts"))
    found += _unused(run)
    if hang is not None:
        found.append(Section(f"The start in {code(hang.folder.name)}:", ANSWER, ""))
        found += sections(hang)
    return assembled([*found, *unread(run)], masked, most)


def _unused(run: KeptRun) -> list[Section]:
    """Return why toggles were not tried, folded."""
    isolation = isolation_of(run)
    if isolation is None or not isolation.unused:
        return []
    title = f"{counted(len(isolation.unused), 'toggle')} not tried, and why"
    text = folded(title, fenced(unused_lines(isolation.unused)))
    return [Section(text, 40, "why toggles were not tried (isolation.json)")]
