"""Whether a program can be started at all, before anybody is asked or told anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from ..errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart


def check_program(program: str, environ: Mapping[str, str]) -> None:
    """Raise CannotStart where a command with these variables names no program."""
    path = environ.get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return
    folders = [""] if os.path.dirname(program) else path.split(os.pathsep)
    if program and any(os.path.exists(os.path.join(folder, program)) for folder in folders):
        raise CannotStart(f"{program!r} cannot be started: it may not be executed", NOT_ALLOWED)
    raise CannotStart(f"{program!r} cannot be started: there is no such program", NO_SUCH_PROGRAM)
