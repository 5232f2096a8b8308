"""What cells that run side by side must not share: ports, GPUs, and folders for what they write."""

from __future__ import annotations

import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..bisection.launcher_words import PORTS
from ..errors import UsageError

DEVICES = "CUDA_VISIBLE_DEVICES"
# Below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range, from
# 32768), and not torchrun's own 29500, where a job of somebody else may start.
_RANGE = range(20000, 29400)
_TRIES = 200


@dataclass(frozen=True)
class Share:
    """What one of several cells at a time has for itself."""

    devices: tuple[str, ...] = ()  # GPUs; none: there are none, or no other cell runs
    alone: bool = True

    def environment(self, run_dir: Path, scratch: Path, port: int) -> dict[str, str]:
        """Return the variables that keep a cell apart from the others."""
        if self.alone:
            return {}
        of_wandb = {
            "WANDB_DIR": run_dir,
            "WANDB_CACHE_DIR": scratch / "wandb-cache",
            "WANDB_DATA_DIR": scratch / "wandb-data",
            "WANDB_ARTIFACT_DIR": scratch / "wandb-artifacts",
        }
        ports = dict.fromkeys(PORTS, str(port))
        devices = {DEVICES: ",".join(self.devices)} if self.devices else {}
        folders = {name: str(path) for name, path in of_wandb.items()}
        return {**ports, **devices, **folders, "TMPDIR": str(scratch)}


def shares(jobs: int, devices: Sequence[str]) -> list[Share]:
    """Return the shares of so many cells at a time: of the GPUs each has as many as the others."""
    if jobs == 1:
        return [Share()]
    each = len(devices) // jobs
    if devices and not each:
        raise UsageError(
            f"--jobs cannot be {jobs}: each cell wants GPUs of its own, and of these there are "
            f"{len(devices)}",
            f"At most --jobs {len(devices)}; {DEVICES}= (empty) runs them without.",
        )
    return [Share(tuple(devices[i * each : (i + 1) * each]), False) for i in range(jobs)]


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a cell may have, as CUDA_VISIBLE_DEVICES names them."""
    listed = environ.get(DEVICES)
    if listed is not None:
        return listed_devices(listed)
    import asyncio

    from ..evidence.gpus import gpus

    found, _ = asyncio.run(gpus(5.0))
    return tuple(str(gpu.index) for gpu in found)


def listed_devices(listed: str) -> tuple[str, ...]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names."""
    return tuple(word.strip() for word in listed.split(",") if word.strip())


@dataclass
class Scratch:
    """Ports and temporary folders, none given twice; the folders are removed at the end."""

    given: set[int] = field(default_factory=set)
    folders: set[Path] = field(default_factory=set)  # that have not been removed
    lock: threading.Lock = field(default_factory=threading.Lock)

    def port(self) -> int:
        """Return a free port that no other cell has had. Raises OSError if none is found."""
        with self.lock, ExitStack() as stack:
            for port in random.sample(_RANGE, _TRIES):
                if port in self.given:
                    continue
                trial = stack.enter_context(socket.socket())
                with suppress(OSError):
                    trial.bind(("", port))
                    self.given.add(port)
                    return port
        raise OSError(f"no free port among {_RANGE.start} to {_RANGE.stop}")

    def folder(self) -> Path:
        """Return a new temporary folder. Its name is short: sockets lie in it, whose paths have at
        most 107 characters.
        """
        with self.lock:
            made = Path(tempfile.mkdtemp(prefix="hb-"))
            self.folders.add(made)
        return made

    def remove(self, *folders: Path) -> None:
        """Remove temporary folders, all that are left if none is named, as far as they can be."""
        with self.lock:
            for folder in folders or tuple(self.folders):
                shutil.rmtree(folder, ignore_errors=True)
                self.folders.discard(folder)
