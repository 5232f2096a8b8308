"""The functions that `--step MODULE:FUNCTION` names, as rows of the table of known calls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from ...errors import UsageError
from ...nearest import nearest
from .row import Row


def own_rows(text: str) -> list[Row]:
    """Return a row for each of "my.module:function,..."; what is no such word is left out."""
    rows = []
    for word in text.split(","):
        module, _, function = word.strip().partition(":")
        if module and function:
            title = f"{function} done"
            rows.append(Row(f"{module}.{function}", word.strip(), function, title, "", None))
    return rows


def check_own_functions(words: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError if one of `words` (module:function) is in what `command` runs as __main__.

    What runs as `python train.py` is that module: nothing happens between the line that makes a
    function of it and the line that calls it, so nobody can be told in time.
    """
    mains = {"__main__", *main_modules(command)}
    for word in words:
        module, _, function = word.partition(":")
        if module in mains:
            raise UsageError(
                f"--step {word}: nothing can be put around a function of the script itself",
                f"Write `with hangbisect.step({function!r}):` in it, or move the function to a "
                "module of its own.",
            )


def main_modules(command: Sequence[str]) -> Iterable[str]:
    """Yield the modules that `command` runs as __main__."""
    for at, word in enumerate(command):
        if at and command[at - 1] == "-m":
            yield word
        elif word.endswith(".py"):
            yield os.path.basename(word)[: -len(".py")]


def as_defined(row: Row, module: ModuleType) -> Row | str:
    """Return the row of what `module` really has there, of a class that of its constructor; a
    sentence where it has no such function.
    """
    owner: Any = module
    for name in row.attribute.split("."):
        if not hasattr(owner, name):
            near = nearest(name, (n for n, v in vars(owner).items() if callable(v)))
            return f"--step {row.where}: {_name(owner)} has no {name!r}{near}"
        owner = getattr(owner, name)
    if isinstance(owner, type):
        if "__init__" not in vars(owner):
            return f"--step {row.where}: {_name(owner)} has no constructor of its own"
        return Row(row.call, f"{row.where}.__init__", row.step, row.title, "", None)
    return row


def _name(owner: Any) -> str:
    return str(getattr(owner, "__qualname__", owner.__name__))
