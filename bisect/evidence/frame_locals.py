"""Local variables of an allowlist of frames: those that base/library_functions.py names.

py-spy reads them all; what no row names is forgotten at once. It words them its own way: text in
double quotes (up to 4096 bytes, of which it shows some 380), lists cut short with "...", objects
as `<Class at 0x...>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.facts import Frame
from ..base.library_functions import find_library_functions, is_library_file
from ..base.masking import mask_command, mask_text

MOST_CHARACTERS = 400


_OBJECT = re.compile(r"<([\w.]+) at 0x[0-9a-fA-F]+>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMANDS = ("args", "popenargs")
# In the job's own functions, and whole numbers only: which rank it is, where nothing else tells.
_RANKS = ("rank", "local_rank", "world_size")


def keep_locals(frame: Frame, found: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return of the locals of `frame`, as py-spy words them, those that a row names, masked."""
    if not found or frame.native:
        return ()
    rows = find_library_functions(frame.file, frame.name)
    wanted = dict.fromkeys(local for row in rows for local in row.shown_locals)
    values = dict(found)
    if not wanted and not is_library_file(frame.file):
        return tuple((n, values[n]) for n in _RANKS if values.get(n, "").isdecimal())
    shown = [(local, format_value(local, values[local])) for local in wanted if local in values]
    return tuple((local, value) for local, value in shown if value)


def format_value(name: str, value: str) -> str:
    """Return a value as it may be shown, "" where it says nothing.

    The address of an object differs from rank to rank and tells nobody anything; its class does
    where it is a method's own object.
    """
    if value in ("?", "") or (value == "None" and "timeout" not in name):
        return ""
    if found := _OBJECT.fullmatch(value):
        return f"<{found[1]}>" if name == "self" else ""
    if name in _COMMANDS:
        value = _mask_words(value)
    value = mask_text(value)
    return value if len(value) <= MOST_CHARACTERS else value[: MOST_CHARACTERS - 3] + "..."


def _mask_words(value: str) -> str:
    """Return a command, a list of words or one line for a shell, without secrets."""
    words = [found[1] for found in _QUOTED.finditer(value)]
    masked = iter([" ".join(mask_command(word.split(" "))) for word in mask_command(words)])
    return _QUOTED.sub(lambda found: f'"{next(masked)}"', value)
