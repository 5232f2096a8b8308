"""The memory of another process: whether the kernel lets us read it (Yama, seccomp, capabilities),
and a reader.

A read may block while that process changes its memory map in state D: only call it aside.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from types import TracebackType

from ..rank.ptrace_permission import YAMA

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
        """Return the seconds of a timespec (of a timeval with `fraction` 1e-6)."""
        data = self.read(address, 16)
        if data is None or len(data) < 16:
            return None
        seconds, parts = struct.unpack("=qq", data)
        return float(seconds) + float(parts) * fraction
