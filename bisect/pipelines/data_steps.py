"""The steps that make what a training reads, and step 8 of `startup`, the accelerator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .model_steps import TEXT
from .text_batches import TokenRows, cut_rows, split_lines

if TYPE_CHECKING:
    from ..rank.walk import Context


def data_module(context: Context) -> Any:
    """Return a LightningDataModule over the text that ships, or over --data."""
    args = context.args
    context.imports("pytorch_lightning")
    from .lightning_modules import TextData  # its own imports are done by now

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


LARGEST = 64 << 20  # bytes read of a file


def data(context: Context) -> TokenRows:
    """Return rows of --sequence-length tokens, one after another, without padding."""
    path = os.path.abspath(context.args.data) if context.args.data else TEXT
    context.about_to("open", f" with {path}")
    with open(path, encoding="utf-8", errors="replace") as file:
        texts = split_lines(file.read(LARGEST))
    if not texts:
        raise ValueError(f"{path} is empty: there is no text to train on")
    tokenizer = context.products["tokenizer"]
    context.about_to(f"transformers.{type(tokenizer).__name__}.__call__")
    rows = cut_rows(tokenizer(texts)["input_ids"], context.args.sequence_length)
    context.say(f"Data: {len(texts):,} texts make {len(rows):,} rows")
    return TokenRows(rows)
