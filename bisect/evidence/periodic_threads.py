"""Threads that do the same few things now and then and sleep between: a heartbeat, a writer of
metrics, a sampler that asks `nvidia-smi`. Pure.

Such a thread is at a new place in the code whenever a look meets it awake, and for as long as
there are lines that no look has met. It feeds the main thread's wait only if it wakes it: what has
come round many times without doing so, and moves hardly a byte, is no progress of that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise

from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Kernel, Look, Sample, Thread
from .awaited_work import is_same_wait
from .kernel import split_words

_RESTS = split_words("futex nanosleep clock_nanosleep")  # with a time limit
_KEPT = 24  # looks of a thread
LEAST_TURNS = 5  # times that it rested anew while the main thread was not woken
MOST_AWAKE = 2  # looks in a row that find it awake; past that it does something longer
SHORT_PROGRAM = 5.0  # seconds that a program lives which is started for one reading
MOST_BYTES = 16 * 1024  # a second, read or written by the process: more is work
_TICK = 0.05  # seconds by which two readings of what is left of a sleep may differ

CodeLine = tuple[str, str, int]


@dataclass(frozen=True)
class _Turn:
    """One look at a helper thread."""

    at: float
    place: tuple[CodeLine, ...]  # innermost first
    left: float | None  # seconds until it wakes by itself; None: it does not rest
    is_idle: bool  # it sleeps, or waits for another thread of its process


@dataclass
class _History:
    """What the helper threads of a process did during one wait of its main thread."""

    first: Look
    last: Look
    threads: dict[int, deque[_Turn]] = field(default_factory=dict)


class PeriodicThreads:
    """The helper threads of one process, look after look."""

    def __init__(self) -> None:
        """Nothing is known of them yet."""
        self._history: _History | None = None

    def note(self, look: Look) -> None:
        """Note one look, later than those before. Once the main thread was woken, all begins
        anew.
        """
        known = self._history
        if known is None or not is_same_wait(known.last, look):
            known = self._history = _History(look, look)
        known.last = look
        tasks = {task.tid: task for task in look.kernel}
        for thread in look.threads:
            task = tasks.get(thread.os_id or 0)
            if thread is look.main or task is None or thread.os_id is None:
                continue
            turns = known.threads.setdefault(thread.os_id, deque(maxlen=_KEPT))
            turns.append(_Turn(look.at, _place(thread), _read_rest(task), _is_idle(task)))

    def find(self) -> frozenset[int]:
        """Return the ids of the threads that come round again and again and feed nothing."""
        known = self._history
        if known is None or _moves_much(known.first.sample, known.last.sample):
            return frozenset()
        return frozenset(tid for tid, turns in known.threads.items() if _is_periodic(turns))

    def drop(
        self, looks: Sequence[Look], children: Sequence[Sequence[Look]]
    ) -> tuple[Sequence[Look], Sequence[Sequence[Look]]]:
        """Return looks at the process without these threads, and its children without the short
        programs that they alone can have started.
        """
        periodic, known = self.find(), self._history
        if not periodic or known is None:
            return looks, children
        kept = [_without_threads(one, periodic) for one in looks]
        others = [turns for tid, turns in known.threads.items() if tid not in periodic]
        if any(map(_may_start_programs, others)):
            return kept, children
        pid, since = known.first.pid, known.first.at
        return kept, [one for one in children if not _is_short_program(one, pid, since)]


def _place(thread: Thread) -> tuple[CodeLine, ...]:
    return tuple((f.file, f.name, f.line) for f in thread.frames if not f.native)


def _read_rest(task: Kernel) -> float | None:
    call = task.syscall
    if call is None or task.state != "S" or call.name not in _RESTS:
        return None
    return call.timeout


def _is_idle(task: Kernel) -> bool:
    return task.state == "S" and task.syscall is not None and task.syscall.name in _RESTS


def _moves_much(before: Sample | None, after: Sample | None) -> bool:
    """Return whether a process reads or writes more than what tells others how it is."""
    if before is None or after is None or before.started != after.started:
        return True
    most = MOST_BYTES * max(after.at - before.at, 1.0)
    return after.read - before.read > most or after.written - before.written > most


def _is_periodic(turns: Sequence[_Turn]) -> bool:
    rests = [one for one in turns if one.left is not None]
    if len(rests) * 2 < len(turns) or len({one.place for one in rests}) != 1:
        return False
    if all(one.left is None for one in list(turns)[-MOST_AWAKE - 1 :]):
        return False
    around = rests[0].place
    if not all(_is_in_same_loop(one.place, around) for one in turns):
        return False
    return _count_turns(turns) >= LEAST_TURNS


def _is_in_same_loop(place: tuple[CodeLine, ...], rest: tuple[CodeLine, ...]) -> bool:
    """Return whether a place is in the function that rests, or in what that calls: from outside in,
    all is the same up to another line of one function.
    """
    for one, other in zip(reversed(place), reversed(rest), strict=False):
        if one != other:
            return one[:2] == other[:2]
    return bool(place)


def _count_turns(turns: Sequence[_Turn]) -> int:
    """Return how often a thread has begun to rest."""
    return sum(_rests_anew(before, one) for before, one in pairwise(turns))


def _rests_anew(before: _Turn, one: _Turn) -> bool:
    if one.left is None or before.left is None:
        return one.left is not None
    return one.left > before.left - (one.at - before.at) + _TICK


def _may_start_programs(turns: Sequence[_Turn]) -> bool:
    """Return whether a thread does anything but wait in one place for another thread: one that runs
    a program for each of many files is in one place as well, in the wait for a child.
    """
    return len({one.place for one in turns}) > 1 or not all(one.is_idle for one in turns)


def _without_threads(look: Look, ids: frozenset[int]) -> Look:
    return replace(
        look,
        threads=tuple(one for one in look.threads if one.os_id not in ids),
        kernel=tuple(one for one in look.kernel if one.tid not in ids),
    )


def _is_short_program(looks: Sequence[Look], parent: int, since: float) -> bool:
    """Return whether a child was started by `parent` after `since`, and not long ago."""
    if not looks:
        return False
    last = looks[-1]
    return last.ppid == parent and last.age < SHORT_PROGRAM and last.at - last.age > since
