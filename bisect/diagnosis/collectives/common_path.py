"""Ranks that all wait in collectives, compared by their frames alone: in which call each is, and
who left the path that the others share. Pure.

Another frame is no mismatch by itself. One call of the job's may be several collectives
(gather_object is an all_gather and a gather: torch/distributed/distributed_c10d.py), and most of
them let some ranks go on before all have come: the root of a broadcast, all but the root of a
reduce. So ranks wait in different phases of one call though one of them alone is to blame, which
may be none of these. What frames do show is who is in code of the job's own that others are not in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import C10D_WRAPPER
from ...base.process_facts import Frame
from ...base.words import format_ranks
from ..process.frames import (
    format_frame,
    frame_owner,
    job_frames,
    keep_by_stack,
    unqualified_name,
)
from ..process.process_snapshot import ProcessSnapshot, keep_in_view
from ..process.public_calls import find_entry_points, find_group_wait
from ..process.spin_waits import find_mpi_call
from .collective_mismatch import TO_ONE_PEER
from .peer_calls import GATHERING, ROOTED, GivenGroup, Handle, find_handle, find_root, read_group

_C10D = "torch/distributed/distributed_c10d.py"
_BACKWARD = "torch/autograd/graph.py"  # where backward waits for the collectives of DDP's hooks
_AROUND_BACKWARD = 4  # frames, the innermost
_PAIR = 2  # ranks: a group of some of them has both
MAKES_FIRST_GROUP = "init_process_group"
# Variants of one call.
_SAME_CALL = {"monitored_barrier": "barrier"}


@dataclass(frozen=True)
class CollectivePlace:
    """Where a rank waits in a collective. Frames are outermost first."""

    rank: RankId
    call: str  # of torch.distributed, the outermost: "gather_object"; "" for one without a name
    own: tuple[Frame, ...]  # the job's own frames
    path: tuple[Frame, ...]  # all frames of the job, not those inside of that call
    group: GivenGroup = ""  # over which the call goes
    root: RankId | None = None  # of that call, as its frame has it
    handle: Handle | None = None  # of a send or a receive, for which it waits
    named_root: RankId | None = None  # as `root`, whatever group was given to the call

    @property
    def key(self) -> Hashable:
        """What is equal for two ranks in the same call."""
        return self.call, self.own

    @property
    def words(self) -> str:
        """The call and who made it: "barrier (train (train.py:30))"; where no code of the job's own
        is on the stack, as in a server, the library that did.
        """
        call = self.call or "a collective"
        made = self.own[-1:] or [f for f in self.path if "/torch/distributed/" not in f.file][-1:]
        return f"{call} ({format_frame(made[0])})" if made else call


def find_collective_place(
    rank: RankId, view: ProcessSnapshot | None, package: str, *, with_groups: bool = False
) -> CollectivePlace | None:
    """Return where a rank waits in a collective, None if it does not, or if it is in a send or a
    receive, which is for one rank alone. `package`: the folder of our own code. `with_groups`: or
    where it makes a group of ranks that have met before.
    """
    return None if view is None else _locate_in_collective(view, rank, package, with_groups)


@keep_in_view
def _locate_in_collective(
    view: ProcessSnapshot, rank: RankId, package: str, with_groups: bool
) -> CollectivePlace | None:
    makes_group = with_groups and _makes_further_group(view)
    if not makes_group and find_group_wait(view) != "collective":
        return None
    place = _find_place_on_stack(view.frames, package, makes_group)
    return replace(place, rank=rank) if place is not None else None


@keep_by_stack
def _find_place_on_stack(
    stack: tuple[Frame, ...], package: str, makes_group: bool
) -> CollectivePlace | None:
    """Return where a rank, 0 say, waits with this stack."""
    frames = job_frames(stack, package)
    owners = [frame_owner(frame, package) for frame in frames]
    inside = next((n for n, owner in enumerate(owners) if owner in ("user", "step")), len(frames))
    at, call = _find_outermost_call(frames[:inside])
    call = call or find_mpi_call(stack)
    if call in TO_ONE_PEER:
        return None
    call = call or ("new_group" if makes_group else "")
    own = tuple(f for f, owner in zip(frames, owners, strict=True) if owner in ("user", "step"))
    path = tuple(f for f in frames[at:] if not f.file.endswith(C10D_WRAPPER))
    root, named_root = find_root(stack), find_root(stack, given_group="any")
    return CollectivePlace(
        0,
        call,
        own[::-1],
        path[::-1],
        read_group(stack),
        root.rank if root else None,
        find_handle(stack),
        named_root.rank if named_root else None,
    )


def _makes_further_group(view: ProcessSnapshot) -> bool:
    """Return whether a rank makes a process group that is not the first one."""
    names = _name_calls_of_torch(view.frames)
    is_first = MAKES_FIRST_GROUP in names
    return bool(names) and not is_first and find_group_wait(view) == "construction"


@keep_by_stack
def _name_calls_of_torch(stack: tuple[Frame, ...]) -> frozenset[str]:
    """Return the functions of torch's process groups that are on a stack."""
    return frozenset(unqualified_name(one.name) for one in stack if one.file.endswith(_C10D))


