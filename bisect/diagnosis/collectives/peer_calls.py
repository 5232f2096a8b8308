"""Which rank a send or a receive is for, and over which group a collective goes, as far as the
frames of torch.distributed tell. Pure.

`src` and `dst` of torch's functions are numbers in the whole job, `group_src` and `group_dst` those
in the group (torch/distributed/distributed_c10d.py, send and recv). The two are the same in the
default group alone, and a group is an object of C++, of which no look shows the members.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import C10D_WRAPPER, GROUP_GIVEN, GROUP_NOT_GIVEN
from ...base.process_facts import Frame
from ..process.frames import WRAPPER, innermost_python_frame, unqualified_name
from ..rendezvous_claims import number

GivenGroup = Literal["default", "given", ""]
_TORCH = ("torch/distributed/distributed_c10d.py", C10D_WRAPPER)
_RECEIVES = frozenset(["recv", "irecv", "recv_object_list"])
_SENDS = frozenset(["send", "isend", "send_object_list"])
# In these one rank stands in another line than all others, and all is well.
ROOTED = frozenset(
    [
        *("broadcast", "broadcast_object_list", "reduce", "bcast", "gatherv", "scatterv"),
        *("scatter", "scatter_object_list", "gather", "gather_object"),
    ]
)
# Of these, those in which the root waits for all others, and they go on at once.
GATHERING = frozenset(["reduce", "gather", "gather_object", "gatherv"])


@dataclass(frozen=True)
class Transfer:
    """A send or a receive in which a rank stands."""

    call: str  # "recv"
    peer: RankId  # its number in the whole job
    receives: bool
    tag: str = ""  # as the frame shows it, "" if it does not

    @property
    def place(self) -> str:
        """In words: "recv from rank 2"."""
        return f"{self.call} {'from' if self.receives else 'to'} rank {self.peer}"


def find_transfer(frames: Iterable[Frame]) -> Transfer | None:
    """Return the send or receive whose frames are the innermost ones, or for whose handle a line of
    the job's waits; None if there is none, or if it is not known which rank it is for: any, one by
    its number in a group of some ranks, or one of several.
    """
    frames = tuple(frames)
    inside = _list_torch_frames(frames)
    found: Transfer | None = None
    for at, frame in enumerate(inside):
        if unqualified_name(frame.name) in _RECEIVES | _SENDS:
            # An outer one has the number that the job gave; what it calls may have the group's.
            found = _read_transfer(frame, _read_group(inside[at + 1 : at + 2])) or found
    handle = find_handle(frames)
    if found is None and handle is not None and len(handle.peers) == 1:
        (peer,) = handle.peers
        return Transfer("irecv" if handle.receives else "isend", peer, handle.receives)
    return found


# Work.wait() of a send or a receive, which is no frame of Python's (ProcessGroupGloo.hpp).
_WAITS_FOR_MESSAGE = re.compile(r"::(Recv|Send)Work::wait\b")


@dataclass(frozen=True)
class Handle:
    """The handle of a send or a receive for which a rank waits."""

    receives: bool
    peers: frozenset[RankId] = frozenset()  # it is for one of these, as the source tells


def find_handle(frames: Sequence[Frame]) -> Handle | None:
    """Return the handle of a send or a receive for which a thread waits, as its native frames tell;
    None where it waits for none, or shows none.
    """
    for frame in frames:
        if not frame.native:
            return None
        if found := _WAITS_FOR_MESSAGE.search(frame.name):
            receives = found[1] == "Recv"
            outer = innermost_python_frame(frames)
            known = outer.handed_out if outer is not None else ()
            peers = {peer for kind, peer in known if (kind in _RECEIVES) == receives}
            return Handle(receives, frozenset(peers))
    return None


def _read_transfer(frame: Frame, group: GivenGroup) -> Transfer | None:
    name, values = unqualified_name(frame.name), dict(frame.locals)
    end = "src" if name in _RECEIVES else "dst"
    peer = number(values.get(end, ""))
    if peer is None and group == "default":
        peer = number(values.get(f"group_{end}", ""))
    if peer is None:
        return None
    return Transfer(name, peer, name in _RECEIVES, values.get("tag", ""))


@dataclass(frozen=True)
class Root:
    """The rank that a collective goes out from, or comes together at."""

    call: str  # "broadcast"
    rank: RankId  # its number in the whole job
    role: str  # "source" or "destination"


def find_root(frames: Iterable[Frame], given_group: str = "") -> Root | None:
    """Return the root of the outermost collective with one in which a thread stands, None if there
    is none, or if it goes over a group that was given to it and is not known: several of these have
    a root each. `given_group`: the name of such a group, where something else tells it.
    """
    inside = _list_torch_frames(frames)
    calls = [at for at, one in enumerate(inside) if unqualified_name(one.name) in ROOTED]
    if not calls:
        return None
    at = calls[-1]
    name, values = unqualified_name(inside[at].name), dict(inside[at].locals)
    end = "dst" if name in GATHERING else "src"
    group = _read_group(inside[at + 1 : at + 2])
    # `src` is asked for first: it is the job's own number where both are there.
    rank = number(values.get(end, ""))
    if rank is None and group == "default":
        rank = number(values.get(f"group_{end}", ""))
    if rank is None or (group == "given" and not given_group):
        return None
    return Root(name, rank, "destination" if name in GATHERING else "source")


def _list_torch_frames(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames of torch.distributed in which a thread stands, innermost first, without
    those of ours that stand between them in a watched rank.
    """
    python = (f for f in frames if not (f.native or f.file.startswith(WRAPPER)))
    return list(takewhile(lambda frame: frame.file.endswith(_TORCH), python))


