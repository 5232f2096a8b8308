"""What a Python process runs, read from its command line before any of it has run."""

from __future__ import annotations

import os
import sys

from ...base.launchers import NO_RANKS

_OURS = {"bisect", "hangbisect", "bisect.__main__", "hangbisect.__main__"}


def program(argv: list[str], original: list[str]) -> str:
    """Return the module, or the path of the script, that Python was told to run: "-c" for a
    command, "" for none. `argv` and `original` are sys.argv and sys.orig_argv at the start.

    While Python starts, sys.argv[0] is "-m" for a module (runpy.py sets it later).
    """
    first = argv[0] if argv else ""
    if first != "-m":
        return first
    if len(original) < len(argv):
        return ""
    word = original[len(original) - len(argv)]
    return word.partition("m")[2] if word.startswith("-") else word


def words_of_start() -> list[str]:
    """Return the words with which this Python was started: sys.orig_argv, where it has that."""
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def is_launcher(what: str) -> bool:
    """Return whether a program starts ranks and is none."""
    return os.path.basename(what) in NO_RANKS


def is_hangbisect(what: str, package: str) -> bool:
    """Return whether a program is hangbisect itself, whose package is in the folder `package`."""
    if what in _OURS or os.path.basename(what) == "hangbisect":
        return True
    folder = os.path.abspath(what)
    return folder == package or os.path.dirname(folder) == package
