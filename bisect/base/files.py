"""Files that are there whole or not at all, and the time in a folder's name."""

from __future__ import annotations

import contextlib
import os
import time

# Our own folder, as ranks spell it, links and all: they start what watches them by this path.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LONGEST = 100  # bytes of its name, in that of the file aside


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file aside, under a name that nobody can foresee, and rename it: links are replaced,
    not followed. It is for this user alone. Raises OSError, and leaves nothing behind then.
    """
    folder, name = os.path.split(os.fspath(path))
    aside = os.path.join(folder, f".{_cut(name)}.{os.urandom(6).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _cut(name: str) -> str:
    return os.fsencode(name)[:_LONGEST].decode(errors="ignore")


def stamp() -> str:
    """Return the time now in UTC, for a file's name: "20261122T045131Z" (ISO 8601, basic)."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
