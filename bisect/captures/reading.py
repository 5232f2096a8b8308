"""One capture's file, verified: what it says, and its tensors."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any

from ..errors import HangbisectError
from . import record
from .record import Record
from .tree import from_json, leaves


class Unreadable(HangbisectError):
    """A file that is no capture, or not a whole one."""

    help = "Leave it out, or capture again: hangbisect capture on"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


@dataclass(frozen=True)
class Capture:
    """A file that was read whole."""

    path: str
    record: Record
    value: Any  # of inputs (args, kwargs); of outputs what forward returned


def look(path: str) -> Record:
    """Return what a file says; no tensor is read, and torch is not imported. Raises Unreadable."""
    return record_in(_opened(path, "np"), path)


def load(path: str) -> Capture:
    """Return what a file holds, tensors on the CPU. Imports torch. Raises Unreadable."""
    import torch  # noqa: F401  # safetensors would import it; a lack of it is no fault of the file

    file = _opened(path, "pt")
    found = record_in(file, path)
    try:
        value = from_json(found.tree, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # no dict
        if found.kind == "inputs":
            value = (value["args"], value["kwargs"])
            if not (isinstance(value[0], tuple) and isinstance(value[1], dict)):
                raise ValueError("it has no arguments")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(path, f"no capture: {error}") from None
    return Capture(path, found, value)


def record_in(file: Any, path: str) -> Record:
    """Return what an opened file says. Raises Unreadable."""
    try:
        found = record.read(file.metadata())
        for _ in leaves(found.tree):
            pass
    except ValueError as error:
        raise Unreadable(path, str(error)) from None
    except (TypeError, RecursionError) as error:
        raise Unreadable(path, f"no capture: {error}") from None
    return found


def _opened(path: str, framework: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise Unreadable(path, "it is no file")
        if not found.st_size:
            raise Unreadable(path, "it is empty")
        return safe_open(path, framework)  # verifies that it is whole
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from None
    except SafetensorError as error:
        raise Unreadable(path, f"truncated, or no safetensors file ({error})") from None
