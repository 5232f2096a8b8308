"""Which launcher started a process that has the variables of several."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hangbisect.base.launcher_env import (
    Ancestor,
    claimed,
    contradictions,
    impossible,
    local_size,
    master,
    neighbours,
    number,
    starter,
)
from hangbisect.base.launchers import BY_NAME, DIALECTS, LAUNCHERS, find_launcher
from hangbisect.monitor.started_ranks import find_rank_number
from hypothesis import given
from hypothesis import strategies as st

SHELL = ("/bin/bash", "job.sh")


@dataclass(frozen=True)
class Launched:
    """A launcher in a chain of processes, as rank `rank` of `world`."""

    name: str
    rank: int
    world: int

    @property
    def dialect(self) -> str:
        return {"mpirun": "mpirun", "srun": "srun"}.get(self.name, "torchrun")

    @property
    def words(self) -> tuple[str, ...]:
        return {
            "torchrun": ("/usr/bin/python3", "/opt/venv/bin/torchrun", "--nproc_per_node=2"),
            "launch": ("python3", "-m", "torch.distributed.launch", "train.py"),
            "deepspeed": ("python3", "-u", "-m", "deepspeed.launcher.launch"),
            "accelerate": ("python3", "/opt/venv/bin/accelerate", "launch"),
            "mpirun": ("orted", "-mca", "ess", "env"),
            "srun": ("slurmstepd: [17.0]",),
        }[self.name]

    @property
    def variables(self) -> dict[str, str]:
        rank, _, world = DIALECTS[self.dialect][:3]
        more = {"SLURM_STEP_ID": "0"} if self.name == "srun" else {}
        if self.name in ("torchrun", "launch", "accelerate"):
            more = {"TORCHELASTIC_RUN_ID": "none"}
        return {rank: str(self.rank), world: str(self.world), **more}


@dataclass(frozen=True)
class Exported:
    """A shell that sets a variable by hand."""

    name: str
    value: int


Chain = list["Launched | Exported"]


def lived_through(chain: Chain) -> tuple[dict[str, str], list[Ancestor]]:
    """Return the environment and the ancestors of a process below such a chain."""
    environ: dict[str, str] = {}
    above: list[Ancestor] = []
    for link in chain:
        if isinstance(link, Launched):
            # Slurm's own process has nothing of what its tasks have.
            seen = {} if link.name == "srun" else environ
            above.insert(0, Ancestor(seen, link.words))
            environ = {**environ, **link.variables}
        else:
            above.insert(0, Ancestor(environ, SHELL))
            environ = {**environ, link.name: str(link.value)}
    return environ, above


launchers = st.builds(
    lambda name, rank, more: Launched(name, rank, rank + more),
    st.sampled_from(["torchrun", "launch", "deepspeed", "accelerate", "mpirun", "srun"]),
    st.integers(0, 3),
    st.integers(1, 3),
)
exports = st.builds(
    Exported, st.sampled_from(["RANK", "WORLD_SIZE", "LOCAL_RANK"]), st.integers(0, 5)
)


@given(st.lists(launchers | exports, max_size=6))
def test_the_nearest_launcher_is_the_one_that_started_it(chain: Chain) -> None:
    environ, above = lived_through(chain)
    started = [link for link in chain if isinstance(link, Launched)]
    named = claimed(environ, task_is_shell=False)
    found = starter(environ, named, above)
    if started:
        assert found == started[-1].dialect
    else:
        assert found in (None, "torchrun")


@given(st.lists(exports, max_size=3))
def test_what_contradicts_is_said_and_nothing_else(by_hand: Chain) -> None:
    """By hand before srun: what srun says holds, and each variable that differs is named."""
    task = Launched("srun", 3, 4)
    environ, above = lived_through([*by_hand, task])
    named = claimed(environ, task_is_shell=False)
    said = contradictions(environ, named, starter(environ, named, above))
    differs = {
        name
        for name, true in (("RANK", 3), ("WORLD_SIZE", 4))
        if name in environ and number(environ, name) != true
    }
    assert {sentence.partition("=")[0] for sentence in said} == differs


@pytest.mark.parametrize("inner", ["torchrun", "launch", "deepspeed", "accelerate"])
@pytest.mark.parametrize("outer", ["srun", "mpirun"])
def test_a_launcher_in_a_task_of_another_is_no_contradiction(inner: str, outer: str) -> None:
    environ, above = lived_through([Launched(outer, 1, 2), Launched(inner, 5, 8)])
    named = claimed(environ, task_is_shell=False)
    assert starter(environ, named, above) == "torchrun"
    assert contradictions(environ, named, "torchrun") == ()


def test_a_rank_exported_by_hand_is_named_beside_slurms() -> None:
    environ, above = lived_through([Exported("RANK", 0), Launched("srun", 3, 4)])
    named = claimed(environ, task_is_shell=False)
    assert contradictions(environ, named, starter(environ, named, above)) == (
        "RANK=0 and SLURM_PROCID=3 contradict each other: srun started this process, so its rank "
        "is 3",
    )


def test_mpirun_in_a_batch_script_is_said_to_contradict_it() -> None:
    """Lightning asks Slurm, and takes every rank for task 0."""
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    environ = batch | Launched("mpirun", 2, 4).variables
    above = [Ancestor(batch, ("mpirun", "-n", "4")), Ancestor(batch, SHELL)]
    named = claimed(environ, task_is_shell=False)
    assert starter(environ, named, above) == "mpirun"
    (said,) = contradictions(environ, named, "mpirun")
    assert said.startswith("SLURM_PROCID=0 and OMPI_COMM_WORLD_RANK=2 contradict each other")


def test_a_launcher_that_nobody_knows_counts_where_it_is_a_program() -> None:
    task = Launched("srun", 0, 1).variables
    environ = task | {"RANK": "1", "WORLD_SIZE": "2"}
    program = Ancestor(task, ("python3", "/opt/bin/composer", "train.py"))
    step = Ancestor({}, ())
    named = claimed(environ, task_is_shell=False)
    assert starter(environ, named, [program, step]) == "torchrun"
    assert starter(environ, named, [Ancestor(task, SHELL), step]) == "srun"


@given(st.lists(launchers | exports, max_size=4))
def test_in_a_container_that_shows_no_ancestor_one_is_chosen_of_those_named(chain: Chain) -> None:
    environ, _ = lived_through(chain)
    named = claimed(environ, task_is_shell=False)
    found = starter(environ, named, [])
    assert (found in named) if named else found is None
    if found != "torchrun" and "torchrun" in named:
        assert "TORCHELASTIC_RUN_ID" not in environ


def test_tasks_without_a_step_have_nobody_who_starts_the_others() -> None:
    environ = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    (said,) = contradictions(environ, ["srun"], "srun")
    assert said.startswith("SLURM_NTASKS=2, and this process is no task that srun started")
    assert contradictions(environ | {"SLURM_STEP_ID": "0"}, ["srun"], "srun") == ()


def test_a_rank_outside_of_its_world_is_said() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "2"}
    (said,) = contradictions(environ, ["torchrun"], "torchrun")
    assert said == "RANK=3 and WORLD_SIZE=2 contradict each other: ranks are counted from 0"


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_salloc_names_its_jobs_like_a_shell_but_srun_in_them_starts_tasks(name: str) -> None:
    environ = Launched("srun", 1, 2).variables | {"SLURM_JOB_NAME": name}
    assert claimed(environ, task_is_shell=False) == ["srun"]
    assert claimed(environ, task_is_shell=True) == []


def test_pmi_of_slurms_own_says_less_than_slurm() -> None:
    environ = {"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    assert starter(environ, ["srun", "pmi"], []) == "srun"
    assert starter(environ | {"PMI_RANK": "3", "PMI_SIZE": "4"}, ["srun", "pmi"], []) == "pmi"
    flux = {"PMI_RANK": "1", "PMI_SIZE": "2", "FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}
    assert starter(flux, ["flux", "pmi"], []) == "flux"


def test_a_module_of_fluxs_broker_is_no_rank_whatever_variables_it_has() -> None:
    words = ("/usr/bin/python3", "/usr/libexec/flux/cmd/py-runner.py", "flux-module-python-exec.py")
    assert Ancestor({"PMI_RANK": "0"}, words).is_part_of_launcher
    assert not Ancestor({}, ("python3", "train.py")).is_part_of_launcher


def test_how_many_tasks_a_node_of_fluxs_has_is_known_of_one_alone() -> None:
    environ = {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "3"}
    assert local_size(environ | {"FLUX_JOB_NNODES": "1"}, "flux") == 3
    assert local_size(environ | {"FLUX_JOB_NNODES": "2"}, "flux") is None


@pytest.mark.parametrize(
    ("tasks", "sizes"),
    [("2(x2)", [2, 2]), ("3,1", [3, 1]), ("4", [4]), ("2(x2),1,5(x1)", [2, 2, 1, 5])],
)
def test_tasks_of_each_node_are_read_as_slurm_writes_them(tasks: str, sizes: list[int]) -> None:
    for node, size in enumerate(sizes):
        environ = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": str(node)}
        assert local_size(environ | {"SLURM_NTASKS_PER_NODE": "9"}, "srun") == size


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n[0-1]", "n0"), ("gpu-[007,9],x1", "gpu-007"), ("a1,b2", "a1"), ("n[1-2]-ib", "n1-ib")],
)
def test_the_first_of_slurms_nodes_is_the_master(nodes: str, first: str) -> None:
    assert master({"SLURM_STEP_NODELIST": nodes}, "srun") == first
    assert master({"SLURM_STEP_NODELIST": nodes, "MASTER_ADDR": "x"}, "srun") == "x"
    assert master({"SLURM_STEP_NODELIST": nodes}, "torchrun") is None


def test_a_nodes_tasks_need_not_follow_one_another() -> None:
    environ = {"SLURM_GTIDS": "0,2", "SLURM_STEP_ID": "0"}
    assert neighbours(environ, 2) == (0, 2)
    assert neighbours(environ, 1) == ()
    assert neighbours({"SLURM_GTIDS": "0"}, 0) == ()  # a batch script


@given(st.dictionaries(st.sampled_from(["SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"]), st.text()))
def test_garbage_of_slurms_is_no_number_of_tasks(environ: dict[str, str]) -> None:
    size = local_size(environ, "srun")
    assert size is None or size > 0


@given(st.text(), st.text())
def test_garbage_of_slurms_names_no_rank_and_fails_nowhere(tasks: str, nodes: str) -> None:
    environ = {"SLURM_GTIDS": tasks, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": nodes}
    assert not neighbours(environ, -1)
    master(environ, "srun")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, ""),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, ""),
        ({"RANK": "0", "LOCAL_RANK": "3", "WORLD_SIZE": "1"}, "LOCAL_RANK=3 and RANK=0 contradict"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, "RANK=5 and WORLD_SIZE=2 contradict"),
        ({}, ""),
    ],
)
def test_numbers_of_which_there_can_be_no_rank(variables: dict[str, str], said: str) -> None:
    found = impossible(variables, "torchrun")
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("/venv/bin/python3.11 /venv/bin/torchrun --nproc_per_node=2 train.py", "torchrun"),
        ("python -u -X dev -m torch.distributed.run train.py", "torchrun"),
        ("slurmstepd: [7.0]", "srun"),
        ("/usr/libexec/flux/flux-shell 14394851328", "flux"),
        ("flux-job attach f2Yd7k", None),
        ("mpiexec -n 2 python train.py", "mpirun"),
        ("/bin/sh /opt/impi/bin/mpirun -n 2 python train.py", "mpirun"),
        ("mpiexec.hydra -n 2 python train.py", "pmi"),
        ("python -m deepspeed.launcher.runner train.py", "deepspeed"),
        ("python -m accelerate.commands.accelerate_cli launch train.py", "accelerate"),
        ("srun -n 2 python train.py", None),  # the ranks are below slurmstepd
        # They start a launcher, which is a process of its own.
        ("timeout 600 torchrun train.py", None),
        ("sh ./start.sh deepspeed train.py", None),
        ("srun torchrun train.py", None),
        ("python -m hangbisect run torchrun train.py", None),
        ("python train.py torchrun", None),
        ("sh -c torchrun", None),
        ("python", None),
        ("", None),
    ],
)
def test_a_launcher_is_what_runs_and_no_word_of_its_command(
    command: str, launcher: str | None
) -> None:
    assert Ancestor({}, tuple(command.split())).launcher == launcher


def test_each_launcher_of_the_table_is_told_from_the_others() -> None:
    named = [program for one in LAUNCHERS for program in (*one.programs, *one.helpers)]
    assert len(set(named)) == len(named)
    assert len(BY_NAME) == len(LAUNCHERS)
    assert all((one.variables is None) == bool(one.speaks) for one in LAUNCHERS)
    assert {one.dialect for one in LAUNCHERS} == DIALECTS.keys()
    assert len({words.rank for words in DIALECTS.values()}) == len(DIALECTS)
    nobody = find_launcher(None)
    assert (nobody.programs, nobody.gives_terminals) == ((), False)


def test_seen_from_outside_mpiruns_number_counts_before_that_of_the_task_it_runs_in() -> None:
    assert find_rank_number({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "3"}) == 3
    assert find_rank_number({"SLURM_PROCID": "2", "OMPI_COMM_WORLD_RANK": ""}) == 2
    assert find_rank_number({}) is None
