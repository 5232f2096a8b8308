"""Reads one file of dumps, whatever it holds, or says in a sentence what was expected; also the
dumps of torch's flight recorder: pickles (TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and JSON.

A pickle is read by an unpickler that makes lists, dicts, texts and numbers, and nothing else
(evidence/gpus/flight_recorder.py): what names a class or a function is refused.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..base.deadline import within
from ..base.words import format_bytes
from ..evidence.gpus.flight_recorder import counts_all_together, load_dump, parse_dump
from ..evidence.gpus.nccl_lines import read_nccl_lines
from ..evidence.gpus.watchdog_messages import read_watchdog_messages
from ..saved_log import decode_log, unpack_log
from . import stack_formats
from .contents import Contents, RankMessages, RecordedLog, Unreadable

_DEFAULT_GROUPS = ("0", "", "default_pg")  # names of the group of all ranks
_MOST_RANKS = 1 << 20


def is_recorder_dump(data: Any) -> bool:
    """Return whether `data` has the form of a dump."""
    return isinstance(data, Mapping) and isinstance(data.get("entries"), list | tuple)


def read_recorder_pickle(data: bytes, file: str) -> Contents:
    """Return what a pickle holds."""
    try:
        held = load_dump(data)
    except ValueError as error:
        reason = str(error).removeprefix("no dump of the flight recorder: ")
        return _no_recorder_dump(
            file, f"a pickle that is no dump of the flight recorder ({reason[:160]})"
        )
    return read_recorder_dump(held, file)


def read_recorder_dump(held: Any, file: str) -> Contents:
    """Return what the object in a dump says."""
    log = parse_dump(held, "flight recorder") if is_recorder_dump(held) else None
    if log is None:
        return _no_recorder_dump(
            file, 'no dump of the flight recorder: that is a dict with "entries"'
        )
    if counts_all_together(held):
        return _no_recorder_dump(
            file, "a dump whose numbers count the operations of all groups together (TorchComms')"
        )
    members = max((log.groups.get(name, ()) for name in _DEFAULT_GROUPS), key=len)
    if not members:
        members = _find_members(held)
    rank = held.get("rank")
    named = rank if type(rank) is int and 0 <= rank < _MOST_RANKS else None
    return Contents(recorded=(RecordedLog(log, file, members, named),))


def _find_members(held: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a group without a name: gloo's default one."""
    groups = held.get("pg_config")
    nameless = groups.get("") if isinstance(groups, Mapping) else None
    text = nameless.get("ranks") if isinstance(nameless, Mapping) else None
    words = text.strip("[]").split(",") if isinstance(text, str) else []
    numbers = [int(w) for word in words if (w := word.strip()).isdecimal() and len(w) < 8]
    return tuple(sorted(set(numbers)))


def _no_recorder_dump(file: str, fact: str) -> Contents:
    return Contents(unreadable=(Unreadable(file, None, fact),))


LARGEST_FILE = 64 << 20  # bytes
FILE_LIMIT = 20.0  # seconds for one file: it may lie on a disk that hangs, or be a pipe
STDIN_LIMIT = 300.0  # what writes to us may have to ask many processes first
EXPECTED = (
    "expected: what py-spy dump, pystack, faulthandler or NCCL's watchdog print, or a dump of "
    "torch's flight recorder (pickle or JSON)"
)
_TOO_LARGE = f"it has more than {format_bytes(LARGEST_FILE)}"
_PICKLE = b"\x80"  # how each begins since protocol 2
_STDIN = "-"


def read_files(files: Iterable[str]) -> Contents:
    """Return what all files hold together; "-" is stdin. Never raises for what is in them."""
    found = Contents()
    for file in dict.fromkeys(files):
        found += read_file(file)
    return found


def read_file(file: str) -> Contents:
    """Return what one file holds."""
    limit = STDIN_LIMIT if file == _STDIN else FILE_LIMIT
    try:
        data = within(limit, _read_bytes, file)
    except TimeoutError:
        return _unreadable_contents(file, f"it did not come to an end within {limit:.0f} s")
    except OSError as error:
        return _unreadable_contents(file, error.strerror or str(error))
    except ValueError as error:
        return _unreadable_contents(file, str(error))
    name = "stdin" if file == _STDIN else file
    return read_data(data, name)


def read_data(data: bytes, name: str) -> Contents:
    """Return what `data`, the bytes of the file `name`, hold."""
    data = unpack_log(data, LARGEST_FILE)
    if len(data) > LARGEST_FILE:
        return _unreadable_contents(name, _TOO_LARGE)
    if not data.strip():
        return _unreadable_contents(name, f"it is empty; {EXPECTED}")
    if data[:1] == _PICKLE:
        return read_recorder_pickle(data, name)
    if data.lstrip()[:1] in (b"{", b"["):
        found = _parse_json_file(data, name)
        if found is not None:
            return found
    text = decode_log(data)
    lines = text.splitlines()
    found = stack_formats.read_text(text, name) + Contents(
        messages=tuple(RankMessages(one, name) for one in read_watchdog_messages(lines)),
        nccl_lines=tuple((one, name) for one in read_nccl_lines(lines)),
    )
    is_known = found.processes or found.unreadable or found.messages or found.nccl_lines
    return found if is_known else _unreadable_contents(name, EXPECTED)


def _read_bytes(file: str) -> bytes:
    if file == _STDIN:
        return _check_size(sys.stdin.buffer.read(LARGEST_FILE + 1))
    if stat.S_ISDIR(os.stat(file).st_mode):
        raise ValueError("it is a folder: name the files in it")
    with open(file, "rb") as opened:
        return _check_size(opened.read(LARGEST_FILE + 1))


def _check_size(data: bytes) -> bytes:
    if len(data) > LARGEST_FILE:
        raise ValueError(_TOO_LARGE)
    return data


def _parse_json_file(data: bytes, name: str) -> Contents | None:
    """Return what a JSON file holds; None for a text that only begins like one."""
    try:
        held = json.loads(data)
    except json.JSONDecodeError as error:
        if b"\nTraceback for thread " in data or b"most recent call first" in data:
            return None  # a log whose first line begins with a bracket
        sentence = f"JSON that is cut off or wrong ({error.msg}, column {error.colno}); {EXPECTED}"
        starts = b'"entries"' in data[:4096] or b'"frames"' in data[:4096]
        return _unreadable_contents(name, sentence, error.lineno) if starts else None
    except (ValueError, RecursionError) as error:
        return _unreadable_contents(name, f"JSON that cannot be read ({error}); {EXPECTED}")
    if is_recorder_dump(held):
        return read_recorder_dump(held, name)
    if stack_formats.is_py_spy_json(held):
        return stack_formats.read_py_spy_json(held, name)
    return _unreadable_contents(name, f"JSON, and no dump; {EXPECTED}")


def _unreadable_contents(file: str, fact: str, line: int | None = None) -> Contents:
    return Contents(unreadable=(Unreadable(file, line, fact),))
