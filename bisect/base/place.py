"""Where this process stands in its job: rank, world, node, launcher, and the job's identity.

Lightning's own launch sets LOCAL_RANK and WORLD_SIZE alone (subprocess_script.py).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence

from . import launcher_env
from .error_guard import raise_if_of_the_job
from .launcher_env import Ancestor
from .launchers import BY_PROGRAM, DIALECTS
from .lazy_dataclass import dataclass
from .proc import read_start_time, read_stat, walk_up
from .process_roles import is_service, is_worker
from .variables import FRONT_VARIABLE
from .variables import OUTER_VARIABLE as OUTER_VARIABLE

GONE = -1  # in place of a launcher's pid; 0 is one in another pid namespace
FOLDER_VARIABLE = "HANGBISECT_FOLDER"
JOB_VARIABLE = "HANGBISECT_JOB"
# Beside the socket of the monitor: errors of processes that are no ranks, a line of JSON each.
TARGETS_FILE = "failed-targets"
LARGEST_TARGETS_FILE = 1 << 22  # bytes: a pool starts workers that fail again and again

_DEEPEST = 20  # ancestors that are asked
_LAUNCHERS_DEEP = 2
_STATE_LOOKS, _BETWEEN_LOOKS = 5, 0.02  # seconds


@dataclass(frozen=True)
class Place:
    """Where a process stands in its job. `launcher` is None where none started several."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node: int  # as the launcher has it, else as it would be if it filled one node after the other
    attempt: int
    host: str
    launcher: str | None
    launcher_pid: int
    job: str  # hash that all local ranks of one attempt share, and no other process
    joined: bool = False  # started by a rank (Lightning's own launch), not by a launcher
    neighbours: tuple[int, ...] = ()  # this node's ranks, where the launcher names them
    counted: bool = True  # it is known how many ranks this node has
    in_order: bool = True  # they are numbered one after the other
    # Of what this node writes beside the others: "" of the first or only one, else "1" or its host.
    node_name: str = ""
    master: str | None = None  # the host that rank 0 listens on, as the launcher has it
    contradictions: tuple[str, ...] = ()  # sentences: variables of different launchers disagree
    impossible: str = ""  # a sentence, where there can be no such rank

    @property
    def has_others(self) -> bool:
        """Whether ranks of its job are on other nodes."""
        return bool(self.node_name) or self.world_size > self.local_world_size


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """Return where this process stands, from its environment and its ancestors."""
    named = launcher_env.claimed(environ, _task_is_shell(environ))
    several = len(named) > 1
    dialect = launcher_env.starter(environ, named, _ancestors() if several else ())
    names = DIALECTS[dialect or "torchrun"]
    joined = bool(environ.get(FOLDER_VARIABLE) and environ.get(JOB_VARIABLE))
    if joined and dialect is None:
        rank = local_rank = _get_number(environ, "LOCAL_RANK", 0)
        world = local_world = _get_number(environ, "WORLD_SIZE", 1)
    else:
        rank = _get_number(environ, names.rank, 0)
        # Alone it is for ranks that are to be started, on other nodes too: of this one it says
        # nothing. With LOCAL_RANK Lightning takes itself for one of them.
        is_rank = dialect is not None or "LOCAL_RANK" in environ
        world = _get_number(environ, names.world_size, 1) if is_rank else 1
        local_rank = _get_number(environ, names.local_rank, rank)
        local_world = (launcher_env.local_size(environ, dialect) if dialect else None) or world
    pid, started = _launcher(names.rank if dialect else None, environ)
    # Ranks that are started in containers of their own on one machine do not see each other.
    container = _name_container() if dialect and not joined and pid == 0 else ""
    if dialect is not None:
        counted = joined or _is_counted(environ, dialect, world, container)
    else:  # Lightning's own launch: of how many machines that is stands in no variable
        counted = not joined or world == 1 or launcher_env.is_on_one_machine(environ)
    attempt = _get_number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    node = launcher_env.node(environ, dialect) if dialect else 0
    is_part = world > local_world or not counted
    name = _node_name(node, container) if is_part and dialect else ""
    identity = (
        os.getuid(),
        *(environ.get(name) for words in DIALECTS.values() for name in words.job),
        environ.get("MASTER_ADDR"),
        environ.get("MASTER_PORT"),
        node if node is not None else name,
        attempt,
        (pid or container, started) if not joined else None,
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
        counted=counted,
        in_order=not is_part
        or (dialect is not None and launcher_env.are_in_order(environ, dialect)),
        node_name=name,
        neighbours=launcher_env.neighbours(environ, rank) if dialect == "srun" else (),
        master=launcher_env.master(environ, dialect),
        contradictions=launcher_env.contradictions(environ, named, dialect),
        impossible=launcher_env.impossible(environ, dialect),
    )


