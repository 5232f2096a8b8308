"""Memory that ran out: of the GPU, of the machine, of /dev/shm."""

from __future__ import annotations

import re
import signal

from ...base.words import format_bytes
from ..exit_words import describe_oom_kills, find_oom_kills
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import ended_with

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_SIZE = r"[\d.]+ [KMGT]i?B"
_SCARCE = 0.03  # of a machine's memory: below it the kernel kills

# The message of the GPU's allocator says who has it (torch, CUDACachingAllocator.cpp).
_WANTED = re.compile(r"(?:CUDA|HIP|XPU|MPS backend) out of memory")
_TRIED = re.compile(rf"Tried to allocate (?P<size>{_SIZE})")
_CAPACITY = re.compile(
    rf"GPU \d+ has a total capaci?ty of (?P<size>{_SIZE})|GPU \d+; (?P<old>{_SIZE}) total capacity"
)
_FREE = re.compile(rf"of which (?P<size>{_SIZE}) is free|; (?P<old>{_SIZE}) free")
_OTHERS = re.compile(rf"Process (?P<pid>\d+) has (?P<size>{_SIZE}) memory in use")
_OURS = re.compile(rf"this process has (?P<size>{_SIZE}) memory in use")
_TORCH = re.compile(
    rf"(?P<size>{_SIZE}) is allocated by PyTorch|; (?P<old>{_SIZE}) already allocated"
)
_RESERVED = re.compile(rf"(?P<size>{_SIZE}) is reserved by PyTorch but unallocated")


# ---- signs ---------------------------------------------------------------------------------------


def _no_memory_on_the_gpu(scene: Scene) -> Found | None:
    """It ended because the GPU had no memory left, and the message says who has it."""
    found = scene.wrote(_WANTED.pattern)
    if found is None:
        return None
    facts, _ = found
    text = " ".join([facts.error, facts.traceback, *facts.output])

    def size(pattern: re.Pattern[str]) -> str:
        match = pattern.search(text)
        return next((m for m in match.groups() if m), "") if match else ""

    parts = [f"wanted {size(_TRIED)}"] if size(_TRIED) else []
    parts += [f"{size(_FREE)} of {size(_CAPACITY)} free"] if size(_FREE) else []
    parts += [f"this rank has {size(_OURS)}"] if size(_OURS) else []
    parts += [f"PyTorch uses {size(_TORCH)} of it"] if size(_TORCH) else []
    parts += [f"{size(_RESERVED)} reserved and unused"] if size(_RESERVED) else []
    others = {m["pid"]: m["size"] for m in _OTHERS.finditer(text)}
    parts += [f"{_who(scene, int(pid))} has {much}" for pid, much in others.items()]
    unnamed = _find_unnamed(size(_CAPACITY), size(_FREE), size(_OURS), *others.values())
    parts += [f"others, who are not named, have {format_bytes(unnamed)}"] if unnamed else []
    held = "; ".join(parts) or "its message does not say who has it"
    # A rank that only logged it may have gone on with less.
    trust = 1.0 if facts.error else 0.8
    values = {"rank": facts.rank, "held": held}
    return Found(f"rank {facts.rank}: out of memory: {held}", values, trust)


_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SURE_SHARE = 0.05  # of a GPU's memory: the driver itself takes some


def _find_unnamed(capacity: str, free: str, ours: str, *others: str) -> int:
    """Return how many bytes of a GPU's memory others have who are not named, as in a container; 0
    where that is little, or where the message does not tell enough.
    """
    if not (capacity and free and ours):
        return 0
    whole = _parse_size(capacity)
    left = whole - sum(map(_parse_size, (free, ours, *others)))
    return left if left > _SURE_SHARE * whole else 0


