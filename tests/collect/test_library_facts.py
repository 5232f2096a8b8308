"""What NCCL and its watchdog print to files names the rank that is behind, and is told."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.library_facts import LibraryFacts, add_library_facts, read_library_facts
from hangbisect.diagnosis.verdict import judge_job

from ..diagnosis.made_up import job, rank
from ..diagnosis.test_pending_operations import ITEM
from ..dumps.watchdog_texts import signalled, timed_out
from ..evidence.printing_processes import Printers, printers

WARNING = "$HOST:$PID:$PID [0] net_ib.cc:96 NCCL WARN NET/IB : Got async event : port error"
HOUR = 3600.0


@pytest.fixture
def printing(tmp_path: Path) -> Iterator[Printers]:
    with printers(tmp_path) as found:
        yield found


def said(number: int, behind: int = 2) -> Sequence[str]:
    return signalled(number, 40, 40) if number == behind else timed_out(number, 41, 43)


def read(ranks: Sequence[RankFacts]) -> LibraryFacts:
    """What is read of a job that started an hour ago."""
    return asyncio.run(read_library_facts(ranks, time.monotonic() - HOUR, limit=30.0))


def say_now(lines: Sequence[str]) -> list[str]:
    """The lines, as if they were said half an hour ago; they are of 21 March, 02:07."""
    then = time.strftime("%m%d %H:%M:", time.localtime(time.time() - HOUR / 2)).removeprefix("0")
    return [line.replace("321 02:07:", then) for line in lines]


def standing(printing: Printers, folder: Path, unseen: Sequence[int] = ()) -> list[RankFacts]:
    """Four ranks in `.item()`, each with a file of its own but those whose output is a pipe."""
    reader, writer = os.pipe()
    try:
        files = [writer if n in unseen else folder / f"{n}.log" for n in range(4)]
        pids = [printing.start(say_now(said(n)), files[n]) for n in range(4)]
    finally:
        os.close(reader)
        os.close(writer)
    return [rank(n, ITEM, pid=pid) for n, pid in enumerate(pids)]


def test_who_is_behind_by_the_watchdogs_lines_is_named(printing: Printers, tmp_path: Path) -> None:
    ranks = standing(printing, tmp_path)
    found = read(ranks)
    verdict = judge_job(job("still", 4), add_library_facts(ranks, found))
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)


@pytest.mark.parametrize("unseen", [(0, 1), (0, 3), (2,), (2, 3)])
def test_with_a_part_of_it_nobody_else_is_named(
    printing: Printers, tmp_path: Path, unseen: tuple[int, ...]
) -> None:
    """Nothing is read of ranks whose output is a pipe: whoever waits by its own words is not named,
    and who is behind is, if it said so.
    """
    ranks = standing(printing, tmp_path, unseen)
    named = {*judge_job(job("still", 4), add_library_facts(ranks, read(ranks))).ranks.culprit}
    if 2 not in unseen:
        assert 2 in named
        assert named <= {2, *unseen}
    else:
        assert len(named) != 1


def test_a_warning_is_a_line_of_the_rank_and_of_the_verdict(
    printing: Printers, tmp_path: Path
) -> None:
    ranks = [rank(0, ITEM, pid=printing.start([WARNING], tmp_path / "log"), output=("Epoch 3",))]
    found = read(ranks)
    text = "NET/IB : Got async event : port error"
    assert found.notes == (f"NCCL warns on rank 0: {text}",)
    (facts,) = add_library_facts(ranks, found)
    assert facts.output == (f"NCCL WARN {text}", "Epoch 3")
    assert facts.nccl.warnings == (text,)


def test_what_vllm_says_of_its_workers_is_a_line_of_the_rank_and_of_the_verdict(
    printing: Printers, tmp_path: Path
) -> None:
    """In the file of all processes of the server the line names the one that says it."""
    then = time.strftime("%m-%d %H:%M:%S", time.localtime(time.time() - HOUR / 2))
    text = "No available shared memory broadcast block found in 60 seconds"
    line = f"(EngineCore_DP0 pid=$PID) INFO {then} [shm_broadcast.py:466] {text}. This typically"
    pids = [printing.start(lines, tmp_path / "log") for lines in ([line], [])]
    ranks = [rank(n, ITEM, pid=pid) for n, pid in enumerate(pids)]
    found = read(ranks)
    assert found.notes == (f"vLLM says on rank 0 (at {then[6:]}): {text}",)
    assert [facts.output for facts in add_library_facts(ranks, found)] == [(text,), ()]


def test_one_that_is_among_what_it_printed_is_not_said_twice() -> None:
    line = "n01:1:1 [0] a.cc:1 NCCL WARN port error"
    one = RankFacts(0, output=(line,))
    (facts,) = add_library_facts([one], LibraryFacts(nccl={}))
    assert facts == one


def test_a_disk_that_does_not_answer_costs_the_limit(tmp_path: Path) -> None:
    """A time limit of nothing: what was read until then counts, and no error comes."""
    assert asyncio.run(read_library_facts([], 0.0, limit=0.0)) in (LibraryFacts(),)
