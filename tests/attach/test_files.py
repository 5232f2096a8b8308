"""The files and reports of a job of which a rank has no number that anybody could read."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

from hangbisect.attach.answer import write_run_files
from hangbisect.attach.judgement import judge_nodes
from hangbisect.base.identity import UnknownRank
from hangbisect.base.rank_facts import RankFacts, fill_in_same_looks
from hangbisect.report.html.page import html_page
from hangbisect.report.issue_page import run_page
from hangbisect.report.redaction import NoRedaction, redact_run, redactor_for
from hangbisect.report.run_reader.run import read_rank_facts, read_run
from hangbisect.report.run_reader.run_files import (
    MOST_KINDS,
    MOST_WHOLE,
    leave_out_same_looks,
)
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


def test_of_many_ranks_in_the_same_places_one_has_its_looks_in_the_folder(tmp_path: Path) -> None:
    """And the one that the verdict names. Who reads the folder finds a stack for each of them."""
    ranks = [rank(n, BARRIER, "futex") for n in range(99)]
    found = judge_nodes([node(*ranks, rank(99, SLEEP, "clock_nanosleep"), world=100)], now=102.0)
    assert found.verdict.ranks.culprit == (99,)
    asyncio.run(write_run_files(found, tmp_path / "run"))

    written = json.loads((tmp_path / "run" / "evidence.json").read_text("utf-8"))["ranks"]
    assert [one["rank"] for one in written if one["looks"]] == [0, 99]
    assert {one["same_looks_as"] for one in written[1:99]} == {0}
    stacks = sorted(file.name for file in (tmp_path / "run" / "stacks").iterdir())
    assert stacks == ["merged.txt", "rank-0.txt", "rank-99.txt"]
    assert "[0-98] barrier" in (tmp_path / "run" / "stacks" / "merged.txt").read_text()

    run = read_run(tmp_path / "run")
    assert run.missing == ()
    read = read_rank_facts(run)
    assert [one.rank for one in read] == list(range(100))
    assert all(one.looks for one in read)
    frames = [one.looks[-1].threads[0].frames for one in read]
    assert len({*frames[:99]}) == 1
    assert frames[99] not in frames[:99]
    assert {one.looks[-1].pid for one in read} == {one.pid for one in read}
    assert "like that at rank 0" in read[50].looks[-1].missing[-1]


def test_of_a_job_of_some_ranks_all_looks_are_in_the_folder() -> None:
    ranks = [rank(n, BARRIER, "futex") for n in range(MOST_WHOLE)]
    assert leave_out_same_looks(ranks, ()) == tuple(ranks)


def test_past_many_kinds_of_places_a_rank_keeps_its_last_look() -> None:
    def at_line(number: int) -> RankFacts:
        return rank(number, replace(SLEEP, line=number), "clock_nanosleep")

    ranks = [at_line(n) for n in range(MOST_KINDS + 20)]
    shown = leave_out_same_looks(ranks, ())
    assert shown[:MOST_KINDS] == tuple(ranks[:MOST_KINDS])
    assert [one.looks for one in shown[MOST_KINDS:]] == [r.looks[-1:] for r in ranks[MOST_KINDS:]]
    assert fill_in_same_looks(shown) == shown
