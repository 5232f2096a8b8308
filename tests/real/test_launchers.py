"""Real jobs through each launcher: healthy, hanging, cancelled. All end before torch is needed,
but for a training under mpirun and one under srun.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import pytest
from hangbisect.trials import matrix
from hangbisect.trials.launch import find_verdict

from .slurm_here import Slurm
from .verdicts import AT, check, shown
from .whole_jobs import DEADLINE, Job, Jobs

SHORT = ("--until", "logs_directory")
# Nothing proves that a socket which says nothing is a hang: the deadline of its step is waited out.
HANGS = (*SHORT, "--stall", "4", "--timeout", "logs_directory=6", "--inject")
TRAINS = ("--fast-dev-run", "1", "--wandb", "off")
TRAINED = 270.0  # seconds: two ranks import what a training needs, on a busy machine
HEALTHY = {  # what a healthy job does, where that is more than SHORT
    "mpirun": (TRAINS, {}),
    "srun": (TRAINS, {"MASTER_ADDR": "127.0.0.1"}),  # Slurm's nodes are no hosts here
    "flux": (TRAINS, {}),
}
PROGRAMS = {  # what a launcher needs besides python
    "mpirun": ("mpirun", "Debian: openmpi-bin"),
    "accelerate": ("accelerate", "pip install accelerate"),
    "deepspeed": ("deepspeed", "pip install deepspeed"),
}
# By what a rank calls the one that started it.
STARTERS = {"python": None, "sbatch": "srun"}
SCRIPTS = str(Path(sys.executable).parent)
ALL = (
    "python",
    "torchrun",
    "launch",
    "mpirun",
    "deepspeed",
    "accelerate",
    "srun",
    "sbatch",
    "flux",
)
# Both where a launcher starts at once. Of those that import torch first launch is torchrun as well.
SIGNALS = [
    *((name, signal.SIGTERM) for name in ALL if name != "launch"),
    *((name, signal.SIGINT) for name in ALL if name not in ("torchrun", "accelerate", "deepspeed")),
]

StartedBy = Callable[..., Job]


@pytest.fixture(params=ALL)
def launcher(request: pytest.FixtureRequest) -> str:
    """Each launcher that ships, where what it needs is here."""
    return usable(request, request.param)


def usable(request: pytest.FixtureRequest, name: str) -> str:
    """Return the name; skip the test where the launcher's program is not here."""
    program, where_from = PROGRAMS.get(name, ("sh", ""))
    if shutil.which(program, path=f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}") is None:
        pytest.skip(f"no {program} here ({where_from})")
    if name in ("srun", "sbatch"):
        request.getfixturevalue("slurm")
    if name == "flux":
        request.getfixturevalue("flux")
    return name


