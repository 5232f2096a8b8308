"""Until when a wait lasts at the most: a sleep, a futex or a poll with a time limit, as the kernel
knows it; a lock on a file that is asked for again and again, as the frame that asks knows it; and
what a function of a library was given (`timeout=60`), as its local variable tells. What waits so is
not hung before. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from ...base.identity import RankId, name_rank
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import (
    Role,
    find_library_functions,
    has_role,
    is_library_file,
)
from ...base.lock_polls import find_lock_poll
from ...base.process_facts import Frame, Look
from ...base.rank_facts import RankFacts
from ...base.verdict_facts import Verdict, Wait
from ...base.words import format_seconds
from .blocked_syscalls import POLL_CALLS, SLEEP_CALLS
from .frames import format_frame

_COUNT_DOWN = SLEEP_CALLS | {"futex"}  # calls whose time limit is read as what is left of it
LONGEST_LIMIT = 86_400.0  # seconds
# By how much two readings of one wait may differ, where a busy machine reads it late: seconds, and
# a share of the time between them. Of waits of one length, one after the other, a later one ends by
# half of that time later at the least.
_TICK, _SHARE = 0.1, 0.4


def find_time_limit(
    verdict: Verdict, ranks: Sequence[RankFacts], counts_given: bool = True
) -> float:
    """Return until when (monotonic) the waits of the culprits last at the most, as far as that is
    known: the latest of their limits; 0.0 where none has one, or who waits begins anew each time.
    One of more than a day (LONGEST_LIMIT) is none: nobody waits for it. `counts_given`: those too
    that a function was given, of which nothing tells since when they run.
    """
    named = [facts for facts in ranks if facts.rank in verdict.ranks.culprit and facts.looks]
    ends = [
        (facts.looks[-1].at, _find_end(facts, verdict.waits_for, counts_given)) for facts in named
    ]
    return max((end for at, end in ends if end <= at + LONGEST_LIMIT), default=0.0)


def _find_end(facts: RankFacts, wait: Wait | None, counts_given: bool) -> float:
    """Return until when a rank waits at the most: by what a function was given that it is in, for
    each of its steps may have a shorter limit; else by the wait itself. 0.0 if that is not known.
    """
    given = find_given_limit(facts.looks) if counts_given else None
    if given is not None:
        return given.end
    looks = find_who_waits(facts, wait)
    if not looks:
        return 0.0
    ends = [find_end_of_wait(looks), find_end_of_lock_poll(looks)]
    if wait is not None and wait.kind == "collective":
        ends += [looks[-1].at + one.left for one in _list_limits(facts) if one.call == GLOO]
    return max(ends)


@dataclass(frozen=True)
class GivenLimit:
    """A time limit that a function of a library was given, as one of its local variables tells."""

    frame: Frame
    seconds: float
    first: float  # when (monotonic) it was first seen; since when it runs is not known
    end: float  # it is over by then


_NUMBER = r"\d+(?:\.\d+)?"
_SECONDS = re.compile(_NUMBER)
_PAIR = re.compile(rf"\({_NUMBER}, ({_NUMBER})\)")  # to connect, and for each answer
_DELTA = re.compile(rf"datetime\.timedelta\((?:days=(\d+))?(?:, )?(?:seconds=({_NUMBER}))?\)")


def find_given_limit(looks: Sequence[Look]) -> GivenLimit | None:
    """Return the longest time limit of the functions of libraries in which the job's own code waits
    at the last look: the shorter ones are of their steps. None where none was given one, or one of
    them asks again once it is over.
    """
    main = looks[-1].main if looks else None
    inner = list(takewhile(_is_library, main.frames)) if main is not None else []
    if any(has_role(frame.file, frame.name, Role.ASKS_AGAIN) for frame in inner):
        return None
    found = [one for frame in inner if (one := _read_given_limit(frame, looks)) is not None]
    return max(found, key=lambda one: one.end, default=None)


def _is_library(frame: Frame) -> bool:
    return frame.native or is_library_file(frame.file)


def _read_given_limit(frame: Frame, looks: Sequence[Look]) -> GivenLimit | None:
    rows = find_library_functions(frame.file, frame.name)
    names = [name for row in rows for name in row.limit.split()]
    if not names:
        return None
    told: list[tuple[float, float]] = []
    for look in looks:
        for one in look.main.frames if look.main is not None else ():
            if (one.file, one.name) == (frame.file, frame.name):
                values = dict(one.locals)
                told += [
                    (look.at, _parse_seconds(values[name])) for name in names if name in values
                ]
    told = [(at, seconds) for at, seconds in told if 0.0 < seconds <= LONGEST_LIMIT]
    if not told:
        return None
    first, seconds = told[0]
    return GivenLimit(frame, seconds, first, min(at + left for at, left in told))


def _parse_seconds(text: str) -> float:
    """Return the seconds in the value of a local variable, 0.0 if it tells none."""
    if _SECONDS.fullmatch(text):
        return float(text)
    if (pair := _PAIR.fullmatch(text)) is not None:
        return float(pair[1])
    if (delta := _DELTA.fullmatch(text)) is not None:
        return int(delta[1] or 0) * LONGEST_LIMIT + float(delta[2] or 0)
    return 0.0


def note_given_limit(verdict: Verdict, ranks: Sequence[RankFacts]) -> Verdict:
    """Return a verdict with the time limit that a culprit was given, where one is known."""
    return replace(verdict, limit=describe_time_limit(verdict, ranks))


def describe_time_limit(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Return in words which time limit a culprit was given, "" if none is known: since when it runs
    no look tells.
    """
    named = [facts for facts in ranks if facts.rank in verdict.ranks.culprit and facts.looks]
    for facts in named:
        if (given := find_given_limit(facts.looks)) is not None:
            limit = format_seconds(given.seconds)
            return (
                f"{name_rank(facts.rank)} waits for {limit} at most by the time limit "
                f"of {format_frame(given.frame)}: it gives up within {limit} of the first look"
            )
    return ""


