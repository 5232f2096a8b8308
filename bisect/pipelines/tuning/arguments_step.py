"""Step 2: what the arguments of a training may say, as far as no library is needed to tell."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ...errors import UsageError
from ..script_steps import in_words

if TYPE_CHECKING:
    from ...rank.context import Context


def arguments(context: Context) -> argparse.Namespace:
    """Check what belongs together and what needs the file system; return the arguments."""
    args = context.args
    check_counts(args)
    for flag, path in (("--data", args.data), ("--model", _as_path(args.model))):
        if path is None:
            continue
        context.about_to("os.path.exists", f" for {path}")
        if not os.path.exists(path):
            raise UsageError(f"{flag} names {path!r}, and there is no such file or folder")
    args.tokenizer = args.tokenizer or args.model
    context.say("Arguments: " + in_words(args))
    return args


def check_counts(args: argparse.Namespace) -> None:
    """Raise UsageError for numbers that cannot go together."""
    for flag, value, least in (
        ("--micro-batch", args.micro_batch, 1),
        ("--sequence-length", args.sequence_length, 2),
    ):
        if value < least:
            raise UsageError(f"{flag} cannot be {value}: it is a whole number from {least}")
    if args.batch_size > args.micro_batch and args.batch_size % args.micro_batch:
        parts = [str(n) for n in range(1, args.batch_size + 1) if not args.batch_size % n]
        raise UsageError(
            f"--micro-batch {args.micro_batch} is no part of --batch-size {args.batch_size}: a "
            "step of the optimizer takes whole micro batches",
            f"Sizes that go into it: {', '.join(parts)}",
        )


def _as_path(name: str | None) -> str | None:
    """Return a name that can only be a path, None for what may be a name on the hub."""
    return name if name and name.startswith(("/", ".", "~")) else None
