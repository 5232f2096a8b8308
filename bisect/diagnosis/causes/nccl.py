"""NCCL: making its communicator, and the first data between GPUs."""

from __future__ import annotations

from ...facts import Gpu
from ..frames import worded
from .gpu import gpus_of_the_job, in_nccl, waits_for_gpu
from .known import Found, KnownCause, also, need, unless
from .scene import Scene
from .signs import native_in, ranks_in_words

# Names as in public stacks: pytorch/pytorch#52916 (bootstrap), NVIDIA/nccl#901.
_NCCL_INIT = (
    r"\b(?:ncclCommInit\w*|ncclCommSplit|bootstrap(?:Init|Net\w+|AllGather|Recv|Send)"
    r"|initTransportsRank|ncclGetUniqueId|ncclSocket(?:Connect|Accept|Ready|Wait)\w*"
    r"|NCCLComm::(?:create|split)|getNCCLComm|initNCCLComm|broadcastUniqueNCCLID)\b"
)
_BUSY, _LOW = 0.95, 0.6  # of a GPU's time; of its power limit


# ---- signs ---------------------------------------------------------------------------------------

_makes_nccl = native_in(_NCCL_INIT, "A rank is where NCCL makes its communicator (ncclCommInit...)")


def _meets_over_nccl(scene: Scene) -> Found | None:
    """A rank waits for its GPU inside a collective, or in NCCL."""
    inside = in_nccl(scene)
    if inside is not None:
        return inside
    waits = waits_for_gpu(scene)
    return waits if waits is not None and scene.group == "collective" else None


def _busy_and_idle(scene: Scene) -> Found | None:
    """The GPUs are busy all the time at low power: a kernel of NCCL that waits."""
    gpus = gpus_of_the_job(scene)
    known = [g for g in gpus if g.busy is not None and g.power is not None and g.power_limit]
    waits = [g for g in known if _is_waiting(g)]
    if not waits or len(waits) < len(known):
        return None
    one = waits[0]
    watts = f"{one.power or 0:.0f} of {one.power_limit or 0:.0f} W"
    return Found(f"{len(waits)} GPUs are busy all the time at {watts}")


def _is_waiting(gpu: Gpu) -> bool:
    low = (gpu.power or 0.0) < _LOW * (gpu.power_limit or 0.0)
    return (gpu.busy or 0.0) >= _BUSY and low


def _none_done_yet(scene: Scene) -> Found | None:
    """It is the group's first collective."""
    for facts in scene.ranks:
        for log in facts.collectives:
            real = [c for c in log.operations if c.kind not in ("new_group", "ddp", "fsdp")]
            if real and max(c.number for c in real) <= 1 and real[-1].done is not True:
                return Found(f"rank {facts.rank} has completed no collective yet")
    return None


def _opens_a_connection(scene: Scene) -> Found | None:
    """A connection to another rank is asked for and not answered (SYN_SENT)."""
    for look in scene.family[:1]:
        for socket in look.sockets:
            if socket.state == "SYN_SENT":
                return Found(f"{socket.peer} SYN_SENT", {"peer": socket.peer})
    return None


def _chosen_interface(scene: Scene) -> Found | None:
    """NCCL_SOCKET_IFNAME is not set, and the machine has interfaces that lead nowhere."""
    interfaces = scene.job.machine.interfaces
    virtual = [i for i in interfaces if i.startswith(("docker", "veth", "br-", "virbr", "cni"))]
    if not virtual or scene.environment.get("NCCL_SOCKET_IFNAME"):
        return None
    return Found(f"NCCL_SOCKET_IFNAME is not set, and there is {', '.join(virtual[:3])}")


def _peers_differ(scene: Scene) -> Found | None:
    """Ranks are in different operations."""
    last: dict[str, set[tuple[str, int]]] = {}
    for facts in scene.ranks:
        for log in facts.collectives[:1]:
            newest = {c.group: (c.kind, c.number) for c in log.operations}
            for group, what in newest.items():
                last.setdefault(group, set()).add(what)
    mixed = next((group for group, kinds in last.items() if len(kinds) > 1), None)
    return Found(f"the ranks' last operations of group {mixed} differ") if mixed else None


def _p2p_is_off(scene: Scene) -> Found | None:
    """P2P between GPUs is switched off already."""
    return Found("P2P is off") if scene.environment.get("NCCL_P2P_DISABLE") == "1" else None


