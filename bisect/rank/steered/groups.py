"""Process groups: which backend they get."""

from __future__ import annotations

from ...steering import ASKED
from .call import Call, Said


def backend(call: Call, value: str) -> Said:
    """Give the process group that backend, "auto" for torch's own choice."""
    now = call.get("backend")
    if value != ASKED:
        call.set("backend", None if value == "auto" else value)
        if value == "gloo":
            call.reset("device_id", None)  # it binds the group to one GPU, at once
    return Said(str(now) if now in ("nccl", "gloo") else "auto")
