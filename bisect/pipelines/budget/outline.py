"""A model's shapes and names, from its config alone.

Imports the libraries at its top, so it is itself imported inside a step (Context.imports).
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Iterator
from typing import Any

import torch
import transformers


def outline(config: Any, dtype: str) -> Any:
    """Return the model of a config on the device meta: it has no data and takes no memory."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config))
    model.tie_weights()
    return model.to(getattr(torch, dtype))


def filled(model: Any) -> Any:
    """Return an outline on the CPU, with whatever data; inside FakeTensorMode with none at all."""
    model.to_empty(device="cpu")
    base = getattr(model, "get_base_model", lambda: model)()  # below peft's adapters
    base.tie_weights()  # what is tied has been made twice
    return model


@contextlib.contextmanager
def texts_unpacked() -> Iterator[None]:
    """Let transformers take each row for one text, as it is in a row without padding.

    It looks for several texts in a row by values of position_ids. Fake tensors have none, so it
    would build a whole mask, and attention take another way than in the training.
    """
    masking: Any = importlib.import_module("transformers.masking_utils")
    looks = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking.find_packed_sequence_indices = looks