GLOO = "gloo"  # in WaitLimit.call
_GLOO_THREAD = "pt_gloo"  # how threads are called that run gloo's operations (ProcessGroupGloo.cpp)


@dataclass(frozen=True)
class WaitLimit:
    """When the wait of a rank ends by itself, as the kernel knows it."""

    rank: RankId
    left: float  # seconds, from the last look at it
    call: str  # what waits: "gloo", for a thread of the process group's; else the system call


def find_first_limit(ranks: Sequence[RankFacts]) -> WaitLimit | None:
    """Return the first time limit that runs out among the waits of `ranks`, None if the kernel
    knows of none. A main thread in a collective of gloo waits for a thread of its own, and that has
    the limit of the process group, or of a monitored_barrier.
    """
    found = [one for facts in ranks for one in _list_limits(facts)]
    return min(found, key=lambda one: one.left, default=None)


def _list_limits(facts: RankFacts) -> list[WaitLimit]:
    if not facts.looks:
        return []
    last = facts.looks[-1]
    own = find_end_of_wait(facts.looks)
    call = last.kernel[0].syscall if last.kernel else None
    found = [WaitLimit(facts.rank, own - last.at, call.name)] if own and call is not None else []
    for task in last.kernel[1:]:
        gloo = task.syscall if task.comm.startswith(_GLOO_THREAD) else None
        if gloo is not None and gloo.name == "futex" and gloo.timeout is not None:
            found.append(WaitLimit(facts.rank, gloo.timeout, GLOO))
    return [one for one in found if one.left <= LONGEST_LIMIT]


def find_who_waits(facts: RankFacts, wait: Wait | None) -> tuple[Look, ...]:
    """Return the looks at the process whose own wait keeps a rank: of the child that it waits for,
    else the rank's.
    """
    if wait is None or wait.kind != "process":
        return facts.looks
    return facts.looks_at(wait.pid)