def _all_meet(scene: Scene) -> Found | None:
    """All ranks of this node are there."""
    meeting = tuple(r for r, s in scene.situations.items() if s.meets)
    if not meeting or len(meeting) < len(scene.job.local_ranks):
        return None
    return Found(f"{ranks_in_words(meeting)} are all there")


def _guesses_its_device(scene: Scene) -> Found | None:
    """Torch warned that it guesses the device of a barrier."""
    pattern = r"using GPU \d+[^\n]{0,20}to perform barrier as devices used by this process are"
    pattern += r"|Guessing device ID based on global rank"
    found = scene.wrote(pattern, scene.ranks)
    return None if found is None else Found(f"rank {found[0].rank} was warned that torch guesses")


def _in_a_barrier(scene: Scene) -> Found | None:
    """A rank waits in a barrier, or in the group's first collective."""
    frame = scene.frame(r"torch/distributed/distributed_c10d\.py", "barrier")
    return None if frame is None else Found(f"frame {worded(frame)}")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="wrong-interface",
        title="NCCL chose a network interface over which the other ranks cannot be reached",
        signs=(
            need(_makes_nccl, 0.5),
            need(_opens_a_connection, 0.6),
            also(_chosen_interface, 0.4),
        ),
        why="NCCL tells the others the address of an interface it chose itself; nothing answers at "
        "{peer}.",
        avoid=(
            "NCCL_SOCKET_IFNAME=<the interface to the other nodes>, on all nodes (^docker,veth "
            "leaves those out)",
            "NCCL_DEBUG=INFO says which one it chose (Bootstrap : Using ...)",
        ),
        references=("NVIDIA/nccl#913", "NVIDIA/nccl#367", "horovod/horovod#584"),
    ),
    KnownCause(
        id="nccl-init",
        title="NCCL does not get its communicator made: a rank is missing, or cannot be reached",
        signs=(
            need(_makes_nccl, 0.6),
            also(_chosen_interface, 0.2),
            also(_none_done_yet, 0.1),
            unless(_opens_a_connection),
        ),
        why="NCCL makes its communicators in init_process_group or in the first collective; until "
        "all ranks have come and connected each waits there, unseen by torch's watchdog.",
        avoid=(
            "NCCL_DEBUG=INFO shows how far each rank came",
            "NCCL_SOCKET_IFNAME=<the interface to the other nodes> where there are several",
            "init_process_group(device_id=...) makes the communicator at once: it is clear where",
        ),
        references=("pytorch/pytorch#88103", "pytorch/pytorch#52916", "NVIDIA/nccl#913"),
    ),
    KnownCause(
        id="nccl-first-collective",
        title="GPUs do not get data from one another: P2P, ACS or IOMMU",
        signs=(
            need(_meets_over_nccl, 0.35),
            need(_busy_and_idle, 0.45),
            also(_none_done_yet, 0.35),
            also(_all_meet, 0.1),
            unless(_peers_differ),
            unless(_p2p_is_off),
        ),
        why="All ranks are in the collective, the GPUs spin in NCCL's kernel at low power, and no "
        "data comes: PCIe access control (ACS) or an IOMMU redirects what GPUs send each other.",
        avoid=(
            "to find out: NCCL_P2P_DISABLE=1. It costs bandwidth: all data between GPUs then takes "
            "the way through host memory, with NVLink many times slower: no lasting remedy",
            "for good: ACS off on the PCIe bridges (setpci), the IOMMU off or passing (iommu=pt)",
            "another driver, where P2P is offered but broken (consumer GPUs)",
        ),
        references=(
            "NVIDIA/nccl#2079",
            "NVIDIA/nccl#257",
            "NVIDIA/nccl#631",
            "Lightning-AI/pytorch-lightning#19425",
        ),
    ),
    KnownCause(
        id="barrier-guessed-device",
        title="a barrier on a GPU that torch guessed",
        signs=(need(_guesses_its_device, 0.5), need(_in_a_barrier, 0.55)),
        why="Without a device of its own a rank's first barrier takes GPU number rank; where that "
        "is another's, two ranks wait on one GPU.",
        avoid=(
            "torch.cuda.set_device(LOCAL_RANK), or init_process_group(device_id=...), first",
            "barrier(device_ids=[LOCAL_RANK])",
        ),
        references=("ray-project/ray#42751", "pytorch/pytorch#124714", "verl-project/verl#1472"),
    ),
)
