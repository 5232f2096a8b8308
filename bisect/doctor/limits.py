"""What a process, its user and its control group may have: files, processes, memory, time,
/dev/shm; and whether we may read another process: without that a hang is located, but its stacks
are not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ..base import cgroups
from ..base.deadline import run_command
from ..base.lazy_dataclass import dataclass
from ..base.proc import list_pids
from ..base.words import GIB, MIB, format_bytes
from ..evidence.external_tools import find_program
from ..evidence.machine import parse_meminfo
from ..evidence.process import read_trace_permission, uid_of
from ..evidence.stacks import why_py_spy_cannot_look
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, warning
from .interfaces import read_cards

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
    own = _read_limit_text("/proc/self/cgroup")
    group, (most, now) = cgroups.limits(own), tasks_of_group(own)
    meminfo = _read_limit_text("/proc/meminfo")
    total = parse_meminfo(meminfo).get("MemTotal", 0)
    try:
        infiniband = read_cards(setting)
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
        most, now = (_read_number(folder / name) for name in ("pids.max", "pids.current"))
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
    may_be_raised = most is None or most > facts.files
    advice = f"ulimit -n {most or 65536}" if may_be_raised else "ask the administrator"
    said = f"ulimit -n {facts.files}: DataLoader workers hand tensors over as open files"
    yield problem(said, advice) if facts.files < 256 else warning(said, advice)


def tasks(setting: Setting, facts: Bounds) -> Iterator[Finding]:
    """Judge how many more processes and threads there may be."""
    wanted = _A_RANK * max(1, setting.place.local_world_size)
    rows = []
    if facts.tasks is not None and not facts.tasks_free:
        rows.append((facts.tasks, facts.tasks_now, "ulimit -u", "ulimit -u unlimited"))
    if facts.group_tasks is not None:
        raised = "a larger pids limit: docker run --pids-limit=-1, Kubernetes podPidsLimit"
        rows.append((facts.group_tasks, facts.group_tasks_now or 0, "the control group", raised))
    for most, now, who, advice in rows:
        free = most - now
        said = f"{who} allows {most} processes and threads, {now} are there"
        if free < wanted:
            yield problem(f"{said}: pools of threads and workers cannot be started", advice)
        elif free < 4 * wanted:
            yield warning(f"{said}: few are left for {wanted // _A_RANK} rank(s)", advice)
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


def _read_number(path: Path) -> int | None:
    text = _read_limit_text(path).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _read_limit_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


FAMILY = CheckFamily(
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


@dataclass(frozen=True)
class Space:
    """A file system's size and what is free of it, in bytes."""

    total: int
    free: int


def read_shm(setting: Setting) -> Space | None:
    """Return the size of /dev/shm, None if there is none."""
    try:
        found = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return None
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def shm(setting: Setting, facts: Space | None) -> Iterator[Finding]:
    """Judge whether DataLoader workers and NCCL find room in /dev/shm."""
    larger = "docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory"
    if facts is None:
        yield problem("there is no /dev/shm: DataLoader workers and NCCL need it", larger)
        return
    said = f"{format_bytes(facts.total)}, {format_bytes(facts.free)} free"
    if facts.free < 64 * MIB or facts.total <= 64 * MIB:
        left = "what is left there: ls -l /dev/shm" if facts.total > GIB else larger
        yield problem(
            f"{said}: a DataLoader's first batch or NCCL's first collective fills it", left
        )
    elif facts.total < GIB or facts.free < 256 * MIB:
        yield warning(f"{said}: little for DataLoader workers", larger)
    else:
        yield ok(said)


SHARED_MEMORY = CheckFamily(
    "Shared memory",
    (
        Check(
            id="shm",
            title="/dev/shm is large enough",
            why="DataLoader workers hand batches over through it, and NCCL connects the GPUs of a "
            "node by it; containers get 64 MiB unless told otherwise.",
            read=read_shm,
            judge=shm,
        ),
    ),
)


