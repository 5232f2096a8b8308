"""Variables of a Slurm step are there, and nobody started the other tasks.

In an sbatch script, or in a shell inside an allocation, `python train.py` sees SLURM_NTASKS=2 and
its own SLURM_PROCID=0. Lightning takes itself for task 0 of 2, starts nobody, and waits for task 1
(Lightning-AI/pytorch-lightning#16730, #20391). It depends on the name of the Slurm job: "bash" and
"interactive" are left alone.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="I04",
    title="plain python with the variables of a Slurm step",
    cluster="C1",
    reports=(
        "Lightning-AI/pytorch-lightning#16730",
        "Lightning-AI/pytorch-lightning#20391",
        "Lightning-AI/pytorch-lightning#10098",
    ),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="launcher",
        component=("launcher",),
        waits_for=("absent_rank",),
        cause=("slurm-environment",),
    ),
    launcher="python",
    under=("pipeline",),  # a script without Lightning's part believes no such variable
    environment={
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_JOB_NAME": "train",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_JOB_ID": "4242",
    },
    options=("--timeout", "launcher=8", "--until", "arguments"),
)
