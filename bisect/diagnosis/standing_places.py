"""Where ranks stand still: they are told apart where nothing else says who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..base.identity import RankId
from ..base.library_functions import Role, find_role
from ..base.process_facts import Frame
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Wait
from .blocked_syscalls import is_open_to_peers
from .case import Case
from .frames import frame_owner, job_frames
from .rank_waits import POLLS, is_anonymous
from .single_ranks import is_gone


class StandingPlace(NamedTuple):
    """Where a rank stands still, to be compared with where others do."""

    kind: str  # of its wait
    may_be_for_peers: bool
    frames: tuple[object, ...]
    call: str = ""  # of torch.distributed in which it meets others


def find_standing_place(case: Case, facts: RankFacts, with_lines: bool) -> StandingPlace | None:
    """Return the place where a rank stands, None if no look shows it."""
    found = case.rank_waits[facts.rank]
    if found.view is None:
        return None
    frames = job_frames(found.view.frames, case.job.package)
    wait = found.wait or Wait("itself", "")
    if found.transfer is not None or wait.kind == "collective":
        call = found.place.removeprefix("collective ")
        call = found.transfer.call if found.transfer is not None else call
        places = tuple((f.file, f.name, with_lines and f.line) for f in frames)
        return StandingPlace("collective", True, places, call)
    if wait.kind not in POLLS:
        places = tuple((f.file, f.name, with_lines and f.line) for f in frames)
        may_be = is_anonymous(wait) or is_open_to_peers(wait, found.view.call)
        # In a call by which all meet at the store; a key alone may be one rank's for one other.
        may_be = may_be or (
            wait.kind == "store" and find_role(found.view.frames, Role.ASKS_STORE) is not None
        )
        # Whoever started a rank started the others too, and may hear them one after another.
        may_be = may_be or (wait.pid == found.view.look.ppid and not wait.host)
        return StandingPlace(wait.kind, may_be, places)
    # Each look at a loop shows another line of it, and another function that it calls.
    own = [n for n, f in enumerate(frames) if frame_owner(f, case.job.package) in ("user", "step")]
    outer = frames[own[0] :] if own else frames
    places = tuple(
        (f.file, f.name, with_lines and number > 0 and f.line) for number, f in enumerate(outer)
    )
    return StandingPlace(wait.kind, is_anonymous(wait), places)


def find_few_in_ring(case: Case, candidates: Sequence[RankId]) -> tuple[RankId, ...]:
    """Return those of `candidates` that stand in other functions of the job's own than more than
    half of all ranks; () where all do, or none, or where the line from which they part stands below
    a condition by rank: there they have another part in the program. Each of them waits for a rank
    at the other end of a connection.
    """
    living = [r for r in case.ranks if not (r.finished or is_gone(r))]
    waits = [case.rank_waits[rank].own_wait for rank in candidates if rank in case.rank_waits]
    if not all(one is not None and one.kind == "socket" and one.rank is not None for one in waits):
        return ()
    paths: dict[RankId, tuple[Frame, ...]] = {}  # outermost first
    for facts in living:
        view = case.rank_waits[facts.rank].view
        frames = job_frames(view.frames, case.job.package) if view is not None else ()
        own = [f for f in frames if frame_owner(f, case.job.package) in ("user", "step")]
        paths[facts.rank] = tuple(own[::-1])
    ((usual, count),) = Counter(map(_name_functions, paths.values())).most_common(1) or [((), 0)]
    few = tuple(r for r in candidates if _name_functions(paths.get(r, ())) != usual)
    if not usual or 2 * count <= len(living) or not 0 < len(few) < len(candidates):
        return ()
    different = {(*_name_functions(p), *(f.condition for f in p)): p for p in paths.values()}
    theirs = [path for path in different.values() if _name_functions(path) == usual]
    others = [paths[rank] for rank in few]
    return () if any(_part_by_condition(a, b) for a in others for b in theirs) else few


def _name_functions(path: Sequence[Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.name) for frame in path)


def _part_by_condition(one: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Return whether the line from which two paths part, in one or the other, stands below a
    condition by which only some ranks come.
    """
    pairs = zip(_name_functions(one), _name_functions(other), strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    return same == 0 or any(path[same - 1].condition for path in (one, other))
