"""The versions of a job's libraries and drivers on this node.

Read without asking a driver and without importing anything: the files that NVIDIA's driver has in
/proc, and what the installed packages say of themselves. It is our own Python whose packages are
read: a monitor has that of its ranks, and the doctor is started as the job would be started.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from importlib import metadata
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/version")
_GPUS = Path("/proc/driver/nvidia/gpus")
_PROCESSORS = Path("/proc/cpuinfo")  # NCCL chose by its maker how to send (NVIDIA/nccl#1136)
_PROCESSOR = re.compile(r"^model name\s*: (\S.{0,60}?)\s*$", re.MULTILINE)
_DRIVER_VERSION = re.compile(r"(?:Kernel Module|for \S{1,20})\s+(\d{3}[\d.]{1,20})")
_MODEL = re.compile(r"^Model:\s+(\S.{0,60}?)\s*$", re.MULTILINE)
# Packages by what their versions are called; of several the first that is there.
_PACKAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch", ("torch",)),
    ("NCCL", tuple(f"nvidia-nccl-cu{n}" for n in (13, 12, 11))),
    (
        "CUDA runtime",
        ("nvidia-cuda-runtime", *(f"nvidia-cuda-runtime-cu{n}" for n in (13, 12, 11))),
    ),
)


def read_versions() -> dict[str, str]:
    """Return what this node has, by what it is called: {"driver": "570.158.01", ...}."""
    found = {"Python": platform.python_version()}
    if model := _PROCESSOR.search(_read_beginning(_PROCESSORS)):
        found["processor"] = model[1]
    if driver := parse_driver_version(_read_beginning(_DRIVER)):
        found["driver"] = driver
    if gpus := _count_models(_list_informations()):
        found["GPUs"] = gpus
    for name, packages in _PACKAGES:
        version = next((v for one in packages if (v := _find_version(one))), "")
        if version:
            found[name] = version
    return found


def parse_driver_version(text: str) -> str:
    """Return the version in /proc/driver/nvidia/version, "" for none."""
    match = _DRIVER_VERSION.search(text.partition("\n")[0])
    return match[1] if match else ""


def _count_models(informations: list[str]) -> str:
    """Return "8 x NVIDIA H100 80GB HBM3"."""
    models = Counter(m[1] for text in informations if (m := _MODEL.search(text)))
    return ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))


def _list_informations() -> list[str]:
    try:
        return [_read_beginning(one / "information") for one in sorted(_GPUS.iterdir())]
    except OSError:
        return []


def _find_version(package: str) -> str:
    try:
        return metadata.version(package)
    except Exception:  # a package that is half removed raises nearly anything
        return ""


def _read_beginning(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[: 1 << 16]
    except OSError:
        return ""
