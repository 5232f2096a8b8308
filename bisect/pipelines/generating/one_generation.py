"""One generation: a prompt in, an answer out, each part of it told with its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .expected import forecast, still_generating
from .generation_settings import sampling
from .gpus import memory_lines
from .overlong import warning_of
from .words import counted, duration

if TYPE_CHECKING:
    from ...rank.context import Context


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: int  # new ones
    seconds: float  # of all of it


def answer(prompt: str, step: int, context: Context, phase: Callable[[str], None]) -> Answer:
    """Return what the model answers; `phase` is told which part begins."""
    began = time.monotonic()
    phase("prompt")
    say = _voice(step, context)
    say(f"prompt of {counted(len(prompt), 'character')}")
    given = _tokenised(prompt, say, context)
    for line in memory_lines(context):
        say(f"before generation: {line}")
    phase("generate")
    output = _generated(given, step, context)
    for line in memory_lines(context):
        say(f"after generation: {line}")
    phase("decode")
    at = time.monotonic()
    tokenizer, prompt_tokens = context.products["tokenizer"], given["input_ids"].shape[-1]
    context.about_to("transformers.PreTrainedTokenizerBase.decode")
    text = tokenizer.decode(output[0][prompt_tokens:], skip_special_tokens=True)
    seconds = time.monotonic() - began
    say(
        f"decoded in {duration(time.monotonic() - at)}; response of "
        f"{counted(len(text), 'character')}; total {duration(seconds)}"
    )
    return Answer(text, output.shape[-1] - prompt_tokens, seconds)


def _voice(step: int, context: Context) -> Callable[[str], None]:
    return lambda text: context.say(f"Step {step}: {text}")


def _tokenised(prompt: str, say: Callable[[str], None], context: Context) -> Any:
    """Return the prompt as tensors where the model wants them."""
    args, tokenizer = context.args, context.products["tokenizer"]
    device, limit = context.products["first_device"], context.products["plan"].prompt_tokens
    at = time.monotonic()
    context.about_to("transformers.PreTrainedTokenizerBase.__call__", " with the prompt")
    given = tokenizer(
        [prompt] * args.batch_size, return_tensors="pt", truncation=True, max_length=limit
    )
    tokens = given["input_ids"].shape[-1]
    cut = f", cut at {limit}" * (tokens == limit)
    say(f"tokenised in {duration(time.monotonic() - at)}: {counted(tokens, 'token')}{cut}")
    at = time.monotonic()
    context.about_to("transformers.BatchEncoding.to", f" {device}")
    given = given.to(device)
    say(f"inputs on {device} ({duration(time.monotonic() - at)})")
    return given


def _generated(given: Any, step: int, context: Context) -> Any:
    """Return what generate() returns: prompts and answers."""
    from .tokens_told import TokensTold  # its own imports are done by now

    args, products = context.args, context.products
    model, say, wanted = products["weights"], _voice(step, context), products["plan"].new_tokens
    told = TokensTold(context.pulse)
    links, token_seconds = products["placement"].links, products["test_generation"].token_seconds
    what = forecast(links, wanted, token_seconds)
    name = f"transformers.{type(model).__name__}.generate"
    context.about_to(name, f" with max_new_tokens={wanted}: {what}")
    began = time.monotonic()

    def warn(seconds: float) -> None:
        words = still_generating(seconds, told.count, wanted, links)
        context.remark(f"Step {step}: {words}")

    with warning_of(args.slow_generation, warn):
        output = model.generate(
            **given,
            max_new_tokens=wanted,
            pad_token_id=products["pad_token"],
            stopping_criteria=[told],
            **sampling(context),
        )
    seconds = time.monotonic() - began
    new = output.shape[-1] - given["input_ids"].shape[-1]
    say(
        f"generated {counted(new, 'token')} in {duration(seconds)}, {new / seconds:.1f} tokens a "
        f"second, output of shape {list(output.shape)}"
    )
    return output