def _find_outermost_call(frames: Sequence[Frame]) -> tuple[int, str]:
    """Return the collective that encloses all others of `frames` (innermost first), and where in
    them it is; 0 and "" if none has a name.
    """
    named = [
        (n, entry.named(frame).rpartition(".")[2])
        for n, frame in enumerate(frames)
        for entry in find_entry_points(frame)
        if entry.collective
    ]
    of_torch = [(n, call) for n, call in named if frames[n].file.endswith(_C10D)]
    if of_torch or named:
        at, call = (of_torch or named)[-1]
        return at, _SAME_CALL.get(call, call)
    goes_back = any(frame.file.endswith(_BACKWARD) for frame in frames[:_AROUND_BACKWARD])
    return 0, "backward" if goes_back else ""


@dataclass(frozen=True)
class PlaceSplit:
    """Ranks of which some are in a call that the others do not come by, as far as frames, and the
    source around them, tell.
    """

    inside: tuple[CollectivePlace, ...]
    around: tuple[CollectivePlace, ...]
    condition: str = ""  # below which the call stands: "if rank == 2"; "" if none is known
    ends_loop: bool = False  # the condition ends a loop, with which those `around` are through

    @property
    def few(self) -> tuple[CollectivePlace, ...]:
        """Those that are likelier to be wrong: of equally many those that made a call more, or that
        left a loop by a condition in it.
        """
        if len(self.inside) == len(self.around):
            return self.around if self.ends_loop else self.inside
        return self.inside if len(self.inside) < len(self.around) else self.around

    @property
    def is_clear(self) -> bool:
        """Whether those inside are in one call, in which no other is, and so one side is wrong."""
        shared = {one.call for one in self.inside} & {one.call for one in self.around}
        return len({place.key for place in self.inside}) == 1 and not shared

    @property
    def is_apart(self) -> bool:
        """Whether there are two sides, and not all ranks are in one call."""
        calls = {one.call for one in (*self.inside, *self.around)}
        return bool(self.inside and self.around) and len(calls) > 1


def split_places(places: Sequence[CollectivePlace]) -> PlaceSplit | None:
    """Return which ranks are in a call that the others do not come by, None if nothing shows that:
    a condition of the source, else code of the job's own.
    """
    return _split_by_condition(places) or _split_by_own_code(places)


