"""Steps 10 to 13: a few tokens, to see that the model speaks at all, and how fast."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .device import input_device
from .expected import forecast
from .words import duration

if TYPE_CHECKING:
    from ...rank.context import Context

_PROMPT = "The first rank arrives at the door"
_TOKENS = 5


@dataclass(frozen=True)
class FirstWords:
    """What a short generation showed."""

    shape: tuple[int, ...]
    token_seconds: float


def test_input(context: Context) -> Any:
    """Return a short prompt as tensors."""
    context.about_to("transformers.PreTrainedTokenizerBase.__call__", " with a short prompt")
    made = context.products["tokenizer"](_PROMPT, return_tensors="pt")
    context.say(f"Test input: {made['input_ids'].shape[-1]} tokens")
    return made


def first_device(context: Context) -> Any:
    """Return the device that inputs go to."""
    model, torch = context.products["weights"], context.imports("torch")
    first, device = next(model.parameters()).device, input_device(model, torch)
    waits = f"; it is offloaded and comes to {device} when it is its turn" * (first != device)
    context.say(f"First parameter's device: {first}{waits}")
    return device


def input_moved(context: Context) -> Any:
    """Return the short prompt on that device."""
    device = context.products["first_device"]
    context.about_to("transformers.BatchEncoding.to", f" {device}")
    return context.products["test_input"].to(device)


def test_generation(context: Context) -> FirstWords:
    """Generate a few tokens, and say how many came how fast."""
    from .tokens_told import TokensTold  # its own imports are done by now

    model, given = context.products["weights"], context.products["input_moved"]
    told = TokensTold(context.pulse)
    links = context.products["placement"].links
    what = f": {forecast(links, _TOKENS, None)}" if links else ""
    context.about_to(
        f"transformers.{type(model).__name__}.generate", f" with max_new_tokens={_TOKENS}{what}"
    )
    began = time.monotonic()
    output = model.generate(
        **given,
        max_new_tokens=_TOKENS,
        min_new_tokens=_TOKENS,
        pad_token_id=context.products["pad_token"],
        do_sample=False,
        stopping_criteria=[told],
    )
    seconds = time.monotonic() - began
    context.say(
        f"Test generation: output of shape {list(output.shape)} in {duration(seconds)}, "
        f"{told.token_seconds:.3f} s a token once the prompt was read"
    )
    return FirstWords(tuple(output.shape), told.token_seconds)
