"""Nodes of one job that share a run folder, and find nobody who leads: each leaves there by which
address it is reached, and reads that of the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from ..base.deadline import call_with_limit
from ..base.json_codec import Misfit, from_json, to_json
from ..link.messages import NodeWord
from ..link.node import Address
from .copy_run import write
from .lead_address import FILE_LIMIT, TOKEN_FILE, format_token, read_own_json, read_token

AFTER = 10.0  # seconds without a lead until a node does so: that of rank 0 may be late
_FRESH = 30.0  # seconds since one of them was written: each node does it anew at each look
_MOST = 1 << 12  # files that are read


class WaitingNodes:
    """What one node leaves in the folder, and finds there."""

    def __init__(self, folder: Path, own: NodeWord) -> None:
        """Nothing is written before exchange()."""
        self._folder, self._own = folder, own
        self._name = ""  # of the file that we have left
        self.found: list[NodeWord] = []  # this one too

    async def exchange(self, job: str, places: Sequence[Address], needs_token: bool) -> None:
        """Write how this node is reached, by the address from which it reaches the first of
        `places`, and read of the others of the same job; leave a token there if one is needed.
        Never raises.
        """
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            limited = call_with_limit(self._exchange, job, places, needs_token, limit=FILE_LIMIT)
            self.found = await limited

    async def end(self) -> None:
        """Remove what was left there. Never raises."""
        if self._name:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                await call_with_limit(os.unlink, self._folder / self._name, limit=FILE_LIMIT)

    def _exchange(self, job: str, places: Sequence[Address], needs_token: bool) -> list[NodeWord]:
        """Return the nodes that wait. May block; raises OSError."""
        address = _find_own_address(places)
        if not address:
            return []
        node = blake2b(self._own.node.encode(), digest_size=8).hexdigest()
        self._name = f"waiting-{job}-{node}.json"
        own = replace(self._own, address=address)
        write({self._name: json.dumps(to_json(own))}, str(self._folder))
        if needs_token:
            self._leave_token()
        since = os.stat(self._folder / self._name).st_mtime - _FRESH
        found = []
        for path in sorted(self._folder.glob(f"waiting-{job}-*.json"))[:_MOST]:
            with contextlib.suppress(OSError, ValueError, Misfit):
                if path.lstat().st_mtime >= since:
                    found.append(from_json(NodeWord, read_own_json(path)))
        return found

    def _leave_token(self) -> None:
        path = self._folder / TOKEN_FILE
        with contextlib.suppress(OSError, ValueError):
            if read_token(path):
                return
        write({TOKEN_FILE: format_token(secrets.token_hex(16))}, str(self._folder))


def _find_own_address(places: Sequence[Address]) -> str:
    """Return the address from which this machine reaches a place, "" where there is no way. Nothing
    is sent for it (udp(7)).
    """
    for host, port in places:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((host, port))
            return str(asking.getsockname()[0])
    return ""
