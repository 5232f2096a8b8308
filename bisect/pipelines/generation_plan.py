"""Steps 2 to 4, 8 and 9 of a generation: what its arguments may say, the tokenizer, the generation
config, the token that fills a batch; and what will be loaded, from which files, to where, and how
long that will take, at rates that are measured.

A checkpoint is some files (shards), each with some of the weights. That all of them are read is not
the end of loading: what was read is placed, and more is looked up.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.words import format_bytes, format_count, format_duration, format_rate
from . import model_steps
from .forecast import fit_to_context
from .model_steps import asking_the_hub, load_tokenizer
from .shared_steps import as_path, check_exists, check_minimum, format_arguments, hide_gpus

if TYPE_CHECKING:
    from ..rank.walk import Context


DTYPES = ("auto", "float32", "bfloat16", "float16")
MOST_NEW_TOKENS = 512


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
    args, name = context.args, context.args.tokenizer or context.args.model
    loaded = load_tokenizer(context, name, local_files_only=args.local_files_only)
    loaded.padding_side = "left"  # what follows a prompt must follow its last word
    return loaded


_FLAG = re.compile(r"^- `(\w+)`", re.MULTILINE)  # in what validate(strict=True) raises


def loading_options(context: Context) -> dict[str, Any]:
    """Return the option that has from_pretrained look up no generation config; {} if it is to."""
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
    """Return the flags of a generation config that generate() ignores, by its own validation."""
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


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a checkpoint, by name, with their size in bytes, and which has which weight.

    Where there is a single file, `weights` may be empty: all of them are in it.
    """

    files: Mapping[str, int]
    weights: Mapping[str, str]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


