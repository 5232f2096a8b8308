"""Errors that are printed as one sentence, and the nearest of the known names to a wrong one."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable

INTERNAL_ERROR = 70  # exit status (sysexits.h): we are what is wrong
NO_SUCH_PROGRAM, NOT_ALLOWED = 127, 126  # as shells have it


class HangbisectError(Exception):
    """A fact with its values; `help` is the next step, `status` the exit status. Only the way in
    (cli.py) catches it.
    """

    help = ""
    status = 1

    def __init__(self, fact: str, help: str = "") -> None:
        super().__init__(fact)
        if help:
            self.help = help


class UsageError(HangbisectError):
    """The command line is wrong: exit status 2."""


class CannotStart(HangbisectError):
    """A command's program does not exist or is none; `status` is what a shell would say."""

    help = "Is it installed in this environment, or a path with a typing error?"

    def __init__(self, fact: str, status: int) -> None:
        super().__init__(fact)
        self.status = status


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the allowed word most like `word`, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(allowed), 1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""


def say(text: str) -> None:
    """Print a sentence of ours on stderr, if that can be written to."""
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(2, select.POLLOUT)
        if poll.poll(1000):
            os.write(2, f"hangbisect: {text}\n".encode(errors="replace"))
