"""Whole jobs under each option of the watch, and under what a machine may lack."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import venv
from pathlib import Path

import jsonschema
import psutil
import pytest
from jobs import Ended

from .verdicts import AT, REACHED, check, schema, shown
from .whole_jobs import Jobs

SCRIPTS = Path(sys.executable).parent
TORCHRUN = [str(SCRIPTS / "torchrun"), "--standalone", "--nproc_per_node=2"]
INSIDE = "Injecting"

# ---- --on-hang --------------------------------------------------------------------------------


def test_a_report_is_taken_back_when_the_rank_moves_again(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        *("--on-hang", "report", "--until", "logs_directory"),
        *("--timeout", "4", "--inject", "slow@logs_directory:rank1"),
    )
    job.until(INSIDE)
    rank = job.rank(1)
    rank.suspend()
    said = job.until(f"HANG  {AT['logs_directory']}", "still running, still watched")
    assert "culprit   rank 1" in said
    rank.resume()
    job.until("Taken back: rank 1 moves again")
    ended = job.end()
    check(ended, "ok")
    assert ended.status == 0


def test_a_report_is_taken_back_though_the_rank_says_nothing_itself(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        *("--on-hang", "report", "--until", "logs_directory"),
        *("--timeout", "30", "--stall", "4", "--inject", "slow@logs_directory:rank1"),
    )
    job.until(INSIDE)
    rank = job.rank(1)
    rank.suspend()
    job.until(f"HANG  {AT['logs_directory']}", "still running, still watched")
    rank.resume()
    said = job.until("Taken back: rank 1 moves again")
    assert not any(
        "[R1/2]" in line and REACHED["logs_directory"] in line for line in said.splitlines()
    )


def test_a_report_on_a_spin_stands_although_the_spin_goes_on(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        *("--on-hang", "report", "--timeout", "2", "--slow-limit", "2"),
        *("--inject", "spin@logs_directory:rank1"),
    )
    job.until(f"HANG  {AT['logs_directory']}", "still running, still watched")
    time.sleep(5)
    assert "Taken back" not in job.said()


def test_a_held_job_stays_as_it_is_until_somebody_ends_it(light_jobs: Jobs) -> None:
    job = light_jobs.start(
        "--on-hang", "hold", "--timeout", "2", "--inject", "stop@logs_directory:rank1"
    )
    said = job.until(f"HANG  {AT['logs_directory']}", "held for you:")
    ranks = [job.rank(number) for number in (0, 1)]
    assert all(f"{rank.pid} (rank {number})" in said for number, rank in enumerate(ranks))
    assert ranks[0].status() != psutil.STATUS_ZOMBIE
    assert ranks[1].status() == psutil.STATUS_STOPPED
    verdict = json.loads((job.running.run_dir / "verdict.json").read_text())
    jsonschema.validate(verdict, schema())
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("hang", [1])
    os.killpg(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.clean, shown(ended)
    assert ended.verdict["outcome"] in ("hang", "interrupted")


# ---- --barriers -------------------------------------------------------------------------------


@pytest.mark.parametrize("barriers", ["observe", "off"])
def test_the_watch_is_the_same_without_barriers(barriers: str, light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "mine.py").write_text("def nothing(given):\n    return None\n")
    ended = light_jobs.run(
        *("--barriers", barriers, "--until", "tokenizer", "--use", "tokenizer=mine:nothing"),
        *("--timeout", "logs_directory=6", "--inject", "sleep@logs_directory:rank1"),
        folder=folder,
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert "[R0/2][LR0]" in next(
        line for line in ended.out.splitlines() if REACHED["tokenizer"] in line
    )


APART = """
import torch.distributed

def begin(given):
    torch.distributed.init_process_group("gloo")
    if given.context.place.rank == 0:
        torch.distributed.barrier()

def go_on(given):
    if given.context.place.rank == 1:
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


def test_a_barrier_of_ours_is_never_the_cause_but_opens(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "apart.py").write_text(APART)
    ended = light_jobs.run(
        *("--use", "logs_directory=apart:begin", "--use", "tokenizer=apart:go_on"),
        *("--timeout", "4", "--until", "tokenizer"),
        folder=folder,
    )
    check(ended, "ok")
    assert ended.status == 0, shown(ended)
    assert "our barrier" in ended.verdict["barrier_opened"]
    assert "Barrier opened: rank 0" in ended.err


# ---- what is printed --------------------------------------------------------------------------


