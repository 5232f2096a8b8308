"""Whole jobs that end as nobody wanted: left, crashed, killed, interrupted, never started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .verdicts import REACHED, check, shown
from .whole_jobs import DEADLINE, LIGHT, Job, Jobs

INSIDE = "Injecting"  # said by a rank that is about to do what was asked for
SCRIPTS = Path(sys.executable).parent
TORCHRUN = [str(SCRIPTS / "torchrun"), "--standalone", "--nproc_per_node=2"]


# ---- ranks that leave, fail or are killed -----------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_leaves_early_with_status_0_is_the_cause_of_a_hang(
    rank: int, light_jobs: Jobs
) -> None:
    ended = light_jobs.run("--inject", f"exit@logs_directory:rank{rank}")
    check(ended, "hang", culprit=[rank], checkpoint="logs_directory")
    assert ended.verdict["ranks"]["dead"] == [rank]
    assert ended.verdict["ranks"]["waiting"] == [1 - rank]
    assert "left early, with status 0" in ended.err
    assert ended.status != 0


def test_ranks_that_all_leave_early_have_crashed(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--inject", "exit@logs_directory")
    check(ended, "crash", checkpoint="logs_directory")
    assert ended.verdict["ranks"]["dead"] == [0, 1]


def test_a_rank_that_leaves_without_a_word_is_found_too(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "mine.py").write_text(
        "import os\ndef leave(given):\n    given.context.place.rank and os._exit(0)\n"
    )
    ended = light_jobs.run("--use", "logs_directory=mine:leave", folder=folder)
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert ended.verdict["ranks"]["dead"] == [1]


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_is_a_crash_and_named(rank: int, light_jobs: Jobs) -> None:
    ended = light_jobs.run("--inject", f"raise@logs_directory:rank{rank}")
    check(ended, "crash", culprit=[rank], checkpoint="logs_directory")
    assert "RuntimeError: raised on purpose" in ended.err
    assert rank in ended.verdict["ranks"]["dead"]


def test_a_fatal_signal_is_a_crash_and_named(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--inject", "kill@logs_directory:rank1")
    check(ended, "crash", culprit=[1], checkpoint="logs_directory")
    assert "signal 9" in ended.err


def test_a_rank_killed_while_it_waits_for_another_is_the_one_that_crashed(light_jobs: Jobs) -> None:
    job = light_jobs.start("--inject", "sleep@logs_directory:rank0")
    job.until(INSIDE, "[R1/2][LR1]", REACHED["logs_directory"])
    job.rank(1).kill()
    check(job.end(), "crash", culprit=[1], checkpoint="logs_directory")


# ---- the launcher and the monitor -------------------------------------------------------------


def test_the_ranks_of_a_killed_launcher_are_ended(light_jobs: Jobs) -> None:
    job = light_jobs.start("--inject", "socket@logs_directory:rank1")
    job.until(INSIDE, REACHED["logs_directory"])
    job.running.process.kill()
    ended = job.end()
    check(ended, "interrupted", checkpoint="logs_directory")
    assert "The launcher is gone" in ended.err


def test_a_killed_monitor_has_a_successor_and_the_job_goes_on(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "mine.py").write_text("def nothing(given):\n    return None\n")
    job = light_jobs.start(
        *("--until", "tokenizer", "--use", "tokenizer=mine:nothing"),
        *("--timeout", "logs_directory=4", "--inject", "trickle@logs_directory:rank1"),
        folder=folder,
    )
    job.until(INSIDE, REACHED["logs_directory"])
    job.monitor().kill()
    ended = job.end()
    check(ended, "ok")
    assert ended.status == 0, shown(ended)
    assert "The monitor died: this rank started another one" in ended.out


def test_the_successor_of_a_killed_monitor_finds_the_hang(light_jobs: Jobs) -> None:
    job = light_jobs.start("--timeout", "5", "--inject", "sleep@logs_directory:rank1")
    job.until(INSIDE, REACHED["logs_directory"])
    job.monitor().kill()
    ended = job.end()
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert "This monitor goes on for one that died" in ended.err


def test_a_job_whose_monitors_all_die_goes_on_without(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        *("--until", "logs_directory", "--timeout", "4", "--inject", "trickle@logs_directory:rank1")
    )
    job.until(INSIDE, REACHED["logs_directory"])
    job.monitor().kill()
    job.until("started another one")
    job.monitor().kill()
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert ended.left_processes == []
    assert "Going on without the watch: the monitor is gone" in ended.out


def test_a_stopped_monitor_does_not_hold_the_ranks_for_ever(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        *("--until", "logs_directory", "--timeout", "2", "--inject", "trickle@logs_directory:rank1")
    )
    job.until(INSIDE, REACHED["logs_directory"])
    monitor = job.monitor()
    monitor.suspend()
    assert job.running.process.wait(DEADLINE) == 0
    monitor.resume()
    ended = job.end()
    assert "Going on without the watch: the monitor has been silent" in ended.out
    assert ended.left_processes == []
    assert ended.left_files == []


# ---- interrupted ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["socket", "stop", "gil"])
def test_an_interrupted_job_says_who_was_waited_for_and_leaves_nothing(
    number: signal.Signals, kind: str, jobs_here: Jobs, light_jobs: Jobs
) -> None:
    """The launcher is torchrun itself where it has most to do: a stopped rank heeds no signal."""
    job = (jobs_here if kind == "stop" else light_jobs).start("--inject", f"{kind}@3:rank1")
    job.until(INSIDE, REACHED["logs_directory"])
    os.killpg(job.running.process.pid, number)
    ended = job.end()
    check(ended, "interrupted", checkpoint="logs_directory")
    assert ended.verdict["ranks"]["waiting"] == [0], shown(ended)
    assert 0 not in ended.verdict["ranks"]["culprit"]
    assert "INTERRUPTED" in ended.err
    assert ended.status != 0


SURVIVES = """
import os, signal, time
def folder(given):
    if given.context.place.rank == 1:
        signal.signal(signal.SIGTERM, lambda number, frame: print("not yet", flush=True))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3)
    os.makedirs("made", exist_ok=True)
    return "made"
