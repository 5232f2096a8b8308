"""A terminal of ours: a pty, and what a person would see on its screen (pyte)."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import pyte

DEADLINE = 60.0  # seconds for something to appear, on a busy machine
HISTORY = 10_000  # lines
# Takes the terminal that is its stdin for its own (login_tty(3)), and becomes the program.
_LEADER = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A screen, and the programs that were started on it."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        """Make it; nothing runs on it."""
        self.screen = pyte.HistoryScreen(columns, lines, history=HISTORY, ratio=1.0)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""  # all that was written to it
        self._ours, self.other = pty.openpty()
        self._leader: subprocess.Popen[bytes] | None = None
        self.size(columns, lines)

    def size(self, columns: int, lines: int) -> None:
        """Give it another size, as a person who pulls at the window's corner."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
        self.screen.resize(lines, columns)

    def start(
        self, command: Sequence[str], environ: Mapping[str, str], keep: Sequence[int] = ()
    ) -> int:
        """Start a program as the leader of a session on it; return its pid."""
        self._leader = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LEADER, *command],
            stdin=self.other,
            env=dict(environ),
            pass_fds=keep,
        )
        return self._leader.pid

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._ours, text.encode())

    def look(self, seconds: float = 0.0) -> list[str]:
        """Take in what is written within so many seconds, and return the lines of the screen."""
        until = time.monotonic() + seconds
        while select.select([self._ours], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # nobody has it open any more
                break
            if not data:
                break
            self.raw += data
            self._stream.feed(data)
        return [line.rstrip() for line in self.screen.display]

    def until(self, seen: Callable[[list[str]], object]) -> list[str]:
        """Look until it is so; return the lines of the screen."""
        end = time.monotonic() + DEADLINE
        while not seen(lines := self.look(0.05)):
            assert time.monotonic() < end, "\n".join(lines)
        return lines

    def scrolled(self) -> list[str]:
        """Return the lines that have left the screen at its top, oldest first."""
        columns = range(self.screen.columns)
        return ["".join(line[x].data for x in columns).rstrip() for line in self.screen.history.top]

    def everything(self) -> list[str]:
        """Return all lines, those that have scrolled away first, without empty ones at the end."""
        lines = [*self.scrolled(), *self.look()]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def wait(self) -> int:
        """Wait for the end of what was started; return its status."""
        assert self._leader is not None
        end = time.monotonic() + DEADLINE
        while self._leader.poll() is None:
            assert time.monotonic() < end, "\n".join(self.look(0.05))
        return self._leader.returncode

    def hang_up(self) -> None:
        """Be gone, as a window that is closed is for the programs in it."""
        os.close(self._ours)
        self._ours, writer = os.pipe()  # from which nothing more comes
        os.close(writer)

    def close(self) -> None:
        """End it, as a window that is closed does."""
        if self._leader is not None:
            self._leader.kill()
            self._leader.wait()
        for descriptor in (self._ours, self.other):
            os.close(descriptor)
