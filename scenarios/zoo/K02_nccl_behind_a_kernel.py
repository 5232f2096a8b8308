"""A world of one: an all_reduce of NCCL is queued behind a kernel that does not end.

The rank stands in the wait for the collective's end, and its peers (there are none) are not what it
waits for: the stream never comes to the collective.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_model(given: Any) -> Any:
    """Return the model once NCCL has summed up its size, behind a kernel of hours."""
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import run_usual_step

    model = run_usual_step(given)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    size = torch.ones(1, device="cuda")
    dist.all_reduce(size)
    torch.cuda.synchronize()
    torch.cuda._sleep(10**14)  # cycles
    dist.all_reduce(size)
    torch.cuda.synchronize()
    return model


CASE = Case(
    id="K02",
    title="NCCL, a world of one: an all_reduce behind a kernel that does not end",
    cluster="C5",
    reports=("NVIDIA/nccl#901",),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="model",
        component=("accelerator", "model", "strategy"),
        waits_for=("device",),
        cause=("gpu-busy",),
    ),
    ranks=1,
    uses={"model": "load_model"},
    needs=("gpu",),
    options=("--timeout", "model=30", "--until", "model"),
)
