"""What a monitor tells the process around the launcher, `hangbisect run`, if there is one."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# Its value, the path of a socket, is also the mark by which all that the launcher starts is found.
OUTER_VARIABLE = "HANGBISECT_OUTER"
# The descriptor of a socket to who started `hangbisect run`.
STARTER_VARIABLE = "HANGBISECT_STARTER"

_TOLD = {  # kinds of events, and the fields of them that are told
    "hello": ("rank", "pid", "at"),
    "enter": ("rank", "n", "at"),
    "phase": ("rank", "n", "name", "at"),
    "reached": ("rank", "n", "at"),
    "arrive": ("rank", "n", "held"),
    "opened": ("n", "at"),
    "begin": ("rank", "title", "at"),
    "end": ("rank", "at"),
    "quiet": ("rank",),
    "watches": ("pid", "run_dir", "titles"),
    "verdict": ("outcome", "ends"),
    "taken back": (),
    "failed": (),
}


class OuterLink:
    """Messages to the outer process: what it does not take at once is lost, and nobody waits."""

    def __init__(self, path: str) -> None:
        """`path` is that of its socket, "" if there is none."""
        self._socket: socket.socket | None = None
        if path:
            with suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._socket.setblocking(False)
                self._socket.connect(path)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Tell an event, if it is of a kind that matters out there."""
        fields = _TOLD.get(str(event.get("t")))
        if self._socket is None or fields is None:
            return
        told = {"t": event["t"], **{name: event[name] for name in fields if name in event}}
        with suppress(OSError):
            self._socket.send(json.dumps(told).encode())
