"""The GPUs of this machine, as NVML sees them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ..facts import Gpu
from .aside import aside, run

_PROBE = Path(__file__).with_name("nvml_probe.py")
_SILENT = "The NVIDIA driver gave no answer in time: it may itself be what hangs."
_DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")  # Linux, WSL, Jetson


async def gpus(limit: float) -> tuple[tuple[Gpu, ...], str]:
    """Return (the GPUs, "" or in a sentence why they are not known), within `limit` seconds."""
    if not any(map(os.path.exists, _DRIVER)):
        return (), "There is no NVIDIA driver here: nothing is known of GPUs."
    # -P: next to the probe lies our own code, which is no place to import from.
    command = [sys.executable, "-P", str(_PROBE)]
    try:
        ran = await aside(run, command, limit, limit=limit + 0.3, key="nvml")
    except OSError:
        return (), "NVML could not be asked: nothing is known of GPUs."
    except TimeoutError:  # it cannot even be ended
        return (), _SILENT
    return parse(ran.out) if ran.status is not None else ((), _SILENT)


def parse(text: bytes | str) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs in what the probe printed, and what it says is missing."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("missing"), str):
        return (), data["missing"]
    if not isinstance(data, list):
        return (), "NVML gave no answer that can be read: nothing is known of GPUs."
    return tuple(_gpu(one) for one in data if isinstance(one, dict)), ""


def _gpu(data: dict[str, Any]) -> Gpu:
    pids = data.get("pids")
    return Gpu(
        index=_whole(data.get("index")) or 0,
        name=str(data.get("name") or ""),
        busy=_part(data.get("busy"), 100),
        power=_part(data.get("power"), 1000),
        power_limit=_part(data.get("power_limit"), 1000),
        memory_used=_whole(data.get("memory_used")),
        memory_total=_whole(data.get("memory_total")),
        pids=tuple(p for p in pids if type(p) is int) if isinstance(pids, list) else (),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _part(value: object, unit: int) -> float | None:
    number = _whole(value)
    return None if number is None else number / unit
