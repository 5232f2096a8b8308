"""How a model lays out its KV cache, asked of transformers itself: two short forward passes on the
device meta, which computes nothing and takes no memory. So no table of architectures is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from .kv_cache import CacheLayout, layer_from

_SHORT, _LONG = 2, 3  # tokens of the two passes


def cache_layout(config: Any, dtype: Any, transformers: Any, torch: Any) -> CacheLayout:
    """Return the layout for a model of that config whose numbers have that dtype.

    Raises whatever transformers raises for a model that cannot run on meta.
    """
    plain = copy.deepcopy(config)
    if hasattr(plain, "quantization_config"):
        del plain.quantization_config
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(plain, dtype=dtype).eval()
    kept = {tokens: _numbers_kept(model, tokens, torch) for tokens in (_SHORT, _LONG)}
    windows = [window for _, window in kept[_SHORT]]
    layers = tuple(
        layer_from({_SHORT: short, _LONG: long}, window)
        for (short, _), (long, _), window in zip(kept[_SHORT], kept[_LONG], windows, strict=True)
    )
    return CacheLayout(layers, torch.empty((), dtype=dtype, device="meta").element_size())


def _numbers_kept(model: Any, tokens: int, torch: Any) -> list[tuple[int, int | None]]:
    """Return for each layer how many numbers it keeps after so many tokens, and its window."""
    ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).past_key_values
    return [
        (sum(one.numel() for one in _tensors(layer, torch)), getattr(layer, "sliding_window", None))
        for layer in cache.layers
    ]


def _tensors(layer: Any, torch: Any) -> Iterator[Any]:
    """Yield the tensors that grow with what a layer has seen: on meta, as the model is."""
    for value in vars(layer).values():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, torch.Tensor) and one.dim() > 1:
                yield one
