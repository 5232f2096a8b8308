"""Where a process stands, from the environments that launchers make."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.place import FOLDER_VARIABLE, JOB_VARIABLE, Place, command_line, find_place
from hangbisect.base.variables import FRONT_VARIABLE
from hypothesis import given
from hypothesis import strategies as st

DEADLINE = 60.0
Start = Callable[..., subprocess.Popen[str]]

TORCHRUN = {
    **{"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
    **{"GROUP_RANK": "1", "MASTER_ADDR": "n01", "MASTER_PORT": "29500"},
    **{"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"},
}
OPEN_MPI = {
    **{"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
    **{"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
    "OMPI_COMM_WORLD_NODE_RANK": "1",
}
SLURM = {
    **{"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"},
    **{"SLURM_NTASKS_PER_NODE": "4", "SLURM_NODEID": "1", "SLURM_JOB_NAME": "train"},
    **{"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"},
}
PMI = {
    **{"PMI_RANK": "5", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"},
}


@pytest.mark.parametrize("environ", [TORCHRUN, OPEN_MPI, SLURM, PMI])
def test_each_launcher_tells_the_same_in_its_own_words(environ: dict[str, str]) -> None:
    place = find_place(environ)
    assert (place.rank, place.local_rank) == (5, 1)
    assert (place.world_size, place.local_world_size, place.node) == (8, 4, 1)
    assert place.launcher is not None
    assert not place.joined


def test_nobody_started_several_ranks_where_nothing_says_so() -> None:
    place = find_place({})
    assert (place.rank, place.local_rank, place.world_size, place.local_world_size) == (0, 0, 1, 1)
    assert (place.launcher, place.attempt, place.node) == (None, 0, 0)


def test_torchrun_under_slurm_counts_as_torchrun() -> None:
    outer = SLURM | {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"}
    place = find_place(TORCHRUN | outer)
    assert (place.rank, place.world_size, place.local_rank, place.attempt) == (5, 8, 1, 2)


def test_who_is_no_rank_yet_has_no_world_whatever_is_exported() -> None:
    """A script that starts ranks itself: WORLD_SIZE is for them, and they may be on more nodes."""
    place = find_place({"WORLD_SIZE": "4", "MASTER_ADDR": "n01", "MASTER_PORT": "1"})
    assert (place.rank, place.world_size, place.local_world_size) == (0, 1, 1)
    by_hand = find_place({"WORLD_SIZE": "4", "LOCAL_RANK": "0"})  # passes for a rank in Lightning
    assert by_hand.world_size == 4


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_an_interactive_shell_of_slurm_is_no_launcher(name: str) -> None:
    place = find_place(SLURM | {"SLURM_JOB_NAME": name})
    assert (place.rank, place.world_size, place.launcher) == (0, 1, None)


def test_a_rank_that_lightning_started_joins_the_job_of_its_starter() -> None:
    environ = {FOLDER_VARIABLE: "/run/it", JOB_VARIABLE: "abc", "LOCAL_RANK": "1"}
    place = find_place(environ | {"WORLD_SIZE": "2", "MASTER_PORT": "1"})
    assert (place.rank, place.local_rank, place.world_size, place.local_world_size) == (1, 1, 2, 2)
    assert (place.joined, place.job, place.launcher) == (True, "abc", None)


def test_how_many_ranks_of_lightnings_a_node_has_stands_nowhere() -> None:
    """Unless all are on this machine: else those of the other nodes would be missed here."""
    environ = {FOLDER_VARIABLE: "/run/it", JOB_VARIABLE: "abc", "LOCAL_RANK": "1", "NODE_RANK": "0"}
    assert not find_place(environ | {"WORLD_SIZE": "4", "MASTER_ADDR": "n01"}).counted
    assert find_place(environ | {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}).counted


def test_all_ranks_of_a_node_agree_on_the_job_and_nobody_else() -> None:
    first = find_place(TORCHRUN).job
    assert find_place(TORCHRUN | {"RANK": "6", "LOCAL_RANK": "2"}).job == first
    others = [
        TORCHRUN | {"TORCHELASTIC_RUN_ID": "another"},
        TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "3"},
        TORCHRUN | {"GROUP_RANK": "0", "RANK": "1"},
        TORCHRUN | {"MASTER_PORT": "29501"},
    ]
    assert len({first, *(find_place(other).job for other in others)}) == 5


DEEPSPEED = {
    **{"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_SIZE": "4"},
    **{"CROSS_RANK": "1", "CROSS_SIZE": "2", "MASTER_ADDR": "n01"},
}
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n01"}


def test_a_node_is_named_by_its_launcher_or_by_its_host() -> None:
    assert [find_place(e).node_name for e in (TORCHRUN, SLURM, DEEPSPEED)] == ["1", "1", "1"]
    assert find_place(TORCHRUN | {"GROUP_RANK": "0"}).node_name == ""
    assert find_place(OPEN_MPI).node_name == find_place(BY_HAND).node_name == socket.gethostname()
    one_node = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
    assert find_place(OPEN_MPI | one_node).node_name == ""


def test_ranks_are_in_order_where_their_launcher_deals_them_out_so() -> None:
    assert find_place(TORCHRUN).in_order
    assert find_place(DEEPSPEED).in_order
    assert find_place(DEEPSPEED).local_world_size == 4
    assert not find_place(OPEN_MPI).in_order
    assert not find_place(SLURM).in_order  # SLURM_GTIDS lists them


def test_ranks_that_nobody_counts_are_on_one_machine_only_if_no_other_reaches_the_master() -> None:
    assert not find_place(BY_HAND).counted
    assert find_place(BY_HAND | {"MASTER_ADDR": "127.0.0.1"}).counted
    assert find_place(BY_HAND | {"LOCAL_WORLD_SIZE": "2"}).counted
    in_a_pod = {"MASTER_ADDR": "localhost", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert not find_place(BY_HAND | in_a_pod).counted


MORE = ("SLURM_GTIDS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST", "SLURM_TASK_PID")
NAMES = sorted({*TORCHRUN, *OPEN_MPI, *SLURM, *PMI, *MORE, FOLDER_VARIABLE, JOB_VARIABLE})


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=4) | st.integers().map(str)))
def test_no_environment_however_contradictory_raises(environ: dict[str, str]) -> None:
    place = find_place(environ)
    assert place.launcher_pid > 0
    assert place.job


def test_a_rank_never_stands_outside_of_its_world() -> None:
    place = find_place({"RANK": "3", "WORLD_SIZE": "2", "LOCAL_RANK": "3"})
    assert place.rank == 3
    assert place.world_size >= 2


def test_ranks_in_containers_of_their_own_are_nodes_and_those_in_one_container_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the first process of a container, and of `docker exec`, the parent is no number there."""
    by_hand = BY_HAND | {"MASTER_ADDR": "127.0.0.1"}
    monkeypatch.setattr(os, "getppid", lambda: 0)
    here = [find_place(by_hand | {"RANK": rank}) for rank in ("0", "1")]
    assert here[0].job == here[1].job
    assert not here[0].counted
    assert here[0].node_name.startswith(f"{socket.gethostname()}-")
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[4026531837]")
    elsewhere = find_place(by_hand)
    assert elsewhere.node_name == f"{socket.gethostname()}-4026531837"
    assert elsewhere.job != here[0].job
    assert find_place(by_hand | {"LOCAL_WORLD_SIZE": "2"}).counted


