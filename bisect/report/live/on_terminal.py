"""Whether a table may be drawn on a terminal now, read from the kernel."""

from __future__ import annotations

import os
import termios
from collections.abc import Sequence
from dataclasses import dataclass

_STOPPED = "TtZX"


@dataclass(frozen=True)
class Owner:
    """The process that stands for the job on its terminal."""

    pid: int

    def is_in_front(self) -> bool:
        """Return whether the terminal is the job's: not that of a shell to which the job was
        stopped (Ctrl-Z), put in the background, or ended.
        """
        found = _stat(self.pid)
        return found is not None and found.state not in _STOPPED and found.group == found.foreground


def owner(ranks: Sequence[int], launcher: int, terminal: int) -> Owner | None:
    """Return what stands for a job on the device `terminal` (st_rdev), None if nothing does.

    That is its launcher: torchrun's workers lead sessions of their own, without a terminal. A rank
    where it was started by a shell, which is in front when the job is not. mpirun gives its ranks
    terminals where nobody looks.
    """
    here = {
        pid: found
        for pid in (launcher, *ranks)
        if (found := _stat(pid)) is not None and found.terminal == terminal
    }
    groups = {here[pid].group for pid in ranks if pid in here}
    if launcher in here and (not groups or here[launcher].group in groups):
        return Owner(launcher)
    return next((Owner(pid) for pid in ranks if pid in here), None)


def is_line_by_line(fd: int) -> bool:
    """Return whether no program reads single keys (a debugger's prompt, `less`, an editor): such a
    one draws on the whole screen itself.
    """
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except (termios.error, OSError):
        return False


@dataclass(frozen=True)
class _Stat:
    state: str
    group: int
    terminal: int
    foreground: int


def _stat(pid: int) -> _Stat | None:
    """Return fields of /proc/PID/stat (proc(5)); None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    number = int(fields[4])  # the minor number in bits 31 to 20 and 7 to 0, the major in 15 to 8
    device = os.makedev(number >> 8 & 0xFFF, number >> 20 << 8 | number & 0xFF)
    return _Stat(fields[0].decode(), int(fields[2]), device, int(fields[5]))
