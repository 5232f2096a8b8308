"""The first difference between the ranks' logs of collectives, and the ranks that are to blame for
it.

torch's own analyser compares operations of the same number (torch.distributed.flight_recorder:
another kind, size or dtype). That names the symptom: once a rank has made one call more, every
later operation pairs with the wrong one, and the first that differs in kind may be far from the
call that is to blame. So our own logs are aligned by where their calls come from.

torch's own logs have every operation, and no call sites. torch numbers the operations of a group
on each rank, and those of the same number meet: these logs are compared number by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...base.files import PACKAGE
from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import Collective, CollectiveLog, RankFacts
from ..process.frames import frame_owner, job_frames
from .collective_mismatch import (
    BACKWARD_KINDS,
    SAME_SHAPE,
    LogDifference,
    LoggedGroup,
    LogSource,
    Mismatch,
    MismatchKind,
    Stream,
    add_sentence,
    align,
    is_to_one_peer,
    list_logged_groups,
    make_mismatch,
)
from .collective_rounds import (
    LoggedCall,
    call_key,
    find_expected,
    name_call_in_the_loop,
    name_left_out_reduction,
    read_loop,
    score_pair,
)
from .counted_mismatch import find_counted_mismatch
from .other_members import find_other_members
from .unsent_messages import find_unsent_message

_MOST_CLASSES = 24  # of ranks with the same log
_MOST_REFERENCES = 5
_RECORDED: tuple[LogSource, ...] = ("torch", "flight recorder")


@dataclass(frozen=True)
class _SameLog:
    """Ranks with the same log."""

    ranks: tuple[RankId, ...]
    stream: Stream


def find_mismatch_by_site(group: LoggedGroup) -> Mismatch | None:
    """Return the first difference between the logs of a group's ranks, None if there is none."""
    classes = _group_by_log(group)
    parted = _find_differences_from_usual(classes, len(group.streams))
    if not parted:
        return None
    _, first = min(parted, key=lambda one: (one[1].kind == "missing", one[1].at))
    mine = sorted(r for c, d in parted if _is_same_difference(d, first) for r in c.ranks)
    deviating = {r for c, _ in parted for r in c.ranks}
    theirs = [s.rank for s in group.streams if s.rank not in deviating]
    return make_mismatch(group, first, mine, theirs)


def _find_differences_from_usual(
    classes: Sequence[_SameLog], ranks: int
) -> list[tuple[_SameLog, LogDifference]]:
    """Return the classes that part from the usual log, which is the one from which the fewest
    ranks part.
    """
    fewest: list[tuple[_SameLog, LogDifference]] = []
    least = ranks + 1
    for usual in classes[:_MOST_REFERENCES]:
        parted = _compare_with_usual(usual, classes)
        parting = sum(len(c.ranks) for c, _ in parted)
        if parting < least:
            fewest, least = parted, parting
        if 2 * least < ranks:
            break
    return fewest


def _compare_with_usual(
    usual: _SameLog, classes: Sequence[_SameLog]
) -> list[tuple[_SameLog, LogDifference]]:
    """Return the classes that part from the usual one, and how."""
    found = [(c, find_difference(c.stream, usual.stream)) for c in classes if c is not usual]
    return [(c, d) for c, d in found if d is not None]


def _is_same_difference(a: LogDifference, b: LogDifference) -> bool:
    """Return True for the same difference on two ranks."""
    return a.kind == b.kind and all(
        (x is None) == (y is None) and (x is None or y is None or call_key(x) == call_key(y))
        for x, y in ((a.mine, b.mine), (a.theirs, b.theirs))
    )


def _group_by_log(group: LoggedGroup) -> list[_SameLog]:
    """Return the ranks by their logs: the most usual log first, of two the longer one."""
    found: dict[tuple[object, ...], list[Stream]] = {}
    for stream in group.streams:
        same = (stream.since, *((call_key(o), o.shape, o.done) for o in stream.operations))
        found.setdefault(same, []).append(stream)
    classes = [_SameLog(tuple(s.rank for s in same), same[0]) for same in found.values()]
    classes.sort(key=lambda c: (-len(c.ranks), -len(c.stream.operations), c.ranks))
    return classes[:_MOST_CLASSES]


