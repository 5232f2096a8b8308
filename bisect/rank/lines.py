"""Lines that every rank prints: whole, in one write, and never waiting for a reader for long."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable

from ..base.error_guard import raise_if_of_the_job
from ..base.launchers import find_launcher
from ..base.masking import mask_ends
from ..base.place import Place
from . import began

PATIENCE = 1.0  # seconds that a line may wait for room in the pipe
LONGEST = 1 << 20  # characters of what is said at once
# What pwritev2(2) answers where a file, or an older kernel, cannot write without waiting.
_CANNOT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ESPIPE, errno.EPERM)
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)  # ANSI, by rank


def format_clock(now: float) -> str:
    """Return a time of time.time() as lines begin with it: local, "14:03:07.412"."""
    return time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"


def write_within(fd: int, data: bytes, seconds: float) -> int:
    """Write `data` to `fd` for at most `seconds`; return how many bytes were taken.

    A pipe that poll() calls writable takes PIPE_BUF (4096) bytes without blocking (pipe(7)), so
    longer data goes in pieces.
    """
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    written = 0
    while written < len(data):
        left = max(0.0, end - time.monotonic())
        try:
            if not poll.poll(left * 1000):
                break
            written += _write(fd, data[written : written + 4096])
        except BlockingIOError:
            if left == 0.0:
                break
            time.sleep(min(left, 0.01))
        except OSError as error:  # the reader is gone
            raise_if_of_the_job(error)
            break
    return written


def _write(fd: int, data: bytes) -> int:
    """Write what there is room for. Raises BlockingIOError rather than wait, where the kernel can:
    another rank may have filled the pipe since it was asked.
    """
    try:
        return os.pwritev(fd, [data], -1, os.RWF_NOWAIT)  # -1: where the file stands
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return os.write(fd, data)


class Lines:
    """The lines of one rank, on a descriptor; `told` hears each of them too."""

    def __init__(self, place: Place, fd: int = 1) -> None:
        """Print as the rank at `place` on descriptor `fd`."""
        self.fd = fd
        self.plain = "NO_COLOR" in os.environ
        self.quiet = False  # print nothing: the monitor sums up many ranks
        self.told: Callable[[str], None] = lambda text: None
        self.place = place
        self.waits_once = False  # all lines together wait no longer than one may
        self._patience = PATIENCE
        self._dropped = 0
        self._blocked = False
        self._is_cut = False  # a line was taken in part

    def say(self, text: str) -> None:
        """Print `text` without secrets, each of its lines with time, elapsed time, rank and pid."""
        for line in mask_ends(text, LONGEST).splitlines():
            self.told(line)
            if not self.quiet:
                self._print(line)

    def aside(self, text: str) -> None:
        """Print `text`, without a message to the monitor: a printed line is no progress."""
        if not self.quiet:
            self._print(mask_ends(text, LONGEST))

    def stamp(self) -> str:
        """Return the beginning of a line at this moment."""
        clock = format_clock(time.time())
        elapsed = time.monotonic() - began.MONOTONIC
        place = self.place
        return (
            f"[{clock}][+{elapsed:.3f}s][R{place.rank}/{place.world_size}]"
            f"[LR{place.local_rank}][PID:{os.getpid()}]"
        )

    def _print(self, line: str) -> None:
        stamp = self.stamp()
        if self._dropped:
            line = f"({self._dropped} lines dropped: nobody read them) {line}"
        if not self.plain and _is_terminal(self.fd, self.place):
            stamp = f"\x1b[{_COLOURS[self.place.rank % len(_COLOURS)]}m{stamp}\x1b[0m"
        data = f"{stamp} {line}\n".encode(errors="replace")
        if self._is_cut:
            data = b"\n" + data
        # After a first line that was not taken, the next ones do not wait again.
        began_at = time.monotonic()
        written = write_within(self.fd, data, 0.0 if self._blocked else self._patience)
        if self.waits_once:
            self._patience = max(0.0, self._patience - (time.monotonic() - began_at))
        self._is_cut = 0 < written < len(data) or (self._is_cut and not written)
        self._blocked = written < len(data)
        self._dropped = self._dropped + 1 if self._blocked else 0


def _is_terminal(fd: int, place: Place) -> bool:
    """Return whether a person's terminal is behind `fd`. mpirun gives its ranks terminals of its
    own, so what counts there is where it prints itself.
    """
    try:
        if find_launcher(place.launcher).gives_terminals and os.isatty(fd):
            theirs = os.readlink(f"/proc/{place.launcher_pid}/fd/{fd}")
            return theirs.startswith(("/dev/pts/", "/dev/tty"))
        return os.isatty(fd)
    except OSError as error:
        raise_if_of_the_job(error)
        return False
