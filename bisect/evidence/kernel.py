"""A process as the kernel sees it: its threads, the system call that each is in, and whether it is
frozen.

The numbers and arguments of the system calls are those that processes hang in (see man 2).

A process may be frozen with its control group: a container that was paused, a job that its batch
system suspended. No other fact tells: the second version of cgroups leaves it in state S and in
its system call, the first in state D where it was (Linux 6.18).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..base import cgroups
from ..base.proc import LARGEST, read_stat
from ..base.process_facts import Kernel, Syscall
from .process import read_io


def _parse_table(text: str) -> dict[int, str]:
    pairs = (entry.split("=") for entry in text.split())
    return {int(number): name for name, number in pairs}


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text, for tables that a person can read."""
    return frozenset(text.split())


# From asm/unistd_64.h and asm-generic/unistd.h (which aarch64 uses). No Python package has them.
_X86_64 = _parse_table("""
read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10
munmap=11 mremap=25 msync=26 madvise=28 ioctl=16 pread64=17 pwrite64=18 readv=19
writev=20 access=21 select=23 sched_yield=24 pause=34 nanosleep=35 sendfile=40
connect=42 accept=43 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 clone=56 vfork=58
execve=59 wait4=61 semop=65 semtimedop=220 msgsnd=69 msgrcv=70 fcntl=72 flock=73
fsync=74 fdatasync=75 truncate=76 ftruncate=77 getdents64=217 chdir=80 rename=82
mkdir=83 rmdir=84 creat=85 link=86 unlink=87 symlink=88 readlink=89 rt_sigsuspend=130
rt_sigtimedwait=128 statfs=137 fstatfs=138 sync=162 mount=165 futex=202 io_getevents=208
restart_syscall=219 clock_nanosleep=230 exit_group=231 epoll_wait=232
mq_timedreceive=243 mq_timedsend=242 waitid=247 openat=257 mkdirat=258 newfstatat=262
unlinkat=263 renameat=264 renameat2=316 linkat=265 symlinkat=266 readlinkat=267
faccessat=269 faccessat2=439 pselect6=270 ppoll=271 splice=275 epoll_pwait=281
epoll_pwait2=441 fallocate=285 accept4=288 preadv=295 pwritev=296 recvmmsg=299
sendmmsg=307 syncfs=306 getrandom=318 execveat=322 copy_file_range=326 preadv2=327
pwritev2=328 statx=332 io_pgetevents=333 io_uring_enter=426 openat2=437 futex_waitv=449
process_vm_readv=310 inotify_add_watch=254
""")
_AARCH64 = _parse_table("""
read=63 write=64 close=57 fstat=80 lseek=62 mmap=222 mprotect=226 munmap=215 mremap=216
msync=227 madvise=233 ioctl=29 pread64=67 pwrite64=68 readv=65 writev=66 sched_yield=124
nanosleep=101 sendfile=71 connect=203 accept=202 sendto=206 recvfrom=207 sendmsg=211
recvmsg=212 clone=220 execve=221 wait4=260 semop=193 semtimedop=192 msgsnd=189
msgrcv=188 fcntl=25 flock=32 fsync=82 fdatasync=83 truncate=45 ftruncate=46
getdents64=61 chdir=49 rt_sigsuspend=133 rt_sigtimedwait=137 statfs=43 fstatfs=44
sync=81 mount=40 futex=98 io_getevents=4 restart_syscall=128 clock_nanosleep=115
exit_group=94 mq_timedreceive=183 mq_timedsend=182 waitid=95 openat=56 mkdirat=34
newfstatat=79 unlinkat=35 renameat=38 renameat2=276 linkat=37 symlinkat=36 readlinkat=78
faccessat=48 faccessat2=439 pselect6=72 ppoll=73 splice=76 epoll_pwait=22
epoll_pwait2=441 fallocate=47 accept4=242 preadv=69 pwritev=70 recvmmsg=243 sendmmsg=269
syncfs=267 getrandom=278 execveat=281 copy_file_range=285 preadv2=286 pwritev2=287
statx=291 io_pgetevents=292 io_uring_enter=426 openat2=437 futex_waitv=449
process_vm_readv=270 inotify_add_watch=27
""")
_SYSCALL_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})

# Which argument is a descriptor.
DESCRIPTOR_ARGUMENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        split_words(
            "read pread64 readv preadv preadv2 write pwrite64 writev pwritev pwritev2 lseek close "
            "fstat ioctl connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg "
            "fcntl flock fsync fdatasync ftruncate fallocate getdents64 fstatfs syncfs epoll_wait "
            "epoll_pwait epoll_pwait2 mq_timedreceive mq_timedsend io_uring_enter "
            "inotify_add_watch"
        ),
        (0,),
    ),
    "sendfile": (1, 0),
    "splice": (0, 2),
    "copy_file_range": (0, 2),
    "mmap": (4,),
}