def _is_counted(environ: Mapping[str, str], dialect: str, world: int, container: str) -> bool:
    local_size = launcher_env.local_size(environ, dialect)
    is_here = launcher_env.is_on_one_machine(environ) and not container
    return bool(local_size) or world == 1 or is_here


def _node_name(node: int | None, container: str) -> str:
    """Return the name of a part of the job, by the launcher's number of the node or its host; with
    the namespace of pids of a container, which may have its host's name.
    """
    if node is None:
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())[:64] or "here"
        return f"{host}-{container}" if container else host
    return str(node) if node else ""


def _name_container() -> str:
    """Return the number of our namespace of pids, "" where it is not told."""
    try:
        return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except OSError as error:
        raise_if_of_the_job(error)
        return ""


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent, 0 where that is not known."""
    found = read_stat(pid)
    return found.ppid if found else 0


_MOST_ABOVE = 8


def list_above() -> tuple[int, ...]:
    """Return the pids of those who started this process, its parent first: up to `hangbisect run`,
    and as far as they are known.
    """
    front, above = os.environ.get(FRONT_VARIABLE, ""), walk_up(os.getpid(), _MOST_ABOVE)
    return tuple(itertools.takewhile(lambda pid: str(pid) != front, above))


def job_of_this_process() -> str:
    """Return an identity for a plain `python train.py`, shared only with what it starts: a shell
    may start several such jobs at once.
    """
    return _short_hash((os.getuid(), os.getpid(), read_start_time(os.getpid())))


def monitor_of(place: Place, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name by which this process finds its monitor: that of its job; of one that no
    launcher started, that of the `hangbisect run` around it, which may have started several.
    """
    outer = environ.get(OUTER_VARIABLE)
    if outer and place.launcher is None and not place.joined:
        return _short_hash((os.getuid(), outer))
    return place.job


