"""The processes of an inference server that are none of its ranks: each that is above one of them,
up to the command. They start the ranks and end them, so that one that fails is to blame for what
its ranks do then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from ..base.command_words import name_program
from ..base.identity import UnknownRank
from ..base.lazy_dataclass import dataclass
from ..base.outcomes import ENDED_ON_REQUEST
from ..base.process_roles import find_server_process, name_server_process
from ..base.rank_facts import RankFacts
from ..evidence.process import Life, open_life, runs_python, words_of
from .failed_targets import read_failed_targets
from .rank_exits import stop_hearing

if TYPE_CHECKING:
    from .job import Job

_MOST = 64  # processes, of which each has a descriptor


@dataclass
class _Process:
    """One process above a rank."""

    words: tuple[str, ...]  # of its command line, or its title
    life: Life
    ended_at: float | None = None  # monotonic
    status: int | None = None
    errors: list[tuple[float, str, str]] = field(default_factory=list)  # when, in a line, traceback

    @property
    def title(self) -> str:
        """What it is in the server, else its program."""
        return name_server_process(self.words, name_program(self.words) or "python")

    @property
    def is_server(self) -> bool:
        """Whether it is to answer requests at a port."""
        role = find_server_process(self.words)
        return role is not None and role.is_server

    @property
    def has_failed(self) -> bool:
        """Whether it raised, or ended by what nobody asked it to."""
        return bool(self.errors) or self.status not in (0, None, *ENDED_ON_REQUEST)


class ServerProcesses:
    """Those above the ranks of one server, and how they ended."""

    def __init__(self, job: Job, host: str) -> None:
        """None is known before follow()."""
        self._job, self._host = job, host
        self._found: dict[int, _Process] = {}

    def follow(self, pids: Iterable[int]) -> None:
        """Take in the Pythons of these processes, and hear of their ends. Of one that has ended
        before nothing is known.
        """
        for pid in pids:
            is_new = pid not in self._found and len(self._found) < _MOST
            if is_new and runs_python(pid):
                self._found[pid] = _Process(words_of(pid), open_life(pid))
                self._watch(pid)

    def _watch(self, pid: int) -> None:
        found = self._found[pid]
        descriptor = found.life.descriptor
        with suppress(OSError):
            if descriptor is not None:
                asyncio.get_running_loop().add_reader(descriptor, self._ended, pid)

    def _ended(self, pid: int) -> None:
        found = self._found.get(pid)
        if found is None or found.ended_at is not None:
            return
        found.ended_at = time.monotonic()
        found.status = found.life.exit_code()
        stop_hearing(found.life)
        self._job.changed.set()

    def __contains__(self, pid: object) -> bool:
        return pid in self._found

    @property
    def answer_requests(self) -> bool:
        """Whether one of them is to answer requests at a port."""
        return any(found.is_server for found in self._found.values())

    def is_one_alive(self) -> bool:
        """Return whether one of them has not ended."""
        for pid, found in self._found.items():
            if found.ended_at is None and found.life.has_ended():
                self._ended(pid)
        return any(found.ended_at is None for found in self._found.values())

    def find_failure(self) -> bool:
        """Return whether one of them has raised, or ended by an error or a signal: what they have
        written down is read.
        """
        self._read_errors()
        return any(found.has_failed for found in self._found.values())

    def note_error(self, pid: int, at: float, error: str, traceback: str) -> None:
        """One of them has told what it ends by."""
        if error and pid in self._found and (at, error, traceback) not in self._found[pid].errors:
            self._found[pid].errors.append((at, error, traceback))

    def _read_errors(self) -> None:
        """Take in what they, and the processes that they have started, have written down."""
        ranks = {member.pid for member in self._job.members}
        for pid, told in read_failed_targets(self._job.folder).items():
            if pid not in self._found and told.parent in self._found and pid not in ranks:
                life = Life(pid, None, None, over=True)
                self._found[pid] = _Process(told.words, life, told.at)
            self.note_error(pid, told.at, told.error, told.traceback)

    def make_failed_facts(self) -> Iterator[RankFacts]:
        """Yield those that failed, as ranks without a number that have left."""
        self._read_errors()
        for pid, found in self._found.items():
            if not found.has_failed:
                continue
            at, error, traceback = min(found.errors, default=(found.ended_at, "", ""))
            yield RankFacts(
                rank=UnknownRank(self._host, pid),
                pid=pid,
                host=self._host,
                alive=found.ended_at is None,
                left=True,
                left_at=at,
                status=found.status if found.status is not None or not error else 1,
                error=error,
                traceback=traceback,
                title=found.title,
            )
