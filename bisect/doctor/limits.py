"""What a process, its user and its control group may have: files, processes, memory, time."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..base import cgroups
from ..base.proc import list_pids
from ..base.words import GIB, format_bytes
from ..evidence.machine import parse_meminfo
from ..evidence.process import uid_of
from .checks import Check, Family, Finding, Setting, ok, problem, warning

_INFINIBAND = "/sys/class/infiniband"
_A_RANK = 64  # threads and processes of a rank, at the least: pools, loaders, W&B
_FEW_FILES = 1024


@dataclass(frozen=True)
class Bounds:
    """What this process, its user and its control group may have. None: no limit, or not known."""

    locked: int | None  # bytes, as all
    files: int | None
    files_most: int | None  # what it may be raised to
    tasks: int | None  # of this user
    tasks_now: int  # threads and processes of this user
    tasks_free: bool  # the limit is not for us (root)
    address: int | None
    seconds: int | None  # of CPU
    group_tasks: int | None
    group_tasks_now: int | None
    memory: int | None  # of the control group
    memory_free: int | None
    machine_free: int | None
    infiniband: tuple[str, ...]


def read_bounds(setting: Setting) -> Bounds:
    """Return the limits of this process."""
    own = _text("/proc/self/cgroup")
    group, (most, now) = cgroups.limits(own), tasks_of_group(own)
    meminfo = _text("/proc/meminfo")
    total = parse_meminfo(meminfo).get("MemTotal", 0)
    try:
        infiniband = tuple(sorted(os.listdir(_INFINIBAND)))
    except OSError:
        infiniband = ()
    return Bounds(
        locked=_limit(resource.RLIMIT_MEMLOCK),
        files=_limit(resource.RLIMIT_NOFILE),
        files_most=_limit(resource.RLIMIT_NOFILE, 1),
        tasks=_limit(resource.RLIMIT_NPROC),
        tasks_now=_tasks_of(os.getuid()),
        tasks_free=os.getuid() == 0,
        address=_limit(resource.RLIMIT_AS),
        seconds=_limit(resource.RLIMIT_CPU),
        group_tasks=most,
        group_tasks_now=now,
        # Without a limit the first version says 8 EB.
        memory=group.memory if (group.memory or 0) <= total else None,
        memory_free=group.memory_free,
        machine_free=parse_meminfo(meminfo).get("MemAvailable"),
        infiniband=infiniband,
    )


def tasks_of_group(own: str, root: Path = cgroups.ROOT) -> tuple[int | None, int | None]:
    """Return (most tasks, tasks now) of the tightest of the groups in `own`, the text of a
    /proc/PID/cgroup (Documentation/admin-guide/cgroup-v1/pids.rst; cgroup-v2.rst, "PID").
    """
    found: list[tuple[int, int, int]] = []
    for folder in cgroups.folders(own, root, {"pids"}):
        most, now = (_number(folder / name) for name in ("pids.max", "pids.current"))
        if most is not None and now is not None:
            found.append((most - now, most, now))
    _, most, now = min(found, default=(0, None, None))
    return most, now


def files(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge how many files a process may have open."""
    if facts.files is None or facts.files >= _FEW_FILES:
        yield ok("no limit" if facts.files is None else f"ulimit -n {facts.files}")
        return
    most = facts.files_most
    raised = f"ulimit -n {most}" if most is None or most > facts.files else "ask the administrator"
    said = f"ulimit -n {facts.files}: DataLoader workers hand tensors over as open files"
    next = raised.replace("None", "65536")
    yield problem(said, next) if facts.files < 256 else warning(said, next)


