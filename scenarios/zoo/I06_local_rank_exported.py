"""LOCAL_RANK is set in the environment, so Lightning believes that it is a child.

`export LOCAL_RANK=0` in a profile, a notebook server or a wrapper: the script runs as one process
with devices=2; Lightning sees LOCAL_RANK, takes itself for one that a launcher started, starts no
second process, and waits for it in init_process_group. NODE_RANK did the same
(Lightning-AI/pytorch-lightning#5651, CompVis/taming-transformers#12).
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="I06",
    title="LOCAL_RANK exported: rank 1 is never started",
    cluster="C1",
    reports=("Lightning-AI/pytorch-lightning#5651", "CompVis/taming-transformers#12"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("strategy",),
        waits_for=("absent_rank",),
        cause=("exported-rank-variables",),
    ),
    launcher="python",
    environment={"LOCAL_RANK": "0"},
    options=("--devices", "2", "--wandb", "off"),
)
