"""Variables that contradict one another, the launcher or the devices."""

from __future__ import annotations

import pytest
from hangbisect.base.rank_facts import Gpu
from hangbisect.doctor import contradictions
from hangbisect.doctor.devices import Devices
from hangbisect.evidence.machine import NO_DRIVER as NO_DRIVER_HERE

from .made_up import TORCHRUN, levels, said, setting

FOUR = Devices(tuple(Gpu(index, "H100") for index in range(4)))
NONE = Devices(missing=NO_DRIVER_HERE)


@pytest.mark.parametrize(
    ("environ", "level", "text"),
    [
        ({}, "ok", "no launcher"),
        ({"NODE_RANK": "1"}, "problem", "NODE_RANK=1 without torchrun"),
        ({"NODE_RANK": "0"}, "ok", ""),
        ({"LOCAL_RANK": "0"}, "problem", "Lightning starts no other rank"),
        ({"WORLD_SIZE": "4"}, "warning", "nobody here starts the other ranks"),
        ({"RANK": "one"}, "problem", "RANK=one is no number"),
        ({"NODE_RANK": "1", "SLURM_STEP_ID": "0"}, "ok", ""),
    ],
)
def test_without_a_launcher(environ: dict[str, str], level: str, text: str) -> None:
    ((found, value),) = said(contradictions.launchers, None, setting(**environ))
    assert (found, text in value) == (level, True)


def test_each_rank_started_by_hand_is_a_warning_only() -> None:
    environ = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n01"}
    assert levels(contradictions.launchers, None, setting(**environ)) == ["warning"]
    # Kubeflow gives them to each pod, for torchrun below.
    pod = setting(**environ, KUBERNETES_SERVICE_HOST="10.96.0.1")
    assert levels(contradictions.launchers, None, pod) == ["ok"]


def test_a_batch_script_may_start_them_yet() -> None:
    batch = setting(launcher="srun", contradictions=("4 tasks (SLURM_STEP_ID is not set)",))
    assert levels(contradictions.launchers, None, batch) == ["warning"]


def test_under_a_launcher_they_are_its_own() -> None:
    under = setting(launcher="torchrun", ancestors=(TORCHRUN,), LOCAL_RANK="0", NODE_RANK="1")
    assert said(contradictions.launchers, None, under) == [("ok", "torchrun started rank 0")]


def test_what_ranks_find_contradictory_is_a_problem_here() -> None:
    odd = setting(launcher="srun", contradictions=("RANK=3 and SLURM_PROCID=0 contradict",))
    assert levels(contradictions.launchers, None, odd) == ["problem"]


@pytest.mark.parametrize(
    ("ranks", "environ", "level"),
    [
        (4, {}, "ok"),
        (2, {}, "ok"),
        (8, {}, "problem"),
        (2, {"CUDA_VISIBLE_DEVICES": "0"}, "problem"),
        (2, {"CUDA_VISIBLE_DEVICES": "0,1"}, "ok"),
        (2, {"CUDA_VISIBLE_DEVICES": "0,9,1"}, "problem"),
        (2, {"CUDA_VISIBLE_DEVICES": "9"}, "problem"),
        (2, {"CUDA_VISIBLE_DEVICES": "-1"}, "warning"),
        (2, {"CUDA_VISIBLE_DEVICES": ""}, "warning"),
        (4, {"CUDA_VISIBLE_DEVICES": "2", "SLURM_GPUS_PER_TASK": "1"}, "ok"),
    ],
)
def test_ranks_and_devices(ranks: int, environ: dict[str, str], level: str) -> None:
    given = setting(launcher="torchrun", world=ranks, **environ)
    assert levels(contradictions.devices, FOUR, given) == [level]


def test_without_gpus_there_is_nothing_to_compare() -> None:
    assert levels(contradictions.devices, NONE, setting(launcher="torchrun", world=8)) == ["ok"]


def test_tasks_and_devices() -> None:
    one_task = setting(launcher="srun", SLURM_JOB_ID="1", SLURM_NTASKS="1")
    assert levels(contradictions.devices, FOUR, one_task) == ["warning"]
    batch = setting(SLURM_JOB_ID="1", SLURM_NTASKS="2")
    assert levels(contradictions.devices, FOUR, batch) == ["warning"]


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        ({}, "ok"),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "SLURM_NNODES": "1"}, "ok"),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "1"}, "warning"),
        (
            {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "interactive"},
            "ok",
        ),
        (
            {
                **{"SLURM_JOB_ID": "1", "SLURM_NTASKS": "3", "SLURM_NNODES": "2"},
                "SLURM_NTASKS_PER_NODE": "4",
            },
            "warning",
        ),
    ],
)
def test_tasks_of_slurm(environ: dict[str, str], level: str) -> None:
    assert levels(contradictions.slurm, None, setting(**environ)) == [level]
