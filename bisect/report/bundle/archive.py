"""The .zip itself: the same bytes for the same files, written aside and renamed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ...errors import HangbisectError, UsageError
from ...evidence.aside import within

WRITE_LIMIT = 20.0  # seconds: it may be a disk that hangs
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a .zip can name: the time of making says nothing
_READABLE = 0o644 << 16
_MANIFEST = "manifest.json"


def zipped(folder: str, files: Mapping[str, str]) -> bytes:
    """Return a .zip with `files` (text by name) in one folder, in their order."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _READABLE
            entry.create_system = 3  # Unix, wherever it is made
            archive.writestr(entry, text.encode("utf-8", "replace"))
    return made.getvalue()


def write(path: Path, data: bytes) -> bool:
    """Write a bundle; return whether it took the place of an earlier one.

    Raises UsageError if something else is there, HangbisectError if it cannot be written.
    """
    try:
        return within(WRITE_LIMIT, lambda: _write(path, data))
    except TimeoutError:
        raise HangbisectError(f"{path} could not be written within {WRITE_LIMIT:.0f} s") from None
    except OSError as error:
        raise HangbisectError(
            f"{path} cannot be written: {error.strerror}", "Name another file: --output FILE"
        ) from None


def _write(path: Path, data: bytes) -> bool:
    is_there = os.path.lexists(path)
    if is_there and not _is_ours(path):
        raise UsageError(
            f"{path} is there already, and no bundle of ours", "Name another file: --output FILE"
        )
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        mask = os.umask(0o077)  # it can only be read by setting it
        os.umask(mask)
        os.chmod(aside, 0o666 & ~mask)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    return is_there


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith(f"/{_MANIFEST}"))
            return str(json.loads(archive.read(name))["made_by"]).startswith("hangbisect ")
    except (OSError, ValueError, KeyError, TypeError, StopIteration, zipfile.BadZipFile):
        return False
