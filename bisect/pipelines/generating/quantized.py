"""Weights in 8 bits, by the first library of several that is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...errors import UsageError

if TYPE_CHECKING:
    from ...rank.context import Context


def options(context: Context) -> dict[str, Any]:
    """Return the options of from_pretrained for --quantization, none where it is off.

    Raises UsageError where no library for it is installed.
    """
    if context.args.quantization == "off":
        return {}
    module = next((name for name in _CONFIGS if _is_installed(name)), None)
    if module is None:
        raise UsageError(
            f"--quantization on needs one of {', '.join(_CONFIGS)}, and none is installed",
            "pip install bitsandbytes",
        )
    library, transformers = context.imports(module), context.imports("transformers")
    context.say(f"Quantization: weights in 8 bits, by {module}")
    return {"quantization_config": _CONFIGS[module](transformers, library)}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


_CONFIGS: dict[str, Callable[[Any, Any], Any]] = {
    "bitsandbytes": lambda transformers, _: transformers.BitsAndBytesConfig(load_in_8bit=True),
    "torchao.quantization": lambda transformers, torchao: transformers.TorchAoConfig(
        torchao.Int8WeightOnlyConfig()
    ),
    "optimum.quanto": lambda transformers, _: transformers.QuantoConfig(weights="int8"),
}
