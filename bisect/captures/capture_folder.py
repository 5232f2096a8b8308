"""What a folder of captures holds beside the captures: the names of its files, the switch that a
running job looks at once a second, the state that each process writes for `hangbisect capture
status`, and how much a rank may still write.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..base.files import write_whole
from ..base.words import format_bytes

FOLDER_VARIABLE = "HANGBISECT_CAPTURE_DIR"
FOLDER = "captures"  # in the folder in which the job, or the command, was started
SWITCH = "switch.json"
INPUTS, OUTPUTS = ".inputs.safetensors", ".outputs.safetensors"
_RANK = re.compile(r"-rank(\d{1,9})-")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.]+")


def find_folder(named: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Return the absolute path of the folder: as named, as the environment has it, or FOLDER."""
    return os.path.abspath(named or environ.get(FOLDER_VARIABLE) or FOLDER)


def file_stem(name: str, rank: int, at: float) -> str:
    """Return what a capture's files begin with; `at` in seconds since 1970, to the microsecond."""
    whole, micro = divmod(round(at * 1e6), 10**6)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
    return f"{_UNUSUAL.sub('_', name)[:60]}-rank{rank}-{stamp}.{micro:06}"


def rank_in_name(file: str) -> int | None:
    """Return the rank that a file's name says, None without one."""
    found = _RANK.search(os.path.basename(file))
    return None if found is None else int(found[1])


def state_file(rank: int, pid: int) -> str:
    """Return the name of the file in which a process says whether it captures."""
    return f"state-rank{rank}-{pid}.json"


SWITCH_SCHEMA = 1


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
    said = {"schema": SWITCH_SCHEMA, "at": time.time(), **asdict(limits)}
    write_whole(os.path.join(folder, SWITCH), json.dumps(said, indent=2).encode())


def turn_off(folder: str) -> bool:
    """Switch it off; return whether it was on. Raises OSError."""
    try:
        os.unlink(os.path.join(folder, SWITCH))
    except FileNotFoundError:
        return False
    return True


def read_switch(folder: str) -> Switch | None:
    """Return what the switch says, None while it is off or says nothing that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(os.path.join(folder, SWITCH), "rb") as file:
            said = json.loads(file.read(4096))
        limits = Limits(int(said["captures"]), float(said["gigabytes"]))
        return Switch(float(said["at"]), limits)
    return None


STATE_SCHEMA = 1


@dataclass(frozen=True)
class CaptureState:
    """A process in which modules are captured, and whether they are."""

    rank: int
    host: str
    pid: int
    modules: tuple[str, ...]  # by the names under which they are captured
    switched: float  # the `at` of the switch that it has seen
    stopped: str = ""  # why it captures no more


def write_state(folder: str, state: CaptureState) -> None:
    """Write it. Raises OSError."""
    text = json.dumps({"schema": STATE_SCHEMA, **asdict(state)}, indent=2)
    write_whole(os.path.join(folder, state_file(state.rank, state.pid)), text.encode())


def read_states(folder: str) -> list[CaptureState]:
    """Return those in a folder, by rank; what cannot be read is left out."""
    found = []
    for path in Path(folder).glob("state-rank*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            said = json.loads(path.read_text(encoding="utf-8"))
            if said.pop("schema") == STATE_SCHEMA:
                found.append(CaptureState(**{**said, "modules": tuple(map(str, said["modules"]))}))
    return sorted(found, key=lambda one: (one.rank, one.switched))


def has_ended(state: CaptureState, host: str) -> bool:
    """Return whether its process has ended, which only its own host can tell."""
    return state.host == host and not os.path.exists(f"/proc/{state.pid}")


def select_current(states: Iterable[CaptureState], switched: float) -> list[CaptureState]:
    """Return those that have seen the switch of the time `switched`."""
    return [one for one in states if one.switched == switched]


GIGABYTE = 10**9  # as --max-gb has it
# A job whose checkpoints find no room any more is worse than a capture less.
KEPT_FREE = 1 << 30  # bytes


@dataclass(frozen=True)
class Amount:
    """What a rank has in the folder."""

    captures: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.captures + other.captures, self.bytes + other.bytes)


def measure_rank(folder: str, rank: int) -> Amount:
    """Return what lies in `folder` of one rank, from whichever job. Raises OSError."""
    found = Amount()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((INPUTS, OUTPUTS)) and rank_in_name(entry.name) == rank:
                found += Amount(int(entry.name.endswith(INPUTS)), entry.stat().st_size)
    return found


def why_full(has: Amount, size: int, limits: Limits, world_size: int, free: int) -> str:
    """Return why a rank may not write `size` bytes more, "" if it may; `free` is what the disk has.

    The bytes are shared out equally: ranks ask nobody how much the others have.
    """
    if has.captures >= limits.captures:
        return f"it has the {limits.captures:,} captures that --max-captures allows"
    share = limits.gigabytes * GIGABYTE / max(world_size, 1)
    if has.bytes + size > share:
        whole = f"--max-gb {limits.gigabytes:g} allows {format_bytes(share)} for each rank"
        return f"{whole}; it has {format_bytes(has.bytes)}, and the next one {format_bytes(size)}"
    if free - size < KEPT_FREE:
        return f"the disk has {format_bytes(free)} left; {format_bytes(KEPT_FREE)} is kept free"
    return ""
