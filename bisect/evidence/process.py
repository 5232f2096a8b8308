"""A process, read from /proc: its state, times, command line, whether a pid is still the same
process, and its memory, if the kernel lets us read that (Yama, seccomp, capabilities).

A read of memory may block while that process changes its memory map in state D: only call it with
a limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..base.deadline import within
from ..base.lazy_dataclass import dataclass
from ..base.proc import LARGEST, list_pids, read_stat
from ..rank.ptrace_permission import YAMA

if TYPE_CHECKING:
    from ..base.process_facts import Sample, Socket

_TICKS = os.sysconf("SC_CLK_TCK")


def started(pid: int) -> int | None:
    """Return when a process started (clock ticks after boot): tells a pid that was used again."""
    found = read_stat(pid)
    return found.started if found else None


def runs_python(pid: int, words: Sequence[str] = ()) -> bool:
    """Return whether the program that a process runs is a Python. Of another user's process that is
    not to be read; the `words` that it was started with tell then, if there are any.
    """
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        name = os.path.basename(words[0]) if words else ""
    return name.startswith(("python", "pypy"))


def exit_code(pid: int) -> int | None:
    """Return the exit status of a zombie (negative: the signal that ended it), else None.

    The kernel tells it to the same user without being the parent. It says 0 to another user.
    """
    found = read_stat(pid)
    if found is None or found.state not in "ZX":
        return None
    try:
        return os.waitstatus_to_exitcode(found.status)
    except (ValueError, OverflowError):
        return None


# PIDFD_GET_INFO, and of it PIDFD_INFO_EXIT (linux/pidfd.h, 6.15): the first 64 bytes of its struct.
_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3


def exit_code_of_reaped(descriptor: int) -> int | None:
    """Return the exit status of the process of a pidfd whose parent has taken it already (negative:
    the signal that ended it). None where it was not taken, or the kernel is older than 6.15.
    """
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, info)
        known, status = struct.unpack("Q52xi", info)
        return os.waitstatus_to_exitcode(status) if known & _INFO_EXIT else None
    except (OSError, ValueError, OverflowError):
        return None


def sample(
    pid: int,
    *,
    net: bool | Mapping[int, Socket] = False,
    polling: Collection[int] = (),
    limit: float = 0.2,
) -> Sample | None:
    """Return the counters of a process, None if it is gone (a zombie is gone).

    With `net`, the net payload it received over all its TCP sockets, too; give the table of
    `descriptors.read_sockets()` instead of True to sample many processes at one time. `polling` are
    its threads that only poll, whose CPU time is told apart.
    """
    from ..base.process_facts import Sample

    found = read_stat(pid)
    if found is None or found.state in "ZX":
        return None
    now = time.monotonic()
    # /proc/PID/io waits for a process in the middle of exec, which may be stuck there; then it
    # is in state D.
    try:
        whole, main = within(limit, _both_io, pid) if found.state == "D" else _both_io(pid)
    except TimeoutError:
        whole, main = {}, {}
    return Sample(
        at=now,
        pid=pid,
        started=found.started,
        state=found.state,
        cpu=found.ticks / _TICKS,
        read=max(whole.get("rchar", 0), whole.get("read_bytes", 0)),
        written=max(whole.get("wchar", 0), whole.get("write_bytes", 0)),
        received=_received(pid, net) if net is not False else None,
        disk_read=whole.get("read_bytes", 0),
        faults=found.faults,
        delayed=0.0 if pid in polling else _delayed(pid),  # that of the main thread
        main_read=main.get("rchar", 0),
        main_written=main.get("wchar", 0),
        polling=tuple(
            (tid, about.ticks / _TICKS) for tid in polling if (about := read_stat(pid, tid))
        ),
    )


def find_polling_threads(pid: int) -> tuple[int, ...]:
    """Return the threads of a process that only poll, by their names; none of one that is gone."""
    from ..base.library_functions import POLLING_THREADS  # a monitor starts without it

    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return ()
    return tuple(
        tid for tid in tids if (about := read_stat(pid, tid)) and about.comm in POLLING_THREADS
    )


def _both_io(pid: int) -> tuple[dict[str, int], dict[str, int]]:
    return read_io(pid), read_io(pid, pid)


def _delayed(pid: int) -> float:
    """Return the second field of /proc/PID/schedstat in seconds, 0.0 where there is none."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def read_io(pid: int, tid: int | None = None) -> dict[str, int]:
    """Return the counters of /proc/PID/io of a process or of one thread of it (proc_pid_io(5)), {}
    where they cannot be read.
    """
    path = f"/proc/{pid}/io" if tid is None else f"/proc/{pid}/task/{tid}/io"
    try:
        with open(path) as file:
            lines = [line.split() for line in file]
        return {name[:-1]: int(value) for name, value in lines}
    except (OSError, ValueError):
        return {}


