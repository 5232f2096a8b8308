"""What 4-bit and 8-bit weights take (bitsandbytes), from those that they are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .held import Held
from .plan import TrainingPlan

# Bytes a number. nf4: half a byte, and a float32 for each block of 64 numbers. 8 bits: one byte; a
# float32 for each row is too little to count.
BYTES = {"4bit": 0.5 + 4 / 64, "8bit": 1.0}
NAMES = {"4bit": "nf4", "8bit": "int8"}


def quantized_bytes(held: Held, model: Any, plan: TrainingPlan) -> Held:
    """Return what is held when the linear layers of `model` are quantized, all but the output's.

    While a layer computes its weights are there in full: the largest one at the peak.
    """
    output = model.get_output_embeddings()
    # By identity: peft's layers have the weight of the one that they are put around.
    found = {
        id(layer.weight): layer.weight
        for name, layer in model.named_modules()
        if is_linear(layer) and layer is not output and "lora_" not in name
    }
    sizes = [weight.numel() * weight.element_size() for weight in found.values()]
    full, largest = sum(sizes), max(sizes, default=0)
    small = int(sum(weight.numel() for weight in found.values()) * BYTES[plan.quantization])
    weights = dict(held.weights)
    dtype = plan.weights_dtype
    weights[dtype] = weights.get(dtype, 0) - full
    weights[NAMES[plan.quantization]] = small
    return replace(held, weights=weights, peak=held.peak - full + small + largest)


def shrunk(held: Held, optimizer: int) -> Held:
    """Return what is held with an optimizer state of that many bytes."""
    at_peak = optimizer if held.optimizer_at_peak else 0
    return replace(
        held,
        optimizer=optimizer,
        optimizer_at_peak=at_peak,
        peak=held.peak - held.optimizer_at_peak + at_peak,
    )


def is_linear(layer: Any) -> bool:
    """Return whether a module is a linear layer, by either of the names that models have for it."""
    return type(layer).__name__ in ("Linear", "Conv1D")
