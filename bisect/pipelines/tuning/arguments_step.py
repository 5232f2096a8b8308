"""Step 2: what the arguments of a training may say, as far as no library is needed to tell."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import UsageError
from ..argument_checks import as_path, check_is_there, check_least
from ..script_steps import in_words

if TYPE_CHECKING:
    from ...rank.context import Context


def arguments(context: Context) -> argparse.Namespace:
    """Check what belongs together and what needs the file system; return the arguments."""
    args = context.args
    check_counts(args)
    check_is_there("--data", args.data, context)
    check_is_there("--model", as_path(args.model), context)
    args.tokenizer = args.tokenizer or args.model
    context.say("Arguments: " + in_words(args))
    return args


def check_counts(args: argparse.Namespace) -> None:
    """Raise UsageError for numbers that cannot go together."""
    check_least("--micro-batch", args.micro_batch, 1)
    check_least("--sequence-length", args.sequence_length, 2)
    if args.batch_size > args.micro_batch and args.batch_size % args.micro_batch:
        parts = [str(n) for n in range(1, args.batch_size + 1) if not args.batch_size % n]
        raise UsageError(
            f"--micro-batch {args.micro_batch} is no part of --batch-size {args.batch_size}: a "
            "step of the optimizer takes whole micro batches",
            f"Sizes that go into it: {', '.join(parts)}",
        )
