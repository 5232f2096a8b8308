"""Where captures lie, and what the files there are called."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

FOLDER_VARIABLE = "HANGBISECT_CAPTURE_DIR"
FOLDER = "captures"  # in the folder in which the job, or the command, was started
SWITCH = "switch.json"
INPUTS, OUTPUTS = ".inputs.safetensors", ".outputs.safetensors"
_RANK = re.compile(r"-rank(\d{1,9})-")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.]+")


def folder(named: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Return the absolute path of the folder: as named, as the environment has it, or FOLDER."""
    return os.path.abspath(named or environ.get(FOLDER_VARIABLE) or FOLDER)


def stem(name: str, rank: int, at: float) -> str:
    """Return what a capture's files begin with; `at` in seconds since 1970, to the microsecond."""
    whole, micro = divmod(round(at * 1e6), 10**6)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
    return f"{_UNUSUAL.sub('_', name)[:60]}-rank{rank}-{stamp}.{micro:06}"


def rank_of(file: str) -> int | None:
    """Return the rank that a file's name says, None without one."""
    found = _RANK.search(os.path.basename(file))
    return None if found is None else int(found[1])


def state_file(rank: int, pid: int) -> str:
    """Return the name of the file in which a process says whether it captures."""
    return f"state-rank{rank}-{pid}.json"
