"""What ends by an error and is started again, again and again, in a job that was not watched from
its start: looks of some seconds show one end of it, or none.

Told by what is left of those that ended: Ray's log of dead workers, the logs of a supervisor's
children, and the same error many times in the output that workers share with who has started them,
while the workers that live now are much younger than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..base.deadline import call_with_limit
from ..base.identity import RankId
from ..base.process_facts import DeadWorker, Look, RetriedTask
from ..base.process_roles import find_actor, is_worker_program
from ..base.rank_facts import RankFacts, RestartedProcess
from ..collect.source_facts import OUTPUT_LIMIT
from ..diagnosis.process.blocked_syscalls import CHILD_WAIT_CALLS, SLEEP_CALLS
from ..diagnosis.process.process_snapshot import main_kernel
from ..evidence.descriptors import read_links
from ..evidence.left_logs import (
    ERROR_LINE,
    LOG_ENDINGS,
    LeftLog,
    find_left_logs,
    find_repeated_error,
    find_repeated_failure,
)
from .processes import TABLE_LIMIT, ProcessTable, read_processes
from .ranks import Rank, list_programs_below

_FEWEST_ERRORS = 2  # in a log that was left, before what has written it counts as started again
_FEWEST_DEATHS = 3  # of one class of actors
_LONG_AGO = 600.0  # seconds: who is started again by then says so again
_YOUNG = 0.7  # of the age of a process, that of a child which came in the place of others
_OUTPUT = (2, 1)  # descriptors: standard error and output
_LONGER = 1.5  # times as long as those before it: what lives so long has come further


def list_failing_actors(looks: Iterable[Look]) -> frozenset[str]:
    """Return the classes of actors of which Ray's log, as these looks have it, counts at least
    three that died and were not told to, and the tasks that were handed in so often again.
    """
    looks = list(looks)
    dead = Counter(one.actor for one in _list_dead(looks) if one.actor)
    tasks = (one.name for one in _list_retried(looks))
    return frozenset([*(name for name, n in dead.items() if n >= _FEWEST_DEATHS), *tasks])


def comes_in_vain(look: Look, failing: Collection[str]) -> bool:
    """Return whether a process runs an actor of a class that dies again and again, or is about to:
    that it was started moves nothing on.
    """
    if not failing:
        return False
    actor = find_actor(look.command)
    return actor.partition(".")[0] in failing or any(map(is_worker_program, look.command))


def _list_dead(looks: Iterable[Look]) -> Sequence[DeadWorker]:
    clusters = [one.ray for one in looks if one.ray is not None]
    return clusters[-1].dead if clusters else ()


def _list_retried(looks: Iterable[Look]) -> list[RetriedTask]:
    clusters = [one.ray for one in looks if one.ray is not None and one.ray.retried]
    retried = clusters[-1].retried if clusters else ()
    return [one for one in retried if one.times >= _FEWEST_DEATHS and not one.is_for_lost]


def find_restarted(
    pids: Collection[int], ranks: Sequence[RankFacts], age: float
) -> RestartedProcess | None:
    """Return what has ended by an error several times since a job started, `age` seconds ago, and
    comes again, as Ray's logs, logs of its own or the output of these processes (`pids`) say; None
    for nothing. May block.
    """
    now = time.time()
    looks = [look for facts in ranks for look in facts.looks]
    if (actor := _find_failing_actor(looks, age)) is not None:
        return actor
    logs = find_left_logs(sorted(pids), now - age)
    found = [one for one in logs if one.times >= _FEWEST_ERRORS and one.written >= now - _LONG_AGO]
    if found:
        seconds = max(0.0, round(found[0].written - (now - age), 1))
        return RestartedProcess(
            "", 0, found[0].times, seconds, file=found[0].path, error=found[0].error
        )
    children = [looks[-1] for facts in ranks for looks in facts.children if looks]
    for pid in sorted(pids):
        mine = [one for one in children if one.ppid == pid]
        log = _read_output(pid) if mine else None
        if log is not None and (again := judge_repeated_error(log, mine, age, now)) is not None:
            return again
    return None


def _find_failing_actor(looks: Sequence[Look], age: float) -> RestartedProcess | None:
    failing = list_failing_actors(looks)
    dead = [one for one in _list_dead(looks) if one.actor in failing]
    if not dead and (tasks := _list_retried(looks)):
        folder = next((one.ray.folder for one in looks if one.ray), "")
        name, times = f"ray::{tasks[-1].name}", tasks[-1].times
        return RestartedProcess(name, 0, times, round(age, 1), file=folder, is_sure=True)
    if not dead:
        return None
    last = dead[-1]
    times = sum(one.actor == last.actor for one in dead)
    name, folder = f"ray::{last.actor}", next(one.ray.folder for one in looks if one.ray)
    return RestartedProcess(name, last.pid or 0, times, round(age, 1), file=folder, is_sure=True)


def _read_output(pid: int) -> LeftLog | None:
    """Return what a process, and what it has started, writes again and again."""
    try:
        links = read_links(pid)
    except OSError:
        return None
    output = [f"/proc/{pid}/fd/{one}" for one in _OUTPUT if one in links]
    logs = [path for path in links.values() if path.startswith("/") and path.endswith(LOG_ENDINGS)]
    return find_repeated_error(output) or find_repeated_error(logs, ERROR_LINE)


def judge_repeated_error(
    log: LeftLog, children: Sequence[Look], age: float, now: float
) -> RestartedProcess | None:
    """Return what has ended so often as `log` says, where the youngest of these children is much
    younger than the job (`age`, in seconds), and has not lived for much longer than those before it
    (log and `now` are on the wall clock); None where that is not so.
    """
    living = [one for one in children if one.state not in "ZX"]
    youngest = min(living, key=lambda one: one.age, default=None)
    if youngest is None or youngest.age > _YOUNG * age:
        return None
    seconds = max(0.0, log.written - (now - age))
    lived = _LONGER * len(living) * seconds / max(log.times, 1)
    if now - log.written > lived:
        return None
    path = log.path if not log.path.startswith("/proc/") else ""
    path = path if os.path.isabs(path) else ""
    return RestartedProcess(
        youngest.name,
        youngest.pid,
        log.times,
        round(seconds, 1),
        file=path,
        error=log.error,
        is_sure=True,
    )


# ---- below a program that does nothing but start it again ----------------------------------------

_LEAST_TRY = 1.0  # seconds from the start of a program to that of what it starts again
_SLACK = 5.0  # seconds: a busy machine, and a pause before the next try
_TICKS = os.sysconf("SC_CLK_TCK")
_NEXT_TRY = 15.0  # seconds for what has failed once to do so again
_LONGER_LIVED = 2.0  # times as long as those before it: it may be the one that goes on


async def find_failing_children(
    members: Iterable[Rank], processes: ProcessTable, ranks: Sequence[RankFacts]
) -> dict[RankId, RestartedProcess]:
    """Return by rank what ends by an error below a program that does nothing but start it again:
    what both print has that error several times, and the last one is not there for long. Where it
    has failed once it is waited until the next one has.
    """
    own = {rank.pid: rank for rank in members}
    asked = [
        (facts.rank, rank)
        for facts in ranks
        if (rank := own.get(facts.pid or 0)) is not None
        and rank.pid in processes
        and (rank.keeper is not None or _only_starts_others(facts))
    ]

    def read(processes: ProcessTable) -> dict[RankId, RestartedProcess]:
        found = ((number, _find_tries(processes, rank)) for number, rank in asked)
        return {number: tries for number, tries in found if tries is not None}

    until, found = time.monotonic() + _NEXT_TRY, {}
    with contextlib.suppress(TimeoutError):
        while asked:
            # Not the table that ranks were found in: what it has may have ended since, and come.
            table = await call_with_limit(read_processes, limit=TABLE_LIMIT, key="processes")
            found = await call_with_limit(read, table, limit=OUTPUT_LIMIT, key="failing children")
            is_over = time.monotonic() > until
            if is_over or all(one.times >= _FEWEST_ERRORS for one in found.values()):
                break
            await asyncio.sleep(1.0)
    return {number: one for number, one in found.items() if one.times >= _FEWEST_ERRORS}


def _only_starts_others(facts: RankFacts) -> bool:
    """Return whether a process was in a call that waits for its child, or sleeps, in most looks: in
    the others it may start one.
    """
    tasks = [main_kernel(look) for look in facts.looks]
    calls = [task.syscall.name for task in tasks if task is not None and task.syscall is not None]
    return 2 * sum(name in CHILD_WAIT_CALLS | SLEEP_CALLS for name in calls) > len(tasks)


def _find_tries(processes: ProcessTable, rank: Rank) -> RestartedProcess | None:
    """Return what was started again and again in the place of a rank. May block."""
    above = processes.get(rank.keeper or rank.pid)
    if above is None:
        return None
    below = list_programs_below(processes, rank)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    began = above.started / _TICKS
    for path in (f"/proc/{above.pid}/fd/{number}" for number in _OUTPUT):
        log = find_repeated_failure(path)
        if log is None:
            continue
        last = below[-1].started / _TICKS if below else now - (time.time() - log.written)
        if are_tries(last - began, now - last, log.times) and len(below) < 2:
            seconds = round(last - began, 1)
            return RestartedProcess(
                "", 0, log.times, seconds, file=os.readlink(path), error=log.error
            )
    return None


def are_tries(until: float, since: float, times: int) -> bool:
    """Return whether what has ended `times` times within `until` seconds, and is there, or gone,
    for `since` seconds now, is about to fail once more, as far as one can tell.
    """
    return until >= _LEAST_TRY and since <= _LONGER_LIVED * until / times + _SLACK
