"""The environment in which every Python below a command is reached."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ...base.variables import CLAIM_VARIABLE, PACKAGE_VARIABLE, PATH_VARIABLE, PYTHON_VARIABLE

if TYPE_CHECKING:
    from ...base.loading import DelayLimits
    from ..monitor_connection import Interpreter

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_UP = os.path.join(PACKAGE, "start_up")


def variables(
    options: Mapping[str, str] | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables to add to `environ` for a command that is to be watched.

    `options` by name, without dashes ("run-dir", "stall", "steady", "step"): each becomes
    HANGBISECT_NAME (rank/watch_options.py).
    """
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path != START_UP]
    path = os.pathsep.join(paths)
    named = {f"HANGBISECT_{n.replace('-', '_').upper()}": v for n, v in (options or {}).items()}
    return {
        "PYTHONPATH": os.pathsep.join([START_UP, path]) if path else START_UP,
        PACKAGE_VARIABLE: PACKAGE,
        PYTHON_VARIABLE: sys.executable,
        PATH_VARIABLE: os.pathsep.join(_absolute(sys.path)),
        CLAIM_VARIABLE: "",
        **named,
    }


def _absolute(paths: Iterable[str]) -> list[str]:
    """Return absolute paths; without the relative ones where the current folder is gone."""
    found = []
    for path in filter(None, paths):
        with suppress(FileNotFoundError):
            found.append(os.path.abspath(path))
    return found


def monitors_python(delay: DelayLimits) -> Interpreter | None:
    """Return the interpreter for a monitor that loads later, None where there is none (in a
    container).
    """
    from ..monitor_connection import Interpreter

    executable = os.environ.get(PYTHON_VARIABLE, "")
    if not executable or not os.access(executable, os.X_OK):
        return None
    path = tuple(filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep)))
    return Interpreter(executable, path, delay)
