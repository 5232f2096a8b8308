"""Steps 4 to 6: tokenizer, model, and the LightningModule around it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..rank.context import Context

_DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
TOKENIZER = os.path.join(_DATA, "tokenizer.json")
MODEL_CONFIG = os.path.join(_DATA, "model_config.json")
TEXT = os.path.join(_DATA, "text.txt")
END_OF_TEXT = "<|endoftext|>"


def tokenizer(context: Context) -> Any:
    """Return the tokenizer that ships, or the one of --tokenizer."""
    name = context.args.tokenizer
    context.imports("torch")
    transformers = context.imports("transformers")
    with asking_the_hub("tokenizer", name, context):
        if name:
            context.about_to("transformers.AutoTokenizer.from_pretrained", f" with {name}")
            loaded = transformers.AutoTokenizer.from_pretrained(name)
        else:
            context.about_to("transformers.PreTrainedTokenizerFast", " with a file that ships")
            loaded = transformers.PreTrainedTokenizerFast(
                tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
            )
    if loaded.pad_token is None:
        loaded.pad_token = loaded.eos_token
    context.say(f"Tokenizer {type(loaded).__name__} with {len(loaded)} tokens")
    return loaded


def model(context: Context) -> Any:
    """Return a causal language model: a small GPT-2 shape, or the one of --model."""
    name = context.args.model
    transformers = context.imports("transformers")
    with asking_the_hub("model", name, context):
        if name:
            made = _named_model(name, transformers, context)
        else:
            made = _small_model(transformers, context)
    if context.args.gradient_checkpointing == "on":
        context.about_to(f"transformers.{type(made).__name__}.gradient_checkpointing_enable")
        made.gradient_checkpointing_enable()
    parameters = sum(parameter.numel() for parameter in made.parameters())
    context.say(f"Model {type(made).__name__} with {parameters:,} parameters")
    if not (_on_hub(name) or _on_hub(context.args.tokenizer)):
        context.not_exercised.append("the hub (no model by name)")
    elif context.args.hub == "offline":
        context.not_exercised.append("the hub (offline)")
    return made


def _named_model(name: str, transformers: Any, context: Context) -> Any:
    options = _attention(context)
    if context.args.device_map != "none":
        options["device_map"] = context.args.device_map
    words = "".join(f", {option}={value}" for option, value in options.items())
    context.about_to("transformers.AutoModelForCausalLM.from_pretrained", f" with {name}{words}")
    return transformers.AutoModelForCausalLM.from_pretrained(name, **options)


def _attention(context: Context) -> dict[str, str]:
    """Return --attention as an option of transformers, nothing where the model decides."""
    attention = context.args.attention
    return {} if attention is None else {"attn_implementation": attention}


def _small_model(transformers: Any, context: Context) -> Any:
    context.imports("transformers.models.gpt2.modeling_gpt2")
    config = transformers.AutoConfig.from_pretrained(MODEL_CONFIG, **_attention(context))
    # A tokenizer from the hub has more tokens than the one that ships.
    config.vocab_size = max(config.vocab_size, len(context.products["tokenizer"]))
    context.about_to("transformers.GPT2LMHeadModel", f" with {config.n_layer} layers")
    return transformers.GPT2LMHeadModel(config)


def lightning_module(context: Context) -> Any:
    """Return the LLMModule around the model."""
    context.imports("pytorch_lightning")
    from .language_model import LLMModule  # its own imports are done by now

    compiled = context.args.compile == "on"
    if compiled:
        context.imports("torch._dynamo")
    context.about_to("LLMModule", " with torch.compile" * compiled)
    return LLMModule(context.products["model"], compiled)


@contextlib.contextmanager
def asking_the_hub(what: str, name: str | None, context: Context) -> Iterator[None]:
    """Let rank 0 go first, so that the others find it in the cache, if that is asked for."""
    if _on_hub(name) and context.args.hub == "rank0-first":
        with context.rank0_first(what):
            yield
    else:
        yield


def _on_hub(name: str | None) -> bool:
    return name is not None and not os.path.exists(name)
