"""Ports of InfiniBand and RoCE: whether they are up and have an address, and whether their cards
reach the memory of GPUs by themselves (GPUDirect RDMA).

All of it is read from sysfs (Documentation/ABI/stable/sysfs-class-infiniband of the kernel). NCCL
uses what is up and not left out by NCCL_IB_HCA, else plain sockets (ncclIbInitDevices,
src/transport/net_ib). It reaches GPU memory by the module nvidia_peermem, or, with NVIDIA's open
driver, by DMA-BUF; without either data between nodes goes through host memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..base.addresses import parse_nccl
from ..base.lazy_dataclass import dataclass
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, warning

_CARDS = Path("/sys/class/infiniband")
_MODULES = Path("/sys/module")
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_OPEN = "Open Kernel Module"
_MOST_ADDRESSES = 256  # of a port
_MOST_TOLD = 8


@dataclass(frozen=True)
class Port:
    """A port of a card."""

    card: str
    number: int
    state: str  # "ACTIVE", "DOWN", "INIT", ...
    layer: str  # "InfiniBand", "Ethernet"
    rate: str  # "400 Gb/sec (4X NDR)"
    has_address: bool  # one of its GIDs is not empty


@dataclass(frozen=True)
class Fabric:
    """The ports of this machine, and by what its GPUs' memory is reached."""

    ports: tuple[Port, ...] = ()
    gpus: bool = False  # NVIDIA's driver is there
    peermem: bool = False  # the module nvidia_peermem, or the older one
    open_driver: bool = False  # which knows DMA-BUF


# ---- reading -------------------------------------------------------------------------------------


def read_fabric(setting: Setting) -> Fabric:
    """Return what there is."""
    version = _read_line(_DRIVER_VERSION)
    return Fabric(
        tuple(port for card in _list_folder(_CARDS) for port in _read_ports(card)),
        gpus=bool(version),
        peermem=any((_MODULES / name).is_dir() for name in _PEER_MODULES),
        open_driver=_OPEN in version,
    )


def _read_ports(card: Path) -> Iterator[Port]:
    for folder in _list_folder(card / "ports"):
        if folder.name.isdecimal():
            gids = (_read_line(gid) for gid in _list_folder(folder / "gids")[:_MOST_ADDRESSES])
            yield Port(
                card=card.name,
                number=int(folder.name),
                state=_read_line(folder / "state").rpartition(": ")[2],
                layer=_read_line(folder / "link_layer"),
                rate=_read_line(folder / "rate"),
                has_address=any(set(gid) - set("0:") for gid in gids),
            )


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:  # an index of a table without an entry cannot be read either
        return ""


# ---- judged --------------------------------------------------------------------------------------


def judge_ports(setting: Setting, facts: Fabric) -> Iterator[Finding]:
    """Judge whether the ports that NCCL is to use are up, and have an address."""
    if not facts.ports:
        yield ok("no InfiniBand or RoCE")
        return
    if setting.environ.get("NCCL_IB_DISABLE") == "1":
        yield ok("NCCL_IB_DISABLE=1: NCCL does not use them")
        return
    wanted = _find_wanted(facts, setting.environ)
    unusable = [port for port in wanted if port.state != "ACTIVE" or not port.has_address]
    if not wanted:
        yield ok("NCCL_IB_HCA names none of them")
    elif not unusable:
        yield ok(_describe_ports(wanted))
    elif len(unusable) == len(wanted) and setting.environ.get("NCCL_IB_HCA"):
        yield problem(
            f"NCCL_IB_HCA names ports that cannot be used: {_describe_ports(unusable)}",
            "ibstat; the cable, the switch, or the subnet manager; another NCCL_IB_HCA",
        )
    else:
        rest = "" if len(unusable) < len(wanted) else ": NCCL goes over plain sockets"
        yield warning(
            f"{len(unusable)} of {len(wanted)} port(s) cannot be used{rest}: "
            f"{_describe_ports(unusable)}",
            "ibstat; leave them out on all nodes: NCCL_IB_HCA=^NAME",
        )


def _find_wanted(facts: Fabric, environ: Mapping[str, str]) -> list[Port]:
    value = environ.get("NCCL_IB_HCA", "")
    return [port for port in facts.ports if not value or parse_nccl(value).fits(port.card)]


def _describe_ports(ports: list[Port]) -> str:
    words = []
    for port in ports[:_MOST_TOLD]:
        amiss = [] if port.state == "ACTIVE" else [port.state or "state not known"]
        amiss += [] if port.has_address else ["no address (GID)"]
        number = f" port {port.number}" if port.number > 1 else ""
        words.append(f"{port.card}{number} {', '.join(amiss) or port.rate}")
    more = f", and {len(ports) - _MOST_TOLD} more" if len(ports) > _MOST_TOLD else ""
    return "; ".join(words) + more


def judge_gpu_access(setting: Setting, facts: Fabric) -> Iterator[Finding]:
    """Judge whether the cards reach the memory of the GPUs."""
    if not facts.gpus or not any(port.state == "ACTIVE" for port in facts.ports):
        yield ok("no card that is up beside GPUs of NVIDIA's")
    elif facts.peermem:
        yield ok("by nvidia_peermem")
    elif facts.open_driver:
        yield ok("by DMA-BUF, with the open driver")
    else:
        yield warning(
            "neither nvidia_peermem is loaded nor is the driver the open one: data between nodes "
            "goes through host memory, slowly",
            "sudo modprobe nvidia_peermem",
        )


FAMILY = CheckFamily(
    "InfiniBand",
    (
        Check(
            id="infiniband-ports",
            title="the ports of InfiniBand and RoCE are up, and have an address",
            why="Where some nodes have a port and others do not, NCCL's ranks wait for connections "
            "that never come; with none it goes over sockets, many times slower.",
            read=read_fabric,
            judge=judge_ports,
        ),
        Check(
            id="gpudirect",
            title="cards of InfiniBand reach the memory of the GPUs",
            why="Without GPUDirect RDMA all data between nodes is copied through host memory.",
            read=read_fabric,
            judge=judge_gpu_access,
        ),
    ),
)
