"""Where the programs are that look at other processes."""

from __future__ import annotations

import functools
import os
import shutil
import sys


@functools.cache
def executable(name: str = "py-spy") -> str | None:
    """Return the path of a program: next to this interpreter, in its scripts, or on the PATH."""
    beside = shutil.which(name, path=os.path.dirname(sys.executable))
    if beside:
        return beside
    import sysconfig

    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