# ---- two logs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AlignedLogs:
    """Two logs side by side, up to the last operation that they have in common, and after it."""

    both: tuple[tuple[Collective, Collective], ...]
    alone: tuple[tuple[int, Collective], ...]  # in order: side 0 (mine) or 1, and what it has alone
    tails: tuple[tuple[Collective, ...], tuple[Collective, ...]]


def find_difference(mine: Stream, theirs: Stream) -> LogDifference | None:
    """Return how one rank's log parts from another's first, None if they go together."""
    found = _align_logs(mine, theirs)
    if found is None:
        return None
    for looked_for in (_compare_calls, _compare_sizes, _compare_ends):
        different = looked_for(found)
        if different is not None:
            return different
    return None


def _align_logs(mine: Stream, theirs: Stream) -> _AlignedLogs | None:
    a, b = _kept_operations(mine, theirs), _kept_operations(theirs, mine)
    is_open = bool(mine.since or theirs.since)
    pairs = align(
        list(map(LoggedCall.of, a)), list(map(LoggedCall.of, b)), score_pair, head_is_open=is_open
    )
    matched = [n for n, (i, j) in enumerate(pairs) if i is not None and j is not None]
    if is_open and not matched:
        return None  # nothing is kept that both did
    first = matched[0] if matched and is_open else 0
    end = matched[-1] + 1 if matched else 0
    sides = (a, b)
    alone = [
        (side, sides[side][place])
        for pair in pairs[first:end]
        for side in (0, 1)
        if pair[1 - side] is None and (place := pair[side]) is not None
    ]
    return _AlignedLogs(
        tuple((a[i], b[j]) for i, j in pairs[:end] if i is not None and j is not None),
        tuple((side, one) for side, one in alone if one.kind not in BACKWARD_KINDS),
        (
            tuple(a[i] for i, _ in pairs[end:] if i is not None),
            tuple(b[j] for _, j in pairs[end:] if j is not None),
        ),
    )


def _kept_operations(mine: Stream, theirs: Stream) -> list[Collective]:
    """Return the operations of a log from where both are kept on."""
    since = max(mine.since, theirs.since)
    return [o for o in mine.operations if o.number > since or o.kind in BACKWARD_KINDS]


def _compare_calls(found: _AlignedLogs) -> LogDifference | None:
    """A call that one made and the other did not, or not yet, before they did the same again."""
    if not found.alone:
        return None
    side, one = found.alone[0]
    other = 1 - side
    elsewhere = [o for s, o in found.alone if s == other] + [*found.tails[other]]
    later = next((o for o in elsewhere if call_key(o) == call_key(one)), None)
    met = _find_paired_operation(one, found, other)
    kind: MismatchKind = "extra" if side == 0 else "skipped"
    if later is not None:
        kind, met = "order", met or later
    return LogDifference(kind, one, met) if side == 0 else LogDifference(kind, met, one)


def _find_paired_operation(one: Collective, found: _AlignedLogs, side: int) -> Collective | None:
    """Return the operation of the other side with the same number: what it paired with."""
    return next(
        (
            p[side]
            for p in found.both
            if p[side].number == one.number and p[side].kind not in BACKWARD_KINDS
        ),
        None,
    )


def _compare_sizes(found: _AlignedLogs) -> LogDifference | None:
    """The same call with tensors of different sizes, where somebody still waits in it."""
    for mine, theirs in found.both:
        waits = not (mine.done and theirs.done) and mine.kind in SAME_SHAPE
        if waits and mine.shape and theirs.shape and mine.shape != theirs.shape:
            return LogDifference("shape", mine, theirs)
    return None


def _compare_ends(found: _AlignedLogs) -> LogDifference | None:
    """What each does after the last call that both made."""
    mine, theirs = map(_first_operation, found.tails)
    counts = Counter(call_key(a) for a, _ in found.both)
    mine_before = 0 if mine is None else counts[call_key(mine)]
    theirs_before = 0 if theirs is None else counts[call_key(theirs)]
    if mine is not None and theirs is not None:
        loop, other = (mine, theirs) if mine_before > theirs_before else (theirs, mine)
        made = [a for a, _ in found.both]
        state, expected = read_loop(made, loop, other), find_expected(made, mine, theirs)
        return LogDifference("different", mine, theirs, mine_before, theirs_before, state, expected)
    if theirs is not None and _is_through(found, 0) and not theirs.done:
        return LogDifference("missing", None, theirs, 0, theirs_before)
    if mine is not None and _is_through(found, 1) and not mine.done:
        return LogDifference("missing", mine, None, mine_before, 0)
    return None


