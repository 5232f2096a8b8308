"""The switch: a file that a running job looks at once a second."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass

from ..whole_file import write_whole
from .places import SWITCH

SCHEMA = 1


@dataclass(frozen=True)
class Limits:
    """How much a folder of captures may hold."""

    captures: int = 100  # of each rank
    gigabytes: float = 10.0  # of 10^9 bytes, of all ranks together


@dataclass(frozen=True)
class Switch:
    """What the file says while capturing is on."""

    at: float  # when it was switched on, seconds since 1970
    limits: Limits


def turn_on(folder: str, limits: Limits) -> None:
    """Switch capturing on for every job that captures into `folder`. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    said = {"schema": SCHEMA, "at": time.time(), **asdict(limits)}
    write_whole(os.path.join(folder, SWITCH), json.dumps(said, indent=2).encode())


def turn_off(folder: str) -> bool:
    """Switch it off; return whether it was on. Raises OSError."""
    try:
        os.unlink(os.path.join(folder, SWITCH))
    except FileNotFoundError:
        return False
    return True


def read(folder: str) -> Switch | None:
    """Return what the switch says, None while it is off or says nothing that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(os.path.join(folder, SWITCH), "rb") as file:
            said = json.loads(file.read(4096))
        limits = Limits(int(said["captures"]), float(said["gigabytes"]))
        return Switch(float(said["at"]), limits)
    return None
