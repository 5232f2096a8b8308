"""What a rank tells the monitor of itself: its place, the options of its watch, that it still
lives, and what libraries log as a warning or worse, which often says why they wait.

Records of logging are seen as they are made (logging.setLogRecordFactory), so that no handler is
added: logging.basicConfig does nothing where there is one already.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..base.events import Environ, Hello, Message, Pulse, encode
from ..base.masking import mask_text
from ..base.place import OUTER_VARIABLE, Place, command_line
from . import began
from .after_import import after_import
from .link import Link

if TYPE_CHECKING:
    import argparse


MANY_RANKS = 16  # above this the lines of all ranks are not printed


def make_hello(place: Place, **more: Any) -> Message:
    """Return the first message of a rank, with what else it has to say of itself."""
    from ..base.environment import relevant

    hello = Hello(
        **asdict(place),
        **more,
        pid=os.getpid(),
        began=began.MONOTONIC,
        wall=began.WALL,
        error_file=os.environ.get("TORCHELASTIC_ERROR_FILE"),
        max_restarts=int(os.environ.get("TORCHELASTIC_MAX_RESTARTS") or 0),
        environment=relevant(os.environ),
        python=sys.version.split()[0],
        executable=sys.executable,
    )
    return {**encode(hello), "outer": os.environ.get(OUTER_VARIABLE, "")}


def make_watch_settings(
    args: argparse.Namespace, place: Place, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the settings that are the same whatever the ranks run."""
    from ..base.masking import mask_command
    from .watched.programs import words_of_start

    return {
        "command": mask_command(command_line(place, words_of_start())),
        "folder_of_start": os.getcwd(),
        "folder_for_temporary_files": environ.get("TMPDIR") or "/tmp",
        "timeout": dict(args.timeout),
        "stall": args.stall,
        "slow_limit": args.slow_limit,
        "limit": args.limit,
        "past": args.past,
        "known_hang": args.known_hang,
        "run_dir": args.run_dir,
        "plain": args.plain,
        "on_terminal": os.isatty(1),
        "place": asdict(place),
    }


PULSE_EVERY = 1.0  # seconds between two words of a training that goes on


class Heartbeat:
    """Tells only what is new."""

    def __init__(self, link: Link) -> None:
        """Nothing has been told yet."""
        self._link = link
        self._environ: dict[str, str] = {}
        self._environ_before: dict[str, str] = {}
        self._pulsed = 0.0

    def pulse(self, step: int) -> None:
        """Tell that training goes on, unless that was told just now."""
        now = time.monotonic()
        if now - self._pulsed >= PULSE_EVERY:
            self._pulsed = now
            self._link.tell(Pulse(step=step))

    def environment(self) -> None:
        """Tell what changed in the environment."""
        # /proc/PID/environ never shows what a program sets in itself (measured).
        everything = dict(os.environ)
        if everything == self._environ_before:
            return
        self._environ_before = everything
        from ..base.environment import relevant

        now = relevant(everything)
        changed = {name: value for name, value in now.items() if self._environ.get(name) != value}
        if changed:
            self._link.tell(Environ(changed=changed))
        self._environ = now


LONGEST_LOGGED = 400  # characters
_LOGGED_AT_ONCE = 20  # lines; then one is told for each second that passed
_WARNING = 30  # logging.WARNING, without importing it


class LogCapture:
    """Tells what is logged, as long as it is not too much."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with a line, from whichever thread logs it."""
        self._tell = tell
        self._allowance = float(_LOGGED_AT_ONCE)
        self._at = time.monotonic()

    def listen(self) -> None:
        """Begin, as soon as any code imports logging: never before, for it is slow to import."""
        after_import("logging", self._begin)

    def _begin(self, logging: ModuleType) -> None:
        with contextlib.suppress(Exception):
            made_before = logging.getLogRecordFactory()

            def made(*args: Any, **kwargs: Any) -> Any:
                record = made_before(*args, **kwargs)
                self._hear(record)
                return record

            logging.setLogRecordFactory(made)

    def _hear(self, record: Any) -> None:
        with contextlib.suppress(Exception):  # whatever it is: the job's logging is what counts
            if record.levelno >= _WARNING and self._is_allowed():
                line = " ".join(f"{record.name}: {record.getMessage()}".split())
                self._tell(mask_text(line)[:LONGEST_LOGGED])

    def _is_allowed(self) -> bool:
        now = time.monotonic()
        self._allowance = min(_LOGGED_AT_ONCE, self._allowance + now - self._at)
        self._at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True