def _split_by_condition(places: Sequence[CollectivePlace]) -> PlaceSplit | None:
    """Split by conditions by which only some ranks come, such as `if rank == 0`. One around all of
    them tells nothing, nor does one of a group of some, whose members it may tell apart.
    """
    shared = set(places[0].own).intersection(*(place.own for place in places)) if places else set()
    found = {
        place.rank: next(
            (f.condition for f in place.own[::-1] if f.condition and f not in shared), ""
        )
        for place in places
    }
    inside = tuple(place for place in places if found[place.rank])
    around = tuple(place for place in places if not found[place.rank])
    if len(places) > _PAIR and any(place.group == "given" for place in inside):
        return None
    loop = split_by_loop(places)
    ends_loop = loop is not None and loop.inside == inside
    split = PlaceSplit(inside, around, found[inside[0].rank] if inside else "", ends_loop)
    return split if split.is_apart else None


def _split_by_own_code(places: Sequence[CollectivePlace]) -> PlaceSplit | None:
    """Split by who is in code of the job's own, below a line on all stacks, from which the others
    are in a library.
    """
    shared = min((len(place.own) for place in places), default=0)
    for place in places:
        pairs = zip(place.own[:shared], places[0].own, strict=False)
        shared = next((n for n, (one, other) in enumerate(pairs) if one != other), shared)
    around = tuple(place for place in places if len(place.own) == shared)
    inside = tuple(place for place in places if len(place.own) > shared)
    split = PlaceSplit(inside, around)
    return split if shared and split.is_apart else None


_COMPREHENSIONS = ("<dictcomp>", "<listcomp>", "<setcomp>", "<genexpr>")


def describe_group_loop(few: Sequence[CollectivePlace]) -> str:
    """Return, in a sentence, that one makes several groups in turn, and waits in one of them for
    members that are past it; "" where it is not so. It is not known then whose list of groups is
    another one, in its order or in its length.
    """
    (place, *others) = few
    site = place.own[-1] if place.own else None
    if others or place.call != "new_group" or site is None:
        return ""
    if not (site.loop or site.name.rpartition(".")[2] in _COMPREHENSIONS):
        return ""
    return (
        f"rank {place.rank} makes groups in a loop ({format_frame(site)}), and the others are past "
        "theirs: which rank has another list of them stacks do not tell"
    )


def split_by_loop(places: Sequence[CollectivePlace]) -> PlaceSplit | None:
    """Return who is in a loop (`inside`) with which all others are through (`around`), as far as
    the source shows: these stand further down in the function from which the loop is gone round.
    None where that is not so, or not so of all.
    """
    own = [place.own for place in places]
    at = next((n for n, steps in enumerate(_zip_all(own)) if len({*steps}) > 1), None)
    if at is None or any(len(frames) <= at for frames in own):
        return None
    lines = {frames[at].line for frames in own}
    if len({(f[at].file, f[at].name) for f in own}) > 1 or len(lines) != _PAIR:
        return None
    first, last = sorted(lines)
    inside = tuple(place for place in places if place.own[at].line == first)
    around = tuple(place for place in places if place.own[at].line == last)
    split = PlaceSplit(inside, around)
    return split if split.is_apart and all(_is_in_loop(p.own[at:], last) for p in inside) else None


def are_in_one_loop(places: Sequence[CollectivePlace]) -> bool:
    """Return whether ranks stand in different lines of one loop, or in different functions without
    a loop that one line of it has called, as far as the source shows: none of them has left it. It
    may be a library's, for whose steps one line of the job's has called it.
    """
    if find_ways_in_library(places):
        return True
    own = [place.own for place in places]
    at = next((n for n, steps in enumerate(_zip_all(own)) if len({*steps}) > 1), None)
    if at is None or any(len(frames) <= at for frames in own):
        return False
    if len({(frames[at].file, frames[at].name) for frames in own}) == 1:
        return len({frames[at].loop for frames in own}) == 1 and bool(own[0][at].loop)
    called = any(frame.loop for frames in own for frame in frames[at:])
    return at > 0 and bool(own[0][at - 1].loop) and not called


