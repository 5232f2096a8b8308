"""What stands between GPUs on the bus: the IOMMU, and PCI's access control services (ACS)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .checks import Check, Family, Finding, Setting, ok, unknown, warning

_PCI = Path("/sys/bus/pci/devices")
_REDIRECTS = 0x1C  # of ACS: peer requests, their completions, upstream forwarding


@dataclass(frozen=True)
class Between:
    """What the kernel says of a machine's IOMMU and of ACS on the bridges above its GPUs."""

    gpus: int = 0
    virtual: bool = False  # a virtual machine: its host decides
    iommu: tuple[str, ...] = ()  # kinds of the GPUs' domains: "DMA", "identity", ...
    redirecting: tuple[str, ...] = ()  # bridges on which ACS redirects what GPUs send one another
    unread: int = 0  # bridges whose extended configuration only root may read


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
        virtual=" hypervisor" in _text(Path("/proc/cpuinfo")),
        iommu=tuple(sorted({_text(p / "iommu_group" / "type").strip() for p in places} - {""})),
        redirecting=tuple(b.name for b, control in controls.items() if (control or 0) & _REDIRECTS),
        unread=sum(len(data) <= 256 for data in configurations.values()),
    )


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
    kind, vendor = _text(place / "class"), _text(place / "vendor").strip()
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


def _text(path: Path) -> str:
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


FAMILY = Family(
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
    ),
)
