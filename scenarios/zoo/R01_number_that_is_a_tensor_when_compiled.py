"""One of a job's inputs makes a compiled forward fail that passes as it is: packed samples.

What people see: "Expected a value of type 'int' for argument 'max_seqlen_q' but instead found type
'FakeTensor'", after minutes of compilation, in flash_attn_varlen_func; with samples that are not
packed, or with another attention, it compiles (Dao-AILab/flash-attention#1351).

Flash attention itself needs a GPU. What goes wrong does not: an operator that wants the length of
the longest sample as a number, and is given a tensor with one element. Four inputs are captured
first, by the real hooks; the third is packed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hangbisect.zoo.case import Case, Truth


@cache
def actor() -> Any:
    """Return a class whose attention takes packed samples through an operator of its own."""
    import torch

    library = torch.library.Library("people", "FRAGMENT")
    library.define("varlen_forward(Tensor q, Tensor ends, int max_seqlen_q) -> Tensor")
    library.impl("varlen_forward", divided, "CompositeExplicitAutograd")
    library.impl("varlen_forward", lambda q, ends, longest: torch.empty_like(q), "Meta")

    class Actor(torch.nn.Module):
        registered = library  # it goes with its last user

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embedding = torch.nn.Embedding(128, 32)
            self.head = torch.nn.Linear(32, 128)

        def forward(self, input_ids: Any, ends: Any = None) -> Any:
            values = self.embedding(input_ids)
            if ends is None:
                return self.head(values)
            longest = (ends[1:] - ends[:-1]).max()
            return self.head(torch.ops.people.varlen_forward(values, ends, longest))

    return Actor


def divided(q: Any, ends: Any, longest: int) -> Any:
    return q / longest


def build(given: Any) -> Any:
    return actor()()


def capture_first(given: Any) -> Any:
    """Be the job whose inputs are captured, and then the step that lists them."""
    import hangbisect
    from hangbisect.captures.capture_file import FOLDER, CaptureLimits, turn_on
    from hangbisect.zoo.in_rank import run_usual_step

    torch = given.context.imports("torch")
    turn_on(FOLDER, CaptureLimits())
    module = hangbisect.capture(build(given))
    for number in range(4):
        ids = torch.arange(16, dtype=torch.long).reshape(1, 16)
        module(ids, ends=torch.tensor([0, 5, 16]) if number == 2 else None)
    return run_usual_step(given)


CASE = Case(
    id="R01",
    title="compiled, a captured input gives an operator a tensor for a number",
    cluster="C21",
    reports=("Dao-AILab/flash-attention#1351", "huggingface/transformers#35588"),
    truth=Truth(
        outcome="crash",
        culprit=(0,),
        checkpoint="replay",
        cause=("fake-tensor",),
        avoids=("compile=off",),
    ),
    pipeline="replay",
    ranks=1,
    launcher="python",
    uses={"inputs": "capture_first", "module": "build"},
    options=("--compile", "eager"),
    limit=240.0,
)
