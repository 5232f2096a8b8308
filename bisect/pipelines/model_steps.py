"""Steps 4 to 8 of `startup`: tokenizer, model, the LightningModule around it, data, accelerator;
and what the other pipelines take: rows of tokens, the device of a rank, and a small model on disk,
made from a config that ships, in shards as a large one is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .shared_steps import TokenRows, cut_rows, split_lines

if TYPE_CHECKING:
    from ..rank.walk import Context


_DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
TOKENIZER = os.path.join(_DATA, "tokenizer.json")
MODEL_CONFIG = os.path.join(_DATA, "model_config.json")
TEXT = os.path.join(_DATA, "text.txt")
END_OF_TEXT = "<|endoftext|>"


def tokenizer(context: Context) -> Any:
    """Return the tokenizer that ships, or the one of --tokenizer."""
    loaded = load_tokenizer(context, context.args.tokenizer, pad_token=END_OF_TEXT)
    if loaded.pad_token is None:
        loaded.pad_token = loaded.eos_token
    return loaded


def load_tokenizer(
    context: Context, name: str | None, *, local_files_only: bool = False, **tokens: str
) -> Any:
    """Return the tokenizer `name`; for None the one that ships, which gets the `tokens`."""
    context.imports("torch")
    transformers = context.imports("transformers")
    with asking_the_hub("tokenizer", name, context):
        if name:
            only = {"local_files_only": True} if local_files_only else {}
            words = f" with {name}" + ", local_files_only=True" * local_files_only
            context.about_to("transformers.AutoTokenizer.from_pretrained", words)
            loaded = transformers.AutoTokenizer.from_pretrained(name, **only)
        else:
            context.about_to("transformers.PreTrainedTokenizerFast", " with a file that ships")
            loaded = transformers.PreTrainedTokenizerFast(
                tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT, **tokens
            )
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
            made = _make_shipped_gpt2(transformers, context)
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


def _make_shipped_gpt2(transformers: Any, context: Context) -> Any:
    context.imports("transformers.models.gpt2.modeling_gpt2")
    config = transformers.AutoConfig.from_pretrained(MODEL_CONFIG, **_attention(context))
    # A tokenizer from the hub has more tokens than the one that ships.
    config.vocab_size = max(config.vocab_size, len(context.products["tokenizer"]))
    context.about_to("transformers.GPT2LMHeadModel", f" with {config.n_layer} layers")
    return transformers.GPT2LMHeadModel(config)


def lightning_module(context: Context) -> Any:
    """Return the LLMModule around the model."""
    context.imports("pytorch_lightning")
    from .lightning_modules import LLMModule  # its own imports are done by now

    compiled = context.args.compile == "on"
    if compiled:
        context.imports("torch._dynamo")
    context.about_to("LLMModule", " with torch.compile" * compiled)
    return LLMModule(context.products["model"], compiled)


@contextlib.contextmanager
def asking_the_hub(what: str, name: str | None, context: Context) -> Iterator[None]:
    """Let the first rank of each node fill the cache for the others, if that is asked for."""
    if _on_hub(name) and context.args.hub == "rank0-first":
        with context.first_of_node_first(what):
            yield
    else:
        yield


def _on_hub(name: str | None) -> bool:
    return name is not None and not os.path.exists(name)


def find_device(context: Context) -> Any:
    """Return this rank's device, a torch.device. Raises RuntimeError without one for "gpu"."""
    torch = context.imports("torch")
    asked = context.args.accelerator
    if asked == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if not count:
        if asked == "gpu":
            raise RuntimeError(f"--accelerator gpu: torch {torch.__version__} finds no CUDA device")
        return torch.device("cpu")
    return torch.device("cuda", context.place.local_rank % count)


def find_input_device(model: Any, torch: Any) -> Any:
    """Return the device that inputs go to: the first parameter's, or if that waits elsewhere (on
    meta) the one to which it comes when it is its turn.
    """
    first = next(model.parameters()).device
    if first.type != "meta":
        return first
    for module in model.modules():
        device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return torch.device("cpu")


SMALL_MODEL_CONFIG = os.path.join(_DATA, "generation_model_config.json")
LARGEST_SHARD = "1500KB"  # at most: some megabytes of weights make several of them
_SEED = 0


def load_small_config(transformers: Any) -> Any:
    """Return its config."""
    with open(SMALL_MODEL_CONFIG, encoding="utf-8") as file:
        return transformers.AutoConfig.for_model(**json.load(file))


def build_small_model(transformers: Any, torch: Any) -> Any:
    """Return the model, with the same weights on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        return transformers.AutoModelForCausalLM.from_config(load_small_config(transformers))


def write_small_model(folder: str, transformers: Any, torch: Any, hub: Any) -> str:
    """Write the model to `folder`, and return that. `hub` is huggingface_hub."""
    os.makedirs(folder, exist_ok=True)
    model = build_small_model(transformers, torch)
    # save_pretrained would import accelerate, and with it what else is installed: it takes longer
    # than everything here.
    hub.save_torch_state_dict(model.state_dict(), folder, max_shard_size=LARGEST_SHARD)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    return folder


def data_module(context: Context) -> Any:
    """Return a LightningDataModule over the text that ships, or over --data."""
    args = context.args
    context.imports("pytorch_lightning")
    from .lightning_modules import TextData  # its own imports are done by now

    path = os.path.abspath(args.data) if args.data else TEXT
    context.about_to("LightningDataModule", f" over {path}")
    return TextData(
        path=path,
        tokenizer=context.products["tokenizer"],
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        worker_start=args.worker_start,
        pin_memory=args.pin_memory == "on",
        packing=args.packing == "on",
    )


def accelerator(context: Context) -> str:
    """Return "gpu" or "cpu", for the Trainer. Raises RuntimeError if --accelerator gpu has none."""
    asked = context.args.accelerator
    if asked != "cpu":
        torch = context.imports("torch")
        # Counts by NVML where it can: is_available() would start CUDA, which forked workers do
        # not survive (its documentation).
        context.about_to("torch.cuda.device_count")
        devices = torch.cuda.device_count()
        if asked == "gpu" and not devices:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)")
            raise RuntimeError(
                f"--accelerator gpu: torch finds no CUDA device; CUDA_VISIBLE_DEVICES={visible}, "
                f"torch {torch.__version__}"
            )
        if devices:
            context.say(f"Accelerator: GPU, {devices} devices")
            return "gpu"
    context.not_exercised.append("a GPU")
    context.say(f"Accelerator: CPU, {os.cpu_count()} cores")
    return "cpu"


LARGEST = 64 << 20  # bytes read of a file


def data(context: Context) -> TokenRows:
    """Return rows of --sequence-length tokens, one after another, without padding."""
    path = os.path.abspath(context.args.data) if context.args.data else TEXT
    context.about_to("open", f" with {path}")
    with open(path, encoding="utf-8", errors="replace") as file:
        texts = split_lines(file.read(LARGEST))
    if not texts:
        raise ValueError(f"{path} is empty: there is no text to train on")
    tokenizer = context.products["tokenizer"]
    context.about_to(f"transformers.{type(tokenizer).__name__}.__call__")
    rows = cut_rows(tokenizer(texts)["input_ids"], context.args.sequence_length)
    context.say(f"Data: {len(texts):,} texts make {len(rows):,} rows")
    return TokenRows(rows)
