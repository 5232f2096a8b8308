"""Errors of GPUs and of the links between them, as their driver and NVML tell them.

The driver reports them in the kernel's log: Xid and SXid, AMD's without a number. It names a place
on the PCI bus; NVML says which GPU is there, and who uses it. Of a GPU that is lost NVML does not
know who used it: then it is that of the rank which was given it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...base.identity import RankId
from ...base.rank_facts import Gpu, GpuError, GpuErrorKind
from ...base.words import format_ranks, format_seconds
from ..gpu_owners import GONE, find_gpu, find_users
from .collective_places import waits_elsewhere_but
from .known_cause import Found, KnownCause, LooksFor, Scene, also, describe_sign, need, unless

_UNSURE = 0.6  # trust where it is not known that the GPU is one of the job's


# ---- whose a GPU is ------------------------------------------------------------------------------


def _users_of(scene: Scene, gpu: Gpu) -> tuple[RankId, ...]:
    return find_users(gpu, scene.neighbours)


def _find_errors(
    scene: Scene, kinds: Collection[GpuErrorKind]
) -> Iterator[tuple[GpuError, str, float]]:
    """Yield the errors of these kinds that may be of the job, where each was, and the trust in
    that. An error of a GPU that others use is not the job's.
    """
    for error in scene.machine.gpu_errors:
        if error.kind not in kinds:
            continue
        gpu = find_gpu(scene.machine, error.bus)
        by_pid = next((r.rank for r in scene.neighbours if error.pid and r.pid == error.pid), None)
        ranks = _users_of(scene, gpu) if gpu is not None else ()
        if not ranks and by_pid is not None:
            ranks = (by_pid,)
        if error.of_switch:
            yield error, f"{_name_host(scene)}NVSwitch {error.bus}", 1.0
        elif ranks:
            yield error, f"{_name_gpu(scene, gpu, error.bus)} of {format_ranks(ranks)}", 1.0
        elif gpu is None or not (gpu.pids or gpu.host_pids):
            yield error, _name_gpu(scene, gpu, error.bus), _UNSURE


def _name_gpu(scene: Scene, gpu: Gpu | None, bus: str) -> str:
    name = f"GPU {bus}" if gpu is None else f"GPU {gpu.index} ({bus})"
    return f"{_name_host(scene)}{name}"


def _name_host(scene: Scene) -> str:
    """Return "n02: ", "" where all ranks are on one machine."""
    several = len({facts.host for facts in scene.ranks}) > 1
    return f"{scene.subject.host}: " if several and scene.subject is not None else ""


# ---- signs ---------------------------------------------------------------------------------------


def _reported(kinds: Collection[GpuErrorKind], words: str) -> LooksFor:
    """Return a sign: the driver reported an error of one of these kinds."""

    @describe_sign(words)
    def looks_for(scene: Scene) -> Found | None:
        found = [
            (error, where, trust * (_UNSURE if error.mild else 1.0))
            for error, where, trust in _find_errors(scene, kinds)
        ]
        if not found:
            return None
        error, where, trust = max(found, key=lambda one: (one[2], -one[0].at))
        ago = format_seconds(max(0.0, scene.job.now - error.at))
        sentence = f"{where}: {error.title}, {ago} ago"
        return Found(sentence, {"where": where}, trust, doubtful=trust < 1.0)

    return looks_for


def _is_lost(scene: Scene) -> Found | None:
    """The driver reported that a GPU is off the bus, or NVML says that it is lost."""
    reported = _reports_lost(scene)
    if reported is not None and not reported.doubtful:
        return reported
    for gpu in scene.machine.gpus:
        if gpu.state in GONE and (ranks := _users_of(scene, gpu)):
            bus = gpu.bus.partition(".")[0]
            where = f"{_name_gpu(scene, gpu, bus)} of {format_ranks(ranks)}"
            return Found(f"{where}: {gpu.said or gpu.state}", {"where": where})
    return reported


def _is_stopped(scene: Scene) -> Found | None:
    """The driver reported that a GPU or its firmware does not answer (Xid 119, 62, 8), or asks for
    a reset of it (NVML).
    """
    reported = _reports_stopped(scene)
    if reported is not None:
        return reported
    for gpu in scene.machine.gpus:
        if gpu.recovery and (ranks := _users_of(scene, gpu)):
            where = f"{_name_gpu(scene, gpu, gpu.bus.partition('.')[0])} of {format_ranks(ranks)}"
            words = f"{where}: the driver asks for {gpu.recovery}"
            # Since when, nobody tells: it may have worked on all the while.
            return Found(words, {"where": where}, _UNSURE, doubtful=True)
    return None


def _links_are_down(scene: Scene) -> Found | None:
    """NVML says that NVLinks of a GPU of the job are down."""
    for gpu in scene.machine.gpus:
        if gpu.links_down and _users_of(scene, gpu):
            return Found(f"GPU {gpu.index}: NVLink {', '.join(map(str, gpu.links_down))} is down")
    return None


def _memory_has_errors(scene: Scene) -> Found | None:
    """NVML counts memory errors of a GPU of the job that were not corrected."""
    for gpu in scene.machine.gpus:
        if gpu.memory_errors and _users_of(scene, gpu):
            return Found(f"GPU {gpu.index}: {gpu.memory_errors} memory errors were not corrected")
    return None


def _memory_is_bad(scene: Scene) -> Found | None:
    """The driver reported errors of a GPU's memory (Xid 48, 63, 64, 94, 95), or NVML counts some
    that were not corrected.
    """
    reported = _reports_memory(scene)
    counted = _memory_has_errors(scene) if reported is None else None
    return _as_guess(counted) if counted is not None else reported


def _link_failed(scene: Scene) -> Found | None:
    """The driver reported an error between GPUs (Xid 74, 144 to 150, a fatal SXid), or NVML says
    that some NVLinks are down and others are not.
    """
    reported = _reports_link(scene)
    counted = _links_are_down(scene) if reported is None else None
    return _as_guess(counted) if counted is not None else reported


def _as_guess(counted: Found) -> Found:
    """Return what NVML says without the kernel's log: it may have been so all the while."""
    where = counted.sentence.partition(":")[0]
    return Found(counted.sentence, {"where": where}, _UNSURE, doubtful=True)