# Which argument is a path.
PATH_ARGUMENT: dict[str, int] = {
    **dict.fromkeys(
        split_words(
            "open creat stat lstat access chdir mkdir rmdir rename link unlink symlink readlink "
            "statfs truncate execve mount"
        ),
        0,
    ),
    **dict.fromkeys(
        split_words(
            "openat openat2 mkdirat unlinkat renameat renameat2 linkat readlinkat newfstatat statx "
            "faccessat faccessat2 execveat inotify_add_watch"
        ),
        1,
    ),
    "symlinkat": 2,
}

# Which argument points to a timespec that counts from the call.
TIMESPEC_ARGUMENT: dict[str, int] = {
    "nanosleep": 0,
    "ppoll": 2,
    "pselect6": 4,
    "epoll_pwait2": 3,
    "semtimedop": 3,
    "rt_sigtimedwait": 2,
    "recvmmsg": 4,
    "io_getevents": 4,
    "io_pgetevents": 4,
}

# Which argument is a number of milliseconds.
MILLISECONDS_ARGUMENT: dict[str, int] = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}

# Calls that end with EINTR when the process is stopped for a moment and goes on (man 7 signal),
# or do so with a time limit on the socket, which cannot be seen from outside. A write that has put
# a part into a pipe returns how much.
CUT_BY_A_PAUSE = split_words(
    "epoll_wait epoll_pwait epoll_pwait2 semop semtimedop rt_sigtimedwait io_getevents "
    "io_pgetevents recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg accept accept4 connect "
    "msgrcv msgsnd write writev"
)


# Those of them that end so in whatever thread, and that C programs seldom call again: System V IPC.
_CUT_FOR_GOOD = split_words("semop semtimedop msgrcv msgsnd")
_RECEIVES = split_words("read readv recvfrom recvmsg recvmmsg")


def may_wait_for_input(call: Syscall) -> bool:
    """Return whether a call returns only when something comes, at a socket or a pipe: one that
    reads, or a poll() of them without a time limit. A signal cuts it off, too.
    """
    if call.name == "poll" and len(call.args) > 2:
        return bool(call.args[2] & 0x80000000)  # an int below 0: no time limit (poll(2))
    return call.name in _RECEIVES


def syscall_name(number: int, wchan: str = "") -> str:
    """Return the name of a system call, "syscall N" where it is not known.

    A call that goes on after a stop is `restart_syscall` to the kernel; where it waits (`wchan`)
    then tells which it was, and its arguments are still those of the call.
    """
    known = _SYSCALL_NAMES.get(number, f"syscall {number}")
    if known != "restart_syscall":
        return known
    for part, real in (("futex", "futex"), ("nanosleep", "clock_nanosleep"), ("poll", "poll")):
        if part in wchan:
            return real if real in _SYSCALL_NAMES.values() else "ppoll"
    return known


MOST_THREADS = 256


class ProcessStatus(NamedTuple):
    """What of /proc/PID/status is of use here."""

    tracer: int
    signals_pending: tuple[int, ...]
    memory: int | None = None  # resident, bytes
    swapped: int | None = None
    waits: int | None = None  # times that the main thread has waited for something
    timer_signals: tuple[int, ...] = ()  # those of interval timers that it catches


# What an interval timer sends (man 2 setitimer, man 2 alarm): /proc does not show whether one runs.
_OF_TIMERS = frozenset([signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF])


def read_threads(pid: int, missing: list[str]) -> tuple[Kernel, ...]:
    """Return the threads of a process, the main one first; empty if it is gone.

    The system calls are raw: `syscall_arguments.decode_syscall` fills in the rest.
    """
    try:
        tids = sorted((int(t) for t in os.listdir(f"/proc/{pid}/task")), key=lambda t: t != pid)
    except OSError:
        return ()
    if len(tids) > MOST_THREADS:
        missing.append(f"Only {MOST_THREADS} of the {len(tids)} threads of {pid} were looked at.")
    found = [thread for tid in tids[:MOST_THREADS] if (thread := read_thread(pid, tid, missing))]
    return tuple(found)


def read_thread(pid: int, tid: int, missing: list[str]) -> Kernel | None:
    """Return one thread of a process, None if it is gone; `missing` is told what may not be read.

    The system call is raw, as above.
    """
    about = read_stat(pid, tid)
    if about is None:
        return None
    wchan = _read_text(f"/proc/{pid}/task/{tid}/wchan")
    wchan = "" if wchan == "0" else wchan
    call = None
    if about.state != "Z":
        try:
            with open(f"/proc/{pid}/task/{tid}/syscall", errors="replace") as file:
                call = parse_syscall(file.read(), wchan)
        except PermissionError:
            note_once(missing, f"The system calls of {pid} could not be read (not permitted).")
        except OSError:
            pass
    waits = None
    if tid != pid and call is not None and may_wait_for_input(call):
        waits = parse_process_status(_read_text(f"/proc/{pid}/task/{tid}/status")).waits
    written = None
    if tid != pid and about.state != "Z":
        written = read_io(pid, tid).get("wchar")
    return Kernel(tid, about.comm, about.state, wchan, call, waits, written)


