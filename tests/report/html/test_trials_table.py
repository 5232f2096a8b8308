"""The starts of an isolation or a matrix: each name leads to what is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.report.html.page_parts import trial_rows
from hangbisect.report.html.templates import ShownTexts
from hangbisect.report.run_reader.run import MOST_REPORTED, RecordedRun, RecordedTrial

from .made_up import job, plain


def run_of(*results: str) -> RecordedRun:
    trials = (
        RecordedTrial(n, "a", {}, one, "", None, f"trials/{n:02}")
        for n, one in enumerate(results, 1)
    )
    return replace(job(2), kind="isolation", trials=tuple(trials))


@pytest.mark.parametrize(
    ("result", "page"),
    [("hang", True), ("crash", True), ("other", True), ("pass", False), ("not started", False)],
)
def test_only_a_start_that_went_wrong_has_a_page(result: str, page: bool) -> None:
    (row,) = trial_rows(run_of(result), ShownTexts(plain()), reported=True)
    assert row.link == ("./trials/01/report.html" if page else "./trials/01/")


def test_of_very_many_the_rest_lead_to_their_folders() -> None:
    rows = trial_rows(run_of(*["hang"] * (MOST_REPORTED + 1)), ShownTexts(plain()), reported=True)
    assert sum(row.link.endswith("report.html") for row in rows) == MOST_REPORTED
    assert rows[-1].link == f"./trials/{MOST_REPORTED + 1}/"


def test_where_no_reports_lie_beside_it_they_lead_to_folders() -> None:
    (row,) = trial_rows(run_of("hang"), ShownTexts(plain()), reported=False)
    assert row.link == "./trials/01/"
