"""Steps 8 and 9: the generation config, and the token that fills a batch."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from ..model_steps import asking_the_hub

if TYPE_CHECKING:
    from ...rank.context import Context

_FLAG = re.compile(r"^- `(\w+)`", re.MULTILINE)  # in what validate(strict=True) raises


def given_to_loading(context: Context) -> dict[str, Any]:
    """Return the option by which from_pretrained gets a generation config and so looks none up:
    nothing where that is what it is to do.
    """
    value = context.args.generation_config
    if value == "from-pretrained":
        return {}
    if value == "local-files-only":
        found = _looked_up(context, local_files_only=True)
        return {} if found is None else {"generation_config": found}
    transformers = context.imports("transformers")
    made = transformers.GenerationConfig.from_model_config(context.products["plan"].config)
    return {"generation_config": made}


def generation_config(context: Context) -> Any:
    """Set the model's generation config: the one that --generation-config says; return it."""
    model, value = context.products["weights"], context.args.generation_config
    found = None
    if value == "from-pretrained":
        with asking_the_hub("generation config", context.args.model, context):
            found = _looked_up(context, local_files_only=False)
    elif value == "local-files-only":
        found = _looked_up(context, local_files_only=True)
    if found is not None:
        model.generation_config = found
        context.say(f"Generation config: from {context.products['plan'].name}")
    elif value == "direct":
        context.say("Generation config: made here, nothing was looked up")
    else:
        context.say("Generation config: the model has none of its own")
    ignored = ignored_flags(model.generation_config, sampling(context))
    if ignored:
        context.say(f"Generation flags that are ignored: {', '.join(ignored)}")
    return model.generation_config


def pad_token(context: Context) -> int | None:
    """Set the token that fills a batch, of model and tokenizer, if there is none; return it."""
    settings, tokenizer = context.products["generation_config"], context.products["tokenizer"]
    ends = settings.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    end = tokenizer.eos_token_id if end is None else end
    if settings.pad_token_id is None:
        settings.pad_token_id = end
        context.say(f"Pad token of the model: {end}, its end of text")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
        context.say(f"Pad token of the tokenizer: {tokenizer.pad_token!r}, its end of text")
    pad: int | None = settings.pad_token_id
    return pad


def sampling(context: Context) -> dict[str, bool]:
    """Return --do-sample as an argument of generate(): nothing where the config decides."""
    value = context.args.do_sample
    return {} if value is None else {"do_sample": value == "on"}


def ignored_flags(config: Any, sampling: dict[str, bool]) -> list[str]:
    """Return the names of flags that a generation config sets and generate() takes no notice of,
    as the config's own validation has it.
    """
    asked = copy.deepcopy(config)
    asked.update(**sampling)
    try:
        asked.validate(strict=True)
    except ValueError as error:
        return _FLAG.findall(str(error))
    except TypeError:  # transformers before 4.53 only logs what it finds
        return []
    return []


def _looked_up(context: Context, local_files_only: bool) -> Any:
    """Return the model's generation config, None if it has none."""
    transformers, name = context.imports("transformers"), context.products["plan"].name
    only = ", local_files_only=True" * local_files_only
    context.about_to("transformers.GenerationConfig.from_pretrained", f" with {name}{only}")
    try:
        return transformers.GenerationConfig.from_pretrained(
            name, local_files_only=local_files_only
        )
    except OSError as error:  # transformers says it so, of a folder, the cache and the hub alike
        context.say(f"No generation config was found: {str(error).splitlines()[0]}")
        return None