_LOOK = 3.0  # seconds for one look
_CHILD = """
import sys
if sys.argv[1] == "allow":
    import ctypes
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, any
print(flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class StackAccess:
    """What decides whether another process may be read, and what came of trying it."""

    yama: int | None  # None: the kernel has no Yama
    filtered: bool  # seccomp filters the system calls of this process
    capable: bool  # CAP_SYS_PTRACE
    program: str  # py-spy's path, "" if there is none
    version: str
    refused: str  # why a plain process of ours could not be read, "" if it could
    refused_allowing: str  # the same for one that allows it, as hangbisect's own ranks do


def try_stack_access(setting: Setting) -> StackAccess:
    """Try py-spy on processes of our own, which end when their input does."""
    own = read_trace_permission()
    spy = find_program() or ""
    refused = allowing = "py-spy is not installed"
    if spy:
        refused = allowing = _try("plain")
        if refused:
            allowing = _try("allow")
    return StackAccess(
        yama=own.yama,
        filtered=own.filtered,
        capable=own.capable,
        program=spy,
        version=_version(spy) if spy else "",
        refused=refused,
        refused_allowing=allowing,
    )


def _try(how: str) -> str:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C on the terminal is ours alone
    ) as child:
        if child.stdout is None or not child.stdout.readline():
            return "a Python of our own ended at once"
        return asyncio.run(why_py_spy_cannot_look(child.pid, _LOOK))


def _version(spy: str) -> str:
    with contextlib.suppress(OSError):
        return run_command([spy, "--version"], _LOOK).out.decode(errors="replace").strip()
    return ""


# ---- judged --------------------------------------------------------------------------------------


def installed(setting: Setting, facts: StackAccess) -> Iterator[Finding]:
    """Judge whether py-spy is there and runs."""
    if not facts.program:
        yield warning(
            "py-spy is not installed next to this Python, nor on the PATH: no Python stacks",
            f"{sys.executable} -m pip install py-spy",
        )
    elif not facts.version:
        yield warning(
            f"{facts.program} does not run (another architecture? a disk mounted noexec?)",
            "pip install --force-reinstall py-spy",
        )
    else:
        yield ok(f"{facts.version}, {facts.program}")


def judge_stack_access(setting: Setting, facts: StackAccess) -> Iterator[Finding]:
    """Judge whether a process can be looked at, and say what would allow it."""
    around = ", ".join(_around(facts))
    if not facts.program:
        yield Finding("unknown", f"nothing to try it with ({around})")
    elif not facts.refused:
        yield ok(f"py-spy reads a process of ours ({around})")
    elif facts.yama == 1 and not facts.refused_allowing:
        yield warning(
            f"only ranks that hangbisect starts can be read, for these allow it ({around})",
            "to attach to others: sudo sysctl kernel.yama.ptrace_scope=0, or run it as root",
        )
    else:
        yield warning(f"no stacks of other processes: {facts.refused} ({around})", _way(facts))


def _around(facts: StackAccess) -> Iterator[str]:
    yield "no Yama" if facts.yama is None else f"Yama ptrace_scope={facts.yama}"
    yield "seccomp filters" if facts.filtered else "no seccomp filter"
    yield "with CAP_SYS_PTRACE" if facts.capable else "without CAP_SYS_PTRACE"


def _way(facts: StackAccess) -> str:
    if facts.yama == 3:
        return "ptrace_scope=3 lasts until the next boot: only /proc is read until then"
    if facts.yama == 2 and not facts.capable:
        return "as root, or sudo sysctl kernel.yama.ptrace_scope=1"
    if facts.filtered:
        return (
            "docker run --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add "
            '["SYS_PTRACE"]); without it, only what /proc shows'
        )
    return "look as the job's own user or as root; without it, only what /proc shows"


TRACING = CheckFamily(
    "Looking at a job",
    (
        Check(
            id="py-spy",
            title="py-spy is there",
            why="Without it the stack of a rank that hangs is not seen from outside.",
            read=try_stack_access,
            judge=installed,
        ),
        Check(
            id="leave-to-trace",
            title="another process may be read",
            why="Yama, seccomp and missing capabilities forbid it; tried on a process of our own.",
            read=try_stack_access,
            judge=judge_stack_access,
        ),
    ),
)
