"""What NCCL and its watchdog printed to the files that ranks write to: their standard output and
error, their launcher's or srun's where they print to a pipe of it, the files of whoever reads that
pipe (`torchrun ... | tee log`), and NCCL's own file (NCCL_DEBUG_FILE), read where a job stands
still.

Only regular files are read, by the descriptors that a process has: nothing is taken out of a pipe,
and nothing waits. What goes to a terminal, or through a pipe to no file, is not heard: to stand in
between would change the job where we are ended. Of a large file its beginning counts, where NCCL
says its version, and its end.

Several ranks, and several jobs one after the other, may write to one file. Lines of NCCL name the
process; lines of the watchdog the rank and a time, which is compared with the start of the job.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import stat
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ..base.identity import RankId, UnknownRank
from ..base.launcher_env import Ancestor
from ..base.lazy_dataclass import dataclass
from ..base.proc import list_pids, read_stat, walk_up
from ..base.rank_facts import RankFacts
from .descriptors import find_holders, read_links
from .gpus.nccl_lines import NcclLine, RankedLine, read_nccl_lines
from .gpus.watchdog_messages import WatchdogMessages, find_time_of_year, read_watchdog_messages
from .lock_and_log_files import PrintingRank, find_output_files
from .printed_warnings import PrintedWarning, assign_warnings, read_printed_warnings
from .process import variables_of, words_of
from .syscall_arguments import read_inner_id

_HEAD, _TAIL = 1 << 16, 1 << 18  # bytes of a file
_MOST_BYTES = 1 << 25  # of all files
_STARTS = 60.0  # seconds: a launcher needs so long until its first rank has started
_AT_FDCWD, _STATX_BTIME = -100, 0x800
_MOST_ABOVE = 4  # processes above a rank that may be its launcher
_MOST_DESCRIPTORS = 64  # of a process that reads a pipe
_SLURM_JOB = "SLURM_JOB_ID"
FILE_VARIABLE = "NCCL_DEBUG_FILE"


@dataclass
class LibraryOutput:
    """What was found, each with its rank. It is filled in while files are read."""

    messages: dict[RankId, list[WatchdogMessages]] = field(default_factory=dict)
    nccl_lines: list[RankedLine] = field(default_factory=list)
    warnings: list[tuple[PrintedWarning, RankId | None]] = field(default_factory=list)


@dataclass
class _OutputFile:
    path: str
    ranks: list[RankId] = field(default_factory=list)
    is_shared: bool = False  # others than these ranks write to it

    @property
    def owner(self) -> RankId | None:
        """The rank that has the file for itself, None if none does."""
        return self.ranks[0] if len(set(self.ranks)) == 1 and not self.is_shared else None


def read_library_output(
    ranks: Sequence[RankFacts],
    since: float,
    found: LibraryOutput,
    error_files: Mapping[RankId, str] | None = None,
) -> None:
    """Put into `found` what the libraries of these ranks, all of this machine, printed. `since` is
    when the job started (wall clock); `error_files` are those that torchrun gave. May block on a
    bad file system. Raises nothing for a file that cannot be read.
    """
    processes = {_identify_process(facts.pid): facts.rank for facts in ranks if facts.pid}
    by_pid = {pid: rank for (_, pid), rank in processes.items()}
    numbers = {facts.rank for facts in ranks}
    left = _MOST_BYTES
    files = _find_files(ranks, error_files or {})
    for file in (*files.values(), *_find_relayed_files(ranks, files)):
        data = _read_file_ends(file.path)
        left -= len(data)
        if left < 0:
            return
        lines = data.decode(errors="replace").splitlines()
        for rank, message in _assign_messages(file, lines, since, numbers):
            found.messages.setdefault(rank, []).append(message)
        found.nccl_lines += _assign_lines(file, read_nccl_lines(lines), processes)
        told = read_printed_warnings(lines, find_time_of_year(since), _is_made_for(file, since))
        found.warnings += assign_warnings(told, numbers, by_pid, file.owner)


def _find_files(
    ranks: Sequence[RankFacts], error_files: Mapping[RankId, str]
) -> dict[tuple[int, int], _OutputFile]:
    """Return each file once, by its identity, with the ranks that write to it."""
    files: dict[tuple[int, int], _OutputFile] = {}
    for facts in ranks:
        pid = facts.pid if facts.alive else None
        printer = PrintingRank(facts.rank, pid, error_files.get(facts.rank))
        own = dict(find_output_files(printer))
        relayed = {} if own or pid is None else _find_launchers_files(pid)
        own.update(_find_nccl_files(pid, facts.environment.get(FILE_VARIABLE, "")))
        for identity, path in own.items():
            files.setdefault(identity, _OutputFile(path)).ranks.append(facts.rank)
        for identity, path in relayed.items():
            files.setdefault(identity, _OutputFile(path, is_shared=True))
    return files


def _find_launchers_files(pid: int) -> Mapping[tuple[int, int], str]:
    """Return where the output of the launcher above a process goes: mpirun prints there what comes
    over the pipes of its ranks.
    """
    above = _find_launcher(pid)
    return {} if above is None else find_output_files(PrintingRank(0, above))


def _find_launcher(pid: int) -> int | None:
    for above in walk_up(pid, _MOST_ABOVE):
        if Ancestor({}, words_of(above)).launcher is not None:
            return above
    return None


def _find_relayed_files(
    ranks: Sequence[RankFacts], known: Mapping[tuple[int, int], _OutputFile]
) -> Iterator[_OutputFile]:
    """Yield the files, but those that are known, to which others write what comes over the pipes of
    these ranks, or of their launchers: who has such a pipe for its input, and the srun of a rank's
    job. It takes a pass over all processes where a rank prints to a pipe, and none otherwise.
    """
    printers = [
        facts
        for facts in ranks
        if facts.pid is not None
        and facts.alive
        and not find_output_files(PrintingRank(facts.rank, facts.pid))
    ]
    launchers = {_find_launcher(facts.pid) for facts in printers if facts.pid is not None}
    writers = [facts.pid for facts in printers] + [*launchers]
    pipes = {link for pid in writers if pid is not None for link in _list_output_pipes(pid)}
    readers = [
        end.pid
        for ends in (find_holders(pipes).values() if pipes else ())
        for end in ends
        if end.fd == 0 and end.reads
    ]
    jobs = {job for facts in printers if (job := facts.environment.get(_SLURM_JOB))}
    seen = set(known)
    for pid in dict.fromkeys((*readers, *(_find_sruns(jobs) if jobs else ()))):
        for identity, path in _list_written_files(pid):
            if identity not in seen:
                seen.add(identity)
                yield _OutputFile(path, is_shared=True)


def _list_output_pipes(pid: int) -> Iterator[str]:
    for number in (1, 2):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if link.startswith("pipe:"):
            yield link


def _find_sruns(jobs: Collection[str]) -> Iterator[int]:
    """Yield the processes of srun that have started steps of these jobs from this machine."""
    for pid in list_pids():
        about = read_stat(pid)
        if about is not None and about.comm == "srun":
            variables = variables_of(pid) or {}
            if variables.get(_SLURM_JOB) in jobs:
                yield pid


def _list_written_files(pid: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield identity and path of the regular files that a process has open to write."""
    try:
        numbers = sorted(read_links(pid))[:_MOST_DESCRIPTORS]
    except OSError:
        return
    for number in numbers:
        path = f"/proc/{pid}/fd/{number}"
        try:
            if not os.lstat(path).st_mode & stat.S_IWUSR:  # how it was opened
                continue
            about = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(about.st_mode):
            yield (about.st_dev, about.st_ino), path


