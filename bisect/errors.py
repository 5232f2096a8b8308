"""What goes wrong for a reason that the user can do something about."""

from __future__ import annotations

INTERNAL_ERROR = 70  # exit status (sysexits.h): we are what is wrong


class HangbisectError(Exception):
    """A fact with its values; `help` is the next step. Only the way in (cli.py) catches it."""

    help = ""

    def __init__(self, fact: str, help: str = "") -> None:
        super().__init__(fact)
        if help:
            self.help = help


class UsageError(HangbisectError):
    """The command line is wrong: exit status 2."""
