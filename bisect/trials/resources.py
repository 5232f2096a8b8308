"""What a trial uses of the machine: the ports, GPUs and folders that cells running side by side
must not share, and the wait until a trial has given back what it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import command_words
from ..base.command_words import PORTS
from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import MachineFacts
from ..base.words import format_bytes, format_count
from ..evidence.machine import read_machine
from ..search.cells import Cell

if TYPE_CHECKING:
    from ..search.scenario import Scenario


DEVICES = "CUDA_VISIBLE_DEVICES"
# Below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range, from
# 32768), and not torchrun's own 29500, where another user's job may start.
_PORT_RANGE = range(20000, 29400)
_PORT_TRIES = 200


@dataclass(frozen=True)
class MachineShare:
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


def share_machine(jobs: int, devices: Sequence[str]) -> list[MachineShare]:
    """Return the shares of so many cells at a time: of the GPUs each has as many as the others."""
    if jobs == 1:
        return [MachineShare()]
    each = len(devices) // jobs
    if devices and not each:
        raise UsageError(
            f"--jobs cannot be {jobs}: each cell wants GPUs of its own, and of these there are "
            f"{len(devices)}",
            f"At most --jobs {len(devices)}; {DEVICES}= (empty) runs them without.",
        )
    return [MachineShare(tuple(devices[i * each : (i + 1) * each]), False) for i in range(jobs)]


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that a cell may have, as CUDA_VISIBLE_DEVICES names them."""
    listed = environ.get(DEVICES)
    if listed is not None:
        return listed_devices(listed)
    import asyncio

    from ..evidence.machine import read_gpus

    found, _ = asyncio.run(read_gpus(5.0))
    return tuple(str(gpu.index) for gpu in found if not gpu.state)


def listed_devices(listed: str) -> tuple[str, ...]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names."""
    return tuple(word.strip() for word in listed.split(",") if word.strip())


@dataclass
class ScratchSpace:
    """Ports and temporary folders, none given twice; the folders are removed at the end."""

    given: set[int] = field(default_factory=set)
    folders: set[Path] = field(default_factory=set)  # that have not been removed
    lock: threading.Lock = field(default_factory=threading.Lock)

    def port(self) -> int:
        """Return a free port that no other cell has had. Raises OSError if none is found."""
        with self.lock, ExitStack() as stack:
            for port in random.sample(_PORT_RANGE, _PORT_TRIES):
                if port in self.given:
                    continue
                trial = stack.enter_context(socket.socket())
                with suppress(OSError):
                    trial.bind(("", port))
                    self.given.add(port)
                    return port
        raise OSError(f"no free port among {_PORT_RANGE.start} to {_PORT_RANGE.stop}")

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


FREE_LIMIT = 30.0  # seconds to wait for it; then the next trial starts all the same, and it is said
MEMORY_SHARE = 0.1  # of what was free before, that may be missing: caches and others' jobs
GPU_SLACK = 256e6  # bytes of a GPU's memory that may be missing: a driver's own
_PAUSE = 0.1


@dataclass(frozen=True)
class FreeResources:
    """What was free before the first trial."""

    memory: int | None  # bytes available
    gpus: Mapping[int, int]  # bytes in use, by GPU


def free_now() -> FreeResources:
    """Return what is free now."""
    return _free_resources(asyncio.run(read_machine()))


def wait_until_free(
    before: FreeResources,
    command: Sequence[str],
    environment: Mapping[str, str],
    stopping: threading.Event | None = None,
    limit: float = FREE_LIMIT,
) -> str:
    """Wait until the port that a trial's ranks meet at, memory and GPUs are free as `before`;
    `environment` has all variables that it got. Return what is still not after `limit` seconds, in
    words; "" if all is.
    """
    port = command_words.port(command, environment)
    until = time.monotonic() + limit
    while True:
        taken = _find_taken(before, port, environment)
        if not taken or time.monotonic() > until or (stopping is not None and stopping.is_set()):
            return taken
        time.sleep(_PAUSE)


def _find_taken(before: FreeResources, port: int | None, environment: Mapping[str, str]) -> str:
    if port is not None and not _can_be_bound(port):
        return f"port {port} is still in use"
    return missing_resources(before, free_now(), environment)


def missing_resources(
    before: FreeResources, now: FreeResources, environment: Mapping[str, str]
) -> str:
    """Return what of memory, and of a trial's GPUs, is not free as before; "" if all is."""
    if before.memory and now.memory is not None and now.memory < before.memory * (1 - MEMORY_SHARE):
        return f"{format_bytes(before.memory - now.memory)} of memory are not back"
    visible = listed_devices(environment.get(DEVICES, ""))
    for index, used in now.gpus.items():
        if DEVICES in environment and all(map(str.isdigit, visible)) and str(index) not in visible:
            continue  # another process's
        if used > before.gpus.get(index, used) + GPU_SLACK:
            return f"GPU {index} has {format_bytes(used)} in use still"
    return ""