# ---- real processes ---------------------------------------------------------------------------

ASK = """
import runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")
import json
from dataclasses import asdict
from hangbisect.base.place import command_line, find_place
place = find_place()
print(json.dumps({**asdict(place), "command": command_line(place, sys.orig_argv)}), flush=True)
"""


def ask(start: Start, *command: object, **environ: str) -> dict[str, Any]:
    process = start(*command, env={**bare_environ(), **environ})
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def bare_environ() -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if n not in NAMES}


@pytest.fixture
def torchrun(tmp_path: Path, package: Path) -> Path:
    """A launcher by that name that starts rank 1 of 2, with a shell in front of it."""
    script = tmp_path / "torchrun"
    script.write_text(
        f"#!{sys.executable}\nimport os, subprocess, sys\n"
        "rank = {'RANK': '1', 'WORLD_SIZE': '2', 'LOCAL_RANK': '1'}\n"
        f"command = [sys.executable, '-c', {ASK!r}, {str(package)!r}]\n"
        "shell = ['sh', '-c', '\"$@\"; exit $?', 'sh', *command]\n"
        "sys.exit(subprocess.call(shell, env={**os.environ, **rank}))\n"
    )
    script.chmod(0o755)
    return script


def test_the_launcher_is_found_above_shells_and_wrappers(start: Start, torchrun: Path) -> None:
    launcher = start(torchrun, "--standalone", "-m", "bisect", env=bare_environ())
    out, err = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 0, err
    answer = json.loads(out)
    assert answer["launcher"] == "torchrun"
    assert answer["launcher_pid"] == launcher.pid
    assert answer["command"] == ["torchrun", "--standalone", "-m", "bisect"]


