"""Rank 0 starts CUDA and then forks a pool whose workers use it.

Torch refuses ("Cannot re-initialize CUDA in forked subprocess", its notes on multiprocessing); the
pool hands the exception to the rank, which ends.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def on_the_gpu(number: int) -> float:
    import torch

    return float(torch.ones(number, device="cuda").sum())


def data_module(given: Any) -> Any:
    """Return the data once workers have counted it on the GPU that rank 0 uses already."""
    import multiprocessing

    import torch
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        torch.ones(1, device="cuda")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(on_the_gpu, [1, 2])
    return run_usual_step(given)


CASE = Case(
    id="K03",
    title="rank 0 uses CUDA and forks workers that use it",
    cluster="C2",
    reports=("pytorch/pytorch#40403",),
    truth=Truth(
        outcome="crash",
        culprit=(0,),
        checkpoint="data_module",
        cause=("cuda-before-fork",),
    ),
    uses={"data_module": "data_module"},
    needs=("gpu",),
    options=("--accelerator", "cpu", "--until", "data_module"),
)
