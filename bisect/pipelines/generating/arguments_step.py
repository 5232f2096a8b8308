"""Step 2: what the arguments of a generation may say, as far as no library is needed to tell."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import UsageError
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


def arguments(context: Context) -> argparse.Namespace:
    """Check what needs the file system; say what is cut; return the arguments."""
    args = context.args
    for flag, path in (("--prompt-file", args.prompt_file), ("--model", _as_path(args.model))):
        if path is None:
            continue
        context.about_to("os.path.exists", f" for {path}")
        if not os.path.exists(path):
            raise UsageError(f"{flag} names {path!r}, and there is no such file or folder")
    for flag, number in (
        ("--max-new-tokens", args.max_new_tokens),
        ("--max-length", args.max_length),
    ):
        if not number:
            raise UsageError(f"{flag} cannot be 0: it is a whole number from 1")
    if args.max_new_tokens > MOST_NEW_TOKENS:
        context.say(f"--max-new-tokens {args.max_new_tokens} is cut to {MOST_NEW_TOKENS}")
        args.max_new_tokens = MOST_NEW_TOKENS
    if args.quantization == "on" and args.device_map == "cpu-offload":
        raise UsageError(
            "--quantization on cannot be with --device-map cpu-offload: what is held in 8 bits "
            "stays on its device",
            "Leave one of them out.",
        )
    if args.accelerator == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # torch is not imported yet
    context.say("Arguments: " + in_words(args))
    return args


def _as_path(name: str | None) -> str | None:
    """Return a name that can only be a path, None for what may be a name on the hub."""
    return name if name and name.startswith(("/", ".", "~")) else None
