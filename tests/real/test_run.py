"""`hangbisect run`: a real process around real launchers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jobs
import psutil
import pytest

from ..transcripts import block, is_printed
from .verdicts import check, shown
from .whole_jobs import Job, Jobs, write_launcher

TORCHRUN = (str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc_per_node=2")
OURS = (*TORCHRUN, "-m", "bisect")
QUICK = ("--until", "logs_directory")  # before torch is imported
SLEEPING = "import time; print('asleep', flush=True); time.sleep(1000)"


def start(jobs_here: Jobs, *command: str, watch: tuple[str, ...] = ()) -> Job:
    """Start `hangbisect run WATCH -- COMMAND` with its run folder where the helpers look for it."""
    folder = jobs_here.folder()
    words = ("-m", "bisect", "run", "--run-dir", str(folder / "run"), *watch, "--", *command)
    return jobs_here.add(
        jobs.Running((sys.executable, *words), folder, jobs.clean_environ()), folder
    )


def test_a_pipeline_that_ends_well_gives_status_0_and_its_verdict(jobs_here: Jobs) -> None:
    launcher = write_launcher(jobs_here.folder())
    ended = start(jobs_here, launcher, "-m", "bisect", *QUICK).end()
    check(ended, "ok")
    assert ended.status == 0
    assert "OK  startup, 2 ranks" in ended.err


def test_a_pipeline_that_hangs_gives_status_3_although_torchrun_says_1(jobs_here: Jobs) -> None:
    inject = ("--inject", "sleep@logs_directory:rank1")
    ended = start(jobs_here, *OURS, *inject, watch=("--stall", "3")).end()
    check(ended, "hang", culprit=[1])
    assert ended.status == 3


@pytest.mark.parametrize("status", [0, 7])
def test_a_command_of_the_users_own_ends_with_its_own_status(jobs_here: Jobs, status: int) -> None:
    ended = start(
        jobs_here, sys.executable, "-c", f"print('said'); raise SystemExit({status})"
    ).end()
    assert (ended.status, ended.out) == (status, "said\n")
    assert ended.clean, shown(ended)
    assert ended.verdict["outcome"] == ("ok" if status == 0 else "crash")


def test_a_script_of_the_users_own_that_hangs_is_seen_from_outside(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    (folder / "train.py").write_text(
        "import os, socket, time\n"
        "a, b = socket.socketpair()\n"
        "if os.environ['RANK'] == '1':\n"
        "    a.recv(1)\n"
        "time.sleep(0.5)\n"
    )
    watch = ("--stall", "4", "--on-hang", "end")
    launcher = write_launcher(folder)
    ended = start(jobs_here, launcher, str(folder / "train.py"), watch=watch).end()
    assert ended.status == 3, shown(ended)
    assert ended.clean, shown(ended)
    assert (ended.verdict["outcome"], ended.verdict["ranks"]["culprit"]) == ("hang", [1])
    assert (ended.run_dir / "stacks" / "rank-1.txt").exists()


def test_a_rank_that_is_the_first_process_of_its_container_hangs(jobs_here: Jobs) -> None:
    """It adopts its monitor, which is no child of the job's: what that does moves nothing."""
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*container, "true"], capture_output=True).returncode:
        pytest.skip("needs a namespace of pids of its own")
    folder = jobs_here.folder()
    (folder / "train.py").write_text("import socket\na, b = socket.socketpair()\na.recv(1)\n")
    rank = (sys.executable, str(folder / "train.py"))
    watch = ("--stall", "2", "--on-hang", "end")
    environ = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    variables = [f"{name}={value}" for name, value in environ.items()]
    ended = start(jobs_here, "env", *variables, *container, *rank, watch=watch).end()
    check(ended, "hang", culprit=[0])


def test_a_users_own_job_is_reported_on_and_goes_on(jobs_here: Jobs) -> None:
    job = start(jobs_here, sys.executable, "-c", SLEEPING, watch=("--stall", "3"))
    # A sleep ends: nothing proves that it hangs.
    job.until("SILENT", "still running, still watched", "nothing proves that it hangs")
    (child,) = psutil.Process(job.running.process.pid).children()
    child.kill()
    ended = job.end()
    assert ended.status == -signal.SIGKILL  # as without us; a shell calls it 137
    assert ended.clean, shown(ended)


def test_a_launcher_that_has_just_come_back_from_other_hosts_is_not_judged(jobs_here: Jobs) -> None:
    """Its ranks ran there, and nothing of them stirred here."""
    folder = jobs_here.folder()
    ssh = folder / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 7\n")
    ssh.chmod(0o755)
    waits = (
        "import subprocess, threading\n"
        f"subprocess.run(['{ssh}', 'n1', './train.sh'], check=True)\n"
        "threading.Event().wait(9)\n"
    )
    ended = start(jobs_here, sys.executable, "-c", waits, watch=("--stall", "2")).end()
    assert ended.status == 0
    assert "HANG" not in ended.err, shown(ended)
    assert ended.verdict["outcome"] == "ok"


def test_a_launcher_that_starts_no_rank_is_checkpoint_0(jobs_here: Jobs) -> None:
    command = (sys.executable, "-c", SLEEPING, "-m", "bisect")
    ended = start(jobs_here, *command, watch=("--timeout", "launcher=2")).end()
    assert ended.status == 3
    assert ended.clean, shown(ended)
    verdict = ended.verdict
    assert (verdict["outcome"], verdict["checkpoint"]["name"]) == ("hang", "launcher")
    assert (verdict["component"], verdict["ranks"]["culprit"]) == ("launcher", [])
    assert "no rank has started" in ended.err