def _find_nccl_files(pid: int | None, pattern: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield identity and path of the file that NCCL_DEBUG_FILE names: NCCL has it open. %h in the
    variable is the host, %p the process, %% a per cent sign (ncclDebugInit, src/debug.cc).
    """
    if pid is None or not pattern:
        return
    name = compile_file_pattern(pattern)
    try:
        links = read_links(pid)
    except OSError:
        return
    for number, link in links.items():
        path = f"/proc/{pid}/fd/{number}"
        if name.search(link):
            try:
                about = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode):
                yield (about.st_dev, about.st_ino), path


def compile_file_pattern(pattern: str) -> re.Pattern[str]:
    """Return what the path of a file matches that a value of NCCL_DEBUG_FILE is for."""
    parts = {"%%": "%", "%h": r"[^/]*", "%p": r"\d+"}
    words = re.split(r"(%[%hp])", os.path.normpath(pattern))
    text = "".join(parts.get(word, re.escape(word)) for word in words)
    return re.compile(rf"^{text}$" if pattern.startswith("/") else rf"/{text}$")


def _read_file_ends(path: str) -> bytes:
    """Return the beginning and the end of a regular file, whole lines; b"" for another one."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return b""
            if about.st_size <= _HEAD + _TAIL:
                return file.read(_HEAD + _TAIL)
            head = file.read(_HEAD)
            file.seek(about.st_size - _TAIL)
            tail = file.read(_TAIL)
    except (OSError, ValueError):
        return b""
    return head.rpartition(b"\n")[0] + b"\n" + tail.partition(b"\n")[2]


def read_birth_time(path: str) -> float | None:
    """Return when a file was made (wall clock), None where the file system does not tell.

    statx(2); the offsets are those of struct statx in linux/stat.h.
    """
    found = ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found)
    except (AttributeError, OSError, ValueError):  # a C library without it
        return None
    (told,) = struct.unpack_from("<I", found, 0)
    seconds, nanoseconds = struct.unpack_from("<qI", found, 80)
    return None if failed or not told & _STATX_BTIME else float(seconds + nanoseconds / 1e9)


