"""What monitors leave once the command of a run has ended: those that are stopped for good are
ended, and what a killed one has left is taken over.

The watch from outside does so at its end; where that was lost, a process that the front starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.proc import read_stat
from ..evidence.process import descendants, marked, open_life, words_of
from ..front.watcher_socket import is_deserted
from ..rank.our_folders import OWNER_LINK, bases, is_own_folder
from .ending import find_monitors, signal_process
from .watcher_link import OUTER_VARIABLE

if TYPE_CHECKING:
    from .watcher_link import SupervisedCommand

TEMPORARY_LINK = "temporary"  # in a monitor's folder
PAUSE = 0.05  # seconds between two looks
_LOOKS = 40  # in which a monitor is stopped, before it is taken to be so for good
_LOST_LIMIT = 15.0  # seconds for monitors to leave, where the watch from outside was lost


class StoppedMonitors:
    """The monitors of a run that are stopped (SIGSTOP), and in how many looks they were."""

    def __init__(self, mark: str) -> None:
        """`mark` is the run's, as OUTER_VARIABLE."""
        self._mark = mark
        self._looks: dict[tuple[int, int], int] = {}  # by pid and start

    def look(self, pids: Iterable[int]) -> None:
        """Look once, PAUSE after the last time, and SIGKILL who was stopped in each of _LOOKS.

        Looks are counted and not seconds: who stops a whole machine stops us, too.
        """
        for pid in pids:
            found = read_stat(pid)
            if found is not None:
                life = pid, found.started
                self._looks[life] = self._looks.get(life, 0) + 1 if found.state == "T" else 0
                if self._looks[life] == _LOOKS:
                    self._end(*life)

    def _end(self, pid: int, ticks: int) -> None:
        """End a monitor, if it is one of this run, and what it has started and is stopped too."""
        below = [(child, found) for child in descendants([pid]) if (found := read_stat(child))]
        if pid in find_monitors(OUTER_VARIABLE, self._mark):
            for child, found in below:
                if found.state == "T":
                    signal_process(child, found.started, signal.SIGKILL)
            signal_process(pid, ticks, signal.SIGKILL)


def note_temporary_folder(folder: Path, temporary: Path) -> None:
    """In a monitor: note in its `folder` where the job's temporary folder is, for those that come
    after it. Whose run it is has the rank noted that made the folder.
    """
    with contextlib.suppress(OSError):  # the monitor before this one has noted it
        os.symlink(temporary, folder / TEMPORARY_LINK)


async def tidy_up(around: SupervisedCommand, mark: str) -> None:
    """Once the command has ended, and the watch from outside was lost before: see its monitors
    out, and take over what they leave.
    """
    monitors = find_monitors(OUTER_VARIABLE, mark)
    lives = [open_life(pid) for pid in monitors]
    folders = read_folders(monitors)
    stopped = StoppedMonitors(mark)
    until = time.monotonic() + _LOST_LIMIT
    while not all(life.has_ended() for life in lives) and time.monotonic() < until:
        stopped.look(monitors)
        await asyncio.sleep(PAUSE)
    # One that is short of memory may wait for ever for what cannot come.
    if not marked(OUTER_VARIABLE, mark) - {*monitors, *descendants(monitors), os.getpid()}:
        for life in lives:
            if not life.has_ended() and life.started is not None:
                signal_process(life.pid, life.started, signal.SIGKILL)
        await asyncio.sleep(PAUSE)
    if all(life.has_ended() for life in lives):
        await take_over_folders(around, mark, folders | find_folders(mark))


async def take_over_folders(around: SupervisedCommand, mark: str, folders: Collection[str]) -> None:
    """Take over what is in those of `folders` in which no monitor listens, and remove them."""
    from .watcher_report import take_over_files

    for folder in folders:
        if is_deserted(folder):
            _remove_temporary_folder(folder, whole=around.expects_words)
            await take_over_files(around, os.path.dirname(mark), folder)


def read_folders(monitors: Iterable[int]) -> set[str]:
    """Return the folders that living monitors were told to use: one that is stopped as it starts
    has noted nothing there.
    """
    found = set()
    for pid in monitors:
        with contextlib.suppress(LookupError, ValueError, TypeError):
            found.add(str(json.loads(words_of(pid)[5])["folder"]))  # see ending.find_monitors()
    return found


def find_folders(mark: str) -> set[str]:
    """Return the folders of all monitors of a run, which may have been moved aside."""
    found = set()
    for base in bases():
        with contextlib.suppress(OSError):
            for name in os.listdir(base):
                folder = os.path.join(base, name)
                with contextlib.suppress(OSError):
                    owner = os.readlink(os.path.join(folder, OWNER_LINK))
                    if owner == mark and name.startswith("hangbisect-") and is_own_folder(folder):
                        found.add(folder)
    return found


def _remove_temporary_folder(folder: str, whole: bool) -> None:
    """Remove the temporary folder of the monitor that had `folder`; unless `whole`, only if there
    is nothing in it.
    """
    with contextlib.suppress(OSError):
        temporary = os.readlink(os.path.join(folder, TEMPORARY_LINK))
        if os.path.basename(temporary).startswith("hangbisect-") and is_own_folder(temporary):
            if whole:
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                os.rmdir(temporary)
