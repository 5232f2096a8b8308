"""What a model runs on: this rank's GPU, or the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...rank.context import Context


def own_device(context: Context) -> Any:
    """Return this rank's device, a torch.device. Raises RuntimeError without one for "gpu"."""
    torch = context.imports("torch")
    asked = context.args.accelerator
    if asked == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if not count:
        if asked == "gpu":
            raise RuntimeError(f"--accelerator gpu: torch {torch.__version__} finds no CUDA device")
        return torch.device("cpu")
    return torch.device("cuda", context.place.local_rank % count)


def input_device(model: Any, torch: Any) -> Any:
    """Return the device that inputs go to: the first parameter's, or if that waits elsewhere (on
    meta) the one to which it comes when it is its turn.
    """
    first = next(model.parameters()).device
    if first.type != "meta":
        return first
    for module in model.modules():
        device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return torch.device("cpu")
