"""Two processes have RANK=0: local rank used as rank, or a launcher that starts everything twice.

Both put their address under the same key of the store, and both wait for a rank 1 that never comes
(pytorch/pytorch#23074, Lightning-AI/pytorch-lightning#4389: each GLOBAL_RANK line twice).
"""

from __future__ import annotations

import os
from typing import Any

from hangbisect.zoo.case import Case, Truth


def trainer(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    os.environ["RANK"] = "0"
    return run_usual_step(given)


CASE = Case(
    id="H17",
    title="two processes have RANK=0",
    cluster="C1",
    reports=("pytorch/pytorch#23074", "Lightning-AI/pytorch-lightning#4389"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("strategy",),
        cause=("duplicate-rank",),
    ),
    options=("--wandb", "off"),
    uses={"trainer": "trainer"},
)
