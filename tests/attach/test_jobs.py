"""Which ranks make one job."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hangbisect.attach.job_search import find_job_of_process, find_jobs
from hangbisect.attach.jobs import (
    Job,
    find_idle_launchers,
    format_command,
    group_ranks,
    join_jobs,
    make_lone_job,
)
from hangbisect.attach.processes import Process, find_watched
from hangbisect.attach.ranks import Rank, ranks_from_environment
from hangbisect.base.errors import UsageError
from hangbisect.base.proc import process_of_thread

from .made_up import PYTHON, of_torchrun, process, table, torchrun


def jobs(*processes: Process) -> list[Job]:
    known = table(*processes)
    return group_ranks(known, ranks_from_environment(known))


def test_ranks_below_one_launcher_are_a_job() -> None:
    (job,) = jobs(*torchrun())
    assert [rank.number for rank in job.ranks] == [0, 1]
    assert (job.pid, job.launchers, job.world, job.whole) == (100, (100,), 2, True)
    assert job.command == ("torchrun", "--nproc_per_node=2", "train.py")


def test_the_first_process_of_a_container_may_be_the_launcher() -> None:
    first, *ranks = (replace(one, ppid=one.ppid // 100) for one in torchrun())
    known = {one.pid: one for one in (replace(first, pid=1), *ranks)}
    (job,) = group_ranks(known, ranks_from_environment(known))
    assert (job.launchers, job.command[0]) == ((1,), "torchrun")


@pytest.mark.parametrize(("other", "twin"), [("1", 102), ("0", None)])
def test_two_local_ranks_of_one_number_are_told(other: str, twin: int | None) -> None:
    """What a rank has started has its LOCAL_RANK as well, and is no other."""
    of_rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}
    script = process(100, 1, PYTHON, "start.py")
    ranks = [
        process(101, 100, PYTHON, "train.py", environ=of_rank | {"LOCAL_RANK": "0"}),
        process(102, 100, PYTHON, "train.py", environ=of_rank | {"LOCAL_RANK": other}),
    ]
    (job,) = jobs(script, *ranks)
    assert [(rank.pid, rank.twin) for rank in job.ranks] == [(101, twin)]


def test_two_launchers_are_two_jobs_the_latest_first() -> None:
    found = jobs(*torchrun(100, 2, "a", MASTER_PORT="1"), *torchrun(200, 2, "b", MASTER_PORT="2"))
    assert [job.pid for job in found] == [200, 100]


def test_what_an_earlier_start_left_at_the_same_port_is_a_job_of_its_own() -> None:
    found = jobs(*torchrun(100, 2, "none"), *torchrun(200, 2, "none"))
    assert [job.pid for job in found] == [200, 100]


def test_two_launchers_of_one_run_are_one_job() -> None:
    def node(first: int, rank: int) -> list[Process]:
        environ = of_torchrun(rank, 2, "run7") | {"GROUP_WORLD_SIZE": "2"}
        return [torchrun(first, 0)[0], process(first + 1, first, environ=environ)]

    (job,) = jobs(*node(100, 0), *node(200, 1))
    assert [rank.pid for rank in job.ranks] == [101, 201]
    assert job.launchers == (100, 200)


def test_ranks_that_are_elsewhere_are_no_loss() -> None:
    environ = of_torchrun(1, 4) | {"GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    (job,) = jobs(torchrun(100, 0)[0], process(101, 100, environ=environ))
    assert (job.world, job.whole) == (4, False)
    (job,) = jobs(torchrun(100, 0)[0], process(101, 100, environ=of_torchrun(1, 4)))
    assert (job.world, job.whole) == (4, True)


@pytest.mark.parametrize(("local", "whole"), [(3, True), (1, False)])
def test_the_highest_local_rank_tells_how_many_ranks_are_of_this_machine(
    local: int, whole: bool
) -> None:
    """A script has started ranks 0 to 3, and rank 1 has ended since."""

    def of_script(rank: int, local_rank: int) -> dict[str, str]:
        return {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": "4"}

    starts = process(100, 1, PYTHON, "start.py")
    first = process(101, 100, environ=of_script(0, 0))
    last = process(104, 100, environ=of_script(3, local))
    (job,) = jobs(starts, first, last)
    assert (job.world, job.whole) == (4, whole)


def test_slurmstepd_is_no_part_of_the_job() -> None:
    def task(rank: int) -> dict[str, str]:
        said = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
        return said | {"SLURM_STEP_ID": "0"}

    step = process(90, 1, "slurmstepd:", "[7.0]", environ=None)
    (job,) = jobs(step, process(91, 90, environ=task(0)), process(92, 90, environ=task(1)))
    assert job.launchers == ()
    assert job.pids == {91, 92}


def test_a_launcher_that_has_started_nobody_is_a_job_without_ranks() -> None:
    known = table(process(100, 1, PYTHON, "/venv/bin/torchrun", "train.py"))
    (job,) = find_idle_launchers(known, [], set())
    assert (job.pid, job.ranks) == (100, ())
    busy = table(*torchrun())
    assert find_idle_launchers(busy, group_ranks(busy, ranks_from_environment(busy)), set()) == []


def test_the_kernel_of_a_notebook_is_never_a_launcher_of_ours() -> None:
    kernel = process(50, 1, PYTHON, "-m", "ipykernel_launcher", "-f", "k.json")
    forked = [replace(kernel, pid=51 + n, ppid=50) for n in (0, 1)]
    ranks = [Rank(51 + n, n, n, 2, 50, "", "stack") for n in (0, 1)]
    (job,) = group_ranks(table(kernel, *forked), ranks)
    assert (job.launchers, job.notebook, job.has_one_command) == ((), 50, False)
    assert 50 not in job.pids


def test_the_command_of_one_rank_among_several_does_not_start_the_job() -> None:
    (job,) = jobs(*torchrun())
    assert job.has_one_command
    by_hand = [process(101 + n, 90, environ=of_torchrun(n)) for n in (0, 1)]
    (job,) = jobs(process(90, 1, "sh", "start.sh"), *by_hand)
    assert not job.has_one_command
    (job,) = jobs(process(101, 1, environ=of_torchrun(0, 1)))
    assert job.has_one_command


def test_a_script_that_spawned_its_ranks_is_a_part_of_the_job() -> None:
    script = process(50, 1, PYTHON, "train.py")
    ranks = [Rank(51 + n, n, n, 2, 50, "", "stack") for n in (0, 1)]
    (job,) = group_ranks(table(script, process(51, 50), process(52, 50)), ranks)
    assert (job.launchers, job.command) == ((50,), ("python", "train.py"))


def test_a_watch_of_ours_is_noted() -> None:
    (job,) = jobs(*torchrun(HANGBISECT_RUN_DIR="/runs/x"))
    assert job.watched == "/runs/x"
    (job,) = jobs(*torchrun())
    assert job.watched is None
    words = (PYTHON, "-I", "-S", "/x/hangbisect", "monitor", "{}")
    (job,) = jobs(*torchrun(), process(120, 1, *words, environ=of_torchrun(0)))
    assert job.watched == ""
    walks = process(101, 100, PYTHON, "-m", "bisect", "--run-dir", "/r", environ=of_torchrun(0))
    (job,) = jobs(torchrun(100, 0)[0], walks)
    assert job.watched == "/r"


def test_processes_that_a_person_names_are_one_job_of_unknown_ranks() -> None:
    known = table(process(50), process(60))
    job = join_jobs([make_lone_job(known, 50), make_lone_job(known, 60)])
    assert [(rank.pid, rank.number) for rank in job.ranks] == [(50, None), (60, None)]
    assert job.world == 2


def test_of_two_jobs_with_the_same_numbers_the_first_one_keeps_its_own() -> None:
    (trainer,) = jobs(*torchrun())
    (server,) = jobs(*torchrun())
    apart = tuple(replace(rank, pid=rank.pid + 500) for rank in server.ranks)
    both = join_jobs([trainer, replace(server, ranks=apart)])
    assert [rank.number for rank in both.ranks] == [0, 1, None, None]
    assert {rank.pid for rank in both.ranks[:2]} == {rank.pid for rank in trainer.ranks}


def test_programs_that_one_shell_started_side_by_side_are_one_job_where_that_is_asked_for() -> None:
    """`python rollout.py & python train.py`: neither is the job alone, and neither has a number."""
    known = table(
        process(40, 1, "sh", "train.sh", name="sh"),
        process(50, 40, PYTHON, "rollout.py"),
        process(60, 40, PYTHON, "train.py"),
    )
    lone = [make_lone_job(known, 50), make_lone_job(known, 60)]
    both = find_job_of_process(lone, known, 40, ())
    assert [(rank.pid, rank.number) for rank in both.ranks] == [(50, None), (60, None)]
    assert find_job_of_process(lone, known, 60, ()) is lone[1]
    assert find_job_of_process(lone[1:], known, 40, ()) is lone[1]


def test_of_several_programs_of_a_shell_one_that_only_serves_is_not_meant() -> None:
    known = table(
        process(40, 1, "sh", "serve.sh", name="sh"),
        process(50, 40, PYTHON, "serve.py", "--port", "1"),
        process(60, 40, PYTHON, "serve.py", "--port", "2"),
    )
    assert find_job_of_process((), known, 40, ()).pid == 50
    assert find_job_of_process((), known, 40, (), idle={50}).pid == 60
    assert find_job_of_process((), known, 40, (), idle={50, 60}).pid == 50


RUN = (PYTHON, "/venv/bin/hangbisect", "run", "--", "torchrun", "train.py")
MONITOR = (PYTHON, "-I", "-S", "/x/hangbisect", "monitor", "{}")


def test_a_process_of_the_watch_stands_for_the_job_that_it_watches() -> None:
    """As `pgrep -f train.py` finds it, whose words the processes of `hangbisect run` have too."""
    module = (PYTHON, "-u", "-m", "bisect", *RUN[2:])
    for words in (RUN, module):
        known = table(
            process(40, 1, *words),
            process(41, 1, *words),
            process(42, 1, *words),
            process(60, 1, *words),  # the same command once more
            *(replace(one, pid=one.pid + 900, ppid=60) for one in torchrun(100)[:1]),
            *(replace(one, ppid=40) if one.pid == 100 else one for one in torchrun(100)),
            process(50, 1, *MONITOR, environ={"HANGBISECT_FRONT": "40"}),
            process(51, 50, *MONITOR[:4], "live_table", "{}"),
        )
        assert [find_watched(known, pid) for pid in (40, 41, 42, 50, 51)] == [40] * 5
        assert [find_watched(known, pid) for pid in (60, 100, 101)] == [60, 100, 101]


def test_a_program_that_starts_itself_again_is_no_watch() -> None:
    words = (PYTHON, "train.py", "run")
    known = table(process(40, 1, *words), process(41, 40, *words))
    assert find_watched(known, 41) == 41


def test_a_monitor_of_which_no_job_is_known_is_no_job() -> None:
    for environ in ({}, {"HANGBISECT_FRONT": "999"}, {"HANGBISECT_FRONT": "100"}):
        known = table(*torchrun(100), process(50, 1, *MONITOR, environ=environ))
        with pytest.raises(UsageError, match="process 50 is hangbisect's own"):
            find_watched(known, 50)


def test_a_command_is_shown_as_one_types_it() -> None:
    assert format_command(("/venv/bin/python", "/venv/bin/torchrun", "x.py")) == (
        "torchrun",
        "x.py",
    )
    assert format_command(("/venv/bin/python", "-u", "x.py")) == ("python", "-u", "x.py")
    assert format_command(()) == ()


def test_a_process_that_was_not_read_in_time_is_not_said_to_have_ended() -> None:
    """On a very busy machine the table of processes is a part of what is there."""
    with pytest.raises(UsageError, match=f"process {os.getpid()} is here, but .* not read"):
        asyncio.run(find_jobs([os.getpid()], limit=0.0))
    with pytest.raises(UsageError, match="there is no process 1999999999"):
        asyncio.run(find_jobs([1999999999]))


def test_a_process_that_has_ended_and_was_not_asked_for_is_told_with_its_parent() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(
            UsageError, match=rf"process {ended.pid} .* has ended, .* {os.getpid()}"
        ):
            asyncio.run(find_jobs([ended.pid]))
    finally:
        ended.wait()


def test_a_thread_stands_for_its_process() -> None:
    """`top -H` and py-spy show the numbers of threads."""
    code = "import threading as t, time; t.Thread(target=print).start(); "
    code += (
        "w = t.Thread(target=time.sleep, args=(600,)); w.start(); print(w.native_id, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            one.stdout.readline()
            thread = int(one.stdout.readline())
            assert process_of_thread(thread) == process_of_thread(one.pid) == one.pid
            found = asyncio.run(find_jobs([thread]))
            assert [rank.pid for rank in found.jobs[0].ranks] == [one.pid]
        finally:
            one.kill()
    assert process_of_thread(1999999999) is None
