"""One file, whatever it holds, or a sentence that says what was expected."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable

from ..evidence.aside import within
from ..saved_log.opened import text_of, unpacked
from . import py_spy_json, recorder, text
from .dumped import Contents, Unreadable

LARGEST = 256 << 20  # bytes
LIMIT = 20.0  # seconds for one file: it may lie on a disk that hangs, or be a pipe
STDIN_LIMIT = 300.0  # what writes to us may have to ask many processes first
EXPECTED = (
    "expected: what py-spy dump, pystack or faulthandler print, or a dump of torch's flight "
    "recorder (pickle or JSON)"
)
_TOO_LARGE = f"it has more than {LARGEST >> 20} MiB"
_PICKLE = b"\x80"  # how each begins since protocol 2
_STDIN = "-"


def read_all(files: Iterable[str]) -> Contents:
    """Return what all files hold together; "-" is stdin. Never raises for what is in them."""
    found = Contents()
    for file in dict.fromkeys(files):
        found += read(file)
    return found


def read(file: str) -> Contents:
    """Return what one file holds."""
    limit = STDIN_LIMIT if file == _STDIN else LIMIT
    try:
        data = within(limit, _bytes, file)
    except TimeoutError:
        return _error(file, f"it did not come to an end within {limit:.0f} s")
    except OSError as error:
        return _error(file, error.strerror or str(error))
    except ValueError as error:
        return _error(file, str(error))
    name = "stdin" if file == _STDIN else file
    return contents(data, name)


def contents(data: bytes, name: str) -> Contents:
    """Return what `data`, the bytes of the file `name`, hold."""
    data = unpacked(data, LARGEST)
    if len(data) > LARGEST:
        return _error(name, _TOO_LARGE)
    if not data.strip():
        return _error(name, f"it is empty; {EXPECTED}")
    if data[:1] == _PICKLE:
        return recorder.read(data, name)
    if data.lstrip()[:1] in (b"{", b"["):
        found = _json(data, name)
        if found is not None:
            return found
    found = text.read(text_of(data), name)
    return found if found.processes or found.unreadable else _error(name, EXPECTED)


def _bytes(file: str) -> bytes:
    if file == _STDIN:
        return _limited(sys.stdin.buffer.read(LARGEST + 1))
    if stat.S_ISDIR(os.stat(file).st_mode):
        raise ValueError("it is a folder: name the files in it")
    with open(file, "rb") as opened:
        return _limited(opened.read(LARGEST + 1))


def _limited(data: bytes) -> bytes:
    if len(data) > LARGEST:
        raise ValueError(_TOO_LARGE)
    return data


def _json(data: bytes, name: str) -> Contents | None:
    """Return what a JSON file holds; None for a text that only begins like one."""
    try:
        held = json.loads(data)
    except json.JSONDecodeError as error:
        if b"\nTraceback for thread " in data or b"most recent call first" in data:
            return None  # a log whose first line begins with a bracket
        sentence = f"JSON that is cut off or wrong ({error.msg}, column {error.colno}); {EXPECTED}"
        starts = b'"entries"' in data[:4096] or b'"frames"' in data[:4096]
        return _error(name, sentence, error.lineno) if starts else None
    except (ValueError, RecursionError) as error:
        return _error(name, f"JSON that cannot be read ({error}); {EXPECTED}")
    if recorder.is_one(held):
        return recorder.of(held, name)
    if py_spy_json.is_one(held):
        return py_spy_json.of(held, name)
    return _error(name, f"JSON, and no dump; {EXPECTED}")


def _error(file: str, fact: str, line: int | None = None) -> Contents:
    return Contents(unreadable=(Unreadable(file, line, fact),))
