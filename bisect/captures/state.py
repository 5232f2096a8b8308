"""What each process says of its capturing, for `hangbisect capture status`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..whole_file import write_whole
from .places import state_file

SCHEMA = 1


@dataclass(frozen=True)
class State:
    """A process in which modules are captured, and whether they are."""

    rank: int
    host: str
    pid: int
    modules: tuple[str, ...]  # by the names under which they are captured
    switched: float  # the `at` of the switch that it has seen
    stopped: str = ""  # why it captures no more


def write(folder: str, state: State) -> None:
    """Write it. Raises OSError."""
    text = json.dumps({"schema": SCHEMA, **asdict(state)}, indent=2)
    write_whole(os.path.join(folder, state_file(state.rank, state.pid)), text.encode())


def read_all(folder: str) -> list[State]:
    """Return those in a folder, by rank; what cannot be read is left out."""
    found = []
    for path in Path(folder).glob("state-rank*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            said = json.loads(path.read_text(encoding="utf-8"))
            if said.pop("schema") == SCHEMA:
                found.append(State(**{**said, "modules": tuple(map(str, said["modules"]))}))
    return sorted(found, key=lambda one: (one.rank, one.switched))


def gone(state: State, host: str) -> bool:
    """Return whether its process has ended, which only its own host can tell."""
    return state.host == host and not os.path.exists(f"/proc/{state.pid}")


def of_now(states: Iterable[State], switched: float) -> list[State]:
    """Return those that have seen the switch of the time `switched`."""
    return [one for one in states if one.switched == switched]