class LoadingProgress:
    """Counts what has been read of a checkpoint."""

    def __init__(self, checkpoint: CheckpointFiles, total: int) -> None:
        """`total`: how many weights, or files, a loader says that it will read."""
        self.checkpoint = checkpoint
        self.total = total
        self.done = 0
        self._left = Counter(checkpoint.weights.values())
        self._known = 0  # weights whose file is known

    def read(self, weight: str | None) -> bool:
        """Note that a weight was read, or a file; return whether a file is complete by that."""
        before = self.shards
        self.done += 1
        file = self.checkpoint.weights.get(weight or "")
        if file is not None:
            self._known += 1
            self._left[file] -= 1
        return self.shards > before

    @property
    def shards(self) -> int:
        """How many files are read: those of which each weight is; where the loader renames or joins
        weights, by their share of all that it reads.
        """
        files = len(self.checkpoint.files)
        if self.done >= self.total:
            return files
        if self._known:
            return min(sum(not left for left in self._left.values()), files - 1)
        return min(files * self.done // self.total, files - 1)

    def in_words(self, seconds: float) -> str:
        """Return how far it is after so many seconds, and how long the rest takes at that rate."""
        files = len(self.checkpoint.files)
        line = f"{self.shards} of {files} shards read, {self.done} of {self.total} weights"
        share = self.done / self.total if self.total else 1.0
        speed = share * self.checkpoint.bytes / seconds if seconds > 0 else 0.0
        if not speed:
            return line
        left = seconds * (1 - share) / share
        rest = f", about {format_duration(left)} left" if share < 1 else ""
        return f"{line}, {format_duration(seconds)} at {format_rate(speed)}{rest}"


def forecast_reading(checkpoint: CheckpointFiles, bytes_a_second: float | None) -> str:
    """Return what to expect of reading it, at a rate that was measured (None: it was not)."""
    what = f"{format_bytes(checkpoint.bytes)} in {format_count(len(checkpoint.files), 'shard')}"
    if not bytes_a_second:
        return f"{what}; at a rate that is not known"
    seconds = checkpoint.bytes / bytes_a_second
    return f"{what}; about {format_duration(seconds)} at {format_rate(bytes_a_second)}, as measured"


_SECONDS = 0.5  # a measurement takes no longer, but for one piece
_PIECE = 16 << 20  # bytes


def measure_read_rate(paths: Sequence[str]) -> float | None:
    """Return bytes a second at which these files are read now, None if they hold next to nothing.

    Pieces from the middle of each in turn: what the page cache has comes as fast as it will come
    when the weights are read.
    """
    began, got, at = time.monotonic(), 0, 0
    sizes = {path: os.path.getsize(path) for path in paths}
    while time.monotonic() - began < _SECONDS and at < len(paths):
        path = paths[at]
        with open(path, "rb", buffering=0) as file:
            got += len(os.pread(file.fileno(), _PIECE, max(0, sizes[path] - _PIECE) // 2))
        at += 1
    seconds = time.monotonic() - began
    return got / seconds if got and seconds > 0 else None


def measure_copy_rate(torch: Any, device: Any) -> float:
    """Return bytes a second from ordinary memory to a device: the way of what is offloaded."""

    def copied() -> None:
        block.to(device, copy=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    block = torch.ones(_PIECE, dtype=torch.uint8)
    copied()  # the first copy also starts CUDA
    began, copies = time.monotonic(), 0
    while time.monotonic() - began < _SECONDS / 2:
        copied()
        copies += 1
    return float(copies * _PIECE / (time.monotonic() - began))


_INDEX = "model.safetensors.index.json"
_WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True)
class LoadingPlan:
    """What from_pretrained will be asked for. `checkpoint` is None until the hub has been asked;
    `bytes_a_second` is at which its files are read, where that was measured.
    """

    name: str
    config: Any
    source: str = ""  # the folder that the files are in
    checkpoint: CheckpointFiles | None = None
    bytes_a_second: float | None = None
    on_hub: bool = False
    prompt_tokens: int = 0  # at most
    new_tokens: int = 0
    folder: str = ""  # for what is offloaded to the disk
    options: Mapping[str, Any] = field(default_factory=dict)


def plan(context: Context) -> LoadingPlan:
    """Return what will be loaded, after a line that says it, with the bytes and the time."""
    args = context.args
    torch, transformers = context.imports("torch"), context.imports("transformers")
    name = args.model or _make_own_model(context)
    on_hub = not os.path.isdir(name)
    with asking_the_hub("config", args.model, context):
        context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
        config = transformers.AutoConfig.from_pretrained(
            name, local_files_only=args.local_files_only
        )
    source = _find_model_folder(name, context)
    checkpoint = find_checkpoint(source) if source else None
    speed = None
    if checkpoint is not None:
        context.about_to("os.pread", ", to measure how fast the weights are read")
        speed = measure_read_rate([os.path.join(source, file) for file in checkpoint.files])
    dtype = args.dtype if args.dtype != "auto" else f"auto ({saved_dtype(config)})"
    kind = next(iter(config.architectures or ()), config.model_type)
    what = "what the hub has of it" if checkpoint is None else forecast_reading(checkpoint, speed)
    context.say(
        f"About to load {kind} from {name}: device map {args.device_map}, dtype {dtype}, {what}"
    )
    prompt, new = _fit_tokens(config, context)
    return LoadingPlan(
        name=name,
        config=config,
        source=source,
        checkpoint=checkpoint,
        bytes_a_second=speed,
        on_hub=on_hub,
        prompt_tokens=prompt,
        new_tokens=new,
        folder=args.offload_folder or tempfile.mkdtemp(prefix="offloaded-"),
        options={} if args.dtype == "auto" else {"dtype": getattr(torch, args.dtype)},
    )


def _fit_tokens(config: Any, context: Context) -> tuple[int, int]:
    """Return how many tokens a prompt and an answer may have, as the model has room for them."""
    args = context.args
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    prompt, new = fit_to_context(args.max_length, args.max_new_tokens, positions)
    if (prompt, new) != (args.max_length, args.max_new_tokens):
        context.say(
            f"The model knows {positions} positions: {prompt} for a prompt, {new} for an answer"
        )
    return prompt, new


def find_checkpoint(folder: str) -> CheckpointFiles | None:
    """Return the files of weights in a folder, None if it has none.

    With an index (safetensors' own, of a checkpoint in several files) those that it names.
    """
    index = os.path.join(folder, _INDEX)
    weights: dict[str, str] = {}
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            weights = json.load(file)["weight_map"]
    listed = sorted(set(weights.values())) or _whole_files(folder)
    there = [name for name in listed if os.path.exists(os.path.join(folder, name))]
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in there}
    return CheckpointFiles(sizes, weights) if sizes else None


def _whole_files(folder: str) -> list[str]:
    """Return the files of weights of the kind that is read first."""
    found = sorted(os.listdir(folder))
    for ending in _WEIGHTS:
        of_a_kind = [name for name in found if name.endswith(ending)]
        if of_a_kind:
            return of_a_kind
    return []


def _make_own_model(context: Context) -> str:
    torch, transformers = context.imports("torch"), context.imports("transformers")
    hub = context.imports("huggingface_hub")
    folder = tempfile.mkdtemp(prefix="model-")
    context.about_to("huggingface_hub.save_torch_state_dict", f", a small model to {folder}")
    return model_steps.write_small_model(folder, transformers, torch, hub)


def find_cached_checkpoint(name: str, context: Context) -> CheckpointFiles | None:
    """Return the files of a model's weights, None where they are not on this machine."""
    folder = _find_model_folder(name, context)
    return find_checkpoint(folder) if folder else None


def _find_model_folder(name: str, context: Context) -> str:
    """Return a model's folder, of the hub's cache if it is no path; "" if none. Asks nobody."""
    if os.path.isdir(name):
        return name
    hub = context.imports("huggingface_hub")
    try:
        found: str = hub.snapshot_download(name, local_files_only=True)
    except OSError:
        return ""
    return found


def saved_dtype(config: Any) -> str:
    """Return in which dtype a model's weights were saved, as its config has it."""
    said = config.to_dict()  # "torch_dtype" before transformers 5
    return str(said.get("dtype") or said.get("torch_dtype") or "float32").removeprefix("torch.")