def test_without_a_launcher_the_command_is_ones_own(start: Start, package: Path) -> None:
    answer = ask(start, sys.executable, "-c", ASK, package)
    assert answer["launcher"] is None
    assert answer["command"] == [Path(sys.executable).name, "-c", ASK, str(package)]


def test_a_launcher_that_cannot_be_named_leaves_ones_own_command(
    start: Start, package: Path
) -> None:
    answer = ask(start, sys.executable, "-c", ASK, package, RANK="0", WORLD_SIZE="2")
    assert answer["command"][1:] == ["-c", ASK, str(package)]


def test_of_ranks_that_a_script_starts_it_is_the_command_that_is_watched(
    start: Start, package: Path, tmp_path: Path
) -> None:
    script = tmp_path / "go.sh"
    script.write_text('"$@"; exit $?')
    environ = {"RANK": "0", "WORLD_SIZE": "2", FRONT_VARIABLE: str(os.getpid())}
    answer = ask(start, "sh", script, sys.executable, "-c", ASK, package, **environ)
    assert answer["command"][:2] == ["sh", str(script)]
    environ[FRONT_VARIABLE] = "4194305"  # that is no pid (man 5 proc, pid_max)
    answer = ask(start, "sh", script, sys.executable, "-c", ASK, package, **environ)
    assert answer["command"][0] == Path(sys.executable).name


SUBSHELLS = """
for r in 0 1; do ( export RANK=$r; "$@" | cat ); done
"""
SHELL_OF_ITS_OWN = """
for r in 0 1; do sh -ec 'RANK=$1; export RANK; shift; "$@"; exit $?' sh $r "$@"; done
"""
SCRIPT_OF_ITS_OWN = """
[ $# -eq 0 ] || for r in 0 1; do sh "$0.rank" $r "$@"; done
"""
PROGRAM_OF_ITS_OWN = """
for r in 0 1; do "$1" "$0.rank.py" $r "$@"; done
"""
ONE_RANK_OF_PYTHON = """
import os, subprocess, sys
subprocess.call(sys.argv[2:], env={**os.environ, "RANK": sys.argv[1]})
"""
ONE_RANK = 'RANK=$1; export RANK; shift; "$@"; exit $?'

WATCHED = [SCRIPT_OF_ITS_OWN, PROGRAM_OF_ITS_OWN]


