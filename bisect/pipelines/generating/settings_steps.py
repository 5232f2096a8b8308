"""Steps 2, 3, 8 and 9: what the arguments of a generation may say, the tokenizer, the generation
config, and the token that fills a batch.
"""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ..model_steps import END_OF_TEXT, TOKENIZER, asking_the_hub
from ..shared_steps import as_path, check_exists, check_minimum, format_arguments, hide_gpus

if TYPE_CHECKING:
    from ...rank.walk import Context


DTYPES = ("auto", "float32", "bfloat16", "float16")
MOST_NEW_TOKENS = 512
_SIZE = re.compile(r"\d+(?:\.\d+)?(?:[KMGT]i?B)", re.IGNORECASE)


def device_size(flag: str) -> Callable[[str], tuple[int | str, str]]:
    """Return a reader of DEVICE=SIZE, as the pair that accelerate's max_memory has."""

    def read(value: str) -> tuple[int | str, str]:
        device, _, size = value.partition("=")
        if not (device == "cpu" or device.isdecimal()) or not _SIZE.fullmatch(size):
            raise UsageError(
                f"{flag} cannot be {value!r}: it is DEVICE=SIZE, 0=20GB for the first GPU or "
                "cpu=50GB"
            )
        return (device if device == "cpu" else int(device)), size

    return read


def add_max_memory(group: argparse._ActionsContainer, size: str) -> None:
    """Add --max-memory; `size` is that of the example."""
    group.add_argument(
        "--max-memory",
        metavar="DEVICE=SIZE",
        type=device_size("--max-memory"),
        action="append",
        default=[],
        help=f"for --device-map auto: what it may use of a GPU (0={size}) or the CPU (cpu=50GB); "
        "what has no room goes to the disk; repeatable",
    )


def arguments(context: Context) -> argparse.Namespace:
    """Check what needs the file system; say what is cut; return the arguments."""
    args = context.args
    check_exists("--prompt-file", args.prompt_file, context)
    check_exists("--model", as_path(args.model), context)
    check_minimum("--max-new-tokens", args.max_new_tokens, 1)
    check_minimum("--max-length", args.max_length, 1)
    if args.max_new_tokens > MOST_NEW_TOKENS:
        context.say(f"--max-new-tokens {args.max_new_tokens} is cut to {MOST_NEW_TOKENS}")
        args.max_new_tokens = MOST_NEW_TOKENS
    if args.quantization == "on" and args.device_map == "cpu-offload":
        raise UsageError(
            "--quantization on cannot be with --device-map cpu-offload: what is held in 8 bits "
            "stays on its device",
            "Leave one of them out.",
        )
    hide_gpus(args.accelerator)
    context.say("Arguments: " + format_arguments(args))
    return args


def tokenizer(context: Context) -> Any:
    """Return the tokenizer of --tokenizer, else the model's; one that ships for the small model."""
    args = context.args
    name = args.tokenizer or args.model
    context.imports("torch")
    transformers = context.imports("transformers")
    with asking_the_hub("tokenizer", name, context):
        if name:
            only = ", local_files_only=True" * args.local_files_only
            context.about_to("transformers.AutoTokenizer.from_pretrained", f" with {name}{only}")
            loaded = transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=args.local_files_only
            )
        else:
            context.about_to("transformers.PreTrainedTokenizerFast", " with a file that ships")
            loaded = transformers.PreTrainedTokenizerFast(
                tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT
            )
    loaded.padding_side = "left"  # what follows a prompt must follow its last word
    context.say(f"Tokenizer {type(loaded).__name__} with {len(loaded)} tokens")
    return loaded


_FLAG = re.compile(r"^- `(\w+)`", re.MULTILINE)  # in what validate(strict=True) raises


def loading_options(context: Context) -> dict[str, Any]:
    """Return the option by which from_pretrained gets a generation config and so looks none up:
    nothing where that is what it is to do.
    """
    value = context.args.generation_config
    if value == "from-pretrained":
        return {}
    if value == "local-files-only":
        found = _look_up_config(context, local_files_only=True)
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
            found = _look_up_config(context, local_files_only=False)
    elif value == "local-files-only":
        found = _look_up_config(context, local_files_only=True)
    if found is not None:
        model.generation_config = found
        context.say(f"Generation config: from {context.products['plan'].name}")
    elif value == "direct":
        context.say("Generation config: made here, nothing was looked up")
    else:
        context.say("Generation config: the model has none of its own")
    ignored = find_ignored_flags(model.generation_config, sampling_options(context))
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


def sampling_options(context: Context) -> dict[str, bool]:
    """Return --do-sample as an argument of generate(): nothing where the config decides."""
    value = context.args.do_sample
    return {} if value is None else {"do_sample": value == "on"}


def find_ignored_flags(config: Any, sampling: dict[str, bool]) -> list[str]:
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


def _look_up_config(context: Context, local_files_only: bool) -> Any:
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
