"""What several pipelines ask of their arguments before any library is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..rank.context import Context


def check_is_there(flag: str, path: str | None, context: Context) -> None:
    """Raise UsageError where an argument names a path and nothing is there."""
    if path is None:
        return
    context.about_to("os.path.exists", f" for {path}")
    if not os.path.exists(path):
        raise UsageError(f"{flag} names {path!r}, and there is no such file or folder")


def hide_gpus(accelerator: str) -> None:
    """Have torch, which is not imported yet, see no GPU where the job is to run on the CPU."""
    if accelerator == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def as_path(name: str | None) -> str | None:
    """Return a name that can only be a path, None for what may be a name on the hub."""
    return name if name and name.startswith(("/", ".", "~")) else None


def check_least(flag: str, value: int, least: int) -> None:
    """Raise UsageError for a number below `least`."""
    if value < least:
        raise UsageError(f"{flag} cannot be {value}: it is a whole number from {least}")
