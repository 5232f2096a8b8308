"""The GPUs: how many, which processes use them, and whether they reach one another; and what is
between them on the bus: the IOMMU, PCI's access control services (ACS), and the nodes of memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.deadline import run_command
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import Gpu, GpuError, GpuErrorKind
from ..base.words import format_bytes, format_seconds
from ..evidence.gpus.gpu_errors import describe_gpu_error, read_gpu_errors
from ..evidence.machine import AMD_PROBE, NO_DRIVER, NVML_PROBE, is_amds, read_gpus
from .examination import (
    Check,
    CheckedProcess,
    CheckFamily,
    Finding,
    Setting,
    ok,
    problem,
    process,
    unknown,
    warning,
)

_DRIVER = 4.0  # seconds for the driver to answer
# Errors that are not a program's own.
_OF_THE_MACHINE: tuple[GpuErrorKind, ...] = ("lost", "stopped", "memory", "link")
_KERNEL_SAYS = "sudo dmesg | grep -i -e xid -e amdgpu"
_IDLE = 0.05  # of its memory: the driver itself takes some
_MPS = "nvidia-cuda-mps"[:15]  # the kernel cuts names
_EXCLUSIVE = ("exclusive process", "exclusive thread")
_WITHOUT_PEERS = {  # nvmlGpuP2PStatus_t
    1: "the chipset does not do it",
    2: "these GPUs do not do it",
    3: "they hang on different parts of the machine",
    4: "it is turned off in the driver",
    5: "not supported",
    100: "neither XGMI nor direct access over PCIe is between them",  # of amd_probe.py
}


@dataclass(frozen=True)
class Devices:
    """The GPUs of this machine, and the pairs without direct access and why."""

    gpus: tuple[Gpu, ...] = ()
    missing: str = ""
    apart: tuple[tuple[int, int, str], ...] = ()
    pairs: int = 0  # of which it is known
    users: tuple[CheckedProcess, ...] = ()  # processes that use a GPU
    uid: int = 0
    errors: tuple[GpuError, ...] = ()  # that the driver reported since the machine started
    now: float = 0.0  # on the clock of these

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return len(self.gpus)

    def visible(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words of CUDA_VISIBLE_DEVICES that count, all GPUs where it is not set.

        CUDA leaves out everything from the first wrong word on (CUDA C++ Programming Guide, "CUDA
        Environment Variables").
        """
        text = environ.get("CUDA_VISIBLE_DEVICES")
        if text is None:
            return tuple(str(index) for index in range(self.count))
        words = [word.strip() for word in text.split(",")]
        wrong = next((i for i, word in enumerate(words) if not self._is_there(word)), len(words))
        return tuple(words[:wrong])

    def no_such(self, environ: Mapping[str, str]) -> str | None:
        """Return the first number in CUDA_VISIBLE_DEVICES of which there is no GPU, None for none.

        -1 is how one hides them all.
        """
        words = [word.strip() for word in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        wrong = next((word for word in words if word and not self._is_there(word)), None)
        return None if wrong == "-1" else wrong

    def _is_there(self, word: str) -> bool:
        if word.isascii() and word.isdigit():
            return len(word) < 6 and int(word) < self.count
        return word.startswith(("GPU-", "MIG-"))


def read_devices(setting: Setting) -> Devices:
    """Ask the driver, from programs of their own."""
    found, missing = asyncio.run(read_gpus(_DRIVER))
    if not found:
        return Devices(missing=" ".join(missing))
    probe = AMD_PROBE if is_amds(found[0]) else NVML_PROBE
    apart, pairs = parse_peers(
        run_command([sys.executable, "-P", str(probe), "--peers"], _DRIVER).out
        if len(found) > 1
        else b"{}"
    )
    pids = {pid for gpu in found for pid in gpu.pids}
    users = tuple(process(pid) for pid in sorted(pids))
    errors, _ = read_gpu_errors()
    said = " ".join(missing)
    return Devices(found, said, apart, pairs, users, os.getuid(), errors, time.monotonic())


def parse_peers(text: bytes | str) -> tuple[tuple[tuple[int, int, str], ...], int]:
    """Return (pairs without direct access and why, how many are known) of what the probe said."""
    try:
        data: Any = json.loads(text)
        pairs = [(int(a), int(b), status) for a, b, status in data.get("pairs", ())]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return (), 0
    known = [(a, b, status) for a, b, status in pairs if type(status) is int]
    apart = tuple((a, b, _WITHOUT_PEERS.get(s, "not known why")) for a, b, s in known if s != 0)
    return apart, len(known)


# ---- judged --------------------------------------------------------------------------------------


def count(setting: Setting, facts: Devices) -> Iterator[Finding]:
    """Judge whether the driver answers, and say what there is."""
    for gpu in facts.gpus:
        if gpu.state:
            yield problem(
                f"GPU {gpu.index}{f' ({gpu.bus})' if gpu.bus else ''}: {gpu.said}",
                f"{_KERNEL_SAYS}; nvidia-smi --gpu-reset (AMD: amd-smi reset --gpureset), or a "
                "reboot; without it: CUDA_VISIBLE_DEVICES",
            )
        elif gpu.fabric:
            yield problem(
                f"GPU {gpu.index}: its registration with the NVLink fabric is {gpu.fabric}",
                "sudo systemctl restart nvidia-fabricmanager",
            )
        elif gpu.recovery:
            yield problem(
                f"GPU {gpu.index}: after errors the driver asks for {gpu.recovery}",
                f"{_KERNEL_SAYS}; nvidia-smi --gpu-reset, or a reboot",
            )
        elif gpu.compute_mode == "prohibited":
            yield problem(f"GPU {gpu.index} lets nobody compute", "sudo nvidia-smi -c DEFAULT")
        elif (user := _find_only_user(gpu, facts, setting)) is not None:
            yield problem(
                f"GPU {gpu.index} lets one process at a time compute ({gpu.compute_mode}), and "
                f"{user} does: a rank that is to use it fails",
                "end that process; or sudo nvidia-smi -c DEFAULT",
            )
        elif gpu.said or gpu.rows or gpu.links_down or gpu.slowed_by or _is_narrow(gpu):
            yield warning(f"GPU {gpu.index}: {_describe_trouble(gpu)}", "nvidia-smi -q")
    for error in [one for one in facts.errors if one.kind in _OF_THE_MACHINE]:
        ago = format_seconds(max(0.0, facts.now - error.at))
        yield warning(
            f"{describe_gpu_error(error)}, {ago} ago", "sudo dmesg | grep -i -e xid -e amdgpu"
        )
    if facts.count:
        names = ", ".join(dict.fromkeys(gpu.name for gpu in facts.gpus if gpu.name))
        driver = next((f", driver {gpu.driver}" for gpu in facts.gpus if gpu.driver), "")
        yield ok(f"{facts.count} x {names or 'GPU'}{driver}")
    elif facts.missing == NO_DRIVER:
        yield ok("none: no driver of NVIDIA's or AMD's")
    elif "no answer in time" in facts.missing:
        said = f"{facts.missing} ({_DRIVER:g} s)"
        yield problem(said, "nvidia-smi; dmesg | grep -i xid; a reboot")
    else:
        yield unknown(facts.missing)


def _find_only_user(gpu: Gpu, facts: Devices, setting: Setting) -> CheckedProcess | None:
    """Return who has a GPU that one process at a time may use; MPS's server has it for others."""
    if gpu.compute_mode not in _EXCLUSIVE:
        return None
    users = (one for one in facts.users if one.pid in gpu.pids and one.pid not in setting.pids)
    return next((one for one in users if not one.name.startswith(_MPS)), None)


def _describe_trouble(gpu: Gpu) -> str:
    down = ", ".join(map(str, gpu.links_down))
    links = (f"NVLink {down} is down",) if down else ()
    slow = (f"slowed down: {', '.join(gpu.slowed_by)}",) if gpu.slowed_by else ()
    lanes = f"{gpu.pcie_width} of {gpu.pcie_width_most} lanes of PCIe"
    narrow = (lanes,) if _is_narrow(gpu) else ()
    return "; ".join((*((gpu.said,) if gpu.said else ()), *gpu.rows, *links, *slow, *narrow))


def _is_narrow(gpu: Gpu) -> bool:
    return bool(gpu.pcie_width and gpu.pcie_width < (gpu.pcie_width_most or 0))


def in_use(setting: Setting, facts: Devices) -> Iterator[Finding]:
    """Judge whether a process uses the GPUs already."""
    busy = [g for g in facts.gpus if (g.memory_used or 0) > _IDLE * (g.memory_total or 0)]
    for gpu in busy:
        users = [one for one in facts.users if one.pid in gpu.pids and one.pid not in setting.pids]
        who = str(users[0]) if users else "nobody that can be seen"
        more = f" and {len(users) - 1} more" if len(users) > 1 else ""
        mine = [one for one in users if one.uid == facts.uid]
        next = f"kill {mine[0].pid} if it was left behind" if mine else ""
        yield warning(
            f"GPU {gpu.index}: {_in_use(gpu)}: {who}{more}",
            next or "nvidia-smi; another GPU: CUDA_VISIBLE_DEVICES",
        )
    if not busy:
        yield ok("nobody uses them" if facts.count else "no GPUs")


def _in_use(gpu: Gpu) -> str:
    return f"{format_bytes(gpu.memory_used or 0)} of {format_bytes(gpu.memory_total or 0)} in use"


def peers(setting: Setting, facts: Devices) -> Iterator[Finding]:
    """Judge whether the GPUs reach one another directly."""
    if facts.count < 2:
        yield ok("fewer than two GPUs")
    elif not facts.pairs:
        yield unknown("the driver does not say it")
    elif not facts.apart:
        yield ok(f"all {facts.pairs} pairs")
    else:
        a, b, why = facts.apart[0]
        # Common and harmless by itself: NCCL takes shared memory then.
        said = f"{len(facts.apart)} of {facts.pairs} pairs without (GPU {a} and {b}: {why})"
        off = any(why == _WITHOUT_PEERS[4] for *_, why in facts.apart)
        yield warning(said, "nvidia-smi topo -p2p r") if off else ok(said + ": through memory")


FAMILY = CheckFamily(
    "GPUs",
    (
        Check(
            id="gpus",
            title="the GPUs are there, and their driver answers",
            why="A driver that does not answer holds every process that asks it in the kernel.",
            read=read_devices,
            judge=count,
        ),
        Check(
            id="gpus-in-use",
            title="nobody uses the GPUs yet",
            why="What an earlier start left there takes memory, and a kernel that never ends holds "
            "up every other.",
            read=read_devices,
            judge=in_use,
        ),
        Check(
            id="gpu-peers",
            title="the GPUs reach one another directly",
            why="Where direct access is reported and does not work the first collective hangs.",
            read=read_devices,
            judge=peers,
        ),
    ),
)


_PCI = Path("/sys/bus/pci/devices")
_NODES, _CORES = Path("/sys/devices/system/node"), Path("/sys/devices/system/cpu")
_BALANCING = Path("/proc/sys/kernel/numa_balancing")
_REDIRECTS = 0x1C  # of ACS: peer requests, their completions, upstream forwarding


@dataclass(frozen=True)
class Between:
    """What the kernel says of a machine's IOMMU and of ACS on the bridges above its GPUs."""

    gpus: int = 0
    virtual: bool = False  # a virtual machine: its host decides
    iommu: tuple[str, ...] = ()  # kinds of the GPUs' domains: "DMA", "identity", ...
    redirecting: tuple[str, ...] = ()  # bridges on which ACS redirects what GPUs send one another
    unread: int = 0  # bridges whose extended configuration only root may read
    nodes: int = 1  # of memory (NUMA)
    gpu_nodes: tuple[int, ...] = ()  # those that GPUs are at, where the machine says so
    core_nodes: tuple[int, ...] = ()  # those of the cores that may be used here
    balances: bool = False  # the kernel moves memory between them by itself


def read_between(setting: Setting) -> Between:
    """Read it from sysfs."""
    places = [path for path in _listed(_PCI) if _is_gpu(path)]
    if len(places) < 2:
        return Between(len(places))
    bridges = {bridge for place in places for bridge in _above(place)}
    configurations = {bridge: _bytes(bridge / "config") for bridge in sorted(bridges)}
    controls = {bridge: acs_control(data) for bridge, data in configurations.items()}
    return Between(
        gpus=len(places),
        virtual=" hypervisor" in _decode_file(Path("/proc/cpuinfo")),
        iommu=tuple(
            sorted({_decode_file(p / "iommu_group" / "type").strip() for p in places} - {""})
        ),
        redirecting=tuple(b.name for b, control in controls.items() if (control or 0) & _REDIRECTS),
        unread=sum(len(data) <= 256 for data in configurations.values()),
        nodes=len(_list_memory_nodes()),
        gpu_nodes=tuple(sorted({node for p in places if (node := _read_node(p)) is not None})),
        core_nodes=tuple(sorted(_find_core_nodes(os.sched_getaffinity(0)))),
        balances=_decode_file(_BALANCING).strip() not in ("", "0"),
    )


def _list_memory_nodes() -> list[Path]:
    return [path for path in _listed(_NODES) if re.fullmatch(r"node\d+", path.name)]


def _read_node(place: Path) -> int | None:
    """Return the NUMA node that a device is at, None where that is not known (-1)."""
    text = _decode_file(place / "numa_node").strip()
    return int(text) if text.isdecimal() else None


def _find_core_nodes(cores: Iterable[int]) -> set[int]:
    return {
        int(path.name.removeprefix("node"))
        for core in cores
        for path in _listed(_CORES / f"cpu{core}")
        if re.fullmatch(r"node\d+", path.name)
    }


def acs_control(data: bytes) -> int | None:
    """Return the ACS control register in a device's configuration space, None if it has none, or
    only its first 256 bytes could be read (PCI Express Base Specification, 7.7.8).
    """
    at, seen = 0x100, set[int]()
    while 0x100 <= at <= len(data) - 8 and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", data, at)
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == 0x000D:
            return int(struct.unpack_from("<H", data, at + 6)[0])
        at = header >> 20 & 0xFFC
    return None


def _is_gpu(place: Path) -> bool:
    """Return whether a device is a display or 3D controller of NVIDIA's or AMD's."""
    kind, vendor = _decode_file(place / "class"), _decode_file(place / "vendor").strip()
    return kind.startswith(("0x0300", "0x0302", "0x1200")) and vendor in ("0x10de", "0x1002")


def _above(place: Path) -> Iterator[Path]:
    for part in place.resolve().parents:
        if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part.name):
            yield part


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _decode_file(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# ---- judged --------------------------------------------------------------------------------------


def iommu(setting: Setting, facts: Between) -> Iterator[Finding]:
    """Judge the IOMMU."""
    if facts.gpus < 2:
        yield ok("fewer than two GPUs")
    elif not facts.iommu:
        yield ok("off")
    elif facts.virtual or set(facts.iommu) == {"identity"}:
        yield ok(f"{', '.join(facts.iommu)}" + " in a virtual machine" * facts.virtual)
    else:
        yield warning(
            f"it translates what GPUs send one another ({', '.join(facts.iommu)}): with direct "
            "access NCCL may hang",
            "iommu=pt on the kernel's command line; to try it: NCCL_P2P_DISABLE=1",
        )


def acs(setting: Setting, facts: Between) -> Iterator[Finding]:
    """Judge ACS."""
    if facts.gpus < 2:
        yield ok("fewer than two GPUs")
    elif facts.redirecting and not facts.virtual:
        some = ", ".join(facts.redirecting[:3])
        yield warning(
            f"ACS on {len(facts.redirecting)} bridge(s) above the GPUs ({some}) sends what they "
            "exchange through the processor: slow, or NCCL hangs",
            "turn it off: NCCL's page Troubleshooting, PCI Access Control Services; to try it: "
            "NCCL_P2P_DISABLE=1",
        )
    elif facts.unread and not facts.virtual:
        yield unknown(f"only root may read it (of {facts.unread} bridges): sudo lspci -vvv")
    else:
        yield ok("redirects nothing" if not facts.virtual else "the host of this machine decides")


def numa(setting: Setting, facts: Between) -> Iterator[Finding]:
    """Judge whether memory and cores are near the GPUs."""
    far = sorted({*facts.gpu_nodes} - {*facts.core_nodes})
    if facts.gpus < 2 or facts.nodes < 2:
        yield ok("fewer than two GPUs" if facts.gpus < 2 else "one NUMA node")
        return
    if facts.balances:
        yield warning(
            f"{_BALANCING} is on: the kernel unmaps pages again and again to see who uses them",
            f"echo 0 | sudo tee {_BALANCING}",
        )
    if far and facts.core_nodes:
        yield warning(
            f"no core of NUMA node {', '.join(map(str, far))} may be used here, and GPUs are there",
            "give the job cores of each node (the container's cpuset, --cpus-per-task)",
        )
    if not (facts.balances or (far and facts.core_nodes)):
        yield ok(f"{facts.nodes} NUMA nodes")


PCI = CheckFamily(
    "Between GPUs",
    (
        Check(
            id="iommu",
            title="the IOMMU does not translate between GPUs",
            why="Direct access between GPUs through a translating IOMMU hangs or is wrong (NCCL, "
            "Troubleshooting).",
            read=read_between,
            judge=iommu,
        ),
        Check(
            id="acs",
            title="ACS does not redirect what GPUs send one another",
            why="PCI's access control services send it through the processor (NCCL, "
            "Troubleshooting).",
            read=read_between,
            judge=acs,
        ),
        Check(
            id="numa",
            title="memory and cores are near the GPUs",
            why="Ranks far from their GPU come late to each collective; where pages are unmapped "
            "to be moved (kernel.numa_balancing) GPUs wait for them, and RCCL warns of it.",
            read=read_between,
            judge=numa,
        ),
    ),
)
