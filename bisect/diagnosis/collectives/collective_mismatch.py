"""What a mismatch between the ranks' collectives is, which ranks are to blame for it, and how it is
put in words; the logs of all ranks by process group, so that they can be compared; and two
sequences side by side: what of one is in the other, in order, and what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Literal, TypeVar

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import BATCH_TO_PEERS, Collective, CollectiveLog, RankFacts
from ...base.words import format_ranks

LogSource = Literal["ring", "torch", "flight recorder", "watchdog", "ras"]

TO_ONE_PEER = frozenset(
    [
        *("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list"),
        *("ssend", "sendrecv", "mrecv", "probe", "mprobe"),  # of MPI
        *("wait", "waitall", "waitany", "waitsome"),
        BATCH_TO_PEERS,
    ]
)
WRAPPER_KINDS = frozenset(["ddp", "fsdp"])
GROUP_MAKING_KINDS = frozenset(["new_group", "split_group", "shrink_group"])
# Not a collective itself: it stands for those that C++ makes meanwhile.
BACKWARD_KINDS = frozenset(["backward"])
DEFAULT_GROUP = "0"
# Kinds whose tensors must be the same on every rank; the others gather or scatter.
SAME_SHAPE = frozenset(["all_reduce", "reduce", "broadcast", "allreduce", "_broadcast_oop"])


def is_to_one_peer(one: Collective) -> bool:
    """Return whether an operation is a send or a receive: these have numbers of their own."""
    return one.peer is not None or one.kind in TO_ONE_PEER


@dataclass(frozen=True)
class Stream:
    """The operations of one group on one rank, oldest first; `since` numbers were not kept."""

    rank: RankId
    operations: tuple[Collective, ...]
    since: int = 0


@dataclass(frozen=True)
class LoggedGroup:
    """A process group as its members logged it."""

    name: str
    source: LogSource
    members: tuple[RankId, ...]  # as far as they are known
    streams: tuple[Stream, ...]  # of the members that have a log, by rank


def list_logged_groups(ranks: Sequence[RankFacts], source: LogSource) -> list[LoggedGroup]:
    """Return the groups that ranks logged from `source`, the default group first."""
    logs = {r.rank: log for r in ranks if (log := _find_log(r, source)) is not None}
    names = {one.group for log in logs.values() for one in log.operations} - {""}
    return [_make_group(name, source, logs) for name in sorted(names, key=_group_sort_key)]


def _group_sort_key(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)


def _find_log(facts: RankFacts, source: LogSource) -> CollectiveLog | None:
    return next((log for log in facts.collectives if log.source == source), None)


def _make_group(name: str, source: LogSource, logs: Mapping[RankId, CollectiveLog]) -> LoggedGroup:
    known: list[set[RankId]] = [
        set(log.groups[name]) for log in logs.values() if log.groups.get(name)
    ]
    members = set.union(*known) if known else set()
    if not members:  # the recorder of gloo does not tell
        there = {r for r, log in logs.items() if any(o.group == name for o in log.operations)}
        members = set(logs) if name == DEFAULT_GROUP else there
    marks = name == DEFAULT_GROUP and source == "ring" and _backward_counts(logs.values())
    streams = [
        _make_stream(rank, log, name, marks)
        for rank, log in sorted(logs.items())
        if rank in members
    ]
    return LoggedGroup(name, source, tuple(sorted(members)), tuple(streams))


def _backward_counts(logs: object) -> bool:
    """Return whether backward makes collectives: a model was wrapped, or one hangs in it."""
    operations = [one for log in logs for one in log.operations]  # type: ignore[attr-defined]
    return any(
        one.kind in WRAPPER_KINDS or (one.kind in BACKWARD_KINDS and not one.done)
        for one in operations
    )


def _make_stream(rank: RankId, log: CollectiveLog, name: str, marks: bool) -> Stream:
    own = [o for o in log.operations if o.group == name and not is_to_one_peer(o)]
    since = own[0].number - 1 if own else 0
    if marks:
        backward = [replace(o, group=name) for o in log.operations if o.kind in BACKWARD_KINDS]
        if since:  # of a time from which nothing else is kept
            backward = [o for o in backward if o.at >= own[0].at]
        elif backward and _is_cut_off(log):
            since, own = 1, [o for o in own if o.at >= backward[0].at]
        own = sorted([*own, *backward], key=lambda one: one.at)
    return Stream(rank, tuple(own), since)


def _is_cut_off(log: CollectiveLog) -> bool:
    """Return whether the log has no longer all that was called without a group: backward is counted
    together with the making of the first group.
    """
    outside = [one.number for one in log.operations if not one.group]
    return bool(outside) and min(outside) > 1


_SPELLED = {"ddp": "the construction of DDP", "fsdp": "the construction of FSDP"}


def describe_mismatch(found: Mismatch) -> str:
    """Return a mismatch in a sentence or two."""
    say = {
        "extra": _describe_extra,
        "skipped": _describe_skipped,
        "missing": _describe_missing,
        "uneven": _describe_uneven,
        "order": _describe_order,
        "shape": _describe_shape,
        "different": _describe_different,
        "members": _describe_members,
    }[found.kind]
    return say(found, format_ranks(found.ranks), format_ranks(found.others))


def _describe_extra(found: Mismatch, who: str, rest: str) -> str:
    text = f"{who} made a call that {rest} did not: {format_call(found.operation)}"
    text += _format_condition(found.operation)
    met = found.paired if found.paired and found.paired.kind not in BACKWARD_KINDS else None
    return text + (f". It met {format_call(met)} of {rest}" if met else "")


def _describe_skipped(found: Mismatch, who: str, rest: str) -> str:
    call = format_call(found.operation) + _format_condition(found.operation)
    return f"{who} left out a call that {rest} made: {call}"


def _describe_missing(found: Mismatch, who: str, rest: str) -> str:
    what = f"operation {found.number} of group {found.group}, {format_call(found.operation)}"
    return f"{who} never entered {what}, in which {rest} wait{_s(found.others)}"


def _describe_uneven(found: Mismatch, who: str, rest: str) -> str:
    leaves = who, found.operation
    stays = rest, found.paired
    (left, after), (still, loop) = (stays, leaves) if found.goes_on else (leaves, stays)
    text = f"{left} went on to {format_call(after)}"
    if found.paired is None or not rest:
        return text
    goes = "goes" if _s(found.ranks if found.goes_on else found.others) else "go"
    inside = f"{still} still {goes} round {format_call(loop)}"
    text = f"{inside} while {text}" if found.goes_on else f"{text} while {inside}"
    is_training = loop is not None and loop.kind in BACKWARD_KINDS
    return text + (" (uneven batches?)" if is_training else "")


def _describe_order(found: Mismatch, who: str, rest: str) -> str:
    calls = f"{format_call(found.operation)} and {format_call(found.paired)}"
    if not rest:
        return f"{who} made the same calls in different orders: {calls}"
    return f"{who} made the same calls as {rest} in another order: {calls}"


def _describe_shape(found: Mismatch, who: str, rest: str) -> str:
    one, other = found.operation, found.paired
    sizes = f"{one.shape} and {other.shape}" if other is not None else one.shape
    if not rest:
        return f"{who} called {format_call(one)} with tensors of different sizes: {sizes}"
    return f"{who} called {format_call(one)} with a tensor of another size than {rest}: {sizes}"


def _describe_different(found: Mismatch, who: str, rest: str) -> str:
    one, other = format_call(found.operation), format_call(found.paired)
    if not rest:
        return f"{who} called different operations in the same place: {one} and {other}"
    return f"{who} entered {one} where {rest} entered {other}"


def _describe_members(found: Mismatch, who: str, rest: str) -> str:
    call, group = format_call(found.operation), format_ranks(found.members)
    return f"{who} called {call} over a group of {group}, and {rest} over others"


def format_call(one: Collective | None) -> str:
    """Return an operation with the line that called it: "barrier (train.py:30 main)"."""
    if one is None:
        return "another one"
    kind = _SPELLED.get(one.kind, one.kind)
    return f"{kind} ({one.site})" if one.site else kind


def _format_condition(one: Collective) -> str:
    return f", below `{one.condition}`" if one.condition else ""


def _s(ranks: Sequence[RankId]) -> str:
    return "s" if len(ranks) == 1 else ""


MismatchKind = Literal[
    "extra",  # the culprits made a call that the others did not
    "skipped",  # the others made a call that the culprits left out
    "order",  # the same calls, in another order
    "different",  # another operation in the same place
    "shape",  # the same operation, of another size or type
    "uneven",  # the culprits left a loop that the others still go round, or go round it still
    "members",  # the culprits make the call over a group of others (disagreements.py)
    "unsent",  # a rank waits for a message of another, which went on (unsent_messages.py)
    "missing",  # the others wait in an operation that the culprits never entered
]


@dataclass(frozen=True)
class Mismatch:
    """The first place where the ranks of a group do not do the same."""

    kind: MismatchKind
    group: str
    number: int  # of the operation in question
    ranks: tuple[RankId, ...]  # the culprits
    operation: Collective  # the call in question: the extra one, the one that was left out ...
    sites: Mapping[RankId, str]  # where each rank is at that place; "" where it is nowhere
    sentence: str
    others: tuple[RankId, ...] = ()  # the ranks that they were compared with
    paired: Collective | None = None  # what the others did in its place
    source: str = "ring"
    members: tuple[RankId, ...] = ()  # of the group of the culprits, where it is told
    goes_on: bool = False  # "uneven": the culprits are in the loop still, and the others left it

    @property
    def is_sure(self) -> bool:
        """Whether it is more than that some ranks are behind."""
        return self.kind != "missing"


LoopState = Literal[
    "left",  # who makes another call may have left the loop
    "inside",  # that call belongs to the loop: its last round had it too
    "over",  # all had left the loop together before
    "beside",  # that call is a helper thread's, and comes at any time of the loop
]


@dataclass(frozen=True)
class LogDifference:
    """How one log parts from another: the first operation in question of each."""

    kind: MismatchKind
    mine: Collective | None = None
    theirs: Collective | None = None
    # How often the same calls had been made before, by both.
    my_count: int = 0
    their_count: int = 0
    loop: LoopState = "left"  # of a call that both made before, and one of them the more often
    # Whose operation is the one that has followed each time before; "": neither's.
    expected: Literal["mine", "theirs", ""] = ""

    @property
    def at(self) -> float:
        """When it happened first."""
        return min(one.at for one in (self.mine, self.theirs) if one is not None)


def add_sentence(found: Mismatch) -> Mismatch:
    """Return a mismatch with its sentence."""
    return replace(found, sentence=describe_mismatch(found))


def make_mismatch(
    group: LoggedGroup,
    found: LogDifference,
    mine: Sequence[RankId],
    theirs: Sequence[RankId],
) -> Mismatch:
    """Return the mismatch that a difference is: `mine` are the ranks that part from `theirs`.

    The fewer are at fault. Of equally many those are that made a call more (somebody wrote it, and
    the others do not come by it), that come by a call which the source has only some ranks make, or
    that left a loop, be it by a condition in it; else all are, for it cannot be told.
    """
    kind, culprits, operation, paired = _judge_difference(found, tuple(mine), tuple(theirs))
    sites = {rank: _find_site(found.mine) for rank in mine}
    sites |= {rank: _find_site(found.theirs) for rank in theirs}
    others = tuple(sorted({*mine, *theirs} - set(culprits)))
    operation, paired = _move_to_job_line(operation), _move_to_job_line(paired) if paired else None
    made = Mismatch(
        kind=kind,
        group=group.name,
        number=operation.number,
        ranks=tuple(sorted(culprits)),
        operation=operation,
        sites=dict(sorted(sites.items())),
        sentence="",
        others=others,
        paired=paired,
        source=group.source,
        goes_on=kind == "uneven" and culprits == tuple(mine) and found.my_count > found.their_count,
    )
    return add_sentence(made)


_Judgement = tuple[MismatchKind, tuple[RankId, ...], Collective, Collective | None]


def _judge_difference(
    found: LogDifference, mine: tuple[RankId, ...], theirs: tuple[RankId, ...]
) -> _Judgement:
    a, b, few = found.mine, found.theirs, len(mine) < len(theirs)
    one = b if found.kind == "skipped" else a or b
    assert one is not None  # a difference has at least one operation
    if found.kind == "extra":
        return "extra", mine, one, b
    if found.kind == "skipped":
        if few:
            return "skipped", mine, one, None
        return "extra", theirs, one, a
    if found.kind == "missing":
        return "missing", mine if a is None else theirs, one, None
    both = mine if few else (*mine, *theirs)
    if found.kind != "different" or a is None or b is None:
        return found.kind, both, one, b
    if found.expected and not few:
        # All came by that call in each round before, whatever its condition: who left it out?
        went_on = found.their_count if found.expected == "mine" else found.my_count
        if went_on:
            who, left_out = (theirs, a) if found.expected == "mine" else (mine, b)
            return "skipped", who, left_out, None
    if bool(a.condition) != bool(b.condition) and not _goes_round(found):
        if few and b.condition:
            return "skipped", mine, b, None
        return ("extra", mine, a, b) if a.condition else ("extra", theirs, b, a)
    if found.my_count != found.their_count and found.loop != "over":
        # What both did before is a loop; who does something else has left it, or its own call out.
        left = found.my_count < found.their_count
        if found.loop == "left":
            return ("uneven", mine, a, b) if left or few else ("uneven", theirs, b, a)
        if found.loop == "inside":
            if few and not left:
                return "extra", mine, a, b
            return "skipped", mine if left else theirs, b if left else a, None
        if few:
            return ("extra", mine, a, None) if left else ("skipped", mine, b, None)
    if not few and _is_for_all(a) != _is_for_all(b):
        return ("extra", mine, a, b) if _is_for_all(a) else ("extra", theirs, b, a)
    return "different", both, a, b


def _goes_round(found: LogDifference) -> bool:
    """Return True if the call under a condition is that of a loop which all have gone round, more
    often than they made the other call: the condition is what ends the loop.
    """
    mine_is_below = found.mine is not None and bool(found.mine.condition)
    rounds = found.my_count - found.their_count
    return rounds > 0 if mine_is_below else rounds < 0


def _is_for_all(one: Collective) -> bool:
    """Making a group, or wrapping a model: what every rank has to do once, and some forget."""
    return one.kind in GROUP_MAKING_KINDS or one.kind in WRAPPER_KINDS


def _find_site(one: Collective | None) -> str:
    return "" if one is None else one.origin or one.site


def _move_to_job_line(one: Collective) -> Collective:
    """Return an operation with the job's own line as its site, where that is known."""
    if not one.origin:
        return one
    between = " < ".join(filter(None, [one.between, one.site]))
    return replace(one, site=one.origin, between=between)