def _first_operation(tail: Sequence[Collective]) -> Collective | None:
    """Return the first operation of a tail; backward counts only where it is waited in."""
    return next((o for o in tail if o.kind not in BACKWARD_KINDS or not o.done), None)


def _is_through(found: _AlignedLogs, side: int) -> bool:
    """Return True if the last call that both made is over on one side."""
    return not found.both or found.both[-1][side].done is not False


OperationsByNumber = Mapping[int, Collective]


def find_mismatch_by_number(group: LoggedGroup) -> Mismatch | None:
    """Return the first number at which ranks have different operations, or at which some wait and
    others never came; None if there is none.
    """
    logs = {s.rank: {o.number: o for o in s.operations} for s in group.streams}
    if len(logs) < 2 or not any(logs.values()):
        return None
    first = max(min(log, default=1) for log in logs.values())
    last = max(max(log, default=0) for log in logs.values())
    for number in range(first, last + 1):
        found = _compare_at_number(number, group, logs)
        if found is not None:
            return found
    return None


def _compare_at_number(
    number: int, group: LoggedGroup, logs: Mapping[RankId, OperationsByNumber]
) -> Mismatch | None:
    there = {rank: log[number] for rank, log in logs.items() if number in log}
    absent = [rank for rank in logs if rank not in there]
    kinds = Counter(_kind_and_shape(one) for one in there.values())
    if len(kinds) > 1:
        usual = _choose_usual(kinds, there)
        mine = [rank for rank, one in there.items() if _kind_and_shape(one) != usual]
        theirs = [rank for rank, one in there.items() if _kind_and_shape(one) == usual]
        return make_mismatch(
            group, _make_difference(there[mine[0]], there[theirs[0]], logs), mine, theirs
        )
    waits = [rank for rank, one in there.items() if not one.done]
    if absent and waits:
        return make_mismatch(
            group, LogDifference("missing", None, there[waits[0]]), absent, [*there]
        )
    return None


def _kind_and_shape(one: Collective) -> tuple[str, str]:
    return one.kind, one.shape if one.kind in SAME_SHAPE else ""


def _choose_usual(
    kinds: Counter[tuple[str, str]], there: Mapping[RankId, Collective]
) -> tuple[str, str]:
    """Return what most ranks do; of equally many, what the last of them does."""
    most = max(kinds.values())
    return next(w for w in map(_kind_and_shape, reversed(list(there.values()))) if kinds[w] == most)


def _make_difference(
    mine: Collective, theirs: Collective, logs: Mapping[RankId, OperationsByNumber]
) -> LogDifference:
    if mine.kind == theirs.kind:
        return LogDifference("shape", mine, theirs)
    before: Sequence[Collective] = [
        one for one in next(iter(logs.values())).values() if one.number < mine.number
    ]
    counts = Counter(map(_kind_and_shape, before))
    return LogDifference(
        "different", mine, theirs, counts[_kind_and_shape(mine)], counts[_kind_and_shape(theirs)]
    )


