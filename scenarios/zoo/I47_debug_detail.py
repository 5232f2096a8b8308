"""TORCH_DISTRIBUTED_DEBUG=DETAIL, which every guide recommends, breaks a healthy job.

It makes a second process group to check each collective. In pytorch/pytorch#129672 the job
hangs of it; with torch 2.13 and gloo it ends by SIGSEGV in the first backward. A control, and a
warning: never recommended here.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="I47",
    title="TORCH_DISTRIBUTED_DEBUG=DETAIL: a crash",
    cluster="C22",
    reports=("pytorch/pytorch#129672",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="training",
        cause=("debug-detail",),
        avoids=("torch_distributed_debug=OFF", "torch_distributed_debug=INFO"),
    ),
    environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
)
