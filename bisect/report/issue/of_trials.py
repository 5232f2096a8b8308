"""report.md of an isolation or a matrix: its answer, and the hang that it is about."""

from __future__ import annotations

from ..answers import answer_again, rows
from ..kept.run import KeptRun
from .facts_sections import unread
from .length import MOST, Section
from .masked import NOTHING, Masked
from .page import ANSWER, assembled, sections
from .plain import code, fenced, folded

_ROWS = 12  # that need not be folded


def page_of_trials(
    run: KeptRun, hang: KeptRun | None, masked: Masked = NOTHING, most: int = MOST
) -> str:
    """Return what goes into an issue; `hang` is the first start that went wrong, if it is kept."""
    title = "The answer of an isolation" if run.kind == "isolation" else "What a matrix found"
    lines = answer_again(run, ".")
    found = [Section(f"## {title}\n\n{fenced(lines[:60])}", ANSWER, "")]
    if len(run.trials) > _ROWS or len(lines) > 60:
        text = folded("All starts", fenced(rows(run)))
        found.append(Section(text, 65, "the table of all starts"))
    if hang is not None:
        found.append(Section(f"The start in {code(hang.folder.name)}:", ANSWER, ""))
        found += sections(hang)
    return assembled([*found, *unread(run)], masked, most)