def find_end_of_wait(looks: Sequence[Look]) -> float:
    """Return until when (monotonic) the main thread's call waits at the most, 0.0 if nobody knows,
    or if it waits again and again.
    """
    last = looks[-1]
    call = last.kernel[0].syscall if last.kernel else None
    if call is None or call.timeout is None or call.name not in POLL_CALLS | _COUNT_DOWN:
        return 0.0
    if call.name in _COUNT_DOWN and not any(waits_anew(*pair) for pair in pairwise(looks)):
        return last.at + call.timeout
    # The whole of it (a poll, the program `sleep`): what is left of it is not known, and at the
    # first look that shows it it had begun.
    same = [one.at for one in looks if one.kernel and one.kernel[0].syscall == call]
    if call.name in _COUNT_DOWN and len(same) < len(looks):
        return 0.0
    return min(same) + call.timeout


def find_end_of_lock_poll(looks: Sequence[Look]) -> float:
    """Return until when (monotonic) the main thread asks for a lock on a file at the most, by the
    limit of the function that asks and by when it began; 0.0 where it has none, or where its caller
    asks again.
    """
    limit = read_lock_limit(looks[-1])
    if limit is None:
        return 0.0
    last = looks[-1]
    began = _read_number(last, "start_time")  # time.perf_counter(): the monotonic clock on Linux
    if began is None or not last.at - last.age <= began <= last.at:
        began = next(one.at for one in looks if read_lock_limit(one) is not None)
    return began + limit


def read_lock_limit(look: Look) -> float | None:
    """Return for how many seconds in all the main thread asks for a lock on a file, None where it
    asks for none, or without a limit.
    """
    frames = look.main.frames if look.main is not None else ()
    if any(has_role(frame.file, frame.name, Role.ASKS_AGAIN) for frame in frames):
        return None
    limit = _read_number(look, "timeout")
    return limit if limit is not None and limit >= 0 else None


# What filelock 4.3 hands to its function that asks (filelock/_core/_state.py, AcquireWait).
_ACQUIRE_WAIT = ("blocking", "cancel_check", "timeout", "poll_interval", "start_time")


def _read_number(look: Look, name: str) -> float | None:
    """Return a number of the function in which the main thread asks for a lock on a file."""
    asks = find_lock_poll(look.main.frames) if look.main is not None else None
    values = dict(asks.locals) if asks is not None else {}
    told = values.get(name, "")
    fields = values.get("wait", "").strip("()").split(", ")
    if not told and len(fields) == len(_ACQUIRE_WAIT):
        told = fields[_ACQUIRE_WAIT.index(name)]
    try:
        return float(told)
    except ValueError:
        return None


def gives_up_a_lock(verdict: Verdict, ranks: Sequence[RankFacts]) -> bool:
    """Return whether what the culprits wait for is a lock on a file for which each of them asks for
    some time only: whatever became of its owner, they go on, or end.
    """
    named = [facts for facts in ranks if facts.rank in verdict.ranks.culprit]
    waiting = [find_who_waits(facts, verdict.waits_for) for facts in named]
    limits = [read_lock_limit(looks[-1]) if looks else None for looks in waiting]
    return bool(limits) and all(one is not None and one <= LONGEST_LIMIT for one in limits)


def read_time_left(look: Look) -> float | None:
    """Return for how many seconds more the main thread's call waits at the most, None if nobody
    knows: the kernel counts down for sleeps and futexes.
    """
    call = look.kernel[0].syscall if look.kernel else None
    return call.timeout if call is not None and call.name in _COUNT_DOWN else None


def is_asleep(look: Look) -> bool:
    """Return whether the main thread is in a sleep."""
    call = look.kernel[0].syscall if look.kernel else None
    return call is not None and call.name in SLEEP_CALLS


def waits_anew(before: Look, after: Look) -> bool:
    """Return whether the main thread waits for some time at both looks, and not the same time."""
    first, second = read_time_left(before), read_time_left(after)
    if first is None or second is None:
        return False
    apart = after.at - before.at
    return second > first - apart + max(_TICK, _SHARE * apart)
