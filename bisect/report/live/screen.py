"""Control sequences that let lines scroll above a table in the last rows of a terminal.

Sequences of ECMA-48 and DEC's VT100, as xterm's ctlseqs.html has them; every one leaves the cursor
where it was, and is to be written at once. While others write to the same terminal, the margins
(DECSTBM) keep their line feeds off the table: the last row that scrolls is the one above it.

Whether a table may be drawn on a terminal at this moment is read from the kernel.
"""

from __future__ import annotations

import os
import termios
from collections.abc import Sequence

from ...base.lazy_dataclass import dataclass
from ...base.proc import read_stat

_SAVE, _RESTORE = "\x1b7", "\x1b8"  # DECSC, DECRC: the cursor, its colours, and its margin's flag
_WHOLE = "\x1b[r"  # DECSTBM: the whole screen scrolls
_INDEX = "\x1bD"  # IND: a line down in the same column, scrolling at the last
_CANCEL = "\x18"  # CAN: forget a sequence that was cut
UNFINISHED = _CANCEL + _RESTORE  # before what follows one of these that was written in part


def reserve_rows(lines: int, height: int) -> str:
    """Return what makes room for a table of `height` rows at the end of `lines`, below the cursor.

    The cursor goes down and up again: what stands in the last rows scrolls up, and where there is
    nothing nothing moves.
    """
    room = f"{_INDEX * height}\x1b[{height}A"
    return f"{_SAVE}{_WHOLE}{_RESTORE}{room}{_SAVE}\x1b[1;{lines - height}r{_RESTORE}"


def draw_rows(rows: Sequence[str], lines: int, height: int) -> str:
    """Return what draws `rows` from the first of the `height` reserved ones on. The margins are set
    again, because a program may have reset them (`clear`, `reset`).
    """
    shown = [*rows, *[""] * (height - len(rows))][:height]
    first = lines - height + 1
    drawn = "".join(f"\x1b[{first + i};1H\x1b[0m{row}\x1b[0m\x1b[K" for i, row in enumerate(shown))
    return f"{_SAVE}\x1b[1;{lines - height}r{drawn}{_RESTORE}"


def clear_rows(lines: int, height: int) -> str:
    """Return what removes the table: the last `height` of `lines` are empty, all lines scroll."""
    first = lines - height + 1
    return f"{_SAVE}{_WHOLE}\x1b[0m\x1b[{first};1H\x1b[J{_RESTORE}"


def clear_lost_table() -> str:
    """Return what removes a table whose place is not known any more: the terminal has got
    another size, or its drawer was killed. It was below the cursor.
    """
    return f"{_CANCEL}{_SAVE}{_WHOLE}{_RESTORE}\x1b[J"


_STOPPED = "TtZX"


@dataclass(frozen=True)
class TerminalOwner:
    """The process that stands for the job on its terminal."""

    pid: int

    def is_in_front(self) -> bool:
        """Return whether the terminal is the job's: not that of a shell to which the job was
        stopped (Ctrl-Z), put in the background, or ended.
        """
        found = read_stat(self.pid)
        return found is not None and found.state not in _STOPPED and found.group == found.foreground


def find_owner(ranks: Sequence[int], launcher: int, terminal: int) -> TerminalOwner | None:
    """Return what stands for a job on the device `terminal` (st_rdev), None if nothing does.

    That is its launcher: torchrun's workers lead sessions of their own, without a terminal. A rank
    where it was started by a shell, which is in front when the job is not. mpirun gives its ranks
    terminals that no person sees.
    """
    here = {
        pid: found
        for pid in (launcher, *ranks)
        if (found := read_stat(pid)) is not None and _terminal_device(found.terminal) == terminal
    }
    groups = {here[pid].group for pid in ranks if pid in here}
    if launcher in here and (not groups or here[launcher].group in groups):
        return TerminalOwner(launcher)
    return next((TerminalOwner(pid) for pid in ranks if pid in here), None)


def is_line_by_line(fd: int) -> bool:
    """Return whether no program reads single keys (a debugger's prompt, `less`, an editor): such a
    one draws on the whole screen itself.
    """
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except (termios.error, OSError):
        return False


def _terminal_device(number: int) -> int:
    """Return a device of /proc/PID/stat as st_rdev has it: its minor number is in bits 31 to 20 and
    7 to 0, the major one in 15 to 8 (proc(5)).
    """
    return os.makedev(number >> 8 & 0xFFF, number >> 20 << 8 | number & 0xFF)
