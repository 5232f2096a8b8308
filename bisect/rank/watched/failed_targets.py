"""What multiprocessing's processes of a job fail by: a process that is no rank, the engine of a
server, has no connection to the monitor, and multiprocessing prints its error only. It is written
to a file of the job's folder. Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from ...base.error_guard import ignore_our_errors
from ...base.masking import mask_command, mask_ends
from ...base.place import FOLDER_VARIABLE, LARGEST_TARGETS_FILE, TARGETS_FILE
from ..after_import import after_import
from ..function_patching import patch_with_step
from ..tracebacks import format_traceback, summarize_error

_PROCESSES = "multiprocessing.process"
_LONGEST = 1 << 16  # characters of an error, and of its traceback


def note_failed_targets() -> None:
    """Have each process that multiprocessing starts from now on, this one as well, write down the
    error that its target raises.
    """
    after_import(_PROCESSES, _put_around_targets)


def _put_around_targets(module: ModuleType) -> None:
    with ignore_our_errors():
        patch_with_step(module, "BaseProcess.run", _begin)


def _begin(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[BaseException | None], None] | None:
    return note_failure


def note_failure(error: BaseException | None) -> None:
    """Write down what ends this process, where it is an error and the file has room."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not isinstance(error, Exception) or not folder:
        return
    with ignore_our_errors():
        path = os.path.join(folder, TARGETS_FILE)
        with suppress(FileNotFoundError):
            if os.stat(path).st_size >= LARGEST_TARGETS_FILE:
                return
        told = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "words": mask_command(_read_words()),
            "at": time.monotonic(),
            "error": mask_ends(summarize_error(error), _LONGEST),
            "traceback": mask_ends(format_traceback(error), _LONGEST),
        }
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(told).encode() + b"\n")
        finally:
            os.close(file)


def _read_words() -> list[str]:
    """Return the command line, or the title that the process has given itself."""
    with open("/proc/self/cmdline", "rb") as file:
        return os.fsdecode(file.read(_LONGEST).rstrip(b"\0")).split("\0")
