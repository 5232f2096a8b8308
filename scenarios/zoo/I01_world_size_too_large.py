"""The process group is made for more ranks than were started.

WORLD_SIZE says 3, two processes exist. Both come as far as init_process_group, and wait there for a
rank that nobody started; the last line is Lightning's "Initializing distributed: GLOBAL_RANK: 0,
MEMBER: 1/3", which half a dozen other hangs have as well. People found WORLD_SIZE exported by a
wrapper, the number of nodes or GPUs counted twice, or one node of the job not there.

Here the script asks for three devices and WORLD_SIZE says the same, but there are two processes.
"""

from __future__ import annotations

import os
from typing import Any

from hangbisect.zoo.case import Case, Truth


def trainer(given: Any) -> Any:
    import pytorch_lightning as pl

    os.environ["WORLD_SIZE"] = "3"  # Lightning refuses a product that differs from it
    return pl.Trainer(
        accelerator=given.accelerator,
        devices=3,
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )


CASE = Case(
    id="I01",
    title="WORLD_SIZE=3, and two ranks",
    cluster="C1",
    reports=("pytorch/pytorch#52848", "NVIDIA/Megatron-LM#2458", "facebookresearch/fairseq#4082"),
    truth=Truth(
        outcome="hang",
        culprit=(2,),
        waiting=(0, 1),
        checkpoint="training",
        component=("strategy",),
        waits_for=("absent_rank",),
        cause=("world-size-too-large",),
    ),
    options=("--wandb", "off"),
    uses={"trainer": "trainer"},
)
