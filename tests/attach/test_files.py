"""The files and reports of a job of which a rank has no number that anybody could read."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from hangbisect.attach.answer import write_run_files
from hangbisect.attach.judgement import judge_nodes
from hangbisect.base.identity import UnknownRank
from hangbisect.report.html.page import html_page
from hangbisect.report.issue_page import run_page
from hangbisect.report.redaction import NoRedaction, redact_run, redactor_for
from hangbisect.report.run_reader.run import read_rank_facts, read_run
from hangbisect.report.trace import make_trace

from .test_words import BARRIER, SLEEP, node, rank, unknown


def test_a_rank_without_a_number_is_its_process_in_all_files_and_reports(tmp_path: Path) -> None:
    ranks = (rank(0, BARRIER, "futex"), unknown(101, SLEEP, "clock_nanosleep"))
    found = judge_nodes([node(*ranks, world=2)], now=102.0)
    asyncio.run(write_run_files(found, tmp_path / "run"))
    hidden, words = UnknownRank("n01", 101), "? (pid 101 on n01)"

    data = json.loads((tmp_path / "run" / "verdict.json").read_text("utf-8"))
    assert data["ranks"]["culprit"] == [words]
    assert data["where"][0]["rank"] == words
    assert list(json.loads((tmp_path / "run" / "environment.json").read_text())["ranks"]) == [
        "0",
        words,
    ]
    assert (tmp_path / "run" / "stacks" / "rank-pid101+n01.txt").read_text().startswith("rank ? ")

    run = read_run(tmp_path / "run")
    assert run.missing == ()
    assert run.verdict is not None
    assert run.verdict.ranks.culprit == (hidden,)
    assert [one.rank for one in read_rank_facts(run)] == [0, hidden]

    page = run_page(run)
    assert "rank ? in " in page.splitlines()[0]
    assert "### The stack of rank ? (pid 101 on n01)" in page
    trace = make_trace(run)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names[:2] == ["rank 0", "rank ?"]
    html = html_page(run, NoRedaction())
    assert "rank ? (pid 101 on n01)" in html
    texts = [json.dumps(data), page, json.dumps(trace), html]
    assert not [text for text in texts if re.search(r"\brank 1\b", text)]


def test_a_rank_without_a_number_stays_the_same_where_its_host_is_masked(tmp_path: Path) -> None:
    ranks = (rank(0, BARRIER, "futex"), unknown(101, SLEEP, "clock_nanosleep"))
    asyncio.run(write_run_files(judge_nodes([node(*ranks)], now=102.0), tmp_path / "run"))
    run = read_run(tmp_path / "run")
    masked = redact_run(run, redactor_for(run, anonymous=True))
    assert masked.verdict is not None
    (shown,) = masked.verdict.ranks.culprit
    assert shown != UnknownRank("n01", 101)
    assert [one.rank for one in read_rank_facts(masked)][1:] == [shown]