"""


def test_a_signal_to_one_rank_that_survives_it_ends_nothing(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "mine.py").write_text(SURVIVES)
    words = ("--use", "logs_directory=mine:folder", "--until", "logs_directory")
    ended = light_jobs.run(*words, folder=folder)
    assert "not yet" in ended.out, shown(ended)
    assert ended.verdict["outcome"] == "ok", shown(ended)


def test_a_job_interrupted_while_it_starts_leaves_nothing(jobs_here: Jobs) -> None:
    job = jobs_here.start()
    job.until("hangbisect")
    os.killpg(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.status != 0
    assert ended.left_processes == [], shown(ended)
    assert ended.left_files == [], shown(ended)


# ---- ranks that never came --------------------------------------------------------------------


def test_a_rank_that_never_starts_is_missed_and_named(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    job = starts_late(light_jobs, folder, "if [ $RANK = 1 ]; then sleep 3600; fi")
    ended = job.end()
    check(ended, "hang", culprit=[1], checkpoint="script")
    assert ended.verdict["ranks"]["never_started"] == [1]
    assert ended.verdict["ranks"]["waiting"] == [0]
    assert "never started" in ended.err


def starts_late(light_jobs: Jobs, folder: Path, before: str) -> Job:
    """Start a job each of whose ranks has a shell in front of it that does `before`."""
    wrapper = folder / "wrapper.sh"
    wrapper.write_text(f'#!/bin/sh\n{before}\nexec {sys.executable} -m bisect "$@"\n')
    wrapper.chmod(0o755)
    launcher = [sys.executable, str(LIGHT), "2", str(wrapper)]
    return light_jobs.start(
        *("--timeout", "4", "--until", "logs_directory"),
        folder=folder,
        launcher=launcher,
        way=(),
    )


def test_a_rank_that_starts_later_than_the_others_is_waited_for(light_jobs: Jobs) -> None:
    job = starts_late(light_jobs, light_jobs.folder(), "if [ $RANK = 1 ]; then sleep 2; fi")
    ended = job.end()
    check(ended, "ok")
    assert ended.status == 0


# ---- restarts ---------------------------------------------------------------------------------


def test_a_hang_that_is_ended_is_not_started_again(jobs_here: Jobs) -> None:
    launcher = [*TORCHRUN, "--max-restarts=1"]
    ended = jobs_here.run(
        "--timeout", "2", "--inject", "sleep@logs_directory:rank1", launcher=launcher
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert ended.verdict["attempt"] == 0
    assert ended.out.count(REACHED["script"]) == 2


def test_a_crash_is_started_again_by_a_launcher_that_may(jobs_here: Jobs) -> None:
    launcher = [*TORCHRUN, "--max-restarts=1"]
    ended = jobs_here.run("--inject", "raise@logs_directory:rank1", launcher=launcher)
    check(ended, "crash", culprit=[1], checkpoint="logs_directory")
    second = json.loads((ended.run_dir / "attempt-1" / "verdict.json").read_text())
    assert (ended.verdict["attempt"], second["attempt"]) == (0, 1)
    assert (second["outcome"], second["ranks"]["culprit"]) == ("crash", [1])
    assert ended.out.count(REACHED["script"]) == 4


# ---- without a launcher -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--until", "logs_directory"), 0),
        (("--timeout", "2", "--inject", "sleep@logs_directory"), 3),
        (("--timeout", "2", "--inject", "stop@logs_directory"), 3),
        (("--limit", "4", "--timeout", "60", "--inject", "slow@logs_directory"), 4),
        (("--inject", "raise@logs_directory"), 5),
        (("--inject", "kill@logs_directory"), 5),
        (("--inject", "exit@logs_directory"), 5),
        (("--until", "nowhere"), 2),
        (("--data", "no-such-file"), 2),
    ],
)
def test_the_exit_status_of_a_lone_rank_is_the_outcome(
    words: tuple[str, ...], status: int, light_jobs: Jobs
) -> None:
    ended = light_jobs.run(*words, ranks=0)
    assert ended.status == status, shown(ended)
    assert ended.clean, shown(ended)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["sleep", "stop"])
def test_an_interrupted_lone_rank_ends_with_status_130(
    number: signal.Signals, kind: str, light_jobs: Jobs
) -> None:
    job = light_jobs.start("--inject", f"{kind}@3", ranks=0)
    job.until(INSIDE)
    os.killpg(job.running.process.pid, number)
    ended = job.end()
    check(ended, "interrupted", checkpoint="logs_directory")
    assert ended.status == 130


# ---- a command that leaves its ranks behind --------------------------------------------------

_WAITS = "import time, torch; open('up', 'a').close(); time.sleep(60)"


@pytest.mark.parametrize(
    ("behind", "says"),
    [
        (f'{sys.executable} -c "{_WAITS}" > /dev/null 2>&1 &\nlast=$!', True),
        ("sleep 60 > /dev/null 2>&1 &\nlast=$!; touch up", False),
    ],
    ids=["a-rank", "a-program"],
)
def test_a_command_says_which_ranks_it_leaves_behind(
    behind: str, says: bool, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text(
        f"{behind}\necho $last > pid; until [ -e up ]; do sleep 0.1; done\n"
    )
    run = [str(SCRIPTS / "hangbisect"), "run", "--stall", "50", "--run-dir", "run", "--"]
    try:
        with (tmp_path / "said").open("w") as file:
            status = subprocess.run(
                [*run, "bash", "job.sh"], cwd=tmp_path, stderr=file, timeout=DEADLINE
            ).returncode
    finally:
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
    said = (tmp_path / "said").read_text()
    assert status == 0, said
    assert (f"1 rank that it started runs on (pid {pid}), watched still" in said) is says, said
