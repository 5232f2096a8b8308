"""What is left where a report could not be made."""

from __future__ import annotations

from pathlib import Path

from hangbisect.commands.internal import _leave_a_word


def failed() -> Exception:
    try:
        int("a secret")
    except ValueError as error:
        return error
    raise AssertionError


def test_it_is_told_where_it_failed_and_no_value(tmp_path: Path) -> None:
    _leave_a_word(tmp_path, failed())
    text = (tmp_path / "report.md").read_text()
    assert "ValueError" in text
    assert "test_make_reports.py" in text
    assert "a secret" not in text


def test_a_report_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    _leave_a_word(tmp_path, failed())
    assert (tmp_path / "report.md").read_text() == "mine"
