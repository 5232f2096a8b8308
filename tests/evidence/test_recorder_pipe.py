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
from pathlib import Path

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.library_facts import add_recorder_dumps
from hangbisect.diagnosis.verdict import judge_job
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


def asked(*ranks: RankFacts, limit: float = 60.0) -> list[RankFacts]:
    return asyncio.run(add_recorder_dumps(ranks, limit))


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
    (found,) = asked(one, limit=0.5)
    assert found.collectives == ()


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