def read_group(frames: Iterable[Frame]) -> GivenGroup:
    """Return whether the collective in which a thread stands goes over the default group, which has
    all ranks, or over one that was given to it, which may have some; "" if that is not known. Of
    collectives in one another, innermost first, the outermost tells: gather_object() hands the
    default group to all_gather() by its name (torch/distributed/distributed_c10d.py).
    """
    return _read_group(_list_torch_frames(frames))


def _read_group(frames: Iterable[Frame]) -> GivenGroup:
    groups = [dict(f.locals).get("group", "") for f in frames if f.file.endswith(C10D_WRAPPER)]
    told = [one for one in groups if one in (GROUP_GIVEN, GROUP_NOT_GIVEN)]
    if not told:
        return ""
    return "given" if told[-1] == GROUP_GIVEN else "default"


def are_paired(a: RankId, b: RankId, transfers: Mapping[RankId, Transfer]) -> bool:
    """Return whether rank `a` sends what rank `b` receives, or the other way round: neither keeps
    the other from going on.
    """
    one, other = transfers.get(a), transfers.get(b)
    if one is None or other is None or one.peer != b or other.peer != a:
        return False
    other_tag = bool(one.tag and other.tag) and one.tag != other.tag
    return one.receives != other.receives and not other_tag


def keeps_waiting(a: RankId, b: RankId, transfers: Mapping[RankId, Transfer]) -> bool:
    """Return whether rank `a`, for which a send or a receive of rank `b` waits, stands in one that
    keeps it there.
    """
    return {a, b} <= transfers.keys() and not are_paired(a, b, transfers)


def list_followers(transfers: Mapping[RankId, Transfer]) -> Mapping[RankId, frozenset[RankId]]:
    """Return by rank those that wait for it, by the names that they give, by way of others only."""
    direct: dict[RankId, list[RankId]] = {}
    for rank, one in transfers.items():
        direct.setdefault(one.peer, []).append(rank)
    behind: dict[RankId, frozenset[RankId]] = {}
    for rank, waiting in direct.items():
        reached = dict.fromkeys(waiting)
        ahead = list(waiting)
        while ahead:
            new = [one for one in direct.get(ahead.pop(), ()) if one not in reached]
            reached |= dict.fromkeys(new)
            ahead += new
        behind[rank] = frozenset(reached) - {*waiting, rank}
    return behind