def tasks(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge how many more processes and threads there may be."""
    wanted = _A_RANK * max(1, setting.place.local_world_size)
    rows = []
    if facts.tasks is not None and not facts.tasks_free:
        rows.append((facts.tasks, facts.tasks_now, "ulimit -u", "ulimit -u unlimited"))
    if facts.group_tasks is not None:
        raised = "a larger pids limit: docker run --pids-limit=-1, Kubernetes podPidsLimit"
        rows.append((facts.group_tasks, facts.group_tasks_now or 0, "the control group", raised))
    for most, now, who, next in rows:
        free = most - now
        said = f"{who} allows {most} processes and threads, {now} are there"
        if free < wanted:
            yield problem(f"{said}: pools of threads and workers cannot be started", next)
        elif free < 4 * wanted:
            yield warning(f"{said}: few are left for {wanted // _A_RANK} rank(s)", next)
        else:
            yield ok(said)
    if not rows:
        yield ok(f"no limit on processes, {facts.tasks_now} of yours are there")


def locked(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge whether memory can be pinned for InfiniBand."""
    said = "no limit" if facts.locked is None else f"ulimit -l {facts.locked // 1024}"
    if facts.locked is None or not facts.infiniband:
        yield ok(said + ("" if facts.infiniband else ", no InfiniBand to need it"))
        return
    devices = ", ".join(facts.infiniband[:3])
    yield warning(
        f"{said}: {format_bytes(facts.locked)}, and NCCL pins memory for {devices}",
        "ulimit -l unlimited (docker run --ulimit memlock=-1; Slurm: PropagateResourceLimits)",
    )


def memory(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge what memory is left, and what limits there are on addresses."""
    free = min([f for f in (facts.memory_free, facts.machine_free) if f is not None], default=None)
    said = "not known" if free is None else f"{format_bytes(free)} free"
    if facts.memory is not None:
        said += f", the control group's limit is {format_bytes(facts.memory)}"
    if free is not None and free < GIB:
        yield problem(
            f"{said}: a rank that loads torch needs more",
            "end what takes it (ps -eo rss,pid,args --sort=-rss | head), or ask for more (--mem)",
        )
    elif free is not None and free < 4 * GIB:
        yield warning(f"{said}: it may swap, or ranks may be killed", "ask for more (--mem)")
    else:
        yield ok(said)
    if facts.address is not None:
        yield warning(
            f"ulimit -v {facts.address // 1024}: CUDA reserves more addresses than there is memory",
            "ulimit -v unlimited",
        )


def cpu_time(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge whether processes are ended after some CPU time, as on many login nodes."""
    if facts.seconds is None:
        yield ok("no limit")
    else:
        yield warning(
            f"ulimit -t {facts.seconds}: each process is ended after so many seconds of CPU",
            "start it on a compute node, or ulimit -t unlimited",
        )


def _limit(what: int, which: int = 0) -> int | None:
    found = resource.getrlimit(what)[which]
    return None if found == resource.RLIM_INFINITY else found


def _tasks_of(uid: int) -> int:
    count = 0
    for pid in list_pids():
        if uid_of(pid) == uid:
            try:
                count += len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                continue
    return count


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


FAMILY = Family(
    "Limits",
    (
        Check(
            id="open-files",
            title="enough files may be open",
            why="Each tensor from a DataLoader worker is an open file, and so is each connection.",
            read=read_bounds,
            judge=files,
        ),
        Check(
            id="processes",
            title="enough processes and threads may be started",
            why="A pool that cannot start its threads hangs or dies, mostly without a message.",
            read=read_bounds,
            judge=tasks,
        ),
        Check(
            id="locked-memory",
            title="memory may be locked, if there is InfiniBand",
            why="NCCL registers its buffers with the network card.",
            read=read_bounds,
            judge=locked,
        ),
        Check(
            id="memory",
            title="there is memory left",
            why="A rank killed for memory leaves the others waiting; one that swaps crawls.",
            read=read_bounds,
            judge=memory,
        ),
        Check(
            id="cpu-time",
            title="processes may run as long as they need",
            why="A rank that is ended for its CPU time leaves the others waiting.",
            read=read_bounds,
            judge=cpu_time,
        ),
    ),
)
