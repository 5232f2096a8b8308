"""Most of the weights are offloaded to the disk, and come back for each token: slow, no hang.

A model that is larger than its devices, device_map="auto": it loads, and answers take minutes
("almost like an hour", meta-llama/llama-cookbook#901), with a warning about parameters on the
device meta, which is no error. Here there is room for two of six layers, and no end of steps.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="G04",
    title="weights that are offloaded to the disk make every token slow",
    cluster="C16",
    reports=("meta-llama/llama-cookbook#901", "xusenlinzy/api-for-open-llm#191"),
    truth=Truth(
        outcome="slow",
        culprit=(0,),
        checkpoint="steps",
        component=("generation",),
        cause=("offloaded-weights",),
    ),
    pipeline="generation",
    ranks=1,
    launcher="python",
    options=(
        *("--device-map", "auto", "--max-memory", "cpu=3MB"),
        *("--steps", "100000", "--limit", "60"),
    ),
    limit=240.0,
)