def parse_syscall(text: str, wchan: str = "") -> Syscall | None:
    """Return the call in a line of /proc/PID/syscall; None if it is in none ("running", -1)."""
    fields = text.split()
    try:
        number = int(fields[0])
        args = tuple(int(field, 16) for field in fields[1:7])
        stack = int(fields[7], 16)
    except (IndexError, ValueError):
        return None
    if number < 0:
        return None
    return Syscall(number, syscall_name(number, wchan), args, stack=stack)


def read_status(pid: int) -> ProcessStatus:
    """Return the tracer, the pending signals, the memory and the waits of a process."""
    return parse_process_status(_read_text(f"/proc/{pid}/status"))


def parse_process_status(text: str) -> ProcessStatus:
    """Return what is of use of the text of /proc/PID/status."""
    tracer, pending, caught, waits = 0, 0, 0, None
    memory: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        try:
            if key == "TracerPid":
                tracer = int(value)
            elif key in ("SigPnd", "ShdPnd"):
                pending |= int(value, 16)
            elif key == "SigCgt":
                caught = int(value, 16)
            elif key == "voluntary_ctxt_switches":
                waits = int(value)
            elif key in ("VmRSS", "VmSwap"):
                memory[key] = int(value.split()[0]) * 1024  # in kB, whatever the machine
        except (ValueError, IndexError):
            continue
    signals = tuple(bit + 1 for bit in range(64) if pending >> bit & 1)
    timers = tuple(sorted(int(one) for one in _OF_TIMERS if caught >> (one - 1) & 1))
    resident, swapped = memory.get("VmRSS"), memory.get("VmSwap")
    return ProcessStatus(tracer, signals, resident, swapped, waits, timers)


def reason_not_to_pause(kernel: tuple[Kernel, ...]) -> str:
    """Return why this process must not be paused (for native frames), "" if it may be.

    A pause ends some waits with EINTR: the look would change what is looked at. Of background
    threads only calls count that nobody repeats: they wait in epoll in nearly every rank, and ask
    again.
    """
    if not kernel:
        return ""
    main = kernel[0]
    if main.state in "Tt":
        return "it is stopped"
    if main.state == "D":
        return "it is in the kernel, where a debugger would wait for it"
    for thread in kernel:
        cut = CUT_BY_A_PAUSE if thread is main else _CUT_FOR_GOOD
        if thread.syscall is not None and thread.syscall.name in cut:
            return f"a pause could end its {thread.syscall.name}"
    return ""


def note_once(missing: list[str], sentence: str) -> None:
    """Add a sentence once."""
    if sentence not in missing:
        missing.append(sentence)


def _read_text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""


_FREEZER_FILES = {
    "cgroup2": "cgroup.events",
    "cgroup": "freezer.state",
}  # both count the groups above


def find_frozen_group(pid: int) -> str:
    """Return the group of a process if it is frozen, else ""."""
    groups = parse_cgroups(_read_cgroup_file(Path(f"/proc/{pid}/cgroup")))
    for kind, mounted in parse_cgroup_mounts(_read_cgroup_file(Path("/proc/self/mountinfo"))):
        path = groups.get(kind)
        if path is None:
            continue
        folder = mounted / path.strip("/")
        # In a container the path may be the one outside of it; its own group is what is mounted.
        place = folder if folder.is_dir() else mounted
        if parse_frozen(_read_cgroup_file(place / _FREEZER_FILES[kind])):
            return str(place)
    return ""


def count_oom_kills_beside(pid: int) -> int | None:
    """Return how many processes of the control group of one the kernel has ended for want of
    memory, None where that is not known. A zombie is in its group still, but for the
    first version: there it is in the outermost.
    """
    return cgroups.count_oom_kills(_read_cgroup_file(Path(f"/proc/{pid}/cgroup")))


def parse_cgroups(text: str) -> dict[str, str]:
    """Return the group of each kind in the text of a /proc/PID/cgroup."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            found["cgroup2"] = path
        elif "freezer" in names.split(","):
            found["cgroup"] = path
    return found


def parse_cgroup_mounts(text: str) -> Iterator[tuple[str, Path]]:
    """Yield (kind, folder) of the mounts in the text of a mountinfo that can tell."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, about = before.split(), after.split()
        if len(fields) < 5 or not about or "\0" in fields[4]:
            continue
        if about[0] == "cgroup2" or (about[0] == "cgroup" and "freezer" in about[-1].split(",")):
            yield about[0], Path(fields[4])


def parse_frozen(text: str) -> bool:
    """Return what the text of a cgroup.events or a freezer.state says."""
    return "frozen 1" in text.splitlines() or text.strip() == "FROZEN"


def _read_cgroup_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
