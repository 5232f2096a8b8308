"""The reports of a run folder: report.md, report.html, trace.json."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import HangbisectError
from .in_place import in_time, put_in_place
from .issue.masked import Masked
from .kept.redacted import Redactor, Unredacted, redacted
from .kept.run import KeptRun, read
from .kept.trials import WENT_WRONG, with_reports
from .redaction import redactor_for
from .step_summary import add_to_step_summary

NAMES = ("report.md", "report.html", "trace.json")


@dataclass(frozen=True)
class Made:
    """What came of it."""

    files: tuple[Path, ...]
    trouble: tuple[str, ...]  # sentences: what could not be made, and why
    masked: Masked
    missing: tuple[str, ...]  # what could not be read


@dataclass(frozen=True)
class Kept:
    """What reports are made of: no text in it has a secret any more."""

    run: KeptRun
    hang: KeptRun | None  # of an isolation or a matrix: the first start that went wrong
    redactor: Redactor
    masked: Masked
    reported: bool  # the reports of its starts lie beside these


def make(
    folder: Path,
    output: Path | None = None,
    *,
    anonymous: bool = False,
    redact: bool = True,
    summary: bool = True,
) -> Made:
    """Read a run folder, and write its reports in it, or in `output`. `anonymous`: users, homes,
    hosts and addresses get pseudonyms. `redact`: secrets are masked. `summary`: in GitHub Actions
    report.md goes to the summary of the step as well.

    Raises UsageError if there is no run in `folder`, HangbisectError if nothing can be written.
    """
    run = read(folder)
    redactor: Redactor = redactor_for(run, anonymous) if redact else Unredacted()
    kept = material(run, redactor)
    files: list[Path] = []
    trouble: list[str] = []
    for name, text in texts(kept, trouble).items():
        path = (output or folder) / name
        _write(path, text)
        files.append(path)
        if name == NAMES[0] and summary:
            add_to_step_summary(text, os.environ)
    return Made(tuple(files), tuple(trouble), kept.masked, kept.run.missing)


def material(run: KeptRun, redactor: Redactor, *, reported: bool = True) -> Kept:
    """Return what the reports of a run are made of; `reported` as in Kept."""
    hang = _hang_of(run)
    clean = redacted(run, redactor)
    clean_hang = redacted(hang, redactor) if hang is not None else None
    masked = Masked(redactor.secrets, dict(redactor.counts))
    return Kept(clean, clean_hang, redactor, masked, reported)


def _hang_of(run: KeptRun) -> KeptRun | None:
    """Return the first start of an isolation or a matrix that went wrong, as far as it is kept."""
    for trial in run.trials:
        if trial.link and trial.result in WENT_WRONG:
            with contextlib.suppress(HangbisectError):
                return read(run.folder / trial.link)
    return None


def starts_that_went_wrong(folder: Path) -> list[Path]:
    """Return the run folders of the starts of an isolation or a matrix that went wrong, the first
    of them. Raises UsageError if there is nothing of ours in `folder`.
    """
    return [folder / trial.link for trial in with_reports(read(folder).trials)]


def texts(kept: Kept, trouble: list[str]) -> dict[str, str]:
    """Return the reports by their names; what cannot be made of odd input is told, and the others
    are made all the same.
    """
    run = kept.run

    def markdown() -> str:
        if run.kind == "run":
            from .issue.page import page

            return page(run, kept.masked)
        from .issue.of_trials import page_of_trials

        return page_of_trials(run, kept.hang, kept.masked)

    def html() -> str:
        from .html.page import html_page

        return html_page(run, kept.redactor, reported=kept.reported)

    def trace() -> str:
        from .trace import trace

        return json.dumps(trace(run), ensure_ascii=False) + "\n"

    makers: dict[str, Callable[[], str]] = dict(zip(NAMES, (markdown, html, trace), strict=True))
    if not any(part.events for part in run.everywhere):
        del makers["trace.json"]  # nobody told when what was
    made = {}
    for name, maker in makers.items():
        try:
            made[name] = maker()
        except Exception as error:  # two of three reports are better than none
            if os.environ.get("HANGBISECT_DEBUG"):
                raise
            trouble.append(f"{name} could not be made: {type(error).__name__}: {error}")
    return made


def _write(path: Path, text: str) -> None:
    """Write a report, and its folder where there is none. Raises HangbisectError."""

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(path, text.encode("utf-8", "replace"))

    in_time(path, write, "Name another folder: --output DIR")


def as_json(made: Made) -> dict[str, Any]:
    """Return it as an object."""
    return {
        "schema": 1,
        "files": [str(path) for path in made.files],
        "trouble": list(made.trouble),
        "masked": dict(made.masked.counts),
        "missing": list(made.missing),
    }
