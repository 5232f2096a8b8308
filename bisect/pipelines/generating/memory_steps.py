"""Steps 7, 14 and 15: what memory is left, what a generation wants of it, and how long it takes."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from .cache_layout import cache_layout
from .expected import cache_in_words, forecast, too_full, too_slow
from .gpus import gpus, memory_lines
from .kv_cache import CacheLayout

if TYPE_CHECKING:
    from ...rank.context import Context


def clear_caches(context: Context) -> None:
    """Let go of what nobody needs any more, also of what torch keeps of a GPU."""
    gc.collect()
    torch = context.imports("torch")
    if torch.cuda.is_initialized():
        context.about_to("torch.cuda.empty_cache")
        torch.cuda.empty_cache()
    for line in memory_lines(context):
        context.say(line)


def memory(context: Context) -> CacheLayout | None:
    """Say what a generation will need and how long it will take, and what to change if that is too
    much; return how the KV cache is laid out, None where that could not be found out.
    """
    args, torch = context.args, context.imports("torch")
    planned = context.products["plan"]
    tokens = planned.prompt_tokens + planned.new_tokens
    layout = _layout(context)
    for line in memory_lines(context):
        context.say(line)
    if layout is not None:
        context.say(cache_in_words(layout, args.batch_size, tokens))
    for gpu in gpus(torch):
        warning = too_full(gpu, layout, args.batch_size, tokens)
        if warning:
            context.say(warning)
    links = context.products["placement"].links
    seconds = context.products["test_generation"].token_seconds
    context.say(f"A step: {forecast(links, planned.new_tokens, seconds)}")
    slow = too_slow(links, planned.new_tokens, seconds)
    if slow:
        context.say(slow)
    return layout


def _layout(context: Context) -> CacheLayout | None:
    model = context.products["weights"]
    torch, transformers = context.imports("torch"), context.imports("transformers")
    try:
        return cache_layout(model.config, model.dtype, transformers, torch)
    except Exception as error:  # whatever a model does that cannot run on meta
        context.say(f"The size of the KV cache is not known: {type(error).__name__}: {error}")
        return None
