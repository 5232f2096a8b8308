"""A loop that waits by looking is told from work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.attach.judgement import is_spinning, judge_nodes
from hangbisect.base.files import PACKAGE
from hangbisect.base.process_facts import Frame
from hangbisect.base.rank_facts import RankFacts

from .test_words import BARRIER, SLEEP, look, node, rank

SITE = "/venv/lib/python3.11/site-packages/"


def busy(lines: list[int], file: str = SLEEP.file, gil: bool = True, **more: Any) -> RankFacts:
    """A rank that computes: a look at each of these lines, 0.9 s after one another."""
    looks = []
    for n, line in enumerate(lines):
        one = look(101, Frame("wait", file, line), "", 100.0 + 0.9 * n)
        threads = tuple(replace(t, active=True, owns_gil=gil) for t in one.threads)
        grown = more.get("grows", 0) * n
        looks.append(replace(one, threads=threads, memory=300_000_000 + grown))
    return RankFacts(1, 1, 101, "n01", looks=tuple(looks), busy=True)


LOOP = busy([20, 21, 20, 20, 21, 20, 20, 20, 21, 20, 20, 20])


def test_a_few_lines_of_the_jobs_own_that_keep_nothing_are_a_loop_that_waits() -> None:
    assert is_spinning(LOOP, PACKAGE)
    found = judge_nodes([node(rank(0, BARRIER, "futex"), LOOP, busy=(1,), span=10.0)], now=110.0)
    assert (found.verdict.outcome, found.verdict.ranks.culprit) == ("silent", (1,))


@pytest.mark.parametrize(
    "works",
    [
        replace(LOOP, busy=False),
        replace(LOOP, looks=LOOP.looks[:4]),
        busy(list(range(12))),
        busy([20] * 12, file=SITE + "tokenizers/x.py"),
        busy([20] * 12, gil=False),
        busy([20] * 12, grows=1 << 18),
    ],
    ids=["idle", "few looks", "many lines", "a library's", "native", "grows"],
)
def test_what_may_be_work_is_none(works: RankFacts) -> None:
    assert not is_spinning(works, PACKAGE)
