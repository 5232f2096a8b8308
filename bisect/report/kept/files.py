"""The files of a folder that may be anybody's: none too large, none waited for too long."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ...evidence.aside import within

EACH = 5.0  # seconds for one file
T = TypeVar("T")


class Files:
    """Reads what lies in a folder; what cannot be read is told in `missing`, by sentences."""

    def __init__(self, folder: Path, until: float, missing: list[str], named: str = "") -> None:
        """`until`: when all has to be read, monotonic; `named`: what stands before each name."""
        self.folder = folder
        self.missing = missing
        self._until = until
        self._named = named

    def head(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of a file; None if there is none, or it cannot be read."""
        found = self._tried(name, lambda: _ends(self.folder / name, most, 0))
        if found is None:
            return None
        data, size = found
        if size > most:
            self.say(f"{name} has {size:,} bytes: the first {most:,} were read")
        return data

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a file; None if there is none, it cannot be read, or it is larger than `most`."""
        found = self._tried(name, lambda: _ends(self.folder / name, most, 0))
        if found is None:
            return None
        data, size = found
        if size > most:
            self.say(f"{name} was not read: it has {size:,} bytes, and {most:,} is the most")
            return None
        return data

    def heads(self, below: str, names: Sequence[str], each: int, together: int) -> dict[str, bytes]:
        """Return the first `each` bytes of the files of those names in the folder `below`, by name,
        until they make `together` bytes. In one go: a thousand files are a thousand threads else.
        """
        found: dict[str, bytes] = {}

        def read() -> None:
            left = together
            for name in names:
                if left <= 0 or time.monotonic() > self._until:
                    break
                with contextlib.suppress(OSError):
                    found[name] = _ends(self.folder / below / name, min(each, left), 0)[0]
                    left -= len(found[name])

        self._tried(below, read)
        return dict(found)  # as far as it came: the thread may still be at it

    def both_ends(self, name: str, first: int, last: int) -> tuple[bytes, bytes] | None:
        """Return how a file begins and, if it is larger, how it ends; None as for `head`."""
        found = self._tried(name, lambda: _ends(self.folder / name, first, last))
        if found is None:
            return None
        data, size = found
        if size > first + last:
            self.say(f"{name} has {size:,} bytes: what is in the middle was left out")
        return data[:first], data[first:]

    def names(self, below: str = "") -> list[str]:
        """Return the names in the folder, or in one below it that is no link; sorted."""

        def listed() -> list[str]:
            folder = self.folder / below
            if below and folder.is_symlink():
                raise OSError(0, "a link, which is not followed")
            return sorted(os.fsdecode(entry) for entry in os.listdir(os.fsencode(folder)))

        return self._tried(below or "the folder", listed) or []

    def say(self, sentence: str) -> None:
        """Tell what could not be read."""
        self.missing.append(self._named + sentence)

    def _tried(self, name: str, read: Callable[[], T]) -> T | None:
        left = min(EACH, self._until - time.monotonic())
        try:
            return within(max(left, 0.01), read)
        except FileNotFoundError:
            return None
        except TimeoutError:
            self.say(f"{name} could not be read within {max(left, 0.0):.0f} s")
        except (OSError, ValueError) as error:  # ValueError: a null byte in a name
            why = error.strerror if isinstance(error, OSError) else error
            self.say(f"{name} could not be read: {why}")
        return None


def _ends(path: Path, first: int, last: int) -> tuple[bytes, int]:
    """Return how a file begins and how it ends, all of it if it is not larger; and its size.

    Raises OSError, also if it is no regular file: links lead elsewhere, and FIFOs block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise OSError(error.errno, "a link, which is not followed") from None
        raise
    with open(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no regular file")
        data = file.read(first)
        if found.st_size > first and last:
            file.seek(max(first, found.st_size - last))
            data += file.read(last)
        return data, found.st_size
