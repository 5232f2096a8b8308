"""Whose a GPU is: which ranks use it, or were given it; which ranks have one that is lost, and of
which it runs a kernel of their own while others wait in a collective.

NVML says who uses a GPU, but of one that is lost it does not know any more; then it is that of the
rank which was given it. The driver names a place on the PCI bus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.identity import RankId
from ..base.rank_facts import Gpu, GpuError, GpuErrorKind, JobFacts, MachineFacts, RankFacts

_NCCL_KERNEL = re.compile(r"(?:nccl|mscclpp?|rccl)(?:Dev)?(?:Kernel|Func)|void nccl")
GONE = ("lost", "reset required", "no handle")  # states of a GPU
# Which GPUs a process sees; the others are AMD's.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# After these nothing that was queued on the GPU comes to its end.
_ENDS_WORK: tuple[GpuErrorKind, ...] = ("lost", "stopped", "memory", "access")


def find_gpu(machine: MachineFacts, bus: str) -> Gpu | None:
    """Return the GPU at a place on the bus, None if NVML does not tell of one."""
    return next((g for g in machine.gpus if bus and g.bus.lower().startswith(bus)), None)


def find_given_device(facts: RankFacts) -> str:
    """Return the number or the name of the GPU that a rank was given: of those it may see, that of
    its local rank, or the only one; "" where its environment is not known.
    """
    if not facts.environment:
        return ""
    named = [name for name in _VISIBLE if name in facts.environment]
    visible = facts.environment[named[0]] if named else None
    if visible is None:
        return str(facts.local_rank)
    words = [word.strip() for word in visible.split(",")]
    return words[facts.local_rank] if facts.local_rank < len(words) else words[0]


def find_users(gpu: Gpu, ranks: Sequence[RankFacts]) -> tuple[RankId, ...]:
    """Return which of these ranks, all of its machine, use a GPU; else those that were given it
    where nobody is known to use it.
    """
    using = tuple(
        facts.rank
        for facts in ranks
        if {facts.pid, *(looks[-1].pid for looks in facts.children if looks)} & {*gpu.pids}
    )
    if using or gpu.pids:
        return using
    return tuple(
        facts.rank
        for facts in ranks
        if (given := find_given_device(facts)) and given in (str(gpu.index), gpu.uuid)
    )


def find_ranks_held_by_gpu(job: JobFacts, ranks: Sequence[RankFacts]) -> frozenset[RankId]:
    """Return the ranks whose GPU is lost, or stopped what was queued on it, by the driver's word,
    and those whose GPU runs a kernel of their own while another one's runs NCCL's.

    Of a GPU that several ranks were given, or that none is known to use, nothing follows.
    """
    found = set(_find_own_kernels(ranks))
    by_host: dict[str, list[RankFacts]] = {}
    for facts in ranks:
        by_host.setdefault(facts.host, []).append(facts)
    for host, there in by_host.items():
        machine = job.machine_of(host)
        gone = [gpu for gpu in machine.gpus if gpu.state in GONE]
        gone += [g for e in machine.gpu_errors if _ends_work(e) and (g := find_gpu(machine, e.bus))]
        for gpu in gone:
            users = find_users(gpu, there)
            found.update(users if gpu.pids or len(users) == 1 else ())
    return frozenset(found)


def is_of_nccl(kernel: str) -> bool:
    """Return whether a kernel is one of NCCL's or RCCL's, whose kernels wait for other GPUs."""
    return _NCCL_KERNEL.match(kernel) is not None


def _find_own_kernels(ranks: Sequence[RankFacts]) -> list[RankId]:
    known = [facts for facts in ranks if facts.gpu_kernels]
    own = [facts.rank for facts in known if not any(map(is_of_nccl, facts.gpu_kernels))]
    return own if len(own) < len(known) else []


def _ends_work(error: GpuError) -> bool:
    return error.kind in _ENDS_WORK and not error.mild and not error.of_switch
