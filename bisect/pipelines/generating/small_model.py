"""A small model on disk, made from a config that ships: in shards, as a large one is."""

from __future__ import annotations

import json
import os
from typing import Any

_DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "data")
CONFIG = os.path.join(_DATA, "generation_model_config.json")
SHARD = "1500KB"  # at most: some megabytes of weights make several of them
_SEED = 0


def config(transformers: Any) -> Any:
    """Return its config."""
    with open(CONFIG, encoding="utf-8") as file:
        return transformers.AutoConfig.for_model(**json.load(file))


def initialised(transformers: Any, torch: Any) -> Any:
    """Return the model, with the same weights on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        return transformers.AutoModelForCausalLM.from_config(config(transformers))


def make(folder: str, transformers: Any, torch: Any, hub: Any) -> str:
    """Write the model to `folder`, and return that. `hub` is huggingface_hub."""
    os.makedirs(folder, exist_ok=True)
    model = initialised(transformers, torch)
    # save_pretrained would import accelerate, and with it what else is installed: it takes longer
    # than everything here.
    hub.save_torch_state_dict(model.state_dict(), folder, max_shard_size=SHARD)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    return folder
