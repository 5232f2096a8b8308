"""The jobs of a machine as a list."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hangbisect.attach.answer import (
    LastMovement,
    choice_lines,
    describe_last_movements,
    find_only_still,
    list_jobs,
    no_job_lines,
)
from hangbisect.attach.job_search import FoundJobs
from hangbisect.attach.jobs import Job
from hangbisect.attach.ranks import Rank

NOBODY = 1 << 30  # above any pid
JOB = Job(
    ranks=(Rank(NOBODY, 0), Rank(NOBODY + 1, None)),
    launchers=(NOBODY + 2,),
    command=("torchrun", "--nproc_per_node=2", "a/very/long/path/to/the/script/train.py"),
    world=2,
    watched="",
)


def test_where_nothing_runs_it_says_what_was_looked_for_and_how_to_begin() -> None:
    text = "\n".join(asyncio.run(list_jobs(FoundJobs((), {}))))
    for word in ("RANK", "SLURM_PROCID", "torch", "hangbisect attach PID", "hangbisect run --"):
        assert word in text


def test_what_belongs_to_others_is_not_taken_for_nothing() -> None:
    assert (
        "Of 3 Python processes of other users nothing may be read"
        in no_job_lines(FoundJobs((), {}, 3))[0]
    )


def test_a_job_is_a_line_and_its_pid_stands_in_the_next_command() -> None:
    lines = asyncio.run(list_jobs(FoundJobs((JOB,), {})))
    assert lines[0] == "1 job runs here"
    assert f"  {NOBODY + 2} torchrun" in lines[1]
    assert "2 ranks (?), watched" in lines[1]
    assert lines[1].endswith("nothing moved in 1.0 s")
    assert f"hangbisect attach {NOBODY + 2}" in lines[3]


def test_of_several_one_has_to_be_named() -> None:
    both = [JOB, replace(JOB, launchers=(7,))]
    lines = choice_lines(both, [MOVES, STANDS])
    assert lines[0] == "2 jobs run here:"
    assert lines[1].endswith("  moves: rank 0 was started")
    assert "hangbisect attach PID" in lines[-1]


MOVES = LastMovement("moves: rank 0 was started", True)
STANDS, UNREAD = LastMovement("nothing moved in 1.0 s", False), LastMovement("nothing moved", None)


def test_the_only_one_that_stands_still_among_others_that_move_is_chosen() -> None:
    jobs = [replace(JOB, launchers=(pid,)) for pid in (5, 6, 7)]
    assert find_only_still(jobs, [MOVES, STANDS, MOVES]) is jobs[1]
    assert find_only_still(jobs, [STANDS, STANDS, MOVES]) is None
    assert find_only_still(jobs, [MOVES, STANDS, MOVES], ends=True) is None  # nobody named it
    assert find_only_still(jobs, [MOVES, MOVES, MOVES]) is None
    assert find_only_still(jobs, [MOVES, STANDS, UNREAD]) is None  # it may stand still as well


def test_of_what_cannot_be_read_it_is_not_known_whether_it_moves() -> None:
    (one,) = asyncio.run(describe_last_movements([JOB]))
    assert one.moves is None