@pytest.fixture
def started_by(request: pytest.FixtureRequest, jobs_here: Jobs) -> StartedBy:
    """Start a job by a launcher; srun's is in an allocation."""

    def start(name: str, *words: str, nodes: int = 1, ranks: int = 2, **how: Any) -> Job:
        command, environ = matrix.launcher_command(
            matrix.find_launcher(name), nodes, ranks, [], ours=True, master_port=free_port()
        )
        words_before = list(command)
        if name in ("srun", "sbatch"):
            slurm: Slurm = request.getfixturevalue("slurm")
            environ |= slurm.environ
        if name == "flux":
            environ |= request.getfixturevalue("flux").environ
        if name == "srun":
            words_before = [*slurm.inside(nodes, ranks), *words_before]
        environ |= how.pop("environ", {})
        return jobs_here.start(*words, launcher=words_before, environ=environ, **how)

    return start


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def hellos(job: Job, *below: str) -> list[dict[str, Any]]:
    """Return what the ranks of a node said of themselves, by rank."""
    lines = (job.folder / "run").joinpath(*below, "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return sorted((e for e in events if e["t"] == "hello"), key=lambda e: int(e["rank"]))


# ---- one node ------------------------------------------------------------------------------------


def test_a_healthy_job_ends_well_and_its_ranks_know_who_started_them(
    launcher: str, started_by: StartedBy
) -> None:
    """Their ranks meet, where they train."""
    ranks = 1 if launcher == "python" else 2
    words, environ = HEALTHY.get(launcher, (SHORT, {}))
    job = started_by(launcher, *words, ranks=ranks, environ=environ)
    ended = job.end(TRAINED)
    check(ended, "ok")
    assert ended.status == 0, shown(ended)
    assert ended.verdict["world_size"] == ranks
    said = hellos(job)
    assert [one["rank"] for one in said] == list(range(ranks))
    assert [one["local_rank"] for one in said] == list(range(ranks))
    assert {one["launcher"] for one in said} == {STARTERS.get(launcher, launcher)}
    assert [one["contradictions"] for one in said] == [[]] * ranks
    assert "\x1b[" not in ended.out  # mpirun gives its ranks terminals
    if launcher in ("sbatch", "flux"):
        assert "is queued" in ended.err
        assert "runs on " in ended.err


def test_a_hang_is_located_and_the_launcher_fails(launcher: str, started_by: StartedBy) -> None:
    culprit = 0 if launcher == "python" else 1
    ended = started_by(
        launcher, *HANGS, f"socket@logs_directory:rank{culprit}", ranks=culprit + 1
    ).end()
    check(ended, "hang", culprit=[culprit], checkpoint="logs_directory")
    assert ended.status != 0
    assert f"HANG  {AT['logs_directory']}" in ended.err + ended.out, shown(ended)


@pytest.mark.parametrize(("name", "number"), SIGNALS)
def test_a_launcher_told_to_end_ends_its_ranks(
    name: str,
    number: signal.Signals,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    started_by: StartedBy,
) -> None:
    launcher = usable(request, name)
    (tmp_path / "train.py").write_text(
        "import os, time\n"
        "open(f'here-{os.getpid()}', 'w').close()\n"
        "while True:\n    time.sleep(0.1)\n"
    )
    ranks = 1 if launcher == "python" else 2
    job = started_by(launcher, folder=tmp_path, ranks=ranks, way=[str(tmp_path / "train.py")])
    # All of them: a launcher that is told in between does not know yet what it has started.
    started = jobs.until(lambda: len(list(tmp_path.glob("here-*"))) >= ranks, DEADLINE)
    assert started, job.said()
    job.running.process.send_signal(number)
    ended = job.end()
    assert ended.status not in (0, -signal.SIGKILL), ended
    assert ended.left_processes == []
    if launcher in ("srun", "sbatch"):
        assert request.getfixturevalue("slurm").is_free()
    if launcher == "flux":
        assert request.getfixturevalue("flux").is_free()


# ---- two nodes -----------------------------------------------------------------------------------


def test_each_node_speaks_for_its_own_ranks_and_writes_its_own_verdict(
    slurm: Slurm, started_by: StartedBy
) -> None:
    """Both nodes have one host name and one file system here."""
    job = started_by("srun", *HANGS, "socket@logs_directory:rank3", nodes=2)
    ended = job.end()
    # Of this node nobody is to blame: its ranks have done what they had to do, or were ended.
    assert ended.verdict["ranks"]["culprit"] == []
    assert ended.verdict["seen_ranks"] == [0, 1]
    assert ended.status != 0
    told = find_verdict(ended.run_dir)
    assert told is not None
    assert (told.outcome, told.ranks.culprit) == ("hang", (3,))
    other = json.loads((ended.run_dir / "node-1" / "verdict.json").read_text())
    assert (other["outcome"], other["ranks"]["culprit"]) == ("hang", [3])
    assert other["ranks"]["waiting"] == [2]
    assert [one["rank"] for one in hellos(job)] == [0, 1]
    assert [one["rank"] for one in hellos(job, "node-1")] == [2, 3]


def test_tasks_dealt_out_in_turn_belong_to_the_node_they_run_on(
    slurm: Slurm, jobs_here: Jobs
) -> None:
    words = ["srun", "--nodes=2", "--ntasks-per-node=2", "--distribution=cyclic"]
    words = [*slurm.inside(2, 2), *words, sys.executable]
    job = jobs_here.start(*SHORT, launcher=words, environ=slurm.environ)
    check(job.end(), "ok")
    assert [one["rank"] for one in hellos(job)] == [0, 2]
    assert [one["rank"] for one in hellos(job, "node-1")] == [1, 3]


# ---- what contradicts ----------------------------------------------------------------------------


def test_a_rank_exported_by_hand_is_said_and_srun_is_believed(
    slurm: Slurm, started_by: StartedBy
) -> None:
    by_hand = {"RANK": "0", "WORLD_SIZE": "8"}
    ended = started_by("srun", *SHORT, environ=by_hand).end()
    check(ended, "ok")
    contradiction = "RANK=0 and SLURM_PROCID=1 contradict each other: srun started this process"
    assert f"Contradiction: {contradiction}" in ended.out
    assert any(note.startswith(f"rank 1: {contradiction}") for note in ended.verdict["notes"])


def test_a_task_that_never_says_hello_is_found_by_what_srun_calls_it(
    slurm: Slurm, jobs_here: Jobs
) -> None:
    wrapper = 'if [ "$SLURM_PROCID" = 1 ]; then exec sleep 300; fi; exec "$@"'
    words = ["srun", "--nodes=1", "--ntasks=2", "--kill-on-bad-exit=1", "sh", "-c", wrapper, "sh"]
    words = [*slurm.inside(1, 2), *words, sys.executable]
    job = jobs_here.start(
        *(*SHORT, "--timeout", "launcher=3"), launcher=words, environ={**slurm.environ, "RANK": "0"}
    )
    ended = job.end()
    check(ended, "hang", culprit=[1])
    assert ended.verdict["ranks"]["never_started"] == [1]
    assert ended.verdict["where"][0]["pid"] is not None


def test_torchrun_in_a_task_of_slurms_is_no_contradiction(slurm: Slurm, jobs_here: Jobs) -> None:
    torchrun = [f"{SCRIPTS}/torchrun", "--standalone", "--nproc_per_node=2"]
    words = ["srun", "--ntasks=1", "--nodes=1", *torchrun]
    job = jobs_here.start(*SHORT, launcher=words, environ=slurm.environ)
    check(job.end(), "ok")
    said = hellos(job)
    assert [one["rank"] for one in said] == [0, 1]
    assert {one["launcher"] for one in said} == {"torchrun"}
    assert [one["contradictions"] for one in said] == [[], []]


# ---- without a job of ours -----------------------------------------------------------------------


def run(
    name: str, *words: str, environ: dict[str, str], nodes: int = 1
) -> subprocess.CompletedProcess[str]:
    command, variables = matrix.launcher_command(matrix.find_launcher(name), nodes, 1, words)
    return subprocess.run(
        command,
        env={**jobs.clean_environ(), **variables, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what a shell needs, and a python3 that has no torch."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "id", "sed", "dirname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -I -S "$@"\n')
    python.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("name", [name for name in ALL if name != "python"])
def test_what_is_missing_is_said_in_a_sentence_and_the_status_is_127(
    name: str, bare_path: str
) -> None:
    done = run(name, "train.py", environ={"PATH": bare_path})
    assert done.returncode == 127, done.stderr
    assert done.stderr.startswith(f"launcher {name}: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_python_says_that_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to(str(shutil.which("sh")))
    done = run("python", "train.py", environ={"PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (127, "launcher python: there is no python3 in PATH\n")


@pytest.mark.parametrize("name", ALL)
def test_too_little_or_a_number_that_is_none_is_said_in_a_sentence(
    name: str, bare_path: str
) -> None:
    bare = {"PATH": bare_path}
    for words, environ in (
        ((), bare),
        (("train.py",), {**bare, "NPROC_PER_NODE": "abc"}),
        (("train.py",), {**bare, "NPROC_PER_NODE": "0"}),
        (("train.py",), {**bare, "NNODES": "-1"}),
    ):
        done = run(name, *words, environ=environ)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.startswith(f"launcher {name}: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ALL)
def test_its_usage_is_printed_and_nothing_started(name: str, bare_path: str) -> None:
    done = run(name, "--help", environ={"PATH": bare_path})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"launchers/{name} train.py --epochs 1" in done.stdout
    assert "set -eu" not in done.stdout


@pytest.mark.parametrize("name", ["python", "torchrun", "launch", "deepspeed", "accelerate"])
def test_several_nodes_need_to_be_told_where_they_meet(
    name: str, request: pytest.FixtureRequest
) -> None:
    usable(request, name)
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    done = run(name, "train.py", environ={"PATH": path}, nodes=2)
    assert done.returncode == 2
    assert done.stderr.startswith(f"launcher {name}: NNODES=2")


def test_srun_outside_of_an_allocation_names_the_other_way(slurm: Slurm) -> None:
    done = run("srun", "train.py", environ=slurm.environ)
    assert done.returncode == 2
    assert "use salloc, or the launcher sbatch" in done.stderr


def test_sbatch_passes_words_output_and_status_on(slurm: Slurm) -> None:
    script = "import sys; print(sys.argv[1:]); print('told', file=sys.stderr); sys.exit(7)"
    done = run("sbatch", "-c", script, "a b", '"', environ=slurm.environ)
    assert done.returncode == 7
    assert done.stdout == "['a b', '\"']\n"
    assert "told" in done.stderr


def test_the_time_in_the_queue_counts_in_no_limit(slurm: Slurm, jobs_here: Jobs) -> None:
    slurm.ask("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 8")
    command, environ = matrix.launcher_command(matrix.find_launcher("sbatch"), 2, 1, [], ours=True)
    folder = jobs_here.folder()
    watch = ["--run-dir", str(folder / "run"), "--timeout", "launcher=3", "--stall", "3"]
    outer = [sys.executable, "-m", "hangbisect", "run", *watch, "--", *command]
    ended = jobs_here.start(
        *SHORT, folder=folder, launcher=outer, environ={**environ, **slurm.environ}
    ).end()
    check(ended, "ok")
    assert ended.status == 0, shown(ended)
    assert ended.seconds > 3  # it was in the queue for longer than the limit


@pytest.mark.parametrize("queued", [False, True])
def test_sbatch_hears_a_signal_whatever_programs_of_slurm_wait_for(
    tmp_path: Path, jobs_here: Jobs, queued: bool
) -> None:
    """Its controller does not answer: before the job is queued, or when it is to be cancelled."""
    programs = {
        "sbatch": f"{'echo 17' if queued else ''}\necho $$ > {tmp_path}/sbatch.pid",
        "scancel": f"kill -9 $(cat {tmp_path}/sbatch.pid)",
    }
    (tmp_path / "bin").mkdir()
    for name, does in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{does}\nexec sleep 1000\n")
        program.chmod(0o755)
    command, environ = matrix.launcher_command(matrix.find_launcher("sbatch"), 1, 1, ["train.py"])
    environ["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    running = jobs.Running(command, tmp_path, {**jobs.clean_environ(), **environ})
    job = jobs_here.add(running, tmp_path)
    until = time.monotonic() + DEADLINE
    while not (tmp_path / "sbatch.pid").exists() or (queued and "is queued" not in job.said()):
        assert time.monotonic() < until
        time.sleep(0.05)
    running.process.terminate()
    ended = job.end()
    assert ended.status == 128 + signal.SIGTERM, shown(ended)
    assert ended.left_processes == []
    assert not list(tmp_path.glob("sbatch-*"))


def test_sbatch_ends_with_a_job_that_was_cancelled_in_the_queue(
    slurm: Slurm, started_by: StartedBy
) -> None:
    slurm.ask("scontrol", "update", "PartitionName=all", "State=DOWN")  # queues, and starts nothing
    try:
        job = started_by("sbatch", *SHORT)
        job.until("is queued")
        assert "PENDING" in slurm.ask("squeue", "--noheader", "--format=%T")
        slurm.ask("scancel", "--state=PENDING", "--user=root")
        ended = job.end()
    finally:
        slurm.ask("scontrol", "update", "PartitionName=all", "State=UP")
    assert ended.status not in (0, -signal.SIGKILL), ended.err
    assert "runs on" not in ended.err
    assert ended.left_processes == []


def test_mpirun_takes_the_environment_along_to_other_nodes(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Another node is this machine, reached by an ssh of ours that takes nothing along."""
    usable(request, "mpirun")
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\n'
        'exec env -i PATH="/usr/bin:/bin" sh -c "$*"\n'
    )
    ssh.chmod(0o755)
    hosts = tmp_path / "hosts"
    hosts.write_text("198.51.100.1 slots=1\n198.51.100.2 slots=1\n")  # RFC 5737: nobody's
    done = run(
        "mpirun",
        *("-c", "import os; print(os.environ.get('MINE'), os.environ.get('HOME'))"),
        environ={"HOSTFILE": str(hosts), "OMPI_MCA_plm_rsh_agent": str(ssh), "MINE": "kept"},
        nodes=2,
    )
    assert done.returncode == 0, done.stderr
    # Two daemons forward what two ranks print, and their lines may mix.
    assert sorted(done.stdout) == sorted("kept None\n" * 2)
