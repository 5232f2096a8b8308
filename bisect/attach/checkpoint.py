"""The row of the start-up's table that a call corresponds to, where one does. Pure.

A script that nobody watched has told of no checkpoint: only what it hangs in tells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..facts import Frame, Place
from ..pipelines.startup import PIPELINE

_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_DATA = rf"{_LIGHTNING}/trainer/connectors/data_connector\.py"
# (end of the file, function, checkpoint, phase): where the call itself tells none, what it was made
# from does. The innermost frame that a row fits decides.
_FRAMES = (
    (r"wandb/sdk/wandb_init\.py", "init", "wandb_logger", None),
    (rf"{_LIGHTNING}/loggers/wandb\.py", "experiment|__init__", "wandb_logger", None),
    (_DATA, "prepare_data", "training", "prepare_data"),
    (rf"{_LIGHTNING}/trainer/call\.py", "_call_setup_hook", "training", "setup"),
    (rf"{_LIGHTNING}/trainer/trainer\.py", "fit", "training", None),
    (rf"{_LIGHTNING}/trainer/trainer\.py", "__init__", "trainer", None),
    (r"transformers/trainer\.py", "train|_inner_training_loop", "training", None),
    (r"transformers/trainer\.py", "__init__", "trainer", None),
    (r"transformers/tokenization_\w+\.py", "from_pretrained", "tokenizer", None),
    (r"transformers/models/auto/tokenization_auto\.py", "from_pretrained", "tokenizer", None),
    (r"transformers/modeling_utils\.py", "from_pretrained", "model", None),
    (r"torch/distributed/distributed_c10d\.py", "init_process_group", "training", "process_group"),
    (r"accelerate/accelerator\.py", "prepare|prepare_model", "training", "wrap"),
    (r"deepspeed/__init__\.py", "initialize", "training", "wrap"),
    (r"torch/utils/data/dataloader\.py", "__next__|__iter__", "training", None),
)
# (what the call is like, checkpoint, phase)
_ROWS = (
    (r"wandb\.(?:init|login|setup)|\w*lightning\w*\.loggers\.WandbLogger", "wandb_logger", None),
    (r"transformers\.\w*(?:Tokenizer|Processor)\w*\.from_pretrained", "tokenizer", None),
    (r"transformers\.\w*(?:Model|For[A-Z]|LMHead)\w*\.from_pretrained", "model", None),
    (r"torch\.cuda\.(?:_lazy_init|init|is_available|device_count|set_device)", "accelerator", None),
    (r"torch\.distributed\.(?:init_process_group|new_group)", "training", "process_group"),
    (r"torch\.(?:nn\.parallel\.Distributed|distributed\.fsdp\.)\w+", "training", "wrap"),
    (r"(?:pytorch_lightning|lightning\.pytorch)\.Trainer", "trainer", None),
    (r"(?:pytorch_lightning|lightning\.pytorch)\.Trainer\.fit", "training", None),
    (r"torch\.utils\.data\.DataLoader\.\w+", "training", None),
)


def place_of_call(call: str | None, frames: Sequence[Frame] = ()) -> Place | None:
    """Return the checkpoint whose step makes this call, or what stands around it (`frames`,
    innermost first); None where that cannot be told.
    """
    for pattern, name, phase in _ROWS:
        if call is not None and re.fullmatch(pattern, call):
            return _place(name, phase)
    for frame in frames:
        own = frame.name.rpartition(".")[2]
        for file, function, name, phase in _FRAMES:
            if re.search(rf"(?:^|/){file}$", frame.file) and re.fullmatch(function, own):
                return _place(name, phase)
    return None


def _place(name: str, phase: str | None) -> Place:
    row = next(c for c in PIPELINE.table if c.name == name)
    return Place(row.number, row.name, row.title, phase)
