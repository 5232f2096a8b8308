"""Where this process stands in its job: rank, world, node, launcher, and the job's identity.

Lightning's own launch sets LOCAL_RANK and WORLD_SIZE alone (subprocess_script.py).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import claims
from .claims import DIALECTS, Ancestor

GONE = -1  # in place of a launcher's pid; 0 is one in another pid namespace
FOLDER_VARIABLE = "HANGBISECT_FOLDER"
JOB_VARIABLE = "HANGBISECT_JOB"

_TYPED = {
    *("torchrun", "deepspeed", "accelerate", "mpirun", "srun"),
    *("torch.distributed.run", "torch.distributed.launch"),
}
_DEEPEST = 20  # ancestors that are asked
_LAUNCHERS_DEEP = 2


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
    neighbours: tuple[int, ...] = ()  # this node's ranks, where the launcher names them
    master: str | None = None  # the host that rank 0 listens on, as the launcher has it
    contradictions: tuple[str, ...] = ()  # sentences: variables of different launchers disagree
    impossible: str = ""  # a sentence, where there can be no such rank


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """Return where this process stands, from its environment and its ancestors."""
    named = claims.claimed(environ, _task_is_shell(environ))
    several = len(named) > 1
    dialect = claims.starter(environ, named, _ancestors() if several else ())
    names = DIALECTS[dialect or "torchrun"]
    joined = bool(environ.get(FOLDER_VARIABLE) and environ.get(JOB_VARIABLE))
    if joined and dialect is None:
        rank = local_rank = _number(environ, "LOCAL_RANK", 0)
        world = local_world = _number(environ, "WORLD_SIZE", 1)
    else:
        rank = _number(environ, names[0], 0)
        world = _number(environ, names[2], 1)
        local_rank = _number(environ, names[1], rank)
        local_world = (claims.local_size(environ, dialect) if dialect else None) or world
    attempt = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    node = claims.number(environ, names[4]) if dialect else 0
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
        node=rank // max(1, local_world) if node is None else node,
        attempt=attempt,
        host=socket.gethostname(),
        launcher=_launcher_name(dialect, pid),
        launcher_pid=pid,
        job=environ[JOB_VARIABLE] if joined else _short_hash(identity),
        joined=joined,
        neighbours=claims.neighbours(environ, rank) if dialect == "srun" else (),
        master=claims.master(environ, dialect),
        contradictions=claims.contradictions(environ, named, dialect),
        impossible=claims.impossible(environ, dialect),
    )


def job_of_this_process() -> str:
    """Return an identity for a plain `python train.py`, which nobody shares but what it starts: a
    shell may start several such jobs at once.
    """
    return _short_hash((os.getuid(), os.getpid(), _stat_of(os.getpid())[1]))


def command_line(place: Place, own: Sequence[str]) -> list[str]:
    """Return the command that the user gave: the launcher's, or `own` where there is none.

    Console scripts run as `python /path/to/torchrun ...`: they are named as one types them. srun is
    on no machine of its tasks: of its words only nodes and tasks are known.
    """
    words = _typed(place.launcher_pid) if place.launcher else []
    if not words:
        nodes = max(1, place.world_size // max(1, place.local_world_size))
        srun = ["srun", f"--nodes={nodes}", f"--ntasks={place.world_size}"]
        words = [os.path.basename(word) for word in own[:1]] + [*own[1:]]
        words = [*(srun if place.neighbours else ()), *words]
    if len(words) > 1 and os.path.basename(words[1]) in _TYPED:
        words = words[1:]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _typed(pid: int) -> list[str]:
    """Return the words of the launcher that somebody typed: DeepSpeed's starts another program,
    which starts the ranks.
    """
    for _ in range(_LAUNCHERS_DEEP):
        words = _command_of(pid)
        if any(os.path.basename(word) in _TYPED for word in words[:4]):
            return words
        pid = _stat_of(pid)[0]
    return []


def _ancestors() -> list[Ancestor]:
    """Return the processes above us, the parent first."""
    found: list[Ancestor] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _DEEPEST:
        found.append(Ancestor(_variables_of(pid), tuple(_command_of(pid))))
        pid = _stat_of(pid)[0]
    return found


def _task_is_shell(environ: Mapping[str, str]) -> bool:
    """Return whether the task of Slurm's that we belong to is a shell on a terminal, as far as one
    can tell: salloc and `srun --pty` give one, and what is started in it is no task.
    """
    if "SLURM_PROCID" not in environ:
        return False
    task = claims.number(environ, "SLURM_TASK_PID")
    pid = os.getpid()
    while pid > 1 and pid != task:
        pid = _stat_of(pid)[0]
    return pid <= 1 or _stat_of(pid)[2] != 0


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    found = claims.number(environ, name)
    return default if found is None else found


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


def _variables_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with."""
    pairs = (os.fsdecode(word).partition("=") for word in _environ_of(pid))
    return {name: value for name, _, value in pairs}


def _environ_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # another user's: slurmstepd
        return []


def _stat_of(pid: int) -> tuple[int, int, int]:
    """Return (parent pid, start time in clock ticks, terminal) from proc(5) stat, zeros if it is
    gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[19]), int(fields[4])
    except (OSError, ValueError, IndexError):
        return 0, 0, 0


def _launcher_name(dialect: str | None, pid: int) -> str | None:
    if dialect is None:
        return None
    return Ancestor({}, tuple(_command_of(pid))).launcher or dialect


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
