"""The .zip itself: the same bytes for the same files, written aside and renamed."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from ..in_place import in_time, put_in_place

_HINT = "Name another file: --output FILE"
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

    def replace() -> bool:
        is_there = os.path.lexists(path)
        if is_there and not _is_ours(path):
            raise UsageError(f"{path} is there already, and no bundle of ours", _HINT)
        put_in_place(path, data)
        return is_there

    return in_time(path, replace, _HINT)


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith(f"/{_MANIFEST}"))
            return str(json.loads(archive.read(name))["made_by"]).startswith("hangbisect ")
    except (OSError, ValueError, KeyError, TypeError, StopIteration, zipfile.BadZipFile):
        return False