def find_ways_in_library(places: Sequence[CollectivePlace]) -> dict[RankId, str]:
    """Return the function in which each rank is, of those that a library's loop over the steps of a
    training has called from different lines; {} where ranks are not all in one such loop.
    """
    if len({place.own for place in places}) != 1:
        return {}
    paths = [place.path for place in places]
    at = next((n for n, steps in enumerate(_zip_all(paths)) if len({*steps}) > 1), None)
    if at is None or any(len(path) <= at + 1 for path in paths):
        return {}
    loops = {(path[at].file, path[at].name, path[at].loop) for path in paths}
    if len(loops) != 1 or not paths[0][at].loop:
        return {}
    return {place.rank: format_frame(place.path[at + 1]) for place in places}


def _is_in_loop(frames: Sequence[Frame], line: int) -> bool:
    """Return whether frames, outermost first, are in a loop in which `line`, of the function of the
    first one, is not.
    """
    around, *called = frames
    leaves = bool(around.loop) and line > around.loop[-1]
    return leaves or any(frame.loop for frame in called)


def list_differing_calls(
    places: Sequence[CollectivePlace], with_groups: bool = False
) -> list[CollectivePlace]:
    """Return a place for each different call in which ranks are, [] where all may be in phases of
    one call, or of what one line of the job's has called: unless two of them wait for each other.
    `with_groups`: one call over the group of all and over another one are two.
    """
    named = {place.key: place for place in reversed(places) if place.call}
    calls, lines = {one.call for one in named.values()}, {one.own for one in named.values()}
    if len(calls) < 2 and not (with_groups and _part_over_groups([*named.values()])):
        return []
    if len(lines) == 1 and lines != {()} and not _wait_for_each_other(places):
        return []
    return sorted(named.values(), key=lambda one: one.rank)


def _part_over_groups(places: Sequence[CollectivePlace]) -> bool:
    """Return whether ranks are in one call over another group and over that of all, in different
    lines, where not all ranks come by the line of the latter, as its source shows: the two do not
    meet. Members of a group have a line of their own for it where all is well.
    """
    groups, lines = {one.group for one in places}, {one.own for one in places}
    of_all = [one.own for one in places if one.group == "default"]
    some = any(own and own[-1].condition for own in of_all)
    return {"given", "default"} <= groups and len(lines) > 1 and some


# In these each rank waits for all others, and in those all but the root for the root.
_OF_ALL = frozenset(
    [
        *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "barrier"),
        *("all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_tensor"),
    ]
)
_FROM_ROOT = frozenset(["broadcast", "broadcast_object_list", "scatter", "scatter_object_list"])


def _wait_for_each_other(places: Sequence[CollectivePlace]) -> bool:
    """Return whether two ranks stand in different calls over the default group, each of which ends
    only once the other one has come to it: no phases of one call.
    """
    default = [one for one in places if one.group == "default"]
    of_all = {one.rank: one.call for one in default if one.call in _OF_ALL}
    from_root = (one for one in default if one.call in _FROM_ROOT)
    return len({*of_all.values()}) > 1 or any(one.named_root in of_all for one in from_root)


def find_few(places: Sequence[CollectivePlace]) -> tuple[CollectivePlace, ...]:
    """Return those that left the path of more than half of all ranks where it first forks, () if
    there are none: by functions, or by lines where all are in the same functions.

    In a collective with a root one rank is in another line than all others, and all is well, unless
    it takes another rank for the root.
    """
    for with_lines in (False, True):
        paths = [[(f.file, f.name, with_lines and f.line) for f in place.path] for place in places]
        forked = [n for n, steps in enumerate(_zip_all(paths)) if len({*steps}) > 1]
        if not forked:
            continue
        steps = [tuple(path[: forked[0] + 1]) for path in paths]
        usual, count = Counter(steps).most_common(1)[0]
        if count * 2 <= len(places):
            return ()
        many = [p for p, step in zip(places, steps, strict=True) if step == usual]
        return tuple(
            place
            for place, step in zip(places, steps, strict=True)
            if step != usual and not _may_be_in_one_call(place, many)
        )
    return ()