@pytest.mark.parametrize("text", [SUBSHELLS, SHELL_OF_ITS_OWN, *WATCHED])
def test_ranks_behind_shells_of_their_own_are_one_job(
    start: Start, package: Path, tmp_path: Path, text: str
) -> None:
    """As `( RANK=1 python train.py | tee log.1 ) &` starts them, or a script for each of them."""
    (tmp_path / "go.sh").write_text(text)
    (tmp_path / "go.sh.rank").write_text(ONE_RANK)
    (tmp_path / "go.sh.rank.py").write_text(ONE_RANK_OF_PYTHON)
    environ = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    if text in WATCHED:  # of what nobody watches it is not known how far up it goes
        environ[FRONT_VARIABLE] = str(os.getpid())
    command = ("sh", tmp_path / "go.sh", sys.executable, "-c", ASK, package)
    process = start(*command, env={**bare_environ(), **environ})
    out, err = process.communicate(timeout=DEADLINE)
    answers = [json.loads(line) for line in out.splitlines()]
    assert {answer["rank"] for answer in answers} == {0, 1}, err
    assert {answer["launcher_pid"] for answer in answers} == {process.pid}
    assert len({answer["job"] for answer in answers}) == 1


def test_a_program_that_has_an_agent_of_torchrun_in_itself_is_the_launcher(
    start: Start, package: Path, tmp_path: Path
) -> None:
    (tmp_path / "go.sh").write_text(PROGRAM_OF_ITS_OWN)
    (tmp_path / "go.sh.rank.py").write_text(ONE_RANK_OF_PYTHON)
    environ = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    environ |= {"TORCHELASTIC_RUN_ID": "1", FRONT_VARIABLE: str(os.getpid())}
    command = ("sh", tmp_path / "go.sh", sys.executable, "-c", ASK, package)
    process = start(*command, env={**bare_environ(), **environ})
    out, err = process.communicate(timeout=DEADLINE)
    found = {json.loads(line)["launcher_pid"] for line in out.splitlines()}
    assert len(found - {process.pid}) == 2, err


def test_shells_without_a_port_of_their_ranks_may_be_of_several_jobs(
    start: Start, package: Path, tmp_path: Path
) -> None:
    (tmp_path / "go.sh").write_text(SUBSHELLS)
    command = ("sh", tmp_path / "go.sh", sys.executable, "-c", ASK, package)
    process = start(*command, env={**bare_environ(), "WORLD_SIZE": "2"})
    out, err = process.communicate(timeout=DEADLINE)
    assert len({json.loads(line)["job"] for line in out.splitlines()}) == 2, err


def test_of_srun_on_another_machine_only_nodes_and_tasks_are_known() -> None:
    place = find_place(SLURM | {"SLURM_GTIDS": "4,5,6,7", "RANK": "0"})
    assert place.neighbours == (4, 5, 6, 7)
    assert place.contradictions[0].startswith("RANK=0 and SLURM_PROCID=5")
    elsewhere = Place(**{**asdict(place), "launcher_pid": 0})
    own = ["/usr/bin/python3", "-m", "bisect"]
    srun = ["srun", "--nodes=2", "--ntasks=8"]
    assert command_line(elsewhere, own) == [*srun, "python3", "-m", "bisect"]


def test_a_console_script_is_named_as_one_types_it() -> None:
    place = Place(**{**asdict(find_place({})), "launcher": None})
    own = ["/usr/bin/python3", "-m", "bisect", "--until", "model"]
    assert command_line(place, own) == ["python3", "-m", "bisect", "--until", "model"]
    assert command_line(place, []) == []


def test_a_rank_without_a_size_gives_way_to_one_that_has_both() -> None:
    """Scripts set the variable of another launcher for the sake of a library."""
    whole = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    place = find_place({**whole, "OMPI_COMM_WORLD_RANK": "2"})
    assert (place.rank, place.world_size) == (2, 4)
    assert find_place({"OMPI_COMM_WORLD_RANK": "2"}).rank == 2
