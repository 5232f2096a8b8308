"""A verdict is worded once: terminal, Markdown and HTML print the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.report.html.page import html_page, verdict_answer
from hangbisect.report.html.templates import ShownTexts
from hangbisect.report.isolation_text import answer_lines, report_text, word_isolation
from hangbisect.report.issue_page import run_page, trials_page
from hangbisect.report.issue_sections import escape_line
from hangbisect.report.redaction import NoRedaction
from hangbisect.report.rows import (
    Answer,
    Row,
    add_detail,
    count_lines,
    format_answer,
    format_rows,
    limit_rows,
    make_rows,
    word_good_run,
)
from hangbisect.report.run_reader.run import RecordedRun, read_rank_facts, read_run
from hangbisect.report.run_reader.run_files import make_evidence
from hangbisect.report.terminal import replay_verdict
from hangbisect.report.verdict_rows import word_recorded_verdict
from hangbisect.search.isolation import Isolation
from hangbisect.trials.isolation_request import IsolationRecord
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..diagnosis.test_never_fails import JOBS, MANY
from .html.made_up import parsed, text_of
from .kept.made_up import VERDICT
from .test_isolation import FOUND, SEEN

# What a page of HTML says in its own way: of the cause all that is known, each thing to try, and
# no state of a job that is over.
IN_OTHER_PLACES = {"cause", "because", "try", "job", "report"}
NOT_ISOLATED = replace(
    FOUND, outcome="hangs_all_safe", changes=(), paste="", with_it=None, without=None, seen=SEEN
)
ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(["culprit", "cause", "last line", ""]),
        st.text(max_size=9),
        st.lists(st.text(max_size=9), max_size=4).map(tuple),
    ),
    max_size=9,
)


def recorded(facts: JobFacts, ranks: list[RankFacts]) -> tuple[RecordedRun, Verdict]:
    verdict, graph = judge_job_with_graph(facts, ranks)
    evidence = to_json(make_evidence(ranks, graph, facts.machine))
    return RecordedRun(Path("run"), verdict=verdict, evidence=evidence), verdict


@pytest.mark.timeout(600)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(JOBS, MANY)
def test_terminal_markdown_and_html_print_the_same_rows(
    facts: JobFacts, ranks: list[RankFacts]
) -> None:
    run, verdict = recorded(facts, ranks)
    known = read_rank_facts(run)
    page = [text_of(one) for one in parsed(html_page(run, NoRedaction())).iter("dd")]
    shown = ShownTexts(NoRedaction())
    if verdict.outcome == "ok":
        well = word_good_run(verdict, runs_script=True)
        assert page[0] == shown.text(well.headline)
        assert page[1 : 1 + len(well.rows)] == [f"{r.label}: {r.text}" for r in well.rows]
        return
    told = word_recorded_verdict(verdict, "run", known)
    lines = replay_verdict(verdict, "run", None, known)
    assert [line for line in format_answer(told) if line not in lines] == []
    issue = word_recorded_verdict(verdict, "", known)
    markdown = run_page(run)
    for line in format_answer(issue):
        assert escape_line(line) in markdown
    texts = [text for row in told.rows if row.label not in IN_OTHER_PLACES for text in _texts(row)]
    assert page[: len(texts)] == [shown.text(text) for text in texts]
    # A page in the folder has no line that names itself, and so the more room.
    rest = {(row.label, row.text) for row in told.rows} - {(r.label, r.text) for r in issue.rows}
    assert {label for label, _ in rest} <= {"report"}


def _texts(row: Row) -> tuple[str, ...]:
    return (row.text, *row.detail)


def test_secrets_are_masked_in_every_row() -> None:
    token = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbC"
    verdict = replace(from_json(Verdict, VERDICT), call=f"load({token})", command=("python", token))
    told = word_recorded_verdict(verdict)
    assert any("***" in row.text for row in told.rows)
    assert not any(token in text for row in told.rows for text in _texts(row))
    facts = verdict_answer(verdict, (), "").facts
    assert not any(token in line for fact in facts for line in fact.lines)


@given(ROWS, st.integers(0, 20))
def test_as_many_rows_as_there_is_room_for(rows: list[Row], most: int) -> None:
    kept = limit_rows(rows, most)
    assert format_rows(kept) == format_rows(rows)[:most]
    assert count_lines(kept) == min(most, count_lines(rows))


def test_what_has_no_text_is_no_row() -> None:
    assert make_rows("try", "") == []
    assert make_rows("try", "", "b\nc") == [Row("try", "b c")]
    assert add_detail([Row("culprit", "rank 1")], ["a", ""]) == [Row("culprit", "rank 1", ("a",))]
    assert add_detail([], ["a", "b"]) == [Row("", "a", ("b",))]


def test_what_stands_aside_has_a_column_of_its_own() -> None:
    rows = (Row("cause", "short", aside="0.90", column=20), Row("cause", "x" * 20, aside="0.80"))
    assert format_answer(Answer("HANG", rows)) == [
        "HANG",
        "cause     short       0.90",
        f"cause     {'x' * 20}  0.80",
    ]


@pytest.mark.parametrize("found", [FOUND, NOT_ISOLATED], ids=["isolated", "not isolated"])
def test_an_isolation_has_the_same_rows_everywhere(found: Isolation, tmp_path: Path) -> None:
    IsolationRecord(tmp_path / "iso").write(found)
    run = read_run(tmp_path / "iso")
    told = word_isolation(found, None)
    page = [text_of(one) for one in parsed(html_page(run, NoRedaction())).iter("dd")]
    whole = report_text(found, folder="iso").splitlines()
    for row in told.rows:
        assert set(format_rows([row])) <= set(whole)
        assert set(_texts(row)) <= set(page)
    short = word_isolation(found, "")
    markdown = trials_page(run, None).splitlines()
    terminal = answer_lines(found, folder="iso")
    assert set(format_answer(short)) <= set(markdown)
    assert {r.label for r in short.rows} == {r.label for r in told.rows}
    assert set(format_rows(r for r in short.rows if r.label != "unused")) <= set(terminal)