# ---- whose a line is -----------------------------------------------------------------------------


def _identify_process(pid: int) -> tuple[str, int]:
    """Return host and pid of a process as itself knows them; "" for a host that is not ours."""
    host = ""
    try:
        if os.readlink(f"/proc/{pid}/ns/uts") == os.readlink("/proc/self/ns/uts"):
            host = socket.gethostname().partition(".")[0]
    except OSError:
        pass
    return host, read_inner_id(f"/proc/{pid}/status") or pid


def _assign_lines(
    file: _OutputFile, lines: Sequence[NcclLine], processes: Mapping[tuple[str, int], RankId]
) -> Iterator[RankedLine]:
    """Yield lines of these processes with their ranks. One that names no process is of the rank
    that has the file for itself.
    """
    for line in lines:
        host, pid = line.process
        if pid:
            rank = processes.get((host.partition(".")[0], pid), processes.get(("", pid)))
        else:
            rank = file.owner
        if rank is not None:
            yield replace(line, task=None), rank


def _is_made_for(file: _OutputFile, since: float) -> bool:
    """Return whether a file was made for a job that has started then."""
    born = read_birth_time(file.path)
    return born is not None and born > since - _STARTS


def _assign_messages(
    file: _OutputFile, lines: Sequence[str], since: float, numbers: set[RankId]
) -> Iterator[tuple[RankId, WatchdogMessages]]:
    """Yield what the watchdogs said since the start of the job. What names no rank, or one that
    nobody here is known by, is of the rank that has the file for itself.
    """
    owner = file.owner
    # Lines without a time are all its own in a file that was made for this job.
    is_whole = owner is not None and _is_made_for(file, since)
    messages = read_watchdog_messages(lines, find_time_of_year(since), with_untimed=is_whole)
    # Beside lines with a rank those without one are what exceptions say again.
    marked = any(one.rank is not None for one in messages)
    for one in messages:
        if one.rank in numbers:
            yield one.rank, one
        elif owner is None or (marked and one.rank is None):
            continue
        elif not marked or isinstance(owner, UnknownRank):
            yield owner, one
