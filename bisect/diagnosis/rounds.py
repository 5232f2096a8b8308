"""Ranks that stand in the same place, some of them in another round of a loop of the job's own:
they look for one another, or meet, and each means another round. The counters of the loops around
their lines tell it, where no log of collectives does. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame
from ..base.rank_facts import RankFacts
from ..base.words import format_ranks
from .collectives.common_path import find_collective_place
from .process.blocked_syscalls import POLL_CALLS
from .process.frames import format_frame, frame_owner, keep_by_stack
from .process.process_snapshot import ProcessSnapshot
from .process.public_calls import find_group_wait
from .rank_waits import POLLS, RankWait
from .single_ranks import is_gone

_FEWEST = 3  # ranks: of two nobody can tell which is in the wrong round


@dataclass(frozen=True)
class OtherRound:
    """What ranks in the same place do not agree about: which round of a loop it is."""

    ranks: tuple[RankId, ...]  # those to blame: the few that are not in the round of most
    others: tuple[RankId, ...]
    sentence: str
    # Those in the other round are past a line in which the others still wait, or the other way
    # round: what let them pass is the cause, and the round only follows from it.
    is_passed: bool = False


def find_other_round(
    ranks: Sequence[RankFacts], waits: Mapping[RankId, RankWait], package: str
) -> OtherRound | None:
    """Return which of the ranks are in another round than most of them, None where frames do not
    tell, or where a rank stands in another place, or moves, or waits in a collective of which
    another one, that does not look again and again, is still short. Of several loops the outermost
    counts.
    With its neighbours alone a rank may well be a round ahead: nothing is said where they wait in
    sends, in receives, or for handles of it is not known what.
    """
    standing = [one for one in ranks if not (one.finished or is_gone(one))]
    if len(standing) < _FEWEST or any(one.moved for one in standing):
        return None
    places: dict[RankId, tuple[Frame, ...]] = {}
    for facts in standing:
        view = waits[facts.rank].view
        if view is not None and _may_be_with_neighbours(facts.rank, view, package):
            return None
        frames = view.frames if view is not None else ()
        places[facts.rank] = _select_own_frames(frames, package)
    if _are_some_not_there(places, waits):
        return None
    if len({tuple(map(_name_place, frames)) for frames in places.values()}) != 1:
        return None
    depth = len(next(iter(places.values())))
    for number in reversed(range(depth)):
        found = _compare_rounds({rank: frames[number] for rank, frames in places.items()})
        if found is not None:
            return replace(found, is_passed=_is_passed(places, waits))
    return None


@keep_by_stack
def _select_own_frames(frames: tuple[Frame, ...], package: str) -> tuple[Frame, ...]:
    return tuple(frame for frame in frames if frame_owner(frame, package) == "user")


def _are_some_not_there(ranks: Iterable[RankId], waits: Mapping[RankId, RankWait]) -> bool:
    """Return whether some ranks meet in a collective, and another one is kept by something else:
    it is a round behind because of that.
    """
    meets = {rank for rank in ranks if waits[rank].waits_for_peers}
    return bool(meets) and any(not _looks_again(waits[r]) for r in ranks if r not in meets)


def _looks_again(found: RankWait) -> bool:
    """Return whether a rank polls: an event loop that sleeps waits for itself, and does not."""
    wait, view = found.wait, found.view
    is_asleep = view is not None and view.call_name in POLL_CALLS and not view.running
    return wait is not None and wait.kind in POLLS and not (wait.kind == "itself" and is_asleep)


def _is_passed(places: Mapping[RankId, Sequence[Frame]], waits: Mapping[RankId, RankWait]) -> bool:
    """Return whether ranks stand in several lines and none of them looks again and again: of such a
    loop each look shows another line.
    """
    lines = {tuple(frame.line for frame in frames) for frames in places.values()}
    found = (waits[rank].wait for rank in places)
    return len(lines) > 1 and not any(one is not None and one.kind in POLLS for one in found)


def _may_be_with_neighbours(rank: RankId, view: ProcessSnapshot, package: str) -> bool:
    """Return whether a rank waits for peers, and in no collective that its frames name."""
    if find_group_wait(view) != "collective":
        return False
    place = find_collective_place(rank, view, package)
    return place is None or not place.call


def _name_place(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.name


def _compare_rounds(frames: Mapping[RankId, Frame]) -> OtherRound | None:
    """Compare the counters of one frame, in the order of the loops."""
    first = next(iter(frames.values()))
    for name, _ in first.counters:
        values = {rank: dict(frame.counters).get(name) for rank, frame in frames.items()}
        (usual, most), *others = Counter(values.values()).most_common()
        if None in values.values() or not others:
            continue
        if 2 * most <= len(values):
            return None
        few = tuple(sorted(rank for rank, value in values.items() if value != usual))
        rest = tuple(sorted(rank for rank in values if rank not in few))
        told = ", ".join(_describe_round(rank, name, values[rank]) for rank in few)
        place = format_frame(frames[few[0]])
        sentence = f"{told}, {format_ranks(rest)} in that of {name} = {usual} ({place})"
        return OtherRound(few, rest, sentence)
    return None


def _describe_round(rank: RankId, name: str, value: int | None) -> str:
    return f"{format_ranks((rank,))} is in the round of {name} = {value}"
