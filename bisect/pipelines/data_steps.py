"""Steps 7 and 8: the data module, and what the model runs on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .model_steps import TEXT

if TYPE_CHECKING:
    from ..rank.context import Context


def data_module(context: Context) -> Any:
    """Return a LightningDataModule over the text that ships, or over --data."""
    args = context.args
    context.imports("pytorch_lightning")
    from .text_data import TextData  # its own imports are done by now

    path = os.path.abspath(args.data) if args.data else TEXT
    context.about_to("LightningDataModule", f" over {path}")
    return TextData(
        path=path,
        tokenizer=context.products["tokenizer"],
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        worker_start=args.worker_start,
        pin_memory=args.pin_memory == "on",
        packing=args.packing == "on",
    )


def accelerator(context: Context) -> str:
    """Return "gpu" or "cpu", for the Trainer. Raises RuntimeError if --accelerator gpu has none."""
    asked = context.args.accelerator
    if asked != "cpu":
        torch = context.imports("torch")
        # Counts by NVML where it can: is_available() would start CUDA, which forked workers do
        # not survive (its documentation).
        context.about_to("torch.cuda.device_count")
        devices = torch.cuda.device_count()
        if asked == "gpu" and not devices:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)")
            raise RuntimeError(
                f"--accelerator gpu: torch finds no CUDA device; CUDA_VISIBLE_DEVICES={visible}, "
                f"torch {torch.__version__}"
            )
        if devices:
            context.say(f"Accelerator: GPU, {devices} devices")
            return "gpu"
    context.not_exercised.append("a GPU")
    context.say(f"Accelerator: CPU, {os.cpu_count()} cores")
    return "cpu"