def test_a_program_that_there_is_not_is_one_sentence_and_status_127(jobs_here: Jobs) -> None:
    ended = start(jobs_here, "no-such-launcher", "train.py").end()
    assert ended.status == 127
    assert "'no-such-launcher' cannot be started" in ended.err
    assert "Traceback" not in ended.err


def test_run_without_a_command_says_what_it_needs(jobs_here: Jobs) -> None:
    ended = start(jobs_here).end()
    assert ended.status == 2
    assert "run needs the command to start" in ended.err


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (signal.SIGTERM, (sys.executable, "-m", "bisect")),
        (signal.SIGINT, (sys.executable, "-m", "bisect")),
        (signal.SIGINT, OURS),
    ],
    ids=["SIGTERM", "SIGINT", "SIGINT below torchrun"],
)
def test_a_signal_reaches_the_job_and_the_verdict_says_where_it_was(
    jobs_here: Jobs, number: signal.Signals, command: tuple[str, ...]
) -> None:
    job = start(jobs_here, *command, "--inject", "sleep@logs_directory")
    job.until("Injecting")
    os.kill(job.running.process.pid, number)
    ended = job.end()
    assert ended.verdict["outcome"] == "interrupted", shown(ended)
    assert ended.status == 130
    assert ended.clean, shown(ended)


def test_the_time_limit_of_a_users_own_job_holds(jobs_here: Jobs) -> None:
    watch = ("--limit", "2", "--on-hang", "end", "--stall", "100")
    ended = start(jobs_here, sys.executable, "-c", SLEEPING, watch=watch).end()
    assert (ended.verdict["outcome"], ended.status) == ("silent", 4), shown(ended)
    assert ended.clean, shown(ended)


def test_starts_are_repeated_until_one_hangs(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    (folder / "sometimes.py").write_text(
        "import pathlib, time\n"
        "count = pathlib.Path(__file__).with_name('count')\n"
        "count.write_text(str(1 + int(count.read_text() if count.exists() else 0)))\n"
        "time.sleep(1000 if count.read_text() == '3' else 0)\n"
    )
    watch = ("--repeat", "5", "--until-hang", "--stall", "3")
    ended = start(jobs_here, sys.executable, str(folder / "sometimes.py"), watch=watch).end()
    assert ended.status == 3, shown(ended)
    assert ended.clean, shown(ended)
    assert "first hang: start 3" in ended.out
    page = block("how-to/hangs-only-sometimes.md", "1 hang")
    assert is_printed(page[:2], ended.out), ended.out
    assert f"report: {ended.run_dir}/start-3" in ended.out
    kept = sorted(path.name for path in ended.run_dir.iterdir())
    assert kept == ["start-3"]
    verdict = json.loads((ended.run_dir / "start-3" / "verdict.json").read_text())
    assert verdict["outcome"] == "hang"


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("nosuchprogram", 127, "'nosuchprogram' cannot be started"),
        ("false", 5, "no start could be judged, of 3"),
    ],
)
def test_what_can_never_be_judged_is_not_repeated_without_end(
    jobs_here: Jobs, command: str, status: int, said: str
) -> None:
    ended = start(jobs_here, command, watch=("--repeat", "50")).end()
    assert ended.status == status, shown(ended)
    assert said in ended.out + ended.err


def test_a_job_whose_run_was_killed_is_ended_by_who_started_it(jobs_here: Jobs) -> None:
    command = (sys.executable, "-c", SLEEPING)
    job = start(jobs_here, *command, watch=("--repeat", "2", "--stall", "8"))
    end = time.monotonic() + 60
    while not (inner := [p for p in _below(job) if _is_run(p)]) or len(_below(job)) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    inner[0].kill()
    ended = job.end()
    assert ended.clean, shown(ended)
    assert "was killed from outside" in ended.err


def _is_run(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return "run" in process.cmdline()
    return False


def _below(job: Job) -> list[psutil.Process]:
    return psutil.Process(job.running.process.pid).children(recursive=True)


ONE_RANK_A_NODE = """
import os, socket, sys, time
rank, port = int(os.environ["RANK"]), int(sys.argv[1])
if rank == 0:
    meets, _ = socket.create_server(("127.0.0.1", port)).accept()
else:
    while True:
        try:
            meets = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.1)
for turn in range(60):
    meets.sendall(b"x")
    meets.recv(1)
    time.sleep(0.05)
if rank == 1:
    os.mkfifo("nobody-writes")
    open("nobody-writes").read()
meets.recv(1)
"""


def test_two_nodes_that_are_started_on_one_machine_have_one_verdict(jobs_here: Jobs) -> None:
    """As to try a job of several nodes: a command for each, and nothing that they share."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        meets, master = one.getsockname()[1], two.getsockname()[1]
    nodes = []
    for number in "01":
        folder = jobs_here.folder()
        (folder / "meets.py").write_text(ONE_RANK_A_NODE)
        environ = {
            **jobs.clean_environ(),
            **{"RANK": number, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            **{"GROUP_RANK": number, "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "here"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master)},
        }
        ours = (sys.executable, "-m", "bisect", "run", "--run-dir", str(folder / "run"))
        words = (*ours, "--stall", "4", "--", sys.executable, "meets.py", str(meets))
        nodes.append(jobs_here.add(jobs.Running(words, folder, environ), folder))
    nodes[0].until("2 nodes are joined", "nobody-writes")
    nodes[1].until("the verdict comes from")
    for node in nodes:
        (path,) = (node.folder / "run").rglob("verdict.json")
        verdict = json.loads(path.read_text())
        assert verdict["ranks"]["culprit"] == [1]
        assert verdict["ranks"]["waiting"] == [0]
        assert verdict["seen_ranks"] == [0, 1]