def _received(pid: int, net: bool | Mapping[int, Socket]) -> int | None:
    from .descriptors import parse_socket_inode, read_links, read_sockets

    known = read_sockets() if isinstance(net, bool) else net
    try:
        inodes = {parse_socket_inode(link) for link in read_links(pid).values()}
    except OSError:
        return None
    counts = [known[i].received for i in inodes if i is not None and i in known]
    return sum(count for count in counts if count is not None)


def family(roots: Iterable[int]) -> dict[int, int]:
    """Return the descendants of `roots`, each with the nearest root above it, in one pass.

    Roots are not in it, unless they are gone. A child whose parent ended is no descendant any
    more (see `marked`). Nor are this process and what it has started, which the first process of
    a container adopts, and that may be a rank.
    """
    parents = {pid: found.ppid for pid in list_pids() if (found := read_stat(pid))}
    tops = set(roots)
    if os.getpid() not in tops:
        parents.pop(os.getpid(), None)
    found_in: dict[int, int] = {}
    for pid in parents:
        path, at = [], pid
        while at not in tops and at not in found_in and at in parents and at not in path:
            path.append(at)
            at = parents[at]
        root = at if at in tops else found_in.get(at)
        if root is not None:
            found_in.update(dict.fromkeys(path, root))
    return found_in


def descendants(roots: Iterable[int]) -> list[int]:
    """Return the pids of what is below `roots`, without a pass over all processes, and without this
    process and what it has started (see `family`).

    /proc/PID/task/TID/children lists the children of a thread (proc(5); CONFIG_PROC_CHILDREN);
    where the kernel has no such file, all processes are asked.
    """
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        below = _children(waiting.pop())
        if below is None:
            return sorted(family(roots))
        new = [pid for pid in below if pid not in found and pid != os.getpid()]
        found += new
        waiting += new
    return found


def _children(pid: int) -> list[int] | None:
    """Return the children of a process, None where the kernel does not list them."""
    below: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return below
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                below += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return None
        except (OSError, ValueError):
            continue
    return below


def marked(variable: str, value: str, limit: float = 0.5) -> set[int]:
    """Return the processes whose environment (as they were started) has variable=value.

    Finds children whose parent ended or that have a session of their own. Reading an environment
    may block: those that do are left out, and all of it takes `limit` seconds at most.
    """
    wanted = b"\0" + f"{variable}={value}".encode() + b"\0"
    hits: set[int] = set()

    def body() -> None:
        for pid in list_pids():
            found = read_stat(pid)
            if found is None or found.state in "ZXD":
                continue
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if wanted in b"\0" + file.read(LARGEST) + b"\0":
                        hits.add(pid)
            except OSError:
                continue

    try:
        within(limit, body)
    except TimeoutError:
        return set(hits)
    return hits


