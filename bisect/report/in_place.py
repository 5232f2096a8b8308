"""A whole file in place of the one that is there, in a folder that may be anybody's."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import HangbisectError
from ..evidence.aside import within

LIMIT = 20.0  # seconds for a file to be written: it may be a disk that hangs
_LONGEST = 100  # characters of its name, in that of the file aside
T = TypeVar("T")


def in_time(path: Path, write: Callable[[], T], hint: str) -> T:
    """Return what `write` returns, which writes `path`.

    Raises HangbisectError if it takes longer than LIMIT or cannot be done; then with the `hint`.
    """
    try:
        return within(LIMIT, write)
    except TimeoutError:
        raise HangbisectError(f"{path} could not be written within {LIMIT:.0f} s") from None
    except OSError as error:
        raise HangbisectError(f"{path} cannot be written: {error.strerror}", hint) from None


def put_in_place(path: Path, data: bytes) -> None:
    """Write a file aside, under a name that nobody can foresee, and rename it: links are replaced,
    not followed. Raises OSError, and leaves nothing behind then.
    """
    prefix = f".{path.name[:_LONGEST]}."
    descriptor, aside = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _umask() -> int:
    """Return this process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
