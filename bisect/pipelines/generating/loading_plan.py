"""Step 4: what will be loaded, from which files, to where, and how long that will take."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model_steps import asking_the_hub
from . import rates, small_model
from .expected import within_context
from .shards import Checkpoint, expected

if TYPE_CHECKING:
    from ...rank.context import Context

_INDEX = "model.safetensors.index.json"
_WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True)
class Plan:
    """What from_pretrained will be asked for. `checkpoint` is None until the hub has been asked;
    `bytes_a_second` is at which its files are read, where that was measured.
    """

    name: str
    config: Any
    source: str = ""  # the folder that the files are in
    checkpoint: Checkpoint | None = None
    bytes_a_second: float | None = None
    on_hub: bool = False
    prompt_tokens: int = 0  # at most
    new_tokens: int = 0
    folder: str = ""  # for what is offloaded to the disk
    options: Mapping[str, Any] = field(default_factory=dict)


def plan(context: Context) -> Plan:
    """Return what will be loaded, after a line that says it, with the bytes and the time."""
    args = context.args
    torch, transformers = context.imports("torch"), context.imports("transformers")
    name = args.model or _small_model(context)
    on_hub = not os.path.isdir(name)
    with asking_the_hub("config", args.model, context):
        context.about_to("transformers.AutoConfig.from_pretrained", f" with {name}")
        config = transformers.AutoConfig.from_pretrained(
            name, local_files_only=args.local_files_only
        )
    source = _folder_of(name, context)
    checkpoint = checkpoint_in(source) if source else None
    speed = None
    if checkpoint is not None:
        context.about_to("os.pread", ", to measure how fast the weights are read")
        speed = rates.read_rate([os.path.join(source, file) for file in checkpoint.files])
    dtype = args.dtype if args.dtype != "auto" else f"auto ({saved_dtype(config)})"
    kind = next(iter(config.architectures or ()), config.model_type)
    what = "what the hub has of it" if checkpoint is None else expected(checkpoint, speed)
    context.say(
        f"About to load {kind} from {name}: device map {args.device_map}, dtype {dtype}, {what}"
    )
    prompt, new = _tokens(config, context)
    return Plan(
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


def _tokens(config: Any, context: Context) -> tuple[int, int]:
    """Return how many tokens a prompt and an answer may have, as the model has room for them."""
    args = context.args
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    prompt, new = within_context(args.max_length, args.max_new_tokens, positions)
    if (prompt, new) != (args.max_length, args.max_new_tokens):
        context.say(
            f"The model knows {positions} positions: {prompt} for a prompt, {new} for an answer"
        )
    return prompt, new


def checkpoint_in(folder: str) -> Checkpoint | None:
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
    return Checkpoint(sizes, weights) if sizes else None


def _whole_files(folder: str) -> list[str]:
    """Return the files of weights of the kind that is read first."""
    found = sorted(os.listdir(folder))
    for ending in _WEIGHTS:
        of_a_kind = [name for name in found if name.endswith(ending)]
        if of_a_kind:
            return of_a_kind
    return []


def _small_model(context: Context) -> str:
    torch, transformers = context.imports("torch"), context.imports("transformers")
    hub = context.imports("huggingface_hub")
    folder = tempfile.mkdtemp(prefix="model-")
    context.about_to("huggingface_hub.save_torch_state_dict", f", a small model to {folder}")
    return small_model.make(folder, transformers, torch, hub)


def checkpoint_of(name: str, context: Context) -> Checkpoint | None:
    """Return the files of a model's weights, None where they are not on this machine."""
    folder = _folder_of(name, context)
    return checkpoint_in(folder) if folder else None


def _folder_of(name: str, context: Context) -> str:
    """Return a model's folder, of the hub's cache if it is no path; "" if there is none. Asks
    nobody.
    """
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