def _parse_size(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(float(number) * _UNITS.get(unit, 0))


def _who(scene: Scene, pid: int) -> str:
    rank = scene.rank_of(pid)
    return f"process {pid}" if rank is None else f"rank {rank} ({pid})"


def _somebody_else_has_it(scene: Scene) -> Found | None:
    """Another process has memory of the same GPU."""
    found = scene.wrote(_OTHERS.pattern)
    if found is None:
        return None
    return Found(f"{_who(scene, int(found[1]['pid']))} has {found[1]['size']} of the same GPU")


_no_shared_memory = ended_with(
    r"DataLoader worker \(pid[^)]*\)+ is killed by signal: Bus error"
    r"|out of shared memory|unable to (?:allocate shared memory|open shared memory object|write to "
    r"file </torch_)[^\n]{0,60}|creating shared memory segment /dev/shm/\S+"
    r"|\bSemLock\((?s:.{0,300}?)No space left on device",
    "It ended for want of shared memory",
)
_worker_killed = ended_with(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) (?:is killed by signal: (?P<signal>\w+)"
    r"|exited unexpectedly)",
    "It ended because a worker of its DataLoader was killed",
)


def _little_shared_memory(scene: Scene) -> Found | None:
    """/dev/shm is small or full."""
    free, total = scene.machine.shm_free, scene.machine.shm_total
    if free is None or total is None or (total > 1 << 30 and free > 1 << 27):
        return None
    return Found(f"/dev/shm has {format_bytes(free)} of {format_bytes(total)} free")


def _killed(scene: Scene) -> Found | None:
    """A rank, or what started it, was killed (SIGKILL), and said nothing."""
    for facts in scene.culprits:
        if facts.status in _KILLED and not facts.error:
            who = facts.title or f"rank {facts.rank}"
            values = {"who": facts.title or f"Rank {facts.rank}"}
            return Found(f"{who} was ended by SIGKILL", values)
    return None


def _little_memory(scene: Scene) -> Found | None:
    """The machine has hardly any memory left."""
    free, total = scene.machine.memory_available, scene.machine.memory_total
    if not free or not total or free > total * _SCARCE:
        return None
    return Found(f"{format_bytes(free)} of {format_bytes(total)} of memory are left")


def _killed_by_the_kernel(scene: Scene) -> Found | None:
    """The kernel has ended processes of its control group for want of memory."""
    for facts in scene.culprits:
        if count := find_oom_kills(facts.looks[-1] if facts.looks else None, scene.machine):
            return Found(describe_oom_kills(count), trust=0.9)
    return None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="cuda-out-of-memory",
        title="the GPU has no memory left",
        signs=(need(_no_memory_on_the_gpu, 0.9, proves=True), also(_somebody_else_has_it, 0.3)),
        why="Rank {rank} needs more memory than its GPU has left: {held}. The others wait for it "
        "in the next collective until their time-out.",
        avoid=(
            "end what else uses the GPU (nvidia-smi), above all what is left of an earlier job",
            "a smaller batch, with gradient accumulation; gradient checkpointing: slower steps",
            "FSDP or ZeRO instead of DDP, where model and optimizer do not fit",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where much is reserved and unused",
        ),
        references=("pytorch/pytorch#99699", "pytorch/pytorch#35901"),
        outcomes=("crash", "hang"),
    ),
    KnownCause(
        id="shm-too-small",
        title="/dev/shm is too small for the workers of a DataLoader, or for NCCL",
        signs=(need(_no_shared_memory, 0.75, proves=True), also(_little_shared_memory, 0.6)),
        why="Workers hand batches over in /dev/shm, and containers have 64 MiB of it unless told.",
        avoid=(
            "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir, medium: Memory",
            "num_workers=0: batches are made by the rank itself, more slowly",
        ),
        toggles=(("num_workers", "0"),),
        references=("huggingface/accelerate#1929", "pytorch/pytorch#1355", "dmlc/xgboost#5963"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="worker-killed",
        title="a worker of a DataLoader was killed",
        signs=(
            need(_worker_killed, 0.8, proves=True),
            also(_killed_by_the_kernel, 0.4),
            unless(_no_shared_memory),
        ),
        why="Worker {pid} ended without having a say ({signal}): most often the kernel killed it "
        "for want of memory, or native code failed.",
        avoid=(
            "`dmesg | grep -i -e oom -e killed` says whether memory ran out",
            "fewer workers, a smaller prefetch_factor: slower batches",
        ),
        toggles=(("num_workers", "0"),),
        references=("meta-pytorch/data#1173", "pytorch/pytorch#1355"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="killed-from-outside",
        title="a process was killed: by the kernel for want of memory, a scheduler or a person",
        signs=(
            need(_killed, 0.6, proves=True),
            also(_little_memory, 0.45),
            also(_killed_by_the_kernel, 0.6),
        ),
        why="{who} was ended by SIGKILL, which no process can answer or explain.",
        avoid=(
            "`dmesg | grep -i -e oom -e killed` and the scheduler's log say who did it; "
            "memory.events of its control group counts who was ended for want of memory",
            "ask for more memory, or load less of it on each rank",
        ),
        references=("meta-pytorch/data#1173",),
        outcomes=("crash", "hang"),
    ),
)
