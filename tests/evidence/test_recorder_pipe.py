"""torch's recorder asked over its pipe: a process that speaks the same protocol stands in for a
rank, for there is no GPU here. It makes the pipe, looks into it, and dumps to its file.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.library_facts import add_recorder_dumps
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence import external_tools
from hangbisect.evidence.gpus.recorder_queries import find_recorder_pipe

from ..diagnosis.made_up import job, rank
from ..diagnosis.recorder_dumps import dump, rounds, written
from ..diagnosis.test_pending_operations import ITEM
from .printing_processes import wait_for

# DumpPipe and HeartbeatMonitor::runLoop of torch, with what it dumps in a file beside it.
STAND_IN = """
import os, sys, time
rank, what = sys.argv[1], sys.argv[2]
pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
os.mkfifo(pipe)
reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
if what == "nobody reads":
    os.close(reader)
open(f"ready-{rank}", "w").close()
while True:
    time.sleep(0.1)
    if what == "answers" and os.read(reader, 128):
        target = f"{os.environ['TORCH_NCCL_DEBUG_INFO_TEMP_FILE']}{rank}"
        data = open(f"holds-{rank}", "rb").read()
        with open(target, "wb") as file:  # as torch does: not whole at once
            for at in range(0, len(data), 4096):
                file.write(data[at:at + 4096])
                file.flush()
                time.sleep(0.005)
"""
Start = Callable[..., RankFacts]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "trace_"),
    }

    def begin(number: int, done: int = 41, what: str = "answers") -> RankFacts:
        last = "started" if done == 41 else "completed"
        held = written(dump(rounds(done, last), {"0": range(4)}), "pickle")
        (tmp_path / f"holds-{number}").write_bytes(held)
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", STAND_IN, str(number), what],
                cwd=tmp_path,
                env=os.environ | environment,
            )
        )
        wait_for(tmp_path / f"ready-{number}")
        return rank(number, ITEM, environment=environment, pid=started[-1].pid)

    yield begin
    for process in started:
        process.kill()
        process.wait()


def asked(*ranks: RankFacts, limit: float = 60.0, notes: list[str] | None = None) -> Any:
    found, said = asyncio.run(add_recorder_dumps(ranks, limit))
    if notes is not None:
        notes += said
    return found


def test_who_never_entered_is_named_by_what_recorders_dump(start: Start) -> None:
    ranks = asked(*(start(n, 40 if n == 2 else 41) for n in range(4)))
    assert [log.source for one in ranks for log in one.collectives] == ["flight recorder"] * 4
    verdict = judge_job(job("still", 4), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))


def test_an_older_dump_is_not_taken_for_the_answer(start: Start, tmp_path: Path) -> None:
    one = start(0)
    (tmp_path / "trace_0").write_bytes(written(dump(rounds(7), {"0": range(4)}), "pickle"))
    os.utime(tmp_path / "trace_0", (time.time() - 60, time.time() - 60))
    ((log,),) = (found.collectives for found in asked(one))
    assert max(op.number for op in log.operations) == 41


@pytest.mark.parametrize("what", ["nobody reads", "never answers"])
def test_one_that_does_not_answer_costs_the_limit_at_most(start: Start, what: str) -> None:
    one = start(0, what=what)
    notes: list[str] = []
    (found,) = asked(one, limit=0.5, notes=notes)
    assert found.collectives == ()
    assert [note.partition(" was")[0] for note in notes] == (
        ["torch's flight recorder of rank 0"] if what == "never answers" else []
    )


def test_the_others_are_read_all_the_same(start: Start) -> None:
    ranks = asked(start(0), start(1, what="never answers"), limit=5.0)
    assert [len(one.collectives) for one in ranks] == [1, 0]


def test_a_pipe_of_the_name_that_the_rank_has_not_open_is_left_alone(
    start: Start, tmp_path: Path
) -> None:
    """Somebody else reads it: nothing is written to it."""
    one = start(0, what="nobody reads")
    assert find_recorder_pipe(one) is None
    reader = os.open(tmp_path / "ask_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        asked(one, limit=0.3)
        assert os.read(reader, 16) == b""
    finally:
        os.close(reader)


def test_without_the_variable_nobody_is_asked() -> None:
    one = RankFacts(0, pid=os.getpid())
    assert find_recorder_pipe(one) is None
    assert asked(one) == [one]


# ---- files that are there already ----------------------------------------------------------------


def left_there(
    folder: Path, who: int, environment: dict[str, str], members: int = 4, world: int = 4
) -> list[RankFacts]:
    """Ranks whose recorders dumped when an operation timed out, of which `who` has not come."""
    for number in range(4):
        done, last = (40, "completed") if number == who else (41, "started")
        held = written(dump(rounds(done, last), {"0": range(members)}), "pickle")
        (folder / f"trace_{number}").write_bytes(held)
    ranks = [rank(n, ITEM, environment=environment, pid=os.getpid()) for n in range(4)]
    began = time.monotonic() - 60.0
    found, notes = asyncio.run(add_recorder_dumps(ranks, 60.0, began, world))
    assert notes == ()
    return found


def test_attach_reads_what_was_dumped_when_an_operation_timed_out(tmp_path: Path) -> None:
    named = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    verdict = judge_job(job("still", 4), left_there(tmp_path, 2, named))
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))


@pytest.mark.parametrize("lost", [(0, 1), (1, 3), (2, 3)])
def test_with_the_dumps_of_half_of_the_ranks_nobody_else_is_named(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    named = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    ranks = left_there(tmp_path, 2, named)
    half = [replace(one, collectives=()) if one.rank in lost else one for one in ranks]
    culprit = judge_job(job("still", 4), half).ranks.culprit
    assert 2 in culprit or len(culprit) != 1


@pytest.mark.parametrize(("members", "counts"), [(4, True), (2, False)])
def test_at_the_usual_place_it_counts_where_it_is_of_a_job_of_that_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int, counts: bool
) -> None:
    """Another job of the same user writes there as well."""

    def usual(*_: Any) -> tuple[str, ...]:
        return (str(tmp_path / "trace_"),)

    monkeypatch.setattr(external_tools, "list_dump_prefixes", usual)
    found = left_there(tmp_path, 2, {}, members)
    assert [bool(one.collectives) for one in found] == [counts] * 4


def test_a_place_that_is_named_from_the_ranks_own_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = left_there(tmp_path, 2, {"TORCH_FR_DUMP_TEMP_FILE": "./trace_"})
    assert all(one.collectives for one in found)
