"""Step 2: what the arguments of a generation may say, as far as no library is needed to tell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import UsageError
from ..argument_checks import as_path, check_is_there, check_least, hide_gpus
from ..script_steps import in_words

if TYPE_CHECKING:
    from ...rank.context import Context

DTYPES = ("auto", "float32", "bfloat16", "float16")
MOST_NEW_TOKENS = 512
_SIZE = re.compile(r"\d+(?:\.\d+)?(?:[KMGT]i?B)", re.IGNORECASE)


def memory_of(flag: str) -> Callable[[str], tuple[int | str, str]]:
    """Return a reader of DEVICE=SIZE, as the pair that accelerate's max_memory has."""

    def read(value: str) -> tuple[int | str, str]:
        device, _, size = value.partition("=")
        if not (device == "cpu" or device.isdecimal()) or not _SIZE.fullmatch(size):
            raise UsageError(
                f"{flag} cannot be {value!r}: it is DEVICE=SIZE, 0=20GB for the first GPU or "
                "cpu=50GB"
            )
        return (device if device == "cpu" else int(device)), size

    return read


def add_max_memory(group: argparse._ActionsContainer, size: str) -> None:
    """Add --max-memory; `size` is that of the example."""
    group.add_argument(
        "--max-memory",
        metavar="DEVICE=SIZE",
        type=memory_of("--max-memory"),
        action="append",
        default=[],
        help=f"for --device-map auto: what it may use of a GPU (0={size}) or the CPU (cpu=50GB); "
        "what has no room goes to the disk; repeatable",
    )


def arguments(context: Context) -> argparse.Namespace:
    """Check what needs the file system; say what is cut; return the arguments."""
    args = context.args
    check_is_there("--prompt-file", args.prompt_file, context)
    check_is_there("--model", as_path(args.model), context)
    check_least("--max-new-tokens", args.max_new_tokens, 1)
    check_least("--max-length", args.max_length, 1)
    if args.max_new_tokens > MOST_NEW_TOKENS:
        context.say(f"--max-new-tokens {args.max_new_tokens} is cut to {MOST_NEW_TOKENS}")
        args.max_new_tokens = MOST_NEW_TOKENS
    if args.quantization == "on" and args.device_map == "cpu-offload":
        raise UsageError(
            "--quantization on cannot be with --device-map cpu-offload: what is held in 8 bits "
            "stays on its device",
            "Leave one of them out.",
        )
    hide_gpus(args.accelerator)
    context.say("Arguments: " + in_words(args))
    return args
