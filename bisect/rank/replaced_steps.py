"""Functions of the user's own, named as module:function (--use)."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from ..base.errors import UsageError


def check_module(place: str) -> None:
    """Raise UsageError if there is no module of that name; imports nothing."""
    _look_here_too()
    name = place.partition(":")[0]
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise _no_module(name)


def load(place: str) -> Callable[..., Any]:
    """Return the function at `module:function`; modules also from the current folder.

    Raises UsageError if there is no such module or function.
    """
    module_name, _, name = place.partition(":")
    _look_here_too()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise
        raise _no_module(module_name) from None
    function = getattr(module, name, None)
    if not callable(function):
        functions = ", ".join(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
        raise UsageError(f"--use: {module_name} has no function {name!r}", f"It has: {functions}")
    return function  # type: ignore[no-any-return]


def wants_one(function: Callable[..., Any], place: str) -> bool:
    """Return whether a function takes one argument, what a step gives; False: it takes none.

    Raises UsageError for one that can be called in neither way.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # of C, and it says nothing
        return True
    for words in ((None,), ()):
        with contextlib.suppress(TypeError):
            signature.bind(*words)
            return bool(words)
    raise UsageError(
        f"--use: {place} takes {signature}, and a step calls it with one argument or with none",
        "Write a function of one argument around it: given.args, given.context, given.<step>.",
    )


def _look_here_too() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _no_module(name: str) -> UsageError:
    return UsageError(
        f"--use: there is no module {name!r}", f"Looked in {os.getcwd()} and on PYTHONPATH."
    )