def words_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process, () if it cannot be had."""
    return tuple(os.fsdecode(word) for word in _read_zero_separated(pid, "cmdline") or ())


def variables_of(pid: int) -> dict[str, str] | None:
    """Return the variables that a process was started with, None if they may not be read. What it
    has set in itself since then is not among them.
    """
    variables = _read_zero_separated(pid, "environ")
    if variables is None:
        return None
    pairs = (os.fsdecode(word).partition("=") for word in variables)
    return {name: value for name, sign, value in pairs if sign}


def read_preloaded(pid: int) -> tuple[str, ...]:
    """Return what the loader was told to load before all else in a process, by the variable that it
    was started with and by the file of the machine, or container, that it runs in; () for what may
    not be read. May block.
    """
    try:
        with open(f"/proc/{pid}/root/etc/ld.so.preload", errors="replace") as file:
            listed = file.read(LARGEST)
    except OSError:
        listed = ""
    return parse_preloaded((variables_of(pid) or {}).get("LD_PRELOAD", ""), listed)


def parse_preloaded(variable: str, listed: str) -> tuple[str, ...]:
    """Return the libraries in the value of LD_PRELOAD and in the text of /etc/ld.so.preload (man 8
    ld.so: separated by spaces or colons; in the file there may be comments).
    """
    lines = [line.partition("#")[0] for line in listed.splitlines()]
    return tuple(dict.fromkeys(" ".join([variable, *lines]).replace(":", " ").split()))


def uid_of(pid: int) -> int | None:
    """Return who a process belongs to, None if it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _read_zero_separated(pid: int, name: str) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            raw = file.read(LARGEST).rstrip(b"\0")
    except OSError:
        return None
    return raw.split(b"\0") if raw else []


class Life:
    """The life of one process, from open_life() until close()."""

    def __init__(self, pid: int, started: int | None, descriptor: int | None, over: bool) -> None:
        """`started` is None where /proc does not tell it, `descriptor` where there is no pidfd."""
        self.pid = pid
        self.started = started
        self.descriptor = descriptor
        self._is_over = over

    def has_ended(self) -> bool:
        """Return whether the process has ended; a zombie has. What cannot be asked has not.

        After close() it is asked by its start time.
        """
        if not self._is_over:
            if self.descriptor is not None:
                self._is_over = _is_readable(self.descriptor)
            else:
                self._is_over = is_gone(self.pid, self.started)
        return self._is_over

    def exit_code(self) -> int | None:
        """Return the status with which the process ended, as far as the kernel still tells it."""
        status = exit_code(self.pid)
        if status is None and self.descriptor is not None:
            status = exit_code_of_reaped(self.descriptor)
        return status

    def close(self) -> None:
        """Give the descriptor back, if there is one. May be called twice."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def open_life(pid: int, started_at: int | None = None) -> Life:
    """Return the life of the process that has `pid` now, or had it from `started_at` (clock ticks
    after boot) on. If it is not there any more, that is a life that has ended. Raises nothing.

    `descriptor` of it is a pidfd, readable once the process has ended, or None: then has_ended()
    must be asked again and again.
    """
    descriptor: int | None
    try:
        if pid <= 0:  # to kill() that is a group of processes
            raise ProcessLookupError
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return Life(pid, started_at, None, over=True)
    except (OSError, ValueError, AttributeError, OverflowError):
        # Refused, or no descriptor left (EPERM, ENOSYS, EMFILE): that says nothing of the process.
        # Of EINVAL neither: it is also what a thread's id gives (pidfd_open(2)).
        descriptor = None
    # Read after the pidfd was there: so it is the start of the process that the pidfd stands for.
    now = started(pid)
    life = Life(pid, now if started_at is None else started_at, descriptor, over=False)
    if started_at is not None and now is not None and now != started_at:
        life.close()
        return Life(pid, started_at, None, over=True)
    return life


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


def is_gone(pid: int, started_at: int | None) -> bool:
    """Return whether no process has had `pid` since `started_at` (clock ticks after boot; None: it
    is not known). A zombie is gone.
    """
    try:
        os.kill(pid, 0)  # asks only (kill(2)); it answers without /proc, and with hidepid=2
    except (ProcessLookupError, OverflowError):
        return True
    except OSError as error:
        if error.errno != errno.EPERM:
            return False
    now = read_stat(pid)
    if now is None:
        return False
    if started_at is not None and now.started != started_at:
        return True
    return now.state in "ZX" and not _has_more_threads(pid)


def _has_more_threads(pid: int) -> bool:
    """Return whether threads go on after the main one: that alone is a zombie, the process not."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


