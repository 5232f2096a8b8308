"""The threads of a process as the kernel sees them: state, where they wait, in which call."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..facts import Kernel, Syscall
from . import syscalls
from .sample import stat

MOST_THREADS = 256


class Status(NamedTuple):
    """What of /proc/PID/status is of use here."""

    tracer: int
    signals_pending: tuple[int, ...]
    memory: int | None = None  # resident, bytes
    swapped: int | None = None
    waits: int | None = None  # times that the main thread has waited for something


def threads(pid: int, missing: list[str]) -> tuple[Kernel, ...]:
    """Return the threads of a process, the main one first; empty if it is gone.

    The system calls are raw: `arguments.decode` fills in the rest.
    """
    try:
        tids = sorted((int(t) for t in os.listdir(f"/proc/{pid}/task")), key=lambda t: t != pid)
    except OSError:
        return ()
    if len(tids) > MOST_THREADS:
        missing.append(f"Only {MOST_THREADS} of the {len(tids)} threads of {pid} were looked at.")
    found = [thread for tid in tids[:MOST_THREADS] if (thread := _thread(pid, tid, missing))]
    return tuple(found)


def _thread(pid: int, tid: int, missing: list[str]) -> Kernel | None:
    about = stat(pid, tid)
    if about is None:
        return None
    wchan = _text(f"/proc/{pid}/task/{tid}/wchan")
    wchan = "" if wchan == "0" else wchan
    call = None
    if about.state != "Z":
        try:
            with open(f"/proc/{pid}/task/{tid}/syscall", errors="replace") as file:
                call = parse_syscall(file.read(), wchan)
        except PermissionError:
            note(missing, f"The system calls of {pid} could not be read (not permitted).")
        except OSError:
            pass
    return Kernel(tid, about.comm, about.state, wchan, call)


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
    return Syscall(number, syscalls.name(number, wchan), args, stack=stack)


def status(pid: int) -> Status:
    """Return the tracer, the pending signals, the memory and the waits of a process."""
    return parse_status(_text(f"/proc/{pid}/status"))


def parse_status(text: str) -> Status:
    """Return what is of use of the text of /proc/PID/status."""
    tracer, pending, waits = 0, 0, None
    memory: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        try:
            if key == "TracerPid":
                tracer = int(value)
            elif key in ("SigPnd", "ShdPnd"):
                pending |= int(value, 16)
            elif key == "voluntary_ctxt_switches":
                waits = int(value)
            elif key in ("VmRSS", "VmSwap"):
                memory[key] = int(value.split()[0]) * 1024  # in kB, whatever the machine
        except (ValueError, IndexError):
            continue
    signals = tuple(bit + 1 for bit in range(64) if pending >> bit & 1)
    return Status(tracer, signals, memory.get("VmRSS"), memory.get("VmSwap"), waits)


def cut_by_a_pause(kernel: tuple[Kernel, ...]) -> str:
    """Return why this process must not be paused (for native frames), "" if it may be.

    A pause ends some waits with EINTR: the look would change what is looked at. Only the main
    thread is judged: background threads wait in epoll in nearly every rank, and ask again.
    """
    if not kernel:
        return ""
    main = kernel[0]
    if main.state in "Tt":
        return "it is stopped"
    if main.state == "D":
        return "it is in the kernel, where a debugger would wait for it"
    if main.syscall is not None and main.syscall.name in syscalls.CUT_BY_A_PAUSE:
        return f"a pause could end its {main.syscall.name}"
    return ""


def note(missing: list[str], sentence: str) -> None:
    """Add a sentence once."""
    if sentence not in missing:
        missing.append(sentence)


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