def _free_resources(found: MachineFacts) -> FreeResources:
    used = {gpu.index: gpu.memory_used for gpu in found.gpus if gpu.memory_used is not None}
    return FreeResources(found.memory_available, used)


def _can_be_bound(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


KeyPath = tuple[str | int, ...]  # the way to a value of the scenario file


def share_among_cells(
    scenario: Scenario,
    cells: Sequence[Cell],
    jobs: int,
    environ: Mapping[str, str],
    where: Callable[[KeyPath], str],
) -> list[MachineShare]:
    """Return what each of `jobs` cells at a time has for itself, of what the file leaves them.

    `environ` is our own environment; `where` says where a value stands in the file ("my.yaml:7").
    Raises UsageError for cells that cannot run side by side.
    """
    jobs = min(jobs, len(cells))
    if jobs == 1:
        return share_machine(1, ())
    visible = visible_devices({**environ, **scenario.environment})
    for one, other in combinations(cells, 2):
        for name, value in _common_values(one, other, scenario, visible):
            place = where(_find_key_path(scenario, one, name))
            raise UsageError(
                f"{place}: --jobs cannot be {jobs}: {one.name!r} and "
                f"{other.name!r} both have {name}={value}",
                f"Leave {name} out, and each cell gets its own; or run one cell at a time.",
            )
    found = share_machine(jobs, visible)
    for cell in cells:
        _check_devices(cell, _own_devices(cell, scenario), found[0], jobs)
    return found


def _common_values(
    one: Cell, other: Cell, scenario: Scenario, visible: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield variables of the file that two cells have alike, or a GPU that both name."""
    for name in PORTS:
        port = one.environment.get(name)
        if port is not None and other.environment.get(name) == port:
            yield name, port
    own, others = _own_devices(one, scenario), _own_devices(other, scenario)
    if own is None and others is None:
        return  # each gets its share
    both = set(visible if own is None else own) & set(visible if others is None else others)
    if both:
        yield DEVICES, ",".join(sorted(both))


def _own_devices(cell: Cell, scenario: Scenario) -> tuple[str, ...] | None:
    """Return the GPUs that a cell names for itself; None: it has a share of those of all."""
    named = cell.environment.get(DEVICES)
    if named is None or named == scenario.environment.get(DEVICES):
        return None
    return listed_devices(named)


def _find_key_path(scenario: Scenario, cell: Cell, name: str) -> KeyPath:
    settings = scenario.settings
    if settings and name in settings[cell.number - 1].environment:
        return ("settings", cell.number - 1, "environment", name)
    return ("environment", name)


def _check_devices(cell: Cell, own: Sequence[str] | None, share: MachineShare, jobs: int) -> None:
    devices = len(share.devices if own is None else own)
    if devices and cell.ranks > devices and cell.setting.get("accelerator") != "cpu":
        raise UsageError(
            f"--jobs cannot be {jobs}: each cell gets {format_count(devices, 'GPU')}, and "
            f"{cell.name!r} has {cell.ranks} ranks",
            "Fewer jobs, or fewer ranks.",
        )
