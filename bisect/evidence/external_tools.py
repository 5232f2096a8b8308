"""Programs of others: where py-spy, pystack and squeue are, whether a job waits in Slurm's queue
(its checkpoint 0 starts when its allocation does), and what tools found out about the same job.

- NCCL's and torch's flight recorder leaves a file a rank when a collective times out.
- torchelastic's error file of a rank has the exception that ended it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence

from ..base.deadline import call_with_limit, run_command, within
from ..base.identity import RankId
from ..base.launchers import LAUNCHERS
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import CollectiveLog
from .gpus.flight_recorder import counts_all_together, load_dump, parse_dump
from .process import uid_of, variables_of, words_of

LARGEST_DUMP = 1 << 24  # bytes: 2,000 entries with stacks are some 3 MiB
LARGEST_ERROR = 1 << 20
_PREFIX_VARIABLES = (
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    "TORCHCOMM_FR_DUMP_TEMP_FILE",  # TorchComms' recorder, by the same default
)


@dataclass(frozen=True)
class ElasticFailure:
    """What torchelastic wrote down of the exception that ended a rank."""

    error: str  # one line
    traceback: str


# ---- the flight recorder's files ---------------------------------------------------------------


def read_recorder_dump(
    rank: RankId,
    environment: Mapping[str, str],
    since: float,
    offset: float = 0.0,
    pid: int | None = None,
) -> CollectiveLog | None:
    """Return what a rank's recorder left in a file after `since` (wall clock), None if nothing.

    Never raises. `offset` as in flight_recorder.parse. With `pid`, the rank's process, paths are
    those of that process, which may be in a container, or another user's. May block on a bad file
    system.
    """
    owner = None if pid is None else uid_of(pid)
    for prefix in list_dump_prefixes(environment, None if pid is None else variables_of(pid)):
        try:
            path = _find_for_process(f"{prefix}{rank}", pid)
            data = _read_trusted_file(path, since, LARGEST_DUMP, owner)
            dump = load_dump(data)
            found = parse_dump(dump, "flight recorder", offset)
        except (OSError, ValueError):
            continue
        if found is not None and not counts_all_together(dump):
            return found
    return None


def names_dump_place(environment: Mapping[str, str]) -> bool:
    """Return whether a job says where its recorders are to dump: at the usual place there may lie
    what another job of the same user has left.
    """
    return any(environment.get(name) for name in _PREFIX_VARIABLES)


def list_dump_prefixes(
    environment: Mapping[str, str], variables: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return where a rank's recorder may write, the rank's number left out. `variables` are all of
    the rank's, None: ours.

    The defaults are those of torch's DebugInfoWriter: since 2.9 below the user's cache, before in
    /tmp.
    """
    named = [environment[name] for name in _PREFIX_VARIABLES if environment.get(name)]
    if named:
        return tuple(named)
    ours = os.environ if variables is None else variables
    home = ours.get("HOME") or os.path.expanduser("~")
    cache = ours.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return (os.path.join(cache, "torch", "comm_lib_trace_rank_"), "/tmp/nccl_trace_rank_")


def _find_for_process(path: str, pid: int | None) -> str:
    """Return by which path we reach what a process names so."""
    if pid is None:
        return path
    return f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def _read_trusted_file(path: str, since: float, largest: int, owner: int | None = None) -> bytes:
    """Return the content of a plain file of this user's, root's or that `owner`'s: in /tmp anybody
    may put one of the name. Raises OSError, ValueError if it is somebody else's, a link, old or too
    large.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # it may be a pipe
    with os.fdopen(os.open(path, flags), "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid not in (os.geteuid(), 0, owner):
            raise ValueError(f"{path} belongs to user {about.st_uid}")
        if not stat.S_ISREG(about.st_mode) or about.st_mtime < since or about.st_size > largest:
            raise ValueError(f"{path} is old, too large, or no plain file")
        return file.read(largest)


# ---- torchelastic's error files ------------------------------------------------------------------


def read_error_file(path: str) -> ElasticFailure | None:
    """Return what a rank's error file says, None if there is none. Never raises. May block.

    {"message": {"message": ..., "extraInfo": {"py_callstack": ...}}}, or a message that is a text
    (torch/distributed/elastic/multiprocessing/errors/error_handler.py).
    """
    try:
        message = json.loads(_read_trusted_file(path, 0.0, LARGEST_ERROR))["message"]
        if isinstance(message, str):
            return ElasticFailure(message.strip().partition("\n")[0], message)
        traceback = str((message.get("extraInfo") or {}).get("py_callstack") or "")
        return ElasticFailure(str(message.get("message", "")).strip().partition("\n")[0], traceback)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


# ---- programs, and a queue ----------------------------------------------------------------------


@functools.cache
def find_program(name: str = "py-spy") -> str | None:
    """Return the path of a program: next to this interpreter, in its scripts, or on the PATH."""
    beside = shutil.which(name, path=os.path.dirname(sys.executable))
    if beside:
        return beside
    import sysconfig

    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


QUEUE_LIMIT = 5.0  # seconds for a scheduler to answer


async def is_queued(pids: Iterable[int]) -> bool:
    """Return whether one of these processes is a scheduler's, and this user has a job in its queue:
    Slurm's squeue and `flux jobs` tell, as in their manual pages.

    False where that program is missing or does not answer in time.
    """
    names = {name for pid in pids for name in _list_names_of(pid)}
    schedulers = [one for one in LAUNCHERS if one.queue and not names.isdisjoint(one.clients)]
    return any([await _has_a_job_waiting(one.queue) for one in schedulers])


async def _has_a_job_waiting(command: Sequence[str]) -> bool:
    program = find_program(command[0])
    if program is None:
        return False
    try:
        ran = await call_with_limit(
            run_command,
            [program, *command[1:]],
            QUEUE_LIMIT,
            limit=QUEUE_LIMIT + 0.3,
            key=command[0],
        )
    except (OSError, TimeoutError):
        return False
    return bool(ran.out.strip())


def _list_names_of(pid: int) -> Sequence[str]:
    """Return what a process may be called: its program, or a script that is called like one."""
    try:
        return [os.path.basename(word) for word in within(0.2, words_of, pid)[:3]]
    except TimeoutError:
        return ()
