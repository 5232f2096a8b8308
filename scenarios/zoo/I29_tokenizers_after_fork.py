"""A fast tokenizer is used with its threads before the fork, and again in the workers.

huggingface/tokenizers#187, #258; NVIDIA-NeMo/Megatron-Bridge#5328, where code sets
TOKENIZERS_PARALLELISM=true and so takes the library's own guard away. The worker waits in rayon
for threads that stayed in the rank. Nothing else is done here than to set that variable: the
pipeline tokenizes before it forks, as most do.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="I29",
    title="tokenizers' threads before and after the fork",
    cluster="C2",
    reports=("huggingface/tokenizers#187", "NVIDIA-NeMo/Megatron-Bridge#5328"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        detail="worker",
        cause=("tokenizers-after-fork",),
        avoids=(
            *("tokenizers_parallelism=off", "num_workers=0"),
            *("worker_start=forkserver", "worker_start=spawn"),
        ),
    ),
    options=("--num-workers", "1", "--tokenizers-parallelism", "on"),
)
