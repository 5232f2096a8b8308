"""Rank 1 waits for a kernel that does not end: 100 % GPU and no progress.

What a data plane between GPUs that does not work looks like from its rank (NVIDIA/nccl#901,
NVIDIA/nccl-tests#117): the GPU is busy, the process polls, and nothing ever comes.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model; on rank 1 once a kernel of hours has ended."""
    import torch
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        torch.cuda._sleep(10**14)  # cycles
        torch.cuda.synchronize()
    return model


CASE = Case(
    id="K01",
    title="rank 1 waits for a kernel that does not end",
    cluster="C5",
    reports=("NVIDIA/nccl#901", "NVIDIA/nccl-tests#117"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("accelerator", "model"),
        waits_for=("device",),
        cause=("gpu-busy",),
    ),
    uses={"model": "load_model"},
    needs=("gpu",),
    options=("--accelerator", "cpu", "--timeout", "model=20", "--until", "model"),
)
