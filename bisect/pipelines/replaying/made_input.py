"""An input made from a module's signature, where none was captured.

Tokens are counted from 0 within the module's first embedding; anything else that the first layer
takes is normally distributed, the same each time: outputs of two runs can be compared. What
cannot be guessed is named.
"""

from __future__ import annotations

import inspect
from typing import Any

_TOKENS = ("input_ids", "decoder_input_ids", "sequences", "tokens", "token_ids", "ids", "idx")
_MASKS = ("attention_mask",)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def made_input(module: Any, rows: int, length: int, torch: Any) -> dict[str, Any]:
    """Return keyword arguments for `module.forward`: `rows` of `length` tokens, or of what the
    first layer takes. Raises ValueError, which names the parameter that cannot be guessed.
    """
    parameters = inspect.signature(module.forward).parameters.values()
    named = [one for one in parameters if one.kind in _NAMED]
    if any(one.kind is inspect.Parameter.POSITIONAL_ONLY for one in parameters):
        raise ValueError("its forward takes arguments by position alone")
    wanted = [one.name for one in named if one.default is inspect.Parameter.empty]
    main = getattr(module, "main_input_name", None)  # transformers'
    known = [one.name for one in named if one.name in (main, *_TOKENS)]
    if not wanted:
        wanted = known[:1] or [one.name for one in named[:1]]
    if not wanted:
        return {}
    wanted += [one.name for one in named if one.name in _MASKS and one.name not in wanted]
    made: dict[str, Any] = {}
    for name in wanted:
        made[name] = _value(name, module, rows, length, first=not made, torch=torch)
    return made


def _value(name: str, module: Any, rows: int, length: int, first: bool, torch: Any) -> Any:
    if name in _MASKS:
        return torch.ones(rows, length, dtype=torch.long)
    if name in _TOKENS or (first and _first_layer(module, torch)[0] == "tokens"):
        return _tokens(_first_layer(module, torch)[1], rows, length, torch)
    if not first:
        raise ValueError(f"its forward takes {name!r} as well, which cannot be guessed")
    kind, wide = _first_layer(module, torch)
    same = torch.Generator().manual_seed(0)
    if kind == "image":
        return torch.randn(rows, wide, *[length] * 2, generator=same)
    if kind == "signal":
        return torch.randn(rows, wide, length, generator=same)
    if kind == "features":
        return torch.randn(rows, length, wide, generator=same)
    raise ValueError(f"no layer of its own tells what {name!r} is")


def _tokens(vocabulary: int, rows: int, length: int, torch: Any) -> Any:
    counted = torch.arange(rows * length, dtype=torch.long) % max(1, vocabulary)
    return counted.reshape(rows, length)


def _first_layer(module: Any, torch: Any) -> tuple[str, int]:
    """Return what the first layer takes, and how wide that is."""
    nn = torch.nn
    for layer in module.modules():
        if isinstance(layer, nn.Embedding):
            return "tokens", layer.num_embeddings
        if isinstance(layer, nn.Linear):
            return "features", layer.in_features
        if isinstance(layer, nn.Conv2d):
            return "image", layer.in_channels
        if isinstance(layer, nn.Conv1d):
            return "signal", layer.in_channels
        if isinstance(layer, nn.RNNBase):
            return "features", layer.input_size
        if isinstance(layer, nn.LayerNorm):
            return "features", layer.normalized_shape[-1]
    return "", 0
