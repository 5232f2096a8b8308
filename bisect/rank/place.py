"""Where this process stands in its job: rank, world, node, launcher, and the job's identity.

Launchers tell it in different variables: torchrun and DeepSpeed set RANK (torch.distributed.run's
documentation), Open MPI OMPI_COMM_WORLD_* (ompi_info), Slurm SLURM_PROCID in every task of a step
(man srun), MPICH and PMIx PMI_*; Lightning's own launch sets LOCAL_RANK and WORLD_SIZE alone
(subprocess_script.py).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GONE = -1  # in place of a launcher's pid; 0 is one in another pid namespace
FOLDER_VARIABLE = "HANGBISECT_FOLDER"
JOB_VARIABLE = "HANGBISECT_JOB"

# launcher's dialect: (rank, local rank, world size, local world size, node)
_DIALECTS = {
    "torchrun": ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    "mpirun": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "",  # OMPI_COMM_WORLD_NODE_RANK is the process's number on its node
    ),
    "srun": (
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_NODEID",
    ),
    "pmi": ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_NODE"),
}
_LAUNCHERS = {  # by what the process that started the ranks is called
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "mpirun": "mpirun",
    "orted": "mpirun",
    "prterun": "mpirun",
    "slurmstepd": "srun",
}
_TYPED = {
    *("torchrun", "deepspeed", "accelerate", "mpirun", "srun"),
    *("torch.distributed.run", "torch.distributed.launch"),
}
# Lightning ignores Slurm under these job names too: an interactive shell has the variables of a
# step without being one (lightning SLURMEnvironment).
_INTERACTIVE = {"bash", "interactive"}


@dataclass(frozen=True)
class Place:
    """Where a process stands in its job. `launcher` is None where nobody started several ranks."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node: int
    attempt: int
    host: str
    launcher: str | None
    launcher_pid: int
    job: str  # hash that all local ranks of one attempt share, and nobody else
    joined: bool = False  # started by a rank (Lightning's own launch), not by a launcher


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """Return where this process stands, from its environment and its ancestors."""
    dialect = _dialect(environ)
    names = _DIALECTS.get(dialect or "torchrun", _DIALECTS["torchrun"])
    joined = bool(environ.get(FOLDER_VARIABLE) and environ.get(JOB_VARIABLE))
    if joined and dialect is None:
        rank = local_rank = _number(environ, "LOCAL_RANK", 0)
        world = local_world = _number(environ, "WORLD_SIZE", 1)
    else:
        rank = _number(environ, names[0], 0)
        world = _number(environ, names[2], 1)
        local_rank = _number(environ, names[1], rank)
        local_world = _number(environ, names[3], world)
    attempt = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    node = _number(environ, names[4], rank // max(1, local_world)) if dialect else 0
    pid, started = _launcher(names[0] if dialect else None, environ)
    identity = (
        os.getuid(),
        environ.get("TORCHELASTIC_RUN_ID") or environ.get("SLURM_JOB_ID"),
        environ.get("SLURM_STEP_ID"),
        environ.get("MASTER_ADDR"),
        environ.get("MASTER_PORT"),
        node,
        attempt,
        (pid, started) if not joined else None,
    )
    return Place(
        rank=rank,
        local_rank=local_rank,
        world_size=world,
        local_world_size=local_world,
        node=node,
        attempt=attempt,
        host=socket.gethostname(),
        launcher=_launcher_name(dialect, pid),
        launcher_pid=pid,
        job=environ[JOB_VARIABLE] if joined else _short_hash(identity),
        joined=joined,
    )


def command_line(place: Place, own: Sequence[str]) -> list[str]:
    """Return the command that the user gave: the launcher's, or `own` where there is none.

    Console scripts run as `python /path/to/torchrun ...`: they are named as one types them.
    """
    words = _command_of(place.launcher_pid) if place.launcher else []
    if not any(os.path.basename(w) in _TYPED for w in words[:4]):
        words = list(own)
    if len(words) > 1 and os.path.basename(words[1]) in _TYPED:
        words = words[1:]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _dialect(environ: Mapping[str, str]) -> str | None:
    for name, variables in _DIALECTS.items():
        if variables[0] not in environ:
            continue
        if name == "srun" and environ.get("SLURM_JOB_NAME") in _INTERACTIVE:
            continue
        return name
    return None


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(environ.get(name, ""))
    except ValueError:
        return default


def _launcher(variable: str | None, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return pid and start time of the process that started the ranks.

    That is the first ancestor without this rank's own number in its environment: between it and
    us may stand shells and wrappers, which have it.
    """
    pid = os.getppid()
    if pid == 1 and "TORCHELASTIC_RUN_ID" in environ and not _is_launcher(1):
        return GONE, 0  # torchrun is no more
    if variable is not None:
        mine = f"{variable}={environ[variable]}".encode()
        while pid > 1 and mine in _environ_of(pid):
            pid = _stat_of(pid)[0]
    return pid, _stat_of(pid)[1]


def _environ_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # another user's: slurmstepd
        return []


def _stat_of(pid: int) -> tuple[int, int]:
    """Return (parent pid, start time in clock ticks) from proc(5) stat, zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _launcher_name(dialect: str | None, pid: int) -> str | None:
    if dialect is None:
        return None
    words = [os.path.basename(word) for word in _command_of(pid)[:3]]
    for known, name in _LAUNCHERS.items():
        if known in words:
            return name
    return dialect


def _is_launcher(pid: int) -> bool:
    """Return whether a launcher runs as `pid` (1 in a container), or a rank's own shell."""
    named = any(os.path.basename(word) in _TYPED for word in _command_of(pid)[:4])
    return named or any(word.startswith(b"RANK=") for word in _environ_of(pid))


def _command_of(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [w.decode(errors="replace") for w in file.read().rstrip(b"\0").split(b"\0")]
    except OSError:
        return []


def _short_hash(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
