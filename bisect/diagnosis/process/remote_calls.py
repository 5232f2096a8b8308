"""Which rank a remote call waits for (torch.distributed.rpc). Pure.

rpc_sync() waits until another worker has run a function, and that runs in a thread of the other
rank, whatever its main thread does: most often that is in shutdown(). A worker goes by a name that
the job gave it, and nothing but its own frames says which rank that is. So a rank is named only
where a thread of it stands in a function for another worker, and it says that name itself; or is
the only one that can have it; or is the only one that runs such a function, and has the number at
the end of the name. A future, as rpc_async() returns one, has no name in its frames: who waits for
one waits for the only rank that runs a function.

init_rpc() and shutdown() return once all workers are in them. They wait in an Event of Python, or
in a remote call that says who has come (_all_gather in torch/distributed/rpc/api.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import Role, find_role, has_role, parse_text
from ...base.process_facts import Frame, Thread
from .frames import innermost_python_frame
from .process_snapshot import ProcessSnapshot
from .public_calls import find_entry_points

# A meeting of workers: how Python waits, and the functions of RPC that it is made of.
_BETWEEN = re.compile(r"(?:^|/)(?:threading|torch/distributed/rpc/\w+)\.py>?$")
_FUTURE = "PythonFutureWrapper::wait"  # torch/csrc/jit/python/pybind_utils.h
_CALLED = "to"  # of rpc_sync: a name, or an object that shows none
_NUMBER = re.compile(r"\d{1,7}$", re.ASCII)
_OWN_NAME = "self_name"  # of _all_gather, in which shutdown() waits (torch/distributed/rpc/api.py)


@dataclass(frozen=True)
class Worker:
    """A rank as a worker: its name, "" if unknown; whether a thread of it runs a function for
    another, and none of these functions waits for ranks itself.
    """

    rank: RankId
    name: str
    serves: bool


def find_remote_call(frames: Iterable[Frame]) -> Frame | None:
    """Return the remote call in which a thread waits, None if that is not its innermost frame."""
    inner = innermost_python_frame(frames)
    if inner is None or not has_role(inner.file, inner.name, Role.CALLS_WORKER):
        return None
    return inner


def find_awaited_future(frames: Iterable[Frame]) -> Frame | None:
    """Return the frame of Python that waits for a future of torch's, as rpc_async() returns one:
    only a native frame says so. None if the thread does not.
    """
    frames = [*frames]
    native = [*takewhile(lambda frame: frame.native, frames)]
    waits = any(_FUTURE in frame.name for frame in native)
    return next(iter(frames[len(native) :]), None) if waits else None


def list_servers(caller: RankId, workers: Sequence[Worker]) -> list[RankId]:
    """Return the other ranks that run a function for another one, and wait for no ranks in that."""
    return [one.rank for one in workers if one.serves and one.rank != caller]


def stands_in_remote_calls(frames: Iterable[Frame]) -> bool:
    """Return whether a thread runs a function for a worker, calls one, or waits until all came."""
    roles = (Role.CALLS_WORKER, Role.SERVES_WORKER, Role.LEAVES_WORKERS, Role.MEETS_WORKERS)
    return any(has_role(one.file, one.name, role) for one in frames for role in roles)


def find_meeting_of_workers(view: ProcessSnapshot) -> Frame | None:
    """Return the function that the job called, in which the main thread waits until all workers
    have come; None if it does not, or if a thread of the process runs a function, for which all
    wait.
    """
    if view.running or any(find_role(t.frames, Role.SERVES_WORKER) for t in view.threads):
        return None
    python = (frame for frame in view.frames if not frame.native)
    inside = tuple(takewhile(lambda frame: _BETWEEN.search(frame.file), python))
    if not find_role(inside, Role.MEETS_WORKERS):
        return None
    return next((frame for frame in reversed(inside) if find_entry_points(frame)), inside[-1])


def find_workers(ranks: Iterable[tuple[RankId, Sequence[Thread]]]) -> tuple[Worker, ...]:
    """Return what each rank is as a worker, by the threads that its looks show."""
    return tuple(
        Worker(rank, _find_own_name(threads), _serves_alone(threads)) for rank, threads in ranks
    )


def choose_server(
    call: Frame, caller: RankId, workers: Sequence[Worker], world: int
) -> RankId | None:
    """Return the rank that runs what `caller` called, None if that is not known. `world`: how many
    ranks the job has, of which some may not be seen.
    """
    to, others = read_called(call), [one for one in workers if one.rank != caller]
    named = [one for one in others if to and one.name == to]
    if named:
        return named[0].rank if len(named) == 1 and named[0].serves else None
    excluded = sum(bool(to and one.name) for one in others)
    serving = [one for one in others if one.serves and not (to and one.name)]
    if len(serving) != 1:
        return None
    is_only_other = world - 1 - excluded == 1
    number = _NUMBER.search(to)
    is_numbered = number is not None and int(number[0]) == serving[0].rank
    return serving[0].rank if is_only_other or is_numbered else None


def read_called(call: Frame) -> str:
    """Return the name of the worker that was called, "" where no local tells it."""
    return parse_text(dict(call.locals).get(_CALLED, ""))


def _serves_alone(threads: Sequence[Thread]) -> bool:
    serving = [t for t in threads if find_role(t.frames, Role.SERVES_WORKER) is not None]
    return bool(serving) and not any(_waits_for_ranks(thread) for thread in serving)


def _waits_for_ranks(thread: Thread) -> bool:
    roles = (Role.CALLS_WORKER, Role.RUNS_COLLECTIVE, Role.MAKES_GROUP, Role.ASKS_STORE)
    return any(find_role(thread.frames, role) is not None for role in roles)


def _find_own_name(threads: Iterable[Thread]) -> str:
    for thread in threads:
        frame = find_role(thread.frames, Role.LEAVES_WORKERS)
        name = parse_text(dict(frame.locals).get(_OWN_NAME, "")) if frame is not None else ""
        if name:
            return name
    return ""