def find_mismatch(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the first place where ranks did not make the same collective calls, None if they did,
    or if there are no logs of at least two of them.

    Our own log is asked first, which has the members of groups and the call sites; then, for what
    C++ calls, torch's recorder, and what NCCL's watchdog and RAS service count; then whether a
    message was left out, and whether groups wait for one another; and last ranks that have only
    made fewer calls so far.
    """
    if by_members := find_other_members(ranks):
        return by_members
    own = [
        found
        for group in list_logged_groups(ranks, "ring")
        if (found := find_mismatch_by_site(group))
    ]
    sure = [found for found in own if found.is_sure]
    if sure:
        first = min(sure, key=lambda found: found.operation.at)
        return name_call_in_the_loop(first, ranks)
    recorded = _find_recorded_mismatch(ranks) or find_counted_mismatch(ranks)
    if recorded is not None and recorded.is_sure:
        return name_call_in_the_loop(recorded, ranks)
    across = (
        find_unsent_message(ranks)
        or _find_mismatch_across_groups(ranks, "ring")
        or _find_recorded_mismatch_across_groups(ranks)
    )
    if across is not None:
        return name_call_in_the_loop(across, ranks)
    return min(own, key=lambda found: found.operation.at, default=recorded)


def find_mismatched_ranks(ranks: Sequence[RankFacts]) -> tuple[RankId, ...]:
    """Return the ranks that are to blame where all wait in collectives, () if that cannot be told.

    Ranks that are merely behind are not: what they wait for tells more.
    """
    found = find_mismatch(ranks)
    return found.ranks if found is not None and found.is_sure else ()


def _find_recorded_mismatch(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return what torch's own recorders show, with the call sites that our log has for it."""
    own = {r.rank: log for r in ranks for log in r.collectives if log.source == "ring"}
    for source in _RECORDED:
        found = [
            one
            for group in list_logged_groups(ranks, source)
            if (one := find_mismatch_by_number(_add_calls(group, own)))
        ]
        if found:
            first = min(found, key=lambda one: (not one.is_sure, one.operation.at))
            return name_left_out_reduction(_add_sites(first, ranks), ranks)
    return None


def _add_calls(group: LoggedGroup, own: Mapping[RankId, CollectiveLog]) -> LoggedGroup:
    """Return a group that torch recorded, with what our own log says of those operations that are
    the last on their rank: where they were called, and below which condition. What C++ makes by
    itself (in backward, in DDP's forward) our log has not.
    """
    return replace(
        group, streams=tuple(_add_last_call(s, own.get(s.rank), group.name) for s in group.streams)
    )


def _add_last_call(stream: Stream, own: CollectiveLog | None, group: str) -> Stream:
    if own is None or not stream.operations or not own.operations:
        return stream
    last, call = stream.operations[-1], own.operations[-1]
    is_same = (call.group, call.kind, call.done) == (group, last.kind, last.done)
    if not is_same or call.done or call.at > last.at:
        return stream
    known = replace(call, number=last.number, shape=last.shape or call.shape, at=last.at)
    return replace(stream, operations=(*stream.operations[:-1], known))


def _add_sites(found: Mismatch, ranks: Sequence[RankFacts]) -> Mismatch:
    """Fill in where each rank called what C++ made: the line of the job that it stands in, if it
    waits in that operation, else the call of our own log that the operation came in.
    """
    sites = {
        rank: site
        or _find_site_of_wait(found, rank, ranks)
        or _find_site_before(found.operation.at, rank, ranks)
        for rank, site in found.sites.items()
    }
    operation, paired = found.operation, found.paired
    if not operation.site:
        place = next((sites[r] for r in found.ranks if sites.get(r)), "")
        if found.kind in ("missing", "skipped"):
            place = next((sites[r] for r in found.others if sites.get(r)), "")
        operation = replace(operation, site=place)
    if paired is not None and not paired.site:
        place = next((sites[r] for r in found.others if sites.get(r)), "")
        paired = replace(paired, site=place)
    return add_sentence(replace(found, sites=sites, operation=operation, paired=paired))


def _find_site_of_wait(found: Mismatch, rank: RankId, ranks: Sequence[RankFacts]) -> str:
    """Return the line of the job that a rank's main thread stands in, "" if the operation is not
    the one that it waits in.
    """
    facts = next(r for r in ranks if r.rank == rank)
    recorded = [
        o for log in facts.collectives if log.source == found.source for o in log.operations
    ]
    own = [o for o in recorded if o.group == found.group]
    if not own or own[-1].done is not False or own[-1].number != found.number:
        return ""
    threads = facts.looks[-1].threads if facts.looks else ()
    frames = job_frames(threads[0].frames, PACKAGE) if threads else ()
    line = next((f for f in frames if frame_owner(f, PACKAGE) == "user"), None)
    return f"{line.file.rpartition('/')[2]}:{line.line} {line.name}" if line is not None else ""


def _find_site_before(at: float, rank: RankId, ranks: Sequence[RankFacts]) -> str:
    """Return the site of the last call that our own log has before `at`, "" if none."""
    logs = [log for r in ranks if r.rank == rank for log in r.collectives if log.source == "ring"]
    before = [one for log in logs for one in log.operations if one.at <= at and one.site]
    return max(before, key=lambda one: one.at).site if before else ""


def _find_recorded_mismatch_across_groups(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """The same of what C++ calls, which torch's own recorders have: ranks of a mesh, in pairs or
    rows that do alike. Where some do other kinds of operations (stages of a pipeline) nobody has
    done too little.
    """
    for source in _RECORDED:
        kinds = {
            frozenset(one.kind for one in log.operations if one.done and not is_to_one_peer(one))
            for facts in ranks
            for log in facts.collectives
            if log.source == source
        }
        found = _find_mismatch_across_groups(ranks, source) if len(kinds) == 1 else None
        if found is not None and found.kind in ("skipped", "uneven"):
            return _add_sites(found, ranks)
    return None


def _find_mismatch_across_groups(ranks: Sequence[RankFacts], source: LogSource) -> Mismatch | None:
    """Return the mismatch of ranks that wait in different groups: each in one that others have not
    come to, because they call them in another order, or because one of them left a call out, or
    made one that no other rank made.

    Ranks of different groups are compared: those of another group make the same calls in theirs. It
    is a mismatch only where it explains a wait: the culprits are missed in an operation, or wait in
    it.
    """
    groups = list_logged_groups(ranks, source)
    waiting = {
        stream.rank: (group, stream.operations[-1])
        for group in groups
        for stream in group.streams
        if stream.operations and stream.operations[-1].done is False
    }
    if len({group.name for group, _ in waiting.values()}) < 2:
        return None
    involved = _list_comparable_ranks(groups)
    together = LoggedGroup(
        " and ".join(sorted({group.name for group, _ in waiting.values()})),
        source,
        involved,
        tuple(_merge_streams(rank, groups, involved) for rank in involved),
    )
    found = find_mismatch_by_site(together)
    if found is None or not found.is_sure or not set(found.ranks) <= _parted(groups, waiting):
        return None
    return found


def _list_comparable_ranks(groups: Sequence[LoggedGroup]) -> tuple[RankId, ...]:
    """Return the ranks of which something is logged; where some groups have not all ranks, those
    that are in one of them: the others never come to what is done there, and left nothing out.
    """
    logged = {r for group in groups for r in group.members} & _logged(groups)
    of_some = [{*group.members} for group in groups if not logged <= {*group.members}]
    return tuple(sorted(logged & set[RankId]().union(*of_some) if of_some else logged))


def _logged(groups: Sequence[LoggedGroup]) -> set[RankId]:
    """Return the ranks of which something is logged."""
    return {stream.rank for group in groups for stream in group.streams if stream.operations}


def _parted(
    groups: Sequence[LoggedGroup], waiting: Mapping[RankId, tuple[LoggedGroup, Collective]]
) -> set[RankId]:
    """Return the ranks that are missed in an operation in which others wait, and those that wait in
    one in which others are missed.
    """
    found = set()
    for rank, (group, operation) in waiting.items():
        reached = {
            stream.rank: stream.operations[-1].number if stream.operations else 0
            for stream in group.streams
        }
        absent = {r for r in group.members if reached.get(r, 0) < operation.number}
        found |= {rank, *absent} if absent else set()
    return found


_ONE_OF_SEVERAL = "one of several"


def _merge_streams(
    rank: RankId, groups: Sequence[LoggedGroup], involved: Sequence[RankId]
) -> Stream:
    """Return a rank's operations of all groups in the order in which it made them. A group that not
    all `involved` ranks have loses its name: others have another one in its place.
    """
    for_all = {group.name for group in groups if {*involved} <= {*group.members}}
    own = [s for group in groups for s in group.streams if s.rank == rank]
    operations: list[Collective] = sorted((o for s in own for o in s.operations), key=_start_of)
    since = max((s.since for s in own), default=0)
    kept = max((s.operations[0].at for s in own if s.since and s.operations), default=0.0)
    renumbered = [
        replace(one, number=number, group=one.group if one.group in for_all else _ONE_OF_SEVERAL)
        for number, one in enumerate((o for o in operations if o.at >= kept), since + 1)
    ]
    return Stream(rank, tuple(renumbered), since)


def _start_of(one: Collective) -> tuple[bool, float]:
    """What is waited in is last, whenever it began: a helper thread may wait in it while the main
    thread goes on.
    """
    return one.done is False, one.at