T = TypeVar("T")

# A place in the one sequence and one in the other; None where the other has nothing for it.
Pair = tuple[int | None, int | None]

BAND = 16  # places by which the two may be apart: collectives keep ranks together
GAP = -1  # for something that the other one does not have
_NEVER = -(10**9)


def align(
    a: Sequence[T], b: Sequence[T], score: Callable[[T, T], int], *, head_is_open: bool = False
) -> list[Pair]:
    """Return the pairs that give the highest score, in order; all of both sequences is in it.

    `score` is positive for two that belong together, 0 for two that cannot. What hangs over at the
    end costs nothing: one of them may just not be there yet. Nor does it at the head, if that
    `is_open`: the beginnings were not kept, and need not be the same.
    """
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    part = _PartToAlign(a[same:], b[same:], score, head_is_free=head_is_open and same == 0)
    return [(i, i) for i in range(same)] + [
        (None if i is None else i + same, None if j is None else j + same)
        for i, j in part.aligned()
    ]


@dataclass(frozen=True)
class _PartToAlign(Generic[T]):
    """A part to be aligned by dynamic programming, within BAND of the diagonal."""

    a: Sequence[T]
    b: Sequence[T]
    score: Callable[[T, T], int]
    head_is_free: bool

    def aligned(self) -> list[Pair]:
        a, b = self.a, self.b
        if not a or not b:
            return [*((i, None) for i in range(len(a))), *((None, j) for j in range(len(b)))]
        band = max(BAND, abs(len(a) - len(b)) + 1)
        table: dict[tuple[int, int], tuple[int, Pair]] = {}  # best score up to there, last step
        best, end = _NEVER, (0, 0)
        for i in range(len(a) + 1):
            for j in range(max(0, i - band), min(len(b), i + band) + 1):
                found = table[i, j] = self._best(table, i, j)
                # What hangs over at the end is free.
                if (i == len(a) or j == len(b)) and found[0] > best:
                    best, end = found[0], (i, j)
        return self._walked_back(table, end)

    def _best(
        self, table: dict[tuple[int, int], tuple[int, Pair]], i: int, j: int
    ) -> tuple[int, Pair]:
        if i == 0 and j == 0:
            return 0, (None, None)
        gap = 0 if self.head_is_free and (i == 0 or j == 0) else GAP
        found = _NEVER
        step: Pair = (None, None)
        if i and j and (points := self.score(self.a[i - 1], self.b[j - 1])) > 0:
            found, step = table[i - 1, j - 1][0] + points, (i - 1, j - 1)
        if i and (i - 1, j) in table and table[i - 1, j][0] + gap > found:
            found, step = table[i - 1, j][0] + gap, (i - 1, None)
        if j and (i, j - 1) in table and table[i, j - 1][0] + gap > found:
            found, step = table[i, j - 1][0] + gap, (None, j - 1)
        return found, step

    def _walked_back(
        self, table: dict[tuple[int, int], tuple[int, Pair]], end: tuple[int, int]
    ) -> list[Pair]:
        i, j = end
        pairs: list[Pair] = [
            *((k, None) for k in range(len(self.a) - 1, i - 1, -1)),
            *((None, k) for k in range(len(self.b) - 1, j - 1, -1)),
        ]
        while i or j:
            left, right = table[i, j][1]
            pairs.append((left, right))
            i, j = i - (left is not None), j - (right is not None)
        return pairs[::-1]