def _may_be_in_one_call(place: CollectivePlace, many: Sequence[CollectivePlace]) -> bool:
    """Return whether a rank may be in the call with a root in which others are, in another line."""
    same = [one for one in many if one.call == place.call and one.call in ROOTED]
    roots = {one.named_root for one in (place, *same)}
    return bool(same) and (None in roots or len(roots) == 1)


def _zip_all(paths: Sequence[Sequence[Hashable]]) -> Iterable[tuple[Hashable, ...]]:
    """Yield what all have at each place from the outermost on; None for one that is shorter."""
    for at in range(max((len(path) for path in paths), default=0)):
        yield tuple(path[at] if at < len(path) else None for path in paths)


def describe_places(places: Iterable[CollectivePlace]) -> str:
    """Return in words in which calls ranks are: "rank 0 in broadcast (...), ranks 1-2 in ..."."""
    there: dict[str, list[RankId]] = {}
    for place in places:
        there.setdefault(place.words, []).append(place.rank)
    return ", ".join(f"{format_ranks(ranks)} in {words}" for words, ranks in there.items())


def describe_phases(places: Sequence[CollectivePlace]) -> str:
    """Return in a sentence what it means that ranks are in different collectives that one line of
    the job's has called through a library; "" if they are not, or stand in one call of torch's.
    """
    own = places[0].own if places else ()
    if not own or any(place.own != own for place in places):
        return ""
    if len({place.call for place in places} - {""}) < 2:
        return ""
    who = format_ranks([place.rank for place in places])
    return (
        f"{who} wait in different collectives of one call, {format_frame(own[-1])}: an earlier one"
        " may have put them out of step, and it is on no stack any more"
    )


def describe_root(few: Sequence[CollectivePlace], places: Sequence[CollectivePlace]) -> str:
    """Return in a sentence that `few` may be the root of a collective that one of the others left
    out, or wait for a message of one, which looks like the rest of them; "" if that cannot be.
    """
    if few and all(place.handle is not None for place in few):
        return _describe_messages(few, places)
    if not few or not all(place.call in GATHERING for place in few):
        return ""
    who = [place.rank for place in few]
    if all(place.root is not None and place.root not in who for place in few):
        return ""
    others = [place.rank for place in places if place.rank not in who]
    waits = "waits" if len(who) == 1 else "wait"
    return (
        f"{format_ranks(who)} {waits} in {few[0].words}, where all others go on at once: which of"
        f" {format_ranks(others)} left it out, or whether nobody else was to call it, is not seen"
    )


def _describe_messages(few: Sequence[CollectivePlace], places: Sequence[CollectivePlace]) -> str:
    who = [place.rank for place in few]
    handles = [place.handle for place in few if place.handle is not None]
    named = sorted({peer for one in handles for peer in one.peers} - {*who})
    others = [place.rank for place in places if place.rank not in who]
    one_of = named if all(one.peers for one in handles) and named else others
    wait = "waits" if len(who) == 1 else "wait"
    receives = all(one.receives for one in handles)
    what = "for a message that one of" if receives else "to hand a message over, which one of"
    does = "is to send" if receives else "is to take"
    return (
        f"{format_ranks(who)} {wait} {what} {format_ranks(one_of)} {does}: which of these went on"
        " without it, or whether there was to be none, is not seen"
    )


def describe_undecided(places: Sequence[CollectivePlace]) -> str:
    """Return in a sentence that ranks are in different collectives, and why none of several can be
    named; "" if they are not.
    """
    if not list_differing_calls(places):
        return ""
    return (
        "the ranks wait in different calls, and frames do not tell which of them is wrong:"
        f" {describe_places(places)}"
    )
