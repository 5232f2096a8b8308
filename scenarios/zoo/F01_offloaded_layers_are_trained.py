"""Layers that device_map="auto" has put on the disk are trained: backward meets the device meta.

What people see: the model did not fit, so max_memory and device_map="auto" were added; it loads and
its first forward is right; then "Function MmBackward0 returned an invalid gradient at index 1 -
expected device meta but got cuda:0". It is taken for the fault of gradient checkpointing, which was
switched on at the same time. With transformers 5.23, accelerate 1.15 and peft 0.21 it comes with
checkpointing and without: what is needed for it are LoRA's adapters around an offloaded layer.

Nothing is done here but to ask for it. The disk stands for the CPU of a machine that has a GPU.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="F01",
    title="offloaded layers are trained: meta tensors in backward",
    cluster="C16",
    reports=("ymcui/Chinese-LLaMA-Alpaca#734", "meta-pytorch/opacus#737"),
    truth=Truth(
        outcome="crash",
        culprit=(0,),
        checkpoint="training",
        component=("fit",),
        cause=("meta-device",),
        avoids=("device_map=none",),
    ),
    ranks=1,
    launcher="python",
    pipeline="finetuning",
    options=(
        *("--device-map", "auto", "--max-memory", "cpu=3MB", "--gradient-checkpointing", "on"),
        *("--batch-size", "4", "--sequence-length", "32"),
        *("--max-steps", "1", "--skip", "preflight", "--skip", "memory_budget"),
    ),
)
