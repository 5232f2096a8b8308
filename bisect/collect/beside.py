"""Processes that were started beside the ranks, with them, and that one of them asks, or meets in a
group: an inference server that the job's shell script has started, a replay buffer, the coordinator
of engines. They are looked at as what a rank has started is, with all that they have started.

So is what the script that started the ranks has started besides and that has failed, as long as
nobody has asked how it ended (a zombie, wait(2)): a helper that the ranks wait for in vain. And so
is what had started the ranks itself and has failed, an engine above its workers.

A stranger is none of these: a service of the machine's, or another job's; but no stranger is who is
connected to a rank in turn, as the engine that waits for the trainer's weights. Whoever was started
with a rank has a process above both, which is no front of ours and not init; what stands directly
below that, on the way to it, is of the session (man 2 setsid) of that process, or of the rank's own
way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Container, Iterable, Mapping

from ..base.command_words import (
    has_launcher,
    has_title,
    program,
    starts_for_multiprocessing,
    starts_no_rank,
)
from ..base.library_functions import Role, find_role
from ..base.proc import list_pids, read_stat, walk_up
from ..base.process_facts import Look
from ..base.process_roles import is_service
from ..diagnosis.process.blocked_syscalls import (
    SLEEP_CALLS,
    list_awaited_pids,
    list_clients,
    list_connected_pids,
)
from ..diagnosis.process.frames import runs_job_code
from ..diagnosis.process.process_snapshot import main_kernel, merge_looks
from ..diagnosis.process.public_calls import find_group_wait
from ..diagnosis.process.request_threads import put_request_thread_first
from ..evidence.process import descendants, exit_code, runs_python, words_of

_DEEPEST = 16  # processes one above the other
_MOMENT = 1.0  # seconds: who sleeps for so long at most looks again
_MOST = 32  # processes that are looked at
_OUTPUT = (1, 2)  # descriptors: standard output and error


class ProcessesBeside:
    """Those of one job, look after look."""

    def __init__(self) -> None:
        """Nobody was asked yet."""
        self.asked_by: dict[int, int] = {}  # by pid, the pid of the rank that asks it
        self._strangers: set[int] = set()

    def find(self, seen: Iterable[tuple[int, Look]], known: Container[int]) -> dict[int, int]:
        """Return the processes to look at by pid, each with the pid of its rank: who is asked as
        these looks show it, each with the pid of its rank, and all that was before. `known` are
        the processes of the job, and our own.
        """
        asked, seen = dict(self.asked_by), list(seen)
        is_alone = len({rank for rank, _ in seen}) == 1
        for rank, look in seen:
            for pid in sorted(_list_awaited(look, is_alone)):
                if pid in known or pid in asked or pid in self._strangers:
                    continue
                if (
                    was_started_with(rank, pid)
                    or has_spawned(rank, pid)
                    or is_asked_in_turn(look, pid)
                ):
                    asked[pid] = rank
                else:
                    self._strangers.add(pid)
        for rank in _list_pollers(seen):
            about = read_stat(rank)
            parent = about.ppid if about is not None else 0
            if parent not in known and parent not in asked and has_spawned(rank, parent):
                asked[parent] = rank
        for rank in sorted({rank for rank, _ in seen}):
            for pid in (*_list_failed_siblings(rank), *_list_failed_starters(rank)):
                if pid not in known and pid not in asked:
                    asked[pid] = rank
        for pid, rank in tuple(asked.items()):
            if has_spawned(rank, pid):  # what else it has started are the other ranks
                continue
            asked.update(dict.fromkeys(descendants([pid]), asked.get(pid, rank)))
        living = {p: r for p, r in asked.items() if p not in known and read_stat(p) is not None}
        self.asked_by = dict(list(living.items())[:_MOST])
        return self.asked_by

    def show(self, one: Look) -> Look:
        """Return a look as it is kept: of a server that thread first which answers a request."""
        return put_request_thread_first(one) if one.pid in self.asked_by else one


def _list_awaited(look: Look, is_alone: bool) -> frozenset[int]:
    """Return the processes that a process waits for, as far as its connections tell: where its rank
    `is_alone` in a collective, or makes the group of all, whoever is at the other end of one and
    serves no cluster of Ray's, and is no launcher.
    """
    view = merge_looks([look]) if is_alone else None
    if view is not None and find_group_wait(view) in ("collective", "construction"):
        words = {pid: words_of(pid) for pid in list_connected_pids(look)}
        return frozenset(p for p, w in words.items() if not (is_service(w) or has_launcher(w)))
    call = look.kernel[0].syscall if look.kernel else None
    found = list_awaited_pids(look)
    if call is not None and any(d.fd in _OUTPUT and d.kind == "pipe" for d in call.descriptors):
        # Who reads what it prints is asked for nothing, but for the next stage of a pipeline.
        return frozenset(pid for pid in found if program(words_of(pid)) is not None)
    if call is not None and call.name == "futex":
        # It waits for a thread of its own: who feeds that one feeds it.
        own = (one.os_id for one in look.threads if one is not look.main and runs_job_code(one))
        return found.union(*(list_awaited_pids(look, tid) for tid in own if tid))
    return found


def _list_pollers(seen: Iterable[tuple[int, Look]]) -> list[int]:
    """Return the ranks where all of them, two at least, sleep for a moment, as who looks for
    something again and again: who has started them may be to give it.
    """
    last = {look.pid: look for rank, look in seen if look.pid == rank}
    return sorted(last) if len(last) > 1 and all(map(_sleeps_for_a_moment, last.values())) else []


def _sleeps_for_a_moment(look: Look) -> bool:
    task = main_kernel(look)
    call = task.syscall if task is not None else None
    if call is None or call.name not in SLEEP_CALLS:
        return False
    return call.timeout is not None and call.timeout <= _MOMENT


_NO_FAILURES = frozenset([None, 0, -signal.SIGTERM])


def _list_failed_siblings(rank: int) -> list[int]:
    """Return the zombies that ended by an error, and were started by the script that started a
    rank.
    """
    about = read_stat(rank)
    if about is None or not has_spawned(rank, about.ppid):
        return []
    stats = {pid: read_stat(pid) for pid in descendants([about.ppid]) if pid != rank}
    return [
        pid
        for pid, one in stats.items()
        if one is not None and one.ppid == about.ppid and one.state == "Z"
        if exit_code(pid) not in _NO_FAILURES
    ]


def _list_failed_starters(rank: int) -> list[int]:
    """Return the zombies that ended by an error and may have started a rank whose parent is gone:
    they are of its session, and began before it.
    """
    about = read_stat(rank)
    if about is None or not _has_lost_its_parent(rank, about.ppid):
        return []
    found = []
    for pid in list_pids():
        one = read_stat(pid) if pid != rank else None
        if one is None or one.state != "Z" or one.started > about.started:
            continue
        if exit_code(pid) not in _NO_FAILURES and _is_of_the_session_of(pid, rank):
            found.append(pid)
    return found


def _has_lost_its_parent(rank: int, parent: int) -> bool:
    """Return whether init, or another reaper, has adopted a process: one that has no session of its
    own is in its parent's (setsid(2)).
    """
    try:
        return parent <= 1 or (os.getsid(rank) != rank and os.getsid(parent) != os.getsid(rank))
    except OSError:
        return False


def _is_of_the_session_of(pid: int, rank: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(rank)
    except OSError:
        return False


def has_spawned(rank: int, pid: int) -> bool:
    """Return whether process `pid` is the parent of `rank`, and has started it by multiprocessing,
    or by its own script once more: a program of the job's, and no launcher.
    """
    about = read_stat(rank)
    if about is None or about.ppid != pid:
        return False
    words, above = words_of(rank), words_of(pid)
    if has_title(words):  # it has overwritten its words (setproctitle)
        has_own = has_title(above) and runs_python(pid)
        return (has_own or program(above) is not None) and not has_launcher(above)
    if starts_for_multiprocessing(words) or (bool(words) and words == above):
        return True
    own, its = program(words), program(above)
    is_same = own is not None and its is not None and words[own] == above[its]
    return is_same and not (has_launcher(above) or starts_no_rank(above))


def was_started_with(rank: int, pid: int) -> bool:
    """Return whether process `pid` was started beside process `rank`, by what started that: it is
    neither above nor below it.
    """
    above = [*walk_up(rank, _DEEPEST)]
    way = [pid, *walk_up(pid, _DEEPEST)]
    if pid in above or rank in way:
        return False
    common = next((one for one in way if one in above), None)
    if common is None or starts_no_rank(words_of(common)):
        return False
    ours = [rank, *above]
    try:
        beside = os.getsid(way[way.index(common) - 1])
        # A launcher that gives its ranks sessions of their own may have been a shell before (exec).
        return beside in (os.getsid(ours[ours.index(common) - 1]), os.getsid(common))
    except OSError:
        return False


def is_asked_in_turn(look: Look, pid: int) -> bool:
    """Return whether process `pid`, or what it has started, has connected to a port at which the
    process of a look listens: the engine of a trainer is in the group for the weights, which the
    trainer serves, though it is a job of its own. What is above that process is none: it has
    started the other ranks as well, and these connect to each other.
    """
    if pid in walk_up(look.pid, _DEEPEST):
        return False
    clients = {client for one in list_clients(look) for client in one.peer_pids}
    return bool(clients) and bool(clients & {pid, *descendants([pid])})


def meet_one_another(looks: Mapping[int, Look], pids: Collection[int]) -> bool:
    """Return whether one of these processes has a connection to another one, or waits for ranks."""
    seen = [(pid, looks[pid]) for pid in pids if pid in looks]
    return any(meets_ranks(one) or list_connected_pids(one) & {*pids} - {pid} for pid, one in seen)


def meets_ranks(one: Look) -> bool:
    """Return whether a thread of a process waits for the other ranks of a group."""
    roles = (Role.MAKES_GROUP, Role.ASKS_STORE, Role.RUNS_COLLECTIVE)
    return any(find_role(thread.frames, role) for thread in one.threads for role in roles)
