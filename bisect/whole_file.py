"""Files that are there whole, or not at all."""

from __future__ import annotations

import contextlib
import os


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file aside and rename it. Raises OSError, and leaves nothing behind then."""
    aside = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(aside, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