def test_with_json_stdout_holds_one_document_and_nothing_else(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--json", "--timeout", "2", "--inject", "sleep@logs_directory:rank1")
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert json.loads(ended.out) == ended.verdict
    assert REACHED["arguments"] in ended.err


def test_the_launchers_last_words_carry_the_verdict(jobs_here: Jobs) -> None:
    ended = jobs_here.run("--timeout", "2", "--inject", "sleep@logs_directory:rank1")
    root_cause = ended.err.rpartition("Root Cause")[2]
    assert "rank      : 1 (local_rank: 1)" in root_cause
    assert f"HANG  {AT['logs_directory']}" in root_cause


def test_a_verdict_is_no_longer_than_promised(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--plain", "--timeout", "2", "--inject", "socket@logs_directory:rank1")
    verdict, report, _ = ended.err[ended.err.index(f"HANG  {AT['logs_directory']}") :].partition(
        "report  "
    )
    lines = [*verdict.splitlines(), report]
    assert report
    assert len(lines) <= 15
    labels = [line.split()[0] for line in lines if line[:1].isalpha()]
    order = ["HANG", "culprit", "waiting", "cause", "stack", "last", "seen", "try", "job", "report"]
    assert [label for label in labels if label in order] == order


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--timeout", "soon"), "'soon'"),
        (("--barriers", "lokstep"), "did you mean 'lockstep'?"),
        (("--no-such-option",), "--no-such-option"),
        (("--use", "arguments=nowhere:function"), "nowhere"),
        (("--data", "no-such-file"), "no-such-file"),
    ],
)
def test_a_wrong_value_is_named_once_and_not_by_every_rank(
    words: tuple[str, ...], named: str, jobs_here: Jobs, light_jobs: Jobs
) -> None:
    """What torchrun says of it at its end is the same for each: one of them asks it."""
    by_torchrun = "--barriers" in words
    ended = (jobs_here if by_torchrun else light_jobs).run(*words)
    assert ended.err.count("\nhangbisect: ") + ended.err.startswith("hangbisect: ") == 1
    complaint = ended.err.partition("hangbisect: ")[2].partition("\n")[0]
    assert named in complaint
    if by_torchrun:
        assert "exitcode  : 2" in ended.err
    assert ended.clean, shown(ended)


def test_more_than_16_ranks_say_one_line_a_checkpoint(light_jobs: Jobs) -> None:
    ended = light_jobs.run("--until", "logs_directory", ranks=17)
    check(ended, "ok")
    summed_up = [line for line in ended.err.splitlines() if "CHECKPOINT" in line]
    assert len(summed_up) == 3
    assert f"{REACHED['logs_directory']}  ranks 0-16, +" in summed_up[-1]
    assert "CHECKPOINT" not in ended.out


def test_no_secret_of_the_environment_is_printed_or_written(light_jobs: Jobs) -> None:
    secrets = {"WANDB_API_KEY": "0123456789abcdef" * 2 + "5ec2e7e5", "HF_TOKEN": "hf_5ec2e7T0ken"}
    ended = light_jobs.run(
        "--timeout", "2", "--inject", "sleep@logs_directory:rank1", environ=secrets
    )
    check(ended, "hang", culprit=[1])
    for secret in secrets.values():
        assert told_in(ended, secret) == []


def told_in(ended: Ended, text: str) -> list[str]:
    """Return the files of the run, and the streams, that hold `text`."""
    written = {
        str(path.relative_to(ended.run_dir)): path.read_text()
        for path in ended.run_dir.rglob("*")
        if path.is_file()
    }
    written |= {"stdout": ended.out, "stderr": ended.err}
    return sorted(name for name, content in written.items() if text in content)


def test_a_secret_on_the_command_line_is_not_written_where_it_will_be_shown(
    light_jobs: Jobs,
) -> None:
    secret = "hf_0ther5ec2e7"
    hang = ("--timeout", "2", "--inject", "sleep@logs_directory:rank1")
    ended = light_jobs.run(*hang, "--env", f"HF_TOKEN={secret}")
    check(ended, "hang", culprit=[1])
    assert told_in(ended, secret) == []


# ---- what a machine may lack ------------------------------------------------------------------


def test_without_py_spy_rank_checkpoint_and_call_are_still_named(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    venv.create(folder / "venv", symlinks=True)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "libraries.pth").write_text("\n".join(libraries))
    launcher = [str(folder / "venv/bin/python"), "-m", "torch.distributed.run", *TORCHRUN[1:]]
    ended = jobs_here.run(
        *("--timeout", "logs_directory=3", "--inject", "sleep@logs_directory:rank1"),
        folder=folder,
        launcher=launcher,
        way=("-m", "hangbisect"),
        environ={"PATH": "/usr/bin:/bin"},
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert "No stacks by py-spy: py-spy is not installed" in ended.err
    assert ended.verdict["seen_by"] == "faulthandler"
    assert ended.verdict["call"] == "time.sleep"


@pytest.mark.parametrize("inside", ["file/run", "/proc/run"])
def test_where_the_run_folder_cannot_be_another_one_is_used(inside: str, light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    (folder / "file").write_text("no folder\n")
    wanted = folder / inside
    ended = light_jobs.run(
        *("--run-dir", str(wanted), "--logs-path", str(folder / "logs")),
        *("--timeout", "2", "--inject", "sleep@logs_directory:rank1"),
        folder=folder,
    )
    assert f"The run folder cannot be used ({wanted}" in ended.err
    (other,) = (folder / "t" / f"hangbisect-runs-{os.getuid()}").iterdir()
    verdict = json.loads((other / "verdict.json").read_text())
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("hang", [1])
    assert f"report    {other}" in ended.err
    assert ended.left_processes == []
    assert ended.left_files == [str(other.parent)]


@pytest.mark.parametrize("switch", ["--tee", "--redirects"])
def test_with_streams_that_torchrun_takes_the_verdict_is_the_same(
    switch: str, jobs_here: Jobs
) -> None:
    folder = jobs_here.folder()
    launcher = [*TORCHRUN, switch, "3", "--log-dir", str(folder / "streams")]
    ended = jobs_here.run(
        "--timeout", "2", "--inject", "sleep@logs_directory:rank1", launcher=launcher, folder=folder
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    streams = [path.read_text() for path in (folder / "streams").rglob("std*.log")]
    assert sum(f"HANG  {AT['logs_directory']}" in text for text in streams) == 1
