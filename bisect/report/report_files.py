"""Makes the reports of a run folder (report.md, report.html, trace.json), writes each whole in
place of the old one, and adds report.md to the summary of a step in GitHub Actions.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..base.deadline import within
from ..base.errors import HangbisectError
from ..base.lazy_dataclass import dataclass
from .issue_sections import STEP_SUMMARY, Masked
from .redaction import AnyRedactor, NoRedaction, redact_run, redactor_for
from .run_reader.run import FAILED_RESULTS, RecordedRun, read_run, trials_with_reports

NAMES = ("report.md", "report.html", "trace.json")


@dataclass(frozen=True)
class MadeReports:
    """What came of it."""

    files: tuple[Path, ...]
    trouble: tuple[str, ...]  # sentences: what could not be made, and why
    masked: Masked
    missing: tuple[str, ...]  # what could not be read


@dataclass(frozen=True)
class ReportSource:
    """What reports are made of: no text in it has a secret any more."""

    run: RecordedRun
    hang: RecordedRun | None  # of an isolation or a matrix: the first start that went wrong
    redactor: AnyRedactor
    masked: Masked
    reported: bool  # the reports of its starts lie beside these


def make_reports(
    folder: Path,
    output: Path | None = None,
    *,
    anonymous: bool = False,
    redact: bool = True,
    summary: bool = True,
) -> MadeReports:
    """Read a run folder, and write its reports in it, or in `output`. `anonymous`: users, homes,
    hosts and addresses get pseudonyms. `redact`: secrets are masked. `summary`: in GitHub Actions
    report.md goes to the summary of the step as well.

    Raises UsageError if there is no run in `folder`, HangbisectError if nothing can be written.
    """
    run = read_run(folder)
    redactor: AnyRedactor = redactor_for(run, anonymous) if redact else NoRedaction()
    kept = prepare_source(run, redactor)
    files: list[Path] = []
    trouble: list[str] = []
    for name, text in render_reports(kept, trouble).items():
        path = (output or folder) / name
        _write_report(path, text)
        files.append(path)
        if name == NAMES[0] and summary:
            add_to_step_summary(text, os.environ)
    return MadeReports(tuple(files), tuple(trouble), kept.masked, kept.run.missing)


def prepare_source(
    run: RecordedRun, redactor: AnyRedactor, *, reported: bool = True
) -> ReportSource:
    """Return what the reports of a run are made of; `reported` as in ReportSource."""
    hang = _read_hang(run)
    clean = redact_run(run, redactor)
    clean_hang = redact_run(hang, redactor) if hang is not None else None
    masked = Masked(redactor.secrets, dict(redactor.counts))
    return ReportSource(clean, clean_hang, redactor, masked, reported)


def _read_hang(run: RecordedRun) -> RecordedRun | None:
    """Return the first start of an isolation or a matrix that went wrong, as far as it is kept."""
    for trial in run.trials:
        if trial.link and trial.result in FAILED_RESULTS:
            with contextlib.suppress(HangbisectError):
                return read_run(run.folder / trial.link)
    return None


def failed_starts(folder: Path) -> list[Path]:
    """Return the run folders of the starts of an isolation or a matrix that went wrong, the first
    of them. Raises UsageError if there is nothing of ours in `folder`.
    """
    return [folder / trial.link for trial in trials_with_reports(read_run(folder).trials)]


def render_reports(kept: ReportSource, trouble: list[str]) -> dict[str, str]:
    """Return the reports by their names; one that cannot be made is a sentence in `trouble`, and
    the others are made all the same.
    """
    run = kept.run

    def markdown() -> str:
        if run.kind == "run":
            from .issue_page import run_page

            return run_page(run, kept.masked)
        from .issue_page import trials_page

        return trials_page(run, kept.hang, kept.masked)

    def html() -> str:
        from .html.page import html_page

        return html_page(run, kept.redactor, reported=kept.reported)

    def trace() -> str:
        from .trace import make_trace

        return json.dumps(make_trace(run), ensure_ascii=False) + "\n"

    makers: dict[str, Callable[[], str]] = dict(zip(NAMES, (markdown, html, trace), strict=True))
    if not any(part.events for part in run.everywhere):
        del makers["trace.json"]  # no rank reported when what was
    made = {}
    for name, maker in makers.items():
        try:
            made[name] = maker()
        except Exception as error:  # two of three reports are better than none
            if os.environ.get("HANGBISECT_DEBUG"):
                raise
            trouble.append(f"{name} could not be made: {type(error).__name__}: {error}")
    return made


def _write_report(path: Path, text: str) -> None:
    """Write a report, and its folder where there is none. Raises HangbisectError."""

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("utf-8", "replace"))

    write_in_time(path, write, "Name another folder: --output DIR")


def reports_json(made: MadeReports) -> dict[str, Any]:
    """Return it as an object."""
    return {
        "schema": 1,
        "files": [str(path) for path in made.files],
        "trouble": list(made.trouble),
        "masked": dict(made.masked.counts),
        "missing": list(made.missing),
    }


WRITE_LIMIT = 20.0  # seconds for a file to be written: it may be a disk that hangs
_LONGEST = 100  # characters of its name, in that of the file aside
T = TypeVar("T")


def write_in_time(path: Path, write: Callable[[], T], hint: str) -> T:
    """Return what `write` returns, which writes `path`.

    Raises HangbisectError if it takes longer than WRITE_LIMIT or cannot be done; then with the
    `hint`.
    """
    try:
        return within(WRITE_LIMIT, write)
    except TimeoutError:
        raise HangbisectError(f"{path} could not be written within {WRITE_LIMIT:.0f} s") from None
    except OSError as error:
        raise HangbisectError(f"{path} cannot be written: {error.strerror}", hint) from None


def replace_file(path: Path, data: bytes) -> None:
    """Write a file aside, under a name that cannot be foreseen, and rename it: links are replaced,
    not followed. Raises OSError, and leaves nothing behind then.
    """
    prefix = f".{path.name[:_LONGEST]}."
    descriptor, aside = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _umask() -> int:
    """Return this process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


SUMMARY_LIMIT = 5.0  # seconds


def add_to_step_summary(text: str, environ: Mapping[str, str]) -> bool:
    """Append `text` to the step's summary; return whether it was. Not where there is none, and
    not where it would make it larger than GitHub takes: it would drop all of it.
    """
    file = environ.get("GITHUB_STEP_SUMMARY", "")
    if environ.get("GITHUB_ACTIONS") != "true" or not file:
        return False
    data = text.encode("utf-8", "replace") + b"\n"

    def append() -> bool:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        with open(descriptor, "ab") as opened:
            if os.fstat(descriptor).st_size + len(data) > STEP_SUMMARY:
                return False
            opened.write(data)
        return True

    try:
        return within(SUMMARY_LIMIT, append)
    except (OSError, TimeoutError):
        return False
