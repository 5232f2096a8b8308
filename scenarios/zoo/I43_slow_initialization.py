"""Rank 1 initializes large weights on an overloaded core: the same place, and CPU burning.

"394 s against 13 s for the first step" (radixark/miles#3158) is slow, not hung. A control: work
in one function is honest until it has taken many times its deadline.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

SECONDS = 20.0


def load_model(given: Any) -> Any:
    """Return the model, with orthogonal weights on rank 1."""
    import time

    import torch
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            torch.nn.init.orthogonal_(torch.empty(1200, 1200))
    return model


CASE = Case(
    id="I43",
    title="rank 1 computes its weights for long: slow, not hung",
    cluster="C21",
    reports=("radixark/miles#3158", "huggingface/transformers#28139"),
    truth=Truth(outcome="ok", slow="model"),
    uses={"model": "load_model"},
    options=("--timeout", "model=8"),
    limit=120.0,
)
