"""The same as I04 where only Lightning takes the variables for those of a Slurm step.

A shell in an allocation has SLURM_NTASKS and SLURM_JOB_NAME but SLURM_PROCID only sometimes;
Lightning asks for SLURM_NTASKS alone (SLURMEnvironment.detect). So the script runs as one process,
asks for two devices, Lightning starts no second process, and fit waits for rank 1 in
init_process_group.

Here the variables are set just before the Trainer is made.
"""

from __future__ import annotations

import os
from typing import Any

from hangbisect.zoo.case import Case, Truth


def trainer(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    os.environ.update(
        SLURM_NTASKS="2",
        SLURM_NTASKS_PER_NODE="2",
        SLURM_JOB_NAME="train",
        SLURM_PROCID="0",
        SLURM_LOCALID="0",
        SLURM_NODEID="0",
    )
    return run_usual_step(given)


CASE = Case(
    id="I04b",
    title="Lightning alone sees a Slurm step, rank 1 never comes",
    cluster="C1",
    reports=("Lightning-AI/pytorch-lightning#16730", "Lightning-AI/pytorch-lightning#19762"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("strategy",),
        waits_for=("absent_rank",),
        cause=("slurm-environment",),
    ),
    launcher="python",
    options=("--devices", "2", "--wandb", "off"),
    uses={"trainer": "trainer"},
)
