"""The toggles of a replay that no other pipeline has."""

from __future__ import annotations

from .toggle import Toggle

REPLAY = (
    Toggle(
        name="zero",
        component="strategy",
        flag="--zero",
        values=("3", "2", "1", "0", "off"),
        default="off",
        kind="remedy",
        read="run",
        read_how="deepspeed.initialize",
        cost="optimizer states, gradients and weights are whole on each rank",
        help="DeepSpeed's ZeRO stage around the module; off: no DeepSpeed",
        pipelines=("replay",),
    ),
)
