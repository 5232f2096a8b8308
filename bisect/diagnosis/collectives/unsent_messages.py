"""A rank that waits for a message of another one, which went on without sending it: a stage of a
pipeline that left a message out. The same of a message that nobody takes: a send of gloo ends once
it was received.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile

from ...base.identity import RankId, name_rank
from ...base.rank_facts import Collective, CollectiveLog, RankFacts
from ...base.words import format_ranks
from ..process.process_snapshot import merge_looks
from ..process.public_calls import find_group_wait
from .collective_mismatch import DEFAULT_GROUP, Mismatch, format_call, is_to_one_peer

_FEWEST = 2  # ranks that do the same, for it to be what is meant
_RECEIVING = "recv"  # in the name of an operation


def receives(one: Collective) -> bool:
    """Return whether an operation with one peer is a receive; else it is a send."""
    return _RECEIVING in one.kind


def find_unsent_message(ranks: Sequence[RankFacts]) -> Mismatch | None:
    """Return the first message for which a rank waits and with which its peer is through: it stands
    in a collective to which the one that waits has not come, or waits for that one's answer, or has
    come by the place where it sent the ones before. None
    if there is none, or where a log has lost its beginning.

    At fault is the peer, if messages of others came to it for each that it was to pass on, if it
    does not take what another one hands to it, if all others did their part once more at its line,
    or if somebody else waits for a message of it as well, which it was to pass on; the one that
    waits, if all others that did the same at that line did it with one other peer, or less often;
    else both are named, for one may as well have asked for a message too many.
    """
    logs = {r.rank: log for r in ranks for log in r.collectives if log.source == "ring"}
    waiting = {
        facts.rank: awaited
        for facts in ranks
        if facts.rank in logs and (awaited := _find_awaited(facts, logs)) is not None
    }
    found = [one for rank in waiting if (one := _find_unsent(rank, waiting, logs)) is not None]
    first = min(found, key=lambda one: one.operation.at, default=None)
    surer = [one for one in found if first is not None and {*one.ranks} < {*first.ranks}]
    return min(surer, key=lambda one: one.operation.at, default=first)


def _find_awaited(facts: RankFacts, logs: Mapping[RankId, CollectiveLog]) -> Collective | None:
    """Return the operation of its log in which a rank waits, None if in none. Of those that it only
    handed out (isend, irecv) its looks tell whether it waits for a handle; then for the first for
    which the peer has not done its part: of those that it handed out last, one after another as
    batch_isend_irecv does, or before an operation that is done.
    """
    operations = logs[facts.rank].operations
    last = operations[-1] if operations else None
    if last is None or last.done is False:
        return last
    view = merge_looks(facts.looks)
    if view is None or find_group_wait(view) != "collective":
        return None
    if last.done:
        return _find_unmatched(facts.rank, [*filter(is_handed_out, operations)], logs)
    handed_out = [*takewhile(is_handed_out, reversed(operations))]
    return _find_unmatched(facts.rank, handed_out[::-1], logs) or last


def _find_unmatched(
    rank: RankId, handed_out: Iterable[Collective], logs: Mapping[RankId, CollectiveLog]
) -> Collective | None:
    """Return the first of these sends and receives of a rank for which its peer has not done its
    part; None if all have.
    """
    operations = logs[rank].operations
    return next(
        (
            one
            for one in handed_out
            if one.peer is not None and one.peer in logs
            if _count(logs[one.peer].operations, rank, not receives(one))
            < _count_until(one, operations)
        ),
        None,
    )


def is_handed_out(one: Collective) -> bool:
    """Return whether an operation is a send or a receive of which only the handle was returned."""
    return is_to_one_peer(one) and one.done is None


def _find_unsent(
    rank: RankId, waiting: Mapping[RankId, Collective], logs: Mapping[RankId, CollectiveLog]
) -> Mismatch | None:
    waits = waiting[rank]
    peer = waits.peer
    if not is_to_one_peer(waits) or peer is None or peer not in waiting:
        return None
    mine, theirs = logs[rank].operations, logs[peer].operations
    if is_cut_off(mine) or is_cut_off(theirs):
        return None
    went_on = waiting[peer]
    is_ring = is_to_one_peer(went_on)
    is_mutual = went_on.peer == rank and receives(went_on) and receives(waits)
    untaken = _find_untaken(peer, rank, waiting, logs) if is_mutual else ""
    is_past = is_ring and not untaken and _is_past(theirs, rank, waits)
    if is_ring and not (untaken or is_past or (is_mutual and _left_one_out(theirs, rank))):
        return None
    if not is_ring and not _is_for(rank, went_on, logs[peer]):
        return None
    number = _count_until(waits, mine)
    sent = _count(theirs, rank, not receives(waits))
    if sent >= number:
        return None
    passes_on = sum(one.peer != rank and receives(one) for one in theirs if is_to_one_peer(one))
    # Who is past the place may have been told of another peer there, or who waits was.
    is_theirs = bool(untaken) or (not is_past and receives(waits) and passes_on >= number)
    if is_ring and not (is_theirs or is_past):
        return None
    usual = _find_usual_peer(rank, waits, logs) if not is_theirs else None
    if not is_theirs and not usual:
        fewer = _compare_counts(peer, not receives(waits), logs, fewer=True)
        more = _compare_counts(rank, receives(waits), logs, fewer=False)
        if bool(fewer) != bool(more):
            is_theirs, untaken, usual = bool(fewer), fewer, more
    culprits = (peer,) if is_theirs else (rank,) if usual else tuple(sorted((rank, peer)))
    sentence = _describe_unsent(rank, waits, number, sent, went_on)
    return Mismatch(
        kind="unsent",
        group=waits.group,
        number=number,
        ranks=culprits,
        operation=waits,
        sites={rank: waits.site, peer: went_on.site},
        sentence="; ".join(filter(None, (sentence, usual, untaken))),
        others=tuple(one for one in (rank, peer) if one not in culprits),
        paired=went_on,
    )


def _find_usual_peer(rank: RankId, waits: Collective, logs: Mapping[RankId, CollectiveLog]) -> str:
    """Return in words with which one peer all others have done the same at that line, two at least;
    "" where it is the same one, where they have several, or where they are fewer.
    """
    peers = {
        (other, one.peer)
        for other, log in logs.items()
        for one in log.operations
        if other != rank and one.site == waits.site and is_to_one_peer(one)
        if one.kind == waits.kind
    }
    others, usual = {other for other, _ in peers}, {peer for _, peer in peers}
    (peer,) = usual if len(usual) == 1 else (None,)
    if not waits.site or peer is None or peer == waits.peer or len(others) < _FEWEST:
        return ""
    way = "from" if receives(waits) else "to"
    return f"{format_ranks(others)} do so there {way} {name_rank(peer)}"


def _compare_counts(
    rank: RankId, receiving: bool, logs: Mapping[RankId, CollectiveLog], fewer: bool
) -> str:
    """Return in words how often all others have sent, or received, at the line where a rank did it
    last: each of them as often as the next, two at least, and the rank less often (`fewer`) or more
    often. "" where that is not so.
    """
    own = [one for one in logs[rank].operations if is_to_one_peer(one)]
    site = next((one.site for one in reversed(own) if receives(one) == receiving), "")
    if not site or any(is_cut_off(log.operations) for log in logs.values()):
        return ""
    counts = {
        other: sum(
            one.site == site and receives(one) == receiving
            for one in log.operations
            if is_to_one_peer(one)
        )
        for other, log in logs.items()
    }
    mine = counts.pop(rank)
    (usual,) = {*counts.values()} if len({*counts.values()}) == 1 else (0,)
    if len(counts) < _FEWEST or not usual or not (mine < usual if fewer else mine > usual):
        return ""
    did = "received" if receiving else "sent"
    return f"{format_ranks(counts)} have {did} {usual} each at {site}, and {name_rank(rank)} {mine}"


def _find_untaken(
    peer: RankId,
    rank: RankId,
    waiting: Mapping[RankId, Collective],
    logs: Mapping[RankId, CollectiveLog],
) -> str:
    """Return in words which message of another rank, that waits for it to be taken, a `peer` does
    not take that waits for an answer of `rank`, which waits for it in turn; "" where there is none,
    or where `rank` does not take one either.
    """
    found = {
        who: next(
            (
                f"{name_rank(who)} has not taken message {taken + 1} of {name_rank(other)}"
                for other, last in waiting.items()
                if other not in (peer, rank) and last.peer == who and not receives(last)
                if (taken := _count(logs[who].operations, other, True))
                < _count(logs[other].operations, who, False)
            ),
            "",
        )
        for who in (peer, rank)
    }
    return "" if found[rank] else found[peer]


def _is_past(theirs: Sequence[Collective], rank: RankId, waits: Collective) -> bool:
    """Return whether a peer has done more since its last message with `rank`, in this direction,
    than in each round from one of these to the next before: it has come by the place of the one
    for which `rank` waits. Two rounds at least, which are alike.
    """
    places = [
        place
        for place, one in enumerate(theirs)
        if is_to_one_peer(one) and one.peer == rank and receives(one) != receives(waits)
    ]
    rounds = {after - one for one, after in pairwise(places)}
    return len(places) > _FEWEST and len(rounds) == 1 and len(theirs) - places[-1] > min(rounds)


def _left_one_out(theirs: Iterable[Collective], rank: RankId) -> bool:
    """Return whether a peer that now waits for an answer of `rank`, which waits for it, has passed
    messages of others on, and once took two of them without passing on the first: of two that
    each wait for the other first, none has.
    """
    takes = [
        receives(one)
        for one in theirs
        if is_to_one_peer(one) and receives(one) == (one.peer != rank)
    ]
    return False in takes and any(first and second for first, second in pairwise(takes))


def is_cut_off(operations: Iterable[Collective]) -> bool:
    """Return whether a log has lost sends or receives: it keeps the last ones, of all peers."""
    return min((one.number for one in operations if is_to_one_peer(one)), default=1) > 1


def _is_for(rank: RankId, one: Collective, log: CollectiveLog) -> bool:
    """Return whether a rank is a member of the group of an operation."""
    members = log.groups.get(one.group)
    return rank in members if members else one.group == DEFAULT_GROUP


def _count(operations: Iterable[Collective], peer: RankId, receiving: bool) -> int:
    return sum(
        one.peer == peer and receives(one) == receiving for one in operations if is_to_one_peer(one)
    )


def _count_until(last: Collective, operations: Sequence[Collective]) -> int:
    """Return which of the messages with its peer, in its direction, one of a log is, from 1 on."""
    before = takewhile(lambda one: one is not last, operations)
    assert last.peer is not None
    return _count(before, last.peer, receives(last)) + 1


def _describe_unsent(
    rank: RankId, waits: Collective, number: int, sent: int, went_on: Collective
) -> str:
    assert waits.peer is not None
    wanted = f"for message {number} of" if receives(waits) else f"to hand message {number} to"
    did = "sent" if receives(waits) else "taken"
    return (
        f"{name_rank(rank)} waits in {format_call(waits)} {wanted} {name_rank(waits.peer)}, which"
        f" has {did} {sent} and went on to {format_call(went_on)}"
    )
