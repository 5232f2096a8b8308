"""What ends again and again: the processes below a command that end by an error, and those that
are started in their place.

Processes of one kind have one parent and one command, but for its numbers. That they come and go
moves nothing on; what the last of them said in a log of its own, or its starter printed, tells why.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field

from ..base.client_program import SshClient, read_ssh_client
from ..base.command_words import is_shell, starts_for_multiprocessing
from ..base.deadline import within
from ..base.lazy_dataclass import dataclass
from ..base.proc import Stat, is_forked_only, read_stat
from ..base.process_facts import Look
from ..base.process_roles import (
    TITLE,
    find_actor,
    is_worker_program,
    name_server_process,
    runs_method,
)
from ..base.rank_facts import RestartedProcess
from ..evidence.left_logs import ERROR_LINE, LOG_ENDINGS, find_repeated_error
from ..evidence.lock_and_log_files import read_last_lines
from ..evidence.process import Life, exit_code, open_life, runs_python, words_of

_FEWEST_ENDS = 3  # of one kind, before its next one counts as started again
_MOST_LOGS = 4  # of one process
_MOST_DESCRIPTORS = 256
_OPENS_LOGS = 5.0  # seconds of a process in which it is asked which logs it writes
_MOST_KINDS = 512
_SEEN_OF_A_LOOP = 6  # the last programs of a shell
_KINDS_OF_A_LOOP = 3
_READING_LIMIT = 0.5  # seconds: a log may lie on the disk that hangs
_SAME_TIME = 2.0  # seconds that two clocks, and a disk's, may differ
_LONGER = 10.0  # seconds beyond twice the longest life: what lives so long has come further
_CLIENTS = ("ssh", "rsh")
_MOST_LIVES = 256  # processes, of which one has a descriptor
_SHORT_LIFE = 20.0  # seconds
# Ends that tell of no error: it was done, or asked to end.
_NO_ERRORS = frozenset([None, 0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP])
_RAY_WORKER = ("a worker of Ray",)  # in place of its words, until it has a title
_Kind = tuple[int, tuple[str, ...]]  # the parent, and the words of a command without numbers


@dataclass
class _Child:
    """One process below a command, as the samples show it."""

    kind: _Kind
    name: str
    started: int  # clock ticks after boot
    since: float
    logs: dict[str, None] = field(default_factory=dict)  # files that it writes
    status: int | None = None
    # Of one in the place of another, or that a shell has started: how it ended is known at its end.
    life: Life | None = None
    words: tuple[str, ...] = ()  # of what a shell has started
    is_python: bool = False

    @property
    def is_of_ray(self) -> bool:
        """Whether it runs actors or tasks of Ray, or is to run some."""
        words = self.kind[1]
        return words == _RAY_WORKER or words[0].startswith(TITLE)


@dataclass
class _Ends:
    """How processes of one kind have ended."""

    since: float  # when the first of them was seen
    first_end: float
    times: int = 0
    last: float = 0.0
    longest: float = 0.0  # seconds that one of them has lived
    name: str = ""
    pid: int = 0
    status: int | None = None
    file: str = ""
    error: str = ""
    is_cut: bool = False  # in the middle of a method of an actor of Ray

    @property
    def are_errors(self) -> bool:
        """Whether it was often enough, and not each of them well."""
        return self.times >= _FEWEST_ENDS and (self.status is not None or self.are_sure)

    @property
    def are_sure(self) -> bool:
        """Whether one failed, and did not only say no by its status."""
        return bool(self.error) or self.is_cut or (self.status is not None and self.status < 0)

    @property
    def is_in_vain(self) -> bool:
        """Whether they do nothing but end, by an error that is known."""
        return self.are_errors and bool(self.error) and self.longest < _SHORT_LIFE

    def make_facts(self) -> RestartedProcess:
        """Return it as a diagnosis takes it."""
        return RestartedProcess(
            self.name,
            self.pid,
            self.times,
            round(self.last - self.since, 1),
            self.status,
            self.file,
            self.error,
            self.are_sure,
        )


class EndedChildren:
    """The processes below a command that end by an error, and others like them that are started in
    their place: how often, and what the last one said in a log of its own.
    """

    def __init__(self, reads_logs: bool = True) -> None:
        """Nothing has ended yet. `reads_logs`: from the beginning, not only of what has ended."""
        self._reads_logs = reads_logs
        self._now = 0.0
        self._living: dict[int, _Child] = {}
        self._ends: dict[_Kind, _Ends] = {}
        self._failed: dict[int, tuple[_Kind, Look]] = {}  # parts of the job, by pid
        self._lately: dict[int, deque[_Child]] = {}  # what has ended, by the pid of its shell
        # By host: each ssh by which a part of the job was started, whether it is there still.
        self.ssh_clients: dict[str, SshClient] = {}

    def note(self, pids: Iterable[int], now: float) -> None:
        """See which of these processes are new, and which are gone since the last time."""
        self._now, seen = now, dict[int, _Child]()
        for pid in pids:
            about = read_stat(pid)
            if about is None:
                continue
            child = self._living.get(pid)
            if child is None or child.started != about.started:
                child = _Child(_read_kind(pid, about.ppid), about.comm, about.started, now)
                if self._reads_logs and _is_a_part(child, about):
                    child.words, child.is_python = tuple(words_of(pid)), runs_python(pid)
                    self._failed = {
                        p: (kind, one)
                        for p, (kind, one) in self._failed.items()
                        if kind != child.kind
                    }
                is_kept = bool(child.words) or child.kind in self._ends
                if is_kept and len(self._living) < _MOST_LIVES:
                    child.life = open_life(pid, about.started)
            elif child.words and now - child.since < _OPENS_LOGS and about.state not in "ZX":
                child.words = tuple(words_of(pid))  # it may take a title
            elif about.state not in "ZX" and child.kind[1][:1] and child.is_of_ray:
                kind = _read_kind(pid, about.ppid)  # its title says in which method it is
                if kind != child.kind:  # a worker may have been idle for long before this task
                    child.kind, child.since = kind, now
                if child.life is None and child.kind in self._ends:
                    child.life = open_life(pid, about.started)
            if child.name != about.comm or pid not in self._living:
                child.name = about.comm
                self._note_client(pid, about.comm)
            if about.state in "ZX":
                child.status = exit_code(pid)
            elif now - child.since < _OPENS_LOGS and (self._reads_logs or child.kind in self._ends):
                child.logs.update(dict.fromkeys(_list_logs(pid)))
            seen[pid] = child
        for pid, child in self._living.items():
            if seen.get(pid) is not child and child.kind[1]:
                self._note_end(pid, child, now)
        self._living = seen

    def _note_client(self, pid: int, name: str) -> None:
        client = read_ssh_client(words_of(pid)) if name in _CLIENTS else None
        if client is not None and len(self.ssh_clients) < _MOST_KINDS:
            self.ssh_clients[client.host] = client

    def _note_end(self, pid: int, child: _Child, now: float) -> None:
        if child.life is not None:
            status = child.life.exit_code() if child.status is None else child.status
            child.status = status
            child.life.close()
        if child.words and is_shell(words_of(child.kind[0])):
            self._lately.setdefault(child.kind[0], deque(maxlen=_SEEN_OF_A_LOOP)).append(child)
        is_error = child.status not in _NO_ERRORS
        if child.words and is_error and (child.is_python or (child.status or 0) < 0):
            self._failed[pid] = child.kind, _make_dead_look(pid, child, now)
        if child.kind not in self._ends and len(self._ends) >= _MOST_KINDS:
            del self._ends[next(iter(self._ends))]
        ends = self._ends.setdefault(child.kind, _Ends(child.since, now))
        ends.times += 1
        ends.last, ends.longest = now, max(ends.longest, now - child.since)
        actor = find_actor(child.kind[1])
        ends.name, ends.pid = f"{TITLE}{actor}" if actor else child.name, pid
        ends.is_cut |= runs_method(actor) or _is_in_a_task(child.kind[1])
        # Between two tasks a worker has no name, and an actor is not killed by a signal (ray.kill).
        ends.is_cut |= bool(actor) and child.status not in _NO_ERRORS and (child.status or 0) < 0
        ends.status = child.status if child.status not in _NO_ERRORS else ends.status
        written = time.time() - (now - child.since) - _SAME_TIME
        with contextlib.suppress(TimeoutError, OSError):
            logs = [*child.logs][:_MOST_LOGS]
            file, error = within(_READING_LIMIT, _read_error, logs, written) if logs else ("", "")
            if error:
                ends.file, ends.error = file, error
            elif not ends.error and ends.are_errors:
                ends.error = within(_READING_LIMIT, _read_error_of_starter, child.kind[0])

    def list_failed(self) -> tuple[Look, ...]:
        """Return what a shell has started, or a Python has forked or spawned, and that ended by an
        error or a signal, and was not started again: as zombies, for whoever waits for it does not
        hear of it either, where another one has taken its status.
        """
        return tuple(one for _, one in self._failed.values())

    def find_restarted(self) -> RestartedProcess | None:
        """Return what has ended by an error again and again, None if nothing has, or if one that
        came in its place has lived for much longer than any before.
        """
        lasting = {one.kind for one in self._living.values() if self._lasts(one)}
        found = [
            ends for kind, ends in self._ends.items() if ends.are_errors and kind not in lasting
        ]
        most = max(found, key=lambda ends: ends.times, default=None)
        return most.make_facts() if most is not None else None

    def _lasts(self, child: _Child) -> bool:
        ends = self._ends.get(child.kind)
        allowed = 2 * ends.longest + _LONGER if ends is not None else 0.0
        return ends is not None and child.since >= ends.last and self._now - child.since > allowed

    def find_starters(self) -> frozenset[int]:
        """Return the processes that start again and again what ends by an error each time: that
        they do this moves nothing on.
        """
        return frozenset(kind[0] for kind, ends in self._ends.items() if ends.is_in_vain)

    def find_pollers(self) -> frozenset[int]:
        """Return the shells that look again and again, and sleep in between (`until curl ...; do
        sleep 1; done`): what the programs read that they start counts as theirs (kernel/exit.c),
        and moves nothing on.
        """
        return frozenset(pid for pid, ended in self._lately.items() if _is_polling(ended))

    def select_others(self, pids: Iterable[int]) -> list[int]:
        """Return those of these processes that are none in the place of one that ended so: that
        they come and go moves nothing on.
        """
        return [pid for pid in pids if not self._is_in_place_of_one(pid)]

    def _meet(self, pid: int) -> _Child | None:
        """Return a process that is younger than the last samples, None if it is gone."""
        about = read_stat(pid)
        if about is None:
            return None
        return _Child(_read_kind(pid, about.ppid), about.comm, about.started, self._now)

    def _is_in_place_of_one(self, pid: int) -> bool:
        child = self._living.get(pid) or self._meet(pid)
        if child is None:
            return False
        if child.kind[1] == _RAY_WORKER:  # what it runs it is told later
            failing = (kind for kind, ends in self._ends.items() if ends.is_cut and ends.are_errors)
            return any(parent == child.kind[0] for parent, _ in failing)
        ends = self._ends.get(child.kind)
        parent = child.kind[0]
        if ends is None and parent in self.find_starters() and parent in self._living:
            # It was forked, and has not become what it is to be.
            return child.kind[1] == self._living[parent].kind[1]
        if ends is None or not ends.are_errors or self._lasts(child):
            return False
        return child.since >= ends.first_end


def _is_a_part(child: _Child, about: Stat) -> bool:
    """Return whether a process is a part of its job: a program that a shell started, or a worker,
    which is no program that its parent calls.
    """
    parent, words = child.kind
    return is_shell(words_of(parent)) or is_forked_only(about) or starts_for_multiprocessing(words)


def _is_polling(ended: Sequence[_Child]) -> bool:
    """Return whether a shell has slept in most of what it has started lately, the same each time.
    A program that is soon over is seldom seen.
    """
    sleeps = [one for one in ended if os.path.basename(one.words[0]) == "sleep"]
    is_often = len(sleeps) >= _FEWEST_ENDS and 2 * len(sleeps) >= len(ended)
    kinds = {one.words for one in ended}
    return is_often and len(kinds) <= _KINDS_OF_A_LOOP and not any(one.is_python for one in ended)


def _make_dead_look(pid: int, child: _Child, now: float) -> Look:
    age = now - child.since
    parent, status = child.kind[0], child.status
    name = name_server_process(child.words, child.name)
    return Look(now, pid, parent, name, child.words, age, "Z", "proc", status=status)


def _is_in_a_task(words: Sequence[str]) -> bool:
    """Return whether a worker of Ray is in a task: the title has the call, that of an actor between
    two methods only its class (python/ray/_raylet.pyx).
    """
    title = words[0].strip() if words else ""
    return bool(find_actor(words)) and title.endswith("()")


def _read_kind(pid: int, parent: int) -> _Kind:
    words = tuple(re.sub(r"\d+", "#", word).strip() for word in words_of(pid))
    if any(is_worker_program(word) for word in words):  # each has other names of its own behind it
        words = _RAY_WORKER
    return parent, words


def _list_logs(pid: int) -> list[str]:
    """Return the files that a process has open and that have a name as logs have it."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:_MOST_DESCRIPTORS]:
            path = os.readlink(f"/proc/{pid}/fd/{name}")
            if path.startswith("/") and path.endswith(LOG_ENDINGS):
                found.append(path)
    return found


def _read_error_of_starter(pid: int) -> str:
    """Return the exception that comes again and again in what a process prints, "" for none: what
    it starts prints to the same file. May block.
    """
    found = find_repeated_error(f"/proc/{pid}/fd/{number}" for number in (2, 1))
    return found.error if found is not None else ""


def _read_error(files: Sequence[str], since: float) -> tuple[str, str]:
    """Return the first of these files, written after `since` (on the wall clock), whose last line
    names an error, and that line without secrets; "" for none. May block.
    """
    for path in files:
        with contextlib.suppress(OSError):
            lines = read_last_lines(path) if os.stat(path).st_mtime >= since else ()
            last = lines[-1].strip() if lines else ""
            if ERROR_LINE.fullmatch(last):
                return path, last[:300]
    return "", ""