_SYS_PTRACE = 19  # capability(7)


@dataclass(frozen=True)
class TracePermission:
    """What the kernel says of this process."""

    yama: int | None  # its ptrace_scope; None: it has no Yama
    filtered: bool  # seccomp filters our system calls: containers do
    capable: bool  # CAP_SYS_PTRACE


def read_trace_permission() -> TracePermission:
    """Return what this process may do. Raises OSError without a /proc."""
    with open("/proc/self/status", errors="replace") as file:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    return TracePermission(
        yama=_read_yama_scope(),
        filtered=status.get("Seccomp") == "2",
        capable=bool(int(status.get("CapEff", "0"), 16) >> _SYS_PTRACE & 1),
    )


def _read_yama_scope() -> int | None:
    try:
        with open(YAMA) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


# Seconds that the kernel can count (KTIME_SEC_MAX; more is cut to that), and the end of the
# addresses of a program: what lies between is an address.
_LONGEST_TIME, _ADDRESSES_END = 2**63 // 10**9, 1 << 57


class ProcessMemory:
    """The memory of a process, read through /proc/PID/mem; None for what cannot be read.

    Stops nothing and needs no more than the leave to trace (process_vm_readv asks for the same).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.refused = False
        self._fd: int | None = None

    def __enter__(self) -> ProcessMemory:
        try:
            self._fd = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            self.refused = True
        except OSError:
            pass
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def read(self, address: int, size: int) -> bytes | None:
        """Return up to `size` bytes at `address`, fewer at the end of what is mapped."""
        if self._fd is None or not 0 < address < 1 << 63:
            return None
        with contextlib.suppress(OSError, OverflowError):
            return os.pread(self._fd, size, address)
        return None

    def string(self, address: int, most: int = 4096) -> str | None:
        """Return the text at `address` up to its zero byte."""
        # A path may end short of a page that is not mapped: never read across two pages at once.
        data, at = b"", address
        while len(data) < most and b"\0" not in data:
            part = self.read(at, min(most - len(data), 4096 - at % 4096))
            if not part:
                break
            data, at = data + part, at + len(part)
        text, zero, _ = data.partition(b"\0")
        return os.fsdecode(text) if zero else None

    def timespec(self, address: int, fraction: float = 1e-9) -> float | None:
        """Return the seconds of a timespec (of a timeval with `fraction` 1e-6), None where there is
        none: the call that it was given to is over, and something else lies there.
        """
        data = self.read(address, 16)
        if data is None or len(data) < 16:
            return None
        seconds, parts = struct.unpack("=qq", data)
        is_none = seconds < 0 or _LONGEST_TIME < seconds < _ADDRESSES_END
        if is_none or (fraction == 1e-9 and not 0 <= parts < 1_000_000_000):
            return None
        return float(seconds) + float(parts) * fraction


_MAPS_LIMIT = 0.2  # seconds for the list of what a process has mapped
_LIBRARIES = (b"libtorch", b"/ray/_raylet.")  # of what makes a Python a job


def has_loaded_library(pid: int) -> bool:
    """Return whether a process has loaded what makes a Python a part of a job."""
    about = read_stat(pid)
    if about is None or about.state in "ZXD":  # to read what it has mapped might take for ever
        return False
    try:
        maps = within(_MAPS_LIMIT, _read_maps, pid)
    except (OSError, TimeoutError):
        return False
    return any(library in maps for library in _LIBRARIES)


def _read_maps(pid: int) -> bytes:
    with open(f"/proc/{pid}/maps", "rb") as file:
        return file.read(LARGEST)