_OF_GPUS = r"(?i)\b(?:cuda|nccl|cublas|cudnn|nvml|nvlink|gpu|watchdog|devices?)\w*"


def _failed_for_another_reason(scene: Scene) -> Found | None:
    """Whoever failed said nothing of GPUs."""
    if scene.verdict.outcome != "crash" or scene.wrote(_OF_GPUS) is not None:
        return None
    return Found("who failed said nothing of GPUs")


# In the middle of a call into the driver a rank is in the kernel, or has the GIL meanwhile.
_waits_for_its_own = waits_elsewhere_but("kernel", "gil", "thread", "socket")
_reports_lost = _reported(["lost"], "The driver reported that a GPU is off the bus")
_reports_stopped = _reported(
    ["stopped"], "The driver reported that a GPU or its firmware does not answer (Xid 119, 62, 8)"
)
_reports_memory = _reported(
    ["memory"], "The driver reported errors of a GPU's memory (Xid 48, 63, 64, 94, 95)"
)
_reports_access = _reported(
    ["access"], "The driver reported that a program's work on a GPU was stopped (Xid 13, 31, 43)"
)
_reports_link = _reported(
    ["link"], "The driver reported an error between GPUs (Xid 74, 144 to 150, a fatal SXid)"
)


# ---- causes --------------------------------------------------------------------------------------

_CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
_WHO_SAYS = "`sudo dmesg | grep -i -e xid -e nvrm -e amdgpu` on this machine has all of it"
_RESET = "nvidia-smi --gpu-reset (AMD: amd-smi reset --gpureset)"

CAUSES = (
    KnownCause(
        id="gpu-lost",
        title="a GPU is lost: off the bus, or to be reset",
        signs=(
            need(_is_lost, 0.92, proves=True),
            unless(_waits_for_its_own),
            unless(_failed_for_another_reason),
        ),
        why="{where} answers nobody any more: what its rank queued there never ends, and the "
        "others wait for that rank.",
        avoid=(
            "take the machine out of the job (drain the node) and restart it; "
            f"{_RESET} is enough where only a reset is asked for",
            _WHO_SAYS,
            "CUDA_VISIBLE_DEVICES (AMD: HIP_VISIBLE_DEVICES) without the GPU in question",
        ),
        references=(
            _CATALOGUE,
            "NVIDIA/open-gpu-kernel-modules#507",
            "NVIDIA/NVSentinel#155",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="gpu-stopped",
        title="a GPU or its firmware does not answer any more",
        signs=(
            need(_is_stopped, 0.9, proves=True),
            unless(_waits_for_its_own),
            unless(_failed_for_another_reason),
        ),
        why="The driver asked {where} in vain: calls into it take minutes, or do not come back, "
        "until the GPU is reset.",
        avoid=(
            f"{_RESET}, or restart the machine; another driver version if it comes again",
            _WHO_SAYS,
        ),
        references=(
            _CATALOGUE,
            "NVIDIA/open-gpu-kernel-modules#446",
            "NVIDIA/open-gpu-kernel-modules#1118",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="gpu-memory-errors",
        title="the memory of a GPU has errors",
        signs=(
            need(_memory_is_bad, 0.85, proves=True),
            also(_memory_has_errors, 0.4),
            unless(_waits_for_its_own),
            unless(_failed_for_another_reason),
        ),
        why="The driver stops the work of a process on {where} whose memory was hit; what its rank "
        "queued there never ends, and the others wait for that rank.",
        avoid=(
            f"{_RESET}, so that bad rows are replaced; take the machine out of the job if it "
            "comes again",
            "`nvidia-smi -q -d ECC,ROW_REMAPPER` (AMD: amd-smi metric --ecc) says what there is",
        ),
        references=(_CATALOGUE, "leptonai/gpud#1174"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="gpu-illegal-access",
        title="a kernel of a rank read or wrote memory that is not its own",
        signs=(need(_reports_access, 0.85, proves=True), unless(_waits_for_its_own)),
        why="The driver stopped what ran on {where}; its rank learns of that at its next call into "
        "CUDA, and until then all wait.",
        avoid=(
            "CUDA_LAUNCH_BLOCKING=1 shows which call it was: all GPU work becomes slower",
            "compute-sanitizer on one rank names the kernel",
            _WHO_SAYS,
        ),
        references=(_CATALOGUE,),
    ),
    KnownCause(
        id="nvlink-error",
        title="a link between GPUs failed",
        signs=(
            need(_link_failed, 0.9, proves=True),
            also(_links_are_down, 0.4),
            unless(_waits_for_its_own),
            unless(_failed_for_another_reason),
        ),
        why="Data between GPUs goes over links that failed at {where}: a collective that needs "
        "them does not end.",
        avoid=(
            "restart the machine with all its GPUs and switches, and Fabric Manager; drain it if "
            "it comes again",
            "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e` (AMD: amd-smi xgmi) say which link",
            "to find out: NCCL_P2P_DISABLE=1. It costs bandwidth: all data between GPUs then takes "
            "the way through host memory, many times slower: no lasting remedy",
        ),
        references=(
            _CATALOGUE,
            "NVIDIA/open-gpu-kernel-modules#1150",
            "leptonai/gpud#338",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
)
