"""Nested arguments as JSON and tensors, and back. Nothing is executed on either way.

JSON stands for itself: null, booleans, whole numbers, finite numbers, texts, lists. All else is an
object with "is": a tensor, a tuple, a dict, a type or device of torch's, a number that JSON has
not. What has no such form is noted with its class, and not kept.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

DEEPEST = 40
_INT = 1 << 63  # beyond it other readers of JSON go wrong
_KEYS = (str, int, bool, type(None))
Keep = Callable[[Any], str]  # keeps a tensor, returns its name


@dataclass(frozen=True)
class NotKept:
    """Stands where a value was that has no form on disk."""

    what: str  # its class, "package.module.Class"


def as_json(value: Any, keep: Keep, depth: int = 0) -> Any:
    """Return the JSON for a value; its tensors go to `keep`."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        return value if -_INT <= value < _INT else _not_kept(value)
    if type(value) is float:
        return value if math.isfinite(value) else {"is": "float", "value": repr(value)}
    if depth == DEEPEST:
        return _not_kept(value)
    if isinstance(value, list | tuple):
        inside = [as_json(one, keep, depth + 1) for one in value]
        return inside if type(value) is list else {"is": "tuple", **_of(value, tuple), "in": inside}
    if isinstance(value, Mapping) and all(type(key) in _KEYS for key in value):
        inside = [[key, as_json(one, keep, depth + 1)] for key, one in value.items()]
        return {"is": "dict", **_of(value, dict), "in": inside}
    return _torchs(value, keep)


def in_fields(value: Any) -> Any:
    """Return a dataclass as the dict of its fields, all else as it is. For outputs, which are
    compared and never given to anything that would want the class.
    """
    if not is_dataclass(value) or isinstance(value, type | Mapping):
        return value
    return {one.name: getattr(value, one.name, None) for one in fields(value)}


def _torchs(value: Any, keep: Keep) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return _not_kept(value)
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout is not torch.strided or value.device.type == "meta" or value.is_quantized:
            return _not_kept(value)
        return {
            "is": "tensor",
            "name": keep(value),
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": str(value.device),
        }
    if isinstance(value, torch.dtype | torch.device):
        return {"is": type(value).__name__, "value": str(value).removeprefix("torch.")}
    return _not_kept(value)


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _of(value: Any, plain: type) -> dict[str, str]:
    return {} if type(value) is plain else {"class": _class(value)}


def _not_kept(value: Any) -> dict[str, str]:
    return {"is": "not kept", "class": _class(value)}


def from_json(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """Return the value that `tree` stands for; tuples and dicts are plain ones. Raises ValueError.

    NotKept stands where something could not be kept.
    """
    if isinstance(tree, list):
        return [from_json(one, tensors) for one in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree.get("is")
    try:
        if kind == "tensor":
            return _tensor(tree, tensors)
        if kind == "tuple":
            return tuple(from_json(one, tensors) for one in tree["in"])
        if kind == "dict":
            return {key: from_json(one, tensors) for key, one in tree["in"]}
        if kind == "float" and tree["value"] in ("inf", "-inf", "nan"):
            return float(tree["value"])
        if kind in ("dtype", "device"):
            return _named(kind, tree["value"])
        if kind == "not kept":
            return NotKept(str(tree["class"]))
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"it has a {kind} that cannot be read: {error}") from None
    raise ValueError(f"it holds something that is no capture's: {str(tree)[:80]}")


def _tensor(tree: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    tensor = tensors[tree["name"]]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if [*tensor.shape] != tree["shape"] or dtype != tree["dtype"]:
        raise ValueError(f"its tensor {tree['name']} is not {tree['dtype']}{tree['shape']}")
    return tensor


def _named(kind: str, value: str) -> Any:
    torch: Any = sys.modules["torch"]
    found = torch.device(value) if kind == "device" else getattr(torch, value)
    if not isinstance(found, getattr(torch, kind)):
        raise TypeError(value)
    return found


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and JSON of what is no list, tuple or dict: ("input_ids", {"is": "tensor"...})."""
    if isinstance(tree, dict) and tree.get("is") in ("tuple", "dict") and "in" in tree:
        named = tree["in"] if tree["is"] == "dict" else enumerate(tree["in"])
        for key, one in named:
            yield from leaves(one, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list):
        for number, one in enumerate(tree):
            yield from leaves(one, f"{path}.{number}" if path else str(number))
    else:
        yield path, tree