def command_line(place: Place, own: Sequence[str]) -> list[str]:
    """Return the command that the user gave: the launcher's; of several ranks without one, which a
    script starts say, what `hangbisect run` watches; else `own`, or, of a process that
    multiprocessing or Ray has started, that of the script which had it started.

    Console scripts run as `python /path/to/torchrun ...`: they are named as one types them. srun is
    on no machine of its tasks: of its words only nodes and tasks are known.
    """
    words = _typed(place.launcher_pid) if place.launcher else []
    if not words and place.world_size > 1 and not place.neighbours:
        words = find_watched_command(os.getpid())
    if not words:
        nodes = max(1, place.world_size // max(1, place.local_world_size))
        srun = ["srun", f"--nodes={nodes}", f"--ntasks={place.world_size}"]
        own = _find_script(own)
        words = [os.path.basename(word) for word in own[:1]] + [*own[1:]]
        words = [*(srun if place.neighbours else ()), *words]
    if len(words) > 1 and os.path.basename(words[1]) in BY_PROGRAM:
        words = words[1:]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def find_watched_command(pid: int) -> list[str]:
    """Return the words of the process that `hangbisect run` has started, and another one is below;
    none where it is not.
    """
    front = os.environ.get(FRONT_VARIABLE, "")
    for _ in range(_DEEPEST):
        parent = parent_of(pid)
        if str(parent) == front:
            return _command_of(pid)
        if parent <= 1:
            break
        pid = parent
    return []


def _find_script(own: Sequence[str]) -> Sequence[str]:
    """Return the words of the first process, from this one (`own`) upwards, that a person may have
    typed; `own` where none is above it.
    """
    pid, words = os.getpid(), own
    for _ in range(_DEEPEST):
        if "--multiprocessing-fork" not in words and not (is_service(words) or is_worker(words)):
            return words
        pid = parent_of(pid)
        if pid <= 1:
            break
        words = _command_of(pid)
    return own


def _typed(pid: int) -> list[str]:
    """Return the words of the launcher that a person typed: DeepSpeed's starts another program,
    which starts the ranks.
    """
    for _ in range(_LAUNCHERS_DEEP):
        words = _command_of(pid)
        if any(os.path.basename(word) in BY_PROGRAM for word in words[:4]):
            return words
        pid = parent_of(pid)
    return []


def _ancestors() -> list[Ancestor]:
    """Return the processes above us, the parent first."""
    found: list[Ancestor] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _DEEPEST:
        found.append(Ancestor(_variables_of(pid), tuple(_command_of(pid))))
        pid = parent_of(pid)
    return found


def _task_is_shell(environ: Mapping[str, str]) -> bool:
    """Return whether the task of Slurm's that we belong to is a shell on a terminal, as far as one
    can tell: salloc and `srun --pty` give one, and what is started in it is no task.
    """
    if "SLURM_PROCID" not in environ:
        return False
    task = launcher_env.number(environ, "SLURM_TASK_PID")
    pid = os.getpid()
    while pid > 1 and pid != task:
        pid = parent_of(pid)
    return pid <= 1 or ((found := read_stat(pid)) is not None and found.terminal != 0)


def _get_number(environ: Mapping[str, str], name: str, default: int) -> int:
    found = launcher_env.number(environ, name)
    return default if found is None else found


def _launcher(variable: str | None, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return pid and start time of the process that started the ranks.

    That is the first ancestor without this rank's own number in its environment: between it and
    us may stand shells and wrappers, which have it, and such in which it was set.
    """
    pid = os.getppid()
    if pid == 1 and "TORCHELASTIC_RUN_ID" in environ and not _runs_launcher(1):
        return GONE, 0  # torchrun is no more
    if variable is not None:
        mine = f"{variable}={environ[variable]}".encode()
        while pid > 1 and mine in _environ_of(pid):
            pid = parent_of(pid)
        # The port tells the jobs apart that one process starts; torchrun's agent, which a program
        # may have in itself (elastic_launch), is above its ranks.
        if environ.get("MASTER_PORT") and "TORCHELASTIC_RUN_ID" not in environ:
            pid = _skip_starters_of_one_rank(pid, environ.get(FRONT_VARIABLE, ""))
    return pid, read_start_time(pid)


def _skip_starters_of_one_rank(pid: int, front: str) -> int:
    """Return the first process from `pid` upwards that starts more than one rank, as far as one can
    tell: none is a shell that runs a single command (`sh -c`, as subprocess does with shell=True),
    or that its shell made of itself for a part in brackets or before a pipe. It is a launcher, or
    else what is watched, below `hangbisect run`, which has the pid `front`: between may be a script
    for each rank.
    """
    while pid > 1:
        words, parent = _command_of(pid), parent_of(pid)
        one = Ancestor({}, tuple(words))
        if parent <= 1 or str(parent) == front or one.is_part_of_launcher:
            break
        is_of_one = _runs_one_command(words) or words == _command_of(parent)
        if not front and not (words and one.is_shell and is_of_one):
            break
        pid = parent
    return pid


def _runs_one_command(shell: Sequence[str]) -> bool:
    """Return whether a shell was given its command as a word: `sh -c`, `bash -lc`, `bash -e -c`."""
    options = itertools.takewhile(lambda word: word.startswith("-"), shell[1:])
    return any(not word.startswith("--") and word.endswith("c") for word in options)


def _variables_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with."""
    pairs = (os.fsdecode(word).partition("=") for word in _environ_of(pid))
    return {name: value for name, _, value in pairs}


def _environ_of(pid: int) -> list[bytes]:
    found = _memory_of(pid, "environ")  # another user's (slurmstepd) cannot be read
    return found.split(b"\0") if found else []


def _memory_of(pid: int, name: str) -> bytes:
    """Return what /proc/PID/NAME holds, nothing if it cannot be read.

    The kernel reads it out of the memory of that process, and waits where that is locked: so what
    is in the kernel for long (state D) is not asked, or this Python would never start.
    """
    for attempt in range(_STATE_LOOKS):
        if (found := read_stat(pid)) is None or found.state != "D":
            break
        if attempt + 1 == _STATE_LOOKS:
            return b""
        time.sleep(_BETWEEN_LOOKS)
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError as error:
        raise_if_of_the_job(error)
        return b""


def _launcher_name(dialect: str | None, pid: int) -> str | None:
    if dialect is None:
        return None
    return Ancestor({}, tuple(_command_of(pid))).launcher or dialect


def _runs_launcher(pid: int) -> bool:
    """Return whether a launcher runs as `pid` (1 in a container), or a rank's own shell."""
    named = any(os.path.basename(word) in BY_PROGRAM for word in _command_of(pid)[:4])
    return named or any(word.startswith(b"RANK=") for word in _environ_of(pid))


def _command_of(pid: int) -> list[str]:
    words = _memory_of(pid, "cmdline").rstrip(b"\0")
    return [word.decode(errors="replace") for word in words.split(b"\0")] if words else []


def _short_hash(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
