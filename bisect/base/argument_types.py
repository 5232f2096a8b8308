"""How values on the command line are read, and what is said of a wrong one.

Every wrong value gets one sentence that names it, what is allowed and the nearest match. Values
from the environment (HANGBISECT_NAME) go the same way, named by their variable.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .errors import UsageError
from .errors import nearest as nearest

Read = Callable[[str], Any]


def wrong(flag: str, value: str, allowed: Sequence[str]) -> UsageError:
    """Return the error for a value that is none of `allowed`."""
    return UsageError(
        f"{flag} cannot be {value!r}: it is one of {', '.join(allowed)}{nearest(value, allowed)}"
    )


def choice(flag: str, allowed: Sequence[str]) -> Read:
    """Return a reader of one of `allowed`."""

    def read(value: str) -> str:
        if value not in allowed:
            raise wrong(flag, value, allowed)
        return value

    return read


def count(flag: str, least: int = 0) -> Read:
    """Return a reader of a whole number, at least `least`."""

    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit()) or int(value) < least:
            raise UsageError(f"{flag} cannot be {value!r}: it is a whole number from {least}")
        return int(value)

    return read


def positive(flag: str, unit: str = "seconds") -> Read:
    """Return a reader of a number above zero."""

    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise UsageError(f"{flag} cannot be {value!r}: it is a number of {unit} above 0")
        return number

    return read


def not_negative(flag: str) -> Read:
    """Return a reader of a number that is 0 or more."""

    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise UsageError(f"{flag} cannot be {value!r}: it is a number from 0")
        return number

    return read


def share(flag: str) -> Read:
    """Return a reader of a number between 0 and 1."""

    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < 1:
            raise UsageError(f"{flag} cannot be {value!r}: it is a number between 0 and 1")
        return number

    return read


def assignment(flag: str) -> Read:
    """Return a reader of NAME=VALUE, as a pair."""

    def read(value: str) -> tuple[str, str]:
        name, sign, rest = value.partition("=")
        if not (sign and name.replace("_", "a").isalnum()) or "\0" in value:
            raise UsageError(f"{flag} cannot be {value!r}: it is NAME=VALUE")
        return name, rest

    return read


def named_seconds(flag: str) -> Read:
    """Return a reader of [NAME=]SECONDS, as a pair; the name is "" for every checkpoint."""
    seconds = positive(flag)

    def read(value: str) -> tuple[str, float]:
        name, sign, rest = value.rpartition("=")
        return (name.strip() if sign else "", seconds(rest))

    return read


def known_hang(flag: str) -> Read:
    """Return a reader of a file that says which stacks, where, are a hang that is known."""

    def read(value: str) -> dict[str, Any]:
        try:
            with open(value, encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
            stacks = [[(str(file), str(name)) for file, name in one] for one in found["stacks"]]
            place = {"checkpoint": found["checkpoint"], "phase": found.get("phase")}
            place["file"] = os.path.abspath(value)
            return {**place, "stacks": stacks, "still": float(found["still"])}
        except OSError as error:
            raise UsageError(f"{flag} cannot be {value!r}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(
                f"{flag} cannot be {value!r}: it is a JSON object with checkpoint, phase, stacks "
                "and still"
            ) from None

    return read


def replacement(flag: str) -> Read:
    """Return a reader of STEP=module:function, as the pair (step, "module:function")."""

    def read(value: str) -> tuple[str, str]:
        step, _, place = value.partition("=")
        module, _, function = place.partition(":")
        dotted = all(part.isidentifier() for part in module.split("."))
        if not (step and dotted and function.isidentifier()):
            raise UsageError(f"{flag} cannot be {value!r}: it is STEP=module:function")
        return step, place

    return read


def function(
    flag: str,
    help: str = 'For a part of the script itself write `with hangbisect.step("name"):` in it.',
) -> Read:
    """Return a reader of module:function, as it stands; `help` is what is said of a wrong one."""

    def read(text: str) -> str:
        module, _, name = text.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise UsageError(f"{flag} cannot be {text!r}: it is module:function", help)
        return text

    return read


def around_dashes(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what stands before the first "--", for us, and what stands after it."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


def dashes_missing(command: str, argv: Sequence[str], first: str) -> UsageError:
    """Return the error for a command that begins with `first` and has no "--" before it."""
    import shlex

    at = list(argv).index(first)
    words = ["hangbisect", command, *argv[:at], "--", *argv[at:]]
    return UsageError(f"-- is missing before the command {first!r}", shlex.join(words))


class Parser(argparse.ArgumentParser):
    """argparse with both spellings of a flag, no abbreviations, and errors of our own."""

    _width: int | None = 78  # columns; None: those of the terminal

    def __init__(self, prog: str | None = None, epilog: str | None = None) -> None:
        """Make a parser without --help; `epilog` is printed as it is."""
        super().__init__(
            prog=prog,
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            # One is made for each argument: without a width it loads shutil, bz2 and lzma, 3 ms.
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, width=self._width
            ),
        )

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        self._width = None
        return super().format_help()

    @property
    def flags(self) -> list[str]:
        """All long flags."""
        return [f for action in self._actions for f in action.option_strings if f[:2] == "--"]

    def parse_first(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return what `argv` says, and the words that are not understood. Raises UsageError for
        a value that is wrong.
        """
        return self.parse_known_args(self._dashed(argv))

    def parse_all(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return what `argv` says. Raises UsageError for anything that is not understood."""
        args, rest = self.parse_first(argv)
        if rest:
            name = rest[0].partition("=")[0]
            raise UsageError(
                f"there is no argument {name!r}{nearest(name, self.flags)}",
                "All arguments: --help",
            )
        return args

    def error(self, message: str) -> NoReturn:
        """Raise what argparse itself finds wrong (a value is missing) as a UsageError."""
        raise UsageError(message.removeprefix("argument "), "All arguments: --help")

    def _dashed(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` with --fast_dev_run as --fast-dev-run, for the flags that there are."""
        known = set(self.flags)
        words = []
        for word in argv:
            name, sign, value = word.partition("=")
            dashed = name.replace("_", "-")
            words.append(dashed + sign + value if dashed in known else word)
        return words
