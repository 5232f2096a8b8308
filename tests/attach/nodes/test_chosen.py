"""Which of the jobs on a machine is meant."""

from __future__ import annotations

from hangbisect.attach.job_search import select_jobs
from hangbisect.attach.jobs import Job
from hangbisect.attach.processes import Process
from hangbisect.attach.ranks import Rank


def process(pid: int, **environ: str) -> Process:
    return Process(pid, 1, 0, 5, "python", "S", ("python", "train.py"), environ, True)


TABLE = {
    7: process(7, SLURM_JOB_ID="1", SLURMD_NODENAME="n0"),
    8: process(8, SLURM_JOB_ID="1", SLURMD_NODENAME="n1"),
    9: process(9, SLURM_JOB_ID="2"),
}
ONE = Job((Rank(7, 0), Rank(8, 1)), world=2)
ASKED = {"SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n1"}
OTHER = Job((Rank(9, 0),), world=1)


def chosen(**only: str) -> list[tuple[list[int], bool]]:
    found = select_jobs([ONE, OTHER], TABLE, only)
    return [([rank.pid for rank in job.ranks], job.whole) for job in found]


def test_without_a_variable_all_are() -> None:
    assert chosen() == [([7, 8], True), ([9], True)]


def test_a_job_of_slurms_with_its_ranks_of_one_node() -> None:
    assert chosen(SLURM_JOB_ID="1", SLURMD_NODENAME="n1") == [([8], False)]


def test_a_task_that_does_not_know_its_node_is_there() -> None:
    assert chosen(SLURM_JOB_ID="2", SLURMD_NODENAME="n1") == [([9], True)]


def test_where_a_task_knows_its_node_one_that_does_not_is_another_jobs() -> None:
    found = select_jobs(
        [ONE, Job((Rank(9, 0),))], {**TABLE, 9: process(9, SLURM_JOB_ID="1")}, ASKED
    )
    assert [[rank.pid for rank in job.ranks] for job in found] == [[8]]


def test_a_variable_that_nobody_has_leaves_nobody() -> None:
    assert chosen(MASTER_PORT="29500") == []
