"""Which ranks are at fault, which are stuck, and which only wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..base.identity import RankId, name_rank
from ..base.outcomes import ENDED_ON_REQUEST
from ..base.rank_facts import NOTHING_MOVES, RankFacts
from ..base.verdict_facts import Ranks
from ..base.words import format_ranks
from .case import Case, find_least_advanced, progress_by_rank
from .collectives.common_path import (
    CollectivePlace,
    describe_group_loop,
    describe_phases,
    describe_root,
    describe_undecided,
    find_collective_place,
    find_few,
    split_places,
)
from .collectives.log_divergence import find_mismatched_ranks
from .collectives.peer_calls import ROOTED
from .first_failure import find_first_to_fail
from .gpu_owners import find_ranks_held_by_gpu
from .gpu_waits import describe_alike_gpu_waits
from .rank_connections import find_cut_connection
from .rank_waits import is_anonymous, sort_by_telling
from .single_ranks import is_gone
from .standing_ranks import (
    await_their_starter,
    describe_asked_starter,
    describe_loops,
    find_awaited_of_alike,
    find_awaited_server,
    find_few_in_ring,
    find_missing_at_store,
    find_short_receiver,
    find_standing_place,
    hears_several,
    hears_who_comes,
    is_functional,
    look_in_one_place,
    split_by_named_wait,
    wait_for_others,
)
from .wait_graph import WaitGraph

# A healthy rank is found in these as well: on being interrupted they alone accuse nobody.
_ORDINARY_WAITS = frozenset(
    ["itself", "unknown", "kernel", "file", "futex", "device", "collective"]
)
# Exit statuses of who ended well, or was told to end; the last two are those of a shell.
_FAULTLESS_STATUSES = frozenset([0, None, *ENDED_ON_REQUEST, 143, 129])
_QUIET = 5.0  # seconds without progress that make an interrupted job suspect


class Roles(NamedTuple):
    """The ranks by what became of them."""

    ranks: Ranks
    guessed: bool  # who waits for whom is a guess: only the places in which they stand tell
    notes: tuple[str, ...] = ()  # sentences: why somebody is not named


def find_roles(case: Case, graph: WaitGraph) -> Roles:
    """Return what became of each rank: who is to blame, who is stuck, who only waits."""
    found = _find_culprits(case, graph)
    culprit, dropped = drop_innocent_ranks(case, graph, found.culprit)
    peers = () if dropped else found.peers
    living = [r for r in case.ranks if not is_gone(r)]
    waiting = {r.rank for r in living if _waits_for_others(case, graph, r)} - set(culprit)
    waiting.update(peers)
    stuck: set[RankId] = set()
    if case.job.ended != "limit":
        # Where nobody looked for long, one look cannot tell slow from hung.
        enough = 1 if case.job.ended in NOTHING_MOVES else 2
        stuck = {
            r.rank
            for r in living
            if len(r.looks) >= enough and not r.moved and not _may_be_at_work(case, r)
        }
        blamed = frozenset(culprit)
        stuck = (stuck - waiting) | {r.rank for r in living if r.rank in blamed}
    ranks = Ranks(
        culprit=culprit,
        stuck=tuple(sorted(stuck)),
        waiting=tuple(sorted(waiting)),
        dead=tuple(r.rank for r in case.ranks if r.left and not r.finished),
        never_started=tuple(
            sorted({r.rank for r in case.ranks if r.never_started} | set(case.absent))
        ),
    )
    return Roles(ranks, bool(peers and culprit), tuple(filter(None, (found.note, dropped))))


def drop_innocent_ranks(
    case: Case, graph: WaitGraph, culprit: tuple[RankId, ...]
) -> tuple[tuple[RankId, ...], str]:
    """Return `culprit` without those that no verdict may name, and a sentence that says so, ""
    where all may be named: in a job that stands still a rank that moves is never to blame; nor are
    all ranks where some of them only wait for the rest.

    `culprit` has no such rank unless we are at fault, and then a smaller verdict is better than a
    wrong one, or than none.
    """
    if case.job.ended not in (*NOTHING_MOVES, "left"):
        return culprit, ""
    gone = {r.rank for r in case.ranks if is_gone(r)}
    wrong = {r.rank for r in case.ranks if r.moved} - gone
    # Of two in different operations both may be named, though one of them waits for the other.
    if len(culprit) >= _FEWEST and {r.rank for r in unfinished_ranks(case)} <= {*culprit}:
        wrong |= graph.waiting - graph.sinks - gone
    dropped = [rank for rank in culprit if rank in wrong]
    if not dropped:
        return culprit, ""
    return (
        tuple(rank for rank in culprit if rank not in wrong),
        f"{format_ranks(dropped)} would have been named, and moved or only waited for others: a"
        " fault of hangbisect's, please report it",
    )


def _waits_for_others(case: Case, graph: WaitGraph, facts: RankFacts) -> bool:
    found = case.rank_waits[facts.rank]
    others = facts.rank in graph.waiting or bool(found.other_awaited)
    return facts.held or bool(facts.awaits) or others or found.waits_for_unseen


class _Blame(NamedTuple):
    """The ranks whose fault it is, none if that cannot be told."""

    culprit: tuple[RankId, ...]
    # Those that seem to wait for them, where only the places in which ranks stand say so.
    peers: tuple[RankId, ...] = ()
    note: str = ""  # a sentence: why nobody is named


def _find_culprits(case: Case, graph: WaitGraph) -> _Blame:
    job = case.job
    if job.ended == "crash":
        return _Blame(find_first_to_fail(case.ranks))
    if job.ended == "left":
        early = [r for r in case.ranks if r.left and not r.finished]
        return _Blame(tuple(r.rank for r in early if r.status == 0) or tuple(r.rank for r in early))
    candidates = [r for r in graph.sinks if _may_be_blamed(case, graph, r)]
    if cut := _part_from_cut_network(case, candidates):
        return cut
    if job.ended in NOTHING_MOVES and (file := case.unshared_file):
        note = f"nobody is to blame: each machine has a {file} of its own"
        return _Blame((), tuple(r.rank for r in unfinished_ranks(case)), note)
    if candidates or job.ended in NOTHING_MOVES:
        # What each means by the call in which all stand tells more than who hears whom in it.
        told = case.disagreement
        if told is not None and (told.is_sure or not find_mismatched_ranks(case.ranks)):
            return _Blame(told.ranks, told.others)
    if short := find_short_receiver(case.ranks, case.rank_waits):
        return _Blame((short.receiver,), tuple(r for r in candidates if r != short.receiver))
    candidates = _prefer_rings(graph, candidates)
    candidates, loops = _part_from_loops(case, graph, candidates)
    if loops and not candidates:
        return _Blame((), note=describe_loops(loops))
    if not candidates and job.ended != "interrupted":
        # Whoever the others wait for moves, or is on another node; what is left are those
        # that stand still by themselves.
        candidates = [
            r.rank
            for r in unfinished_ranks(case)
            if not _waits_for_others(case, graph, r) and (not r.moved or job.ended == "limit")
        ]
    mismatched = _find_mismatched_candidates(case, candidates)
    if mismatched:
        return _Blame(mismatched)
    if lost := _part_from_lost_gpus(case, graph, candidates):
        return lost
    least = find_least_advanced(candidates, progress_by_rank(case))
    if job.ended == "limit":
        return _Blame(least)
    if missing := find_missing_at_store(case, candidates):
        return _Blame(missing, tuple(sorted(candidates)))
    parted = (
        _part_from_unheard(case, graph, candidates)
        or _part_from_ended(case, candidates)
        or _part_from_gone(case, candidates)
        or _part_by_rounds(case, candidates)
        or _part_ring(case, graph, candidates)
        or _part_from_alike(case, graph, candidates)
        or _part_gpu_waits(case, least if len(least) == len(candidates) else ())
        or _part_standing_ranks(case, candidates, least)
    )
    is_told = parted.peers or parted.note or len(parted.culprit) < 2
    return parted if is_told else _part_by_named_wait(case, parted.culprit) or parted


def _part_from_cut_network(case: Case, candidates: Sequence[RankId]) -> _Blame | None:
    """Return that nobody is to blame, where nothing gets through between two nodes and all wait for
    others; who asks, where it is one port alone. None where it is not so.
    """
    if not wait_for_others(case, candidates) or not (cut := find_cut_connection(case.ranks)):
        return None
    if cut.is_of_one_port:
        return _Blame((cut.sender.rank,), tuple(sorted({*candidates} - {cut.sender.rank})))
    note = f"nobody is to blame: {cut.sender.host} and {cut.receiver.host} do not reach each other"
    return _Blame((), tuple(sorted(candidates)), note)


def _part_from_ended(case: Case, candidates: Sequence[RankId]) -> _Blame | None:
    """Return the ranks that ended early with status 0, where all others (two at least, and more
    than have ended) look for something again and again in one place, or wait for who has started
    them: a guess, that these were to do or to say that. None where it is not so.
    """
    unfinished = unfinished_ranks(case)
    ended = tuple(r.rank for r in unfinished if is_gone(r) and r.status == 0)
    rest = [r for r in unfinished if not is_gone(r)]
    still = {*candidates} - {*ended}
    if not ended or len(rest) < max(2, len(ended) + 1) or still != {r.rank for r in rest}:
        return None
    if not (look_in_one_place(case, rest) or await_their_starter(case, rest)):
        return None
    return _Blame(ended, tuple(r.rank for r in rest))


def _part_from_gone(case: Case, candidates: Sequence[RankId]) -> _Blame | None:
    """Return the ranks that ended early, or never came, where all other candidates wait for nobody
    by name, and one hears whether somebody connects: a guess, that they wait for these. None where
    it is not so.
    """
    unfinished = unfinished_ranks(case)
    away = {r.rank for r in unfinished if is_gone(r)} | set(case.absent)
    rest = [r.rank for r in unfinished if r.rank not in away]
    still = [rank for rank in candidates if rank not in away]
    is_told = bool(away) and away <= {*candidates}
    if not still or not away or not (is_told or len(rest) > len(away)):
        return None
    unnamed, _ = split_by_named_wait(case, still)
    if len(unnamed) < len(still) or not any(hears_who_comes(case, rank) for rank in still):
        return None
    return _Blame(tuple(sorted(away)), tuple(sorted(still)))


def _part_by_rounds(case: Case, candidates: Sequence[RankId]) -> _Blame | None:
    """Return those candidates that are in another round than most, a guess; None for none. Where
    all have asked who started them, that one is ahead of which it was has no meaning.
    """
    if note := describe_asked_starter(case, candidates):
        return _Blame((), tuple(candidates), note)
    found = case.other_round
    is_of_them = found is not None and {*found.ranks, *found.others} <= {*candidates}
    return _Blame(found.ranks, found.others) if found is not None and is_of_them else None


def _part_ring(case: Case, graph: WaitGraph, candidates: Sequence[RankId]) -> _Blame | None:
    """Return those of a ring over connections that stand elsewhere than most, or the one that is to
    serve all others: a guess. None for other rings, and for one for which the kernel vouches.
    """
    if (server := find_awaited_server(case, candidates)) is not None:
        return _Blame((server,), tuple(rank for rank in candidates if rank != server))
    ringed = {r for ring in graph.deadlocks if not ring.is_of_connections for r in ring.ranks}
    if len(candidates) < _FEWEST or ringed & {*candidates} or not {*candidates} <= graph.waiting:
        return None
    few = find_few_in_ring(case, candidates)
    return _Blame(few, tuple(rank for rank in candidates if rank not in few)) if few else None


def _part_from_alike(case: Case, graph: WaitGraph, candidates: Sequence[RankId]) -> _Blame | None:
    """Return those of candidates that all wait for nobody by name for whom others wait; a guess."""
    found = find_awaited_of_alike(case, graph, candidates)
    return _Blame(found, tuple(r for r in candidates if r not in found)) if found else None


def _part_from_unheard(case: Case, graph: WaitGraph, candidates: Sequence[RankId]) -> _Blame | None:
    """Return those candidates to blame that NCCL's RAS service does not hear while it hears others
    of them; None where it hears all of them, or none, and where somebody is known to wait for one
    that it hears.
    """
    silent = tuple(r for r in candidates if (facts := case.facts(r)) and facts.unheard)
    return _blame_some(graph, candidates, silent)


def _part_from_lost_gpus(
    case: Case, graph: WaitGraph, candidates: Sequence[RankId]
) -> _Blame | None:
    """Return those candidates to blame whose GPU is lost or was stopped, or runs a kernel of their
    own while another one's runs NCCL's; None as in `_part_from_unheard`.
    """
    if case.job.ended not in NOTHING_MOVES:
        return None
    held = find_ranks_held_by_gpu(case.job, case.ranks)
    return _blame_some(graph, candidates, tuple(r for r in candidates if r in held))


def _blame_some(
    graph: WaitGraph, candidates: Sequence[RankId], some: tuple[RankId, ...]
) -> _Blame | None:
    """Return some of the candidates to blame, for whom the others wait; None if that cannot be."""
    others = tuple(rank for rank in candidates if rank not in some)
    awaited = {target for (_, target), link in graph.links.items() if link.firm}
    if not some or not others or any(name_rank(rank) in awaited for rank in others):
        return None
    return _Blame(tuple(sorted(some)), others)


def _part_gpu_waits(case: Case, ranks: Sequence[RankId]) -> _Blame | None:
    note = describe_alike_gpu_waits(case, ranks)
    return _Blame((), note=note) if note else None


def _part_by_named_wait(case: Case, candidates: Sequence[RankId]) -> _Blame | None:
    """Return those candidates to blame that stand still for a reason that has a name, where all
    other ones wait for nobody by name: a guess, that they wait for these. None where it is not so.
    """
    unnamed, named = split_by_named_wait(case, candidates)
    if not unnamed or not named or len(unnamed) + len(named) < len(candidates):
        return None
    return _Blame(named, unnamed)


def _part_standing_ranks(
    case: Case, candidates: Sequence[RankId], least: tuple[RankId, ...]
) -> _Blame:
    """Return whom to blame of ranks that stand still, of which nothing tells who waits for whom.
    `least`: those of them that came least far.
    """
    meeting = least if _is_progress_known(case) else tuple(sorted(candidates))
    places = [place for rank in meeting if (place := _find_collective_place(case, rank))]
    if len(places) < max(len(meeting), 2):
        return _part_from_most(case, least)
    found = _part_in_collectives(case, places)
    if found is not None:
        return found
    note = describe_phases(places) or describe_undecided(places)
    if note and not any(facts.collectives for facts in case.ranks):
        note += ". Below `hangbisect run` their logs of collectives tell"
    if note and len(places) >= _FEWEST:
        return _Blame((), note=note)
    # Of two one is wrong: the one that does not seem to train, if that tells them apart.
    return _part_from_most(case, least if len(places) < _FEWEST else meeting)._replace(note=note)


def _is_progress_known(case: Case) -> bool:
    """Return whether ranks told how far they came: what stacks show of it says who trains, and who
    is between two steps of a training does not look so.
    """
    return bool(case.job.pipeline) or any(facts.step is not None for facts in case.ranks)


def _part_in_collectives(case: Case, places: Sequence[CollectivePlace]) -> _Blame | None:
    """Return whom to blame of ranks that all wait in collectives, of which no log tells; None if
    frames do not tell, or if all may be in one call.

    Those that are in a call of some, or alone not in it (`split_places`); else the few that left
    the path of the many. Of several that stand in different calls apart from the many, one is
    wrong, and the others may have been let go by a collective with a root.
    """
    ranks = tuple(place.rank for place in places)
    split = split_places(places)
    few = split.few if split is not None else find_few(places)
    if few and len({place.key for place in few}) == 1 and (split is None or split.is_clear):
        named = tuple(place.rank for place in few)
        has_condition = split is not None and bool(split.condition)
        root = "" if has_condition else describe_root(few, places) or describe_group_loop(few)
        if root and len(places) < _FEWEST:
            return None
        if root:
            return _Blame((), note=root)
        if unknown := _part_from_members(case, named, ranks):
            return unknown
        return _Blame(named, tuple(rank for rank in ranks if rank not in named))
    return None


def _find_collective_place(case: Case, rank: RankId) -> CollectivePlace | None:
    facts = case.facts(rank)
    if facts is None or is_gone(facts):
        return None
    view = case.rank_waits[rank].view
    return find_collective_place(rank, view, case.job.package, with_groups=True)


def _prefer_rings(graph: WaitGraph, ranks: list[RankId]) -> list[RankId]:
    """Return those of `ranks` that wait in a ring, all where none does: of a rank that stands still
    in any other way it is not known that it does not go on.
    """
    in_rings = {rank for ring in graph.deadlocks for rank in ring.ranks}
    return [rank for rank in ranks if rank in in_rings] or ranks


def _part_from_loops(
    case: Case, graph: WaitGraph, candidates: list[RankId]
) -> tuple[list[RankId], list[RankId]]:
    """Return `candidates` without those that wait for one another over connections where one of
    them hears several, and the ranks that do so: these may wait for somebody else than their peer.

    If one alone does, it is the one that all others wait for; of several nothing says which is to
    send, nor that they wait for a rank that ended well. Rings that the kernel shows are none.
    """
    ringed = {rank for ring in graph.deadlocks for rank in ring.ranks}
    ring = [r for r in candidates if r in graph.sinks & graph.waiting and r not in ringed]
    loops = [r for r in ring if (found := case.rank_waits.get(r)) and hears_several(found)]
    if not loops:
        return candidates, []
    kept = loops if len(loops) == 1 else []
    ended = [r for r in candidates if (facts := case.facts(r)) and _ended_well(case, facts)]
    return [r for r in candidates if r in kept or r not in (*ring, *ended)], loops


_FEWEST = 3  # ranks, of which most can be told from few


def _part_from_most(case: Case, ranks: tuple[RankId, ...]) -> _Blame:
    """Return the ranks to blame, and those that seem to wait for them. If more than half of `ranks`
    stand in one place in waits that name no process, the few that stand elsewhere are to blame:
    it is likelier that many wait for few than few for many. Else all are to blame, and none waits.

    This is a guess, the only one for waits that leave no trace: a kernel of a GPU, a helper thread,
    a file that another rank is to write; and for ranks in collectives that no log tells apart.
    """
    living = [facts for rank in ranks if (facts := case.facts(rank)) and not is_gone(facts)]
    if len(ranks) < _FEWEST or len(living) < len(ranks):
        return _Blame(ranks)
    for with_lines in (False, True):
        places = {r.rank: find_standing_place(case, r, with_lines) for r in living}
        ((usual, count),) = Counter(places.values()).most_common(1)
        if usual is None or not usual.may_be_for_peers or count * 2 <= len(ranks):
            return _Blame(ranks)
        few = tuple(rank for rank in ranks if places[rank] != usual)
        if not few:
            continue
        same = (one for rank in few if (one := places[rank]) and one.call == usual.call)
        if usual.call in ROOTED and any(same):
            return _Blame(ranks)
        if unknown := _part_from_members(case, few, ranks):
            return unknown
        return _Blame(few, tuple(rank for rank in ranks if places[rank] == usual))
    return _Blame(ranks)


def _part_from_members(case: Case, few: Sequence[RankId], ranks: Sequence[RankId]) -> _Blame | None:
    """Return that one of the ranks that are not `few` is to blame, by its name if connections leave
    only one (a guess), else nobody; None if that is not so.

    Several ranks in one collective over a group of some, or one in that of a mesh, wait for a
    member that stands elsewhere; that the others wait for these few accuses nobody. One with a
    single partner waits for that one, which waits with all others for it: one of the two is wrong.
    """
    found = [case.rank_waits[rank] for rank in few]
    partners = [case.group_partners.get(rank, frozenset()) for rank in few]
    others = [rank for rank in ranks if rank not in few]
    if len({one.place for one in found}) > 1:
        return None
    if len(few) == 1 and len(partners[0]) == 1 and found[0].group == "given":
        pair = tuple(sorted({*few, *partners[0]}))
        if partners[0] < {*others}:
            return _Blame(pair, tuple(rank for rank in others if rank not in pair))
    if len(few) < 2 and not (any(partners) and is_functional(found[0])):
        return None
    if len(few) > 1 and any(one.group != "given" for one in found):
        return None
    shared = [rank for rank in others if all(rank in known for known in partners)]
    if len(shared) == 1 and len(few) > 1:
        return _Blame((shared[0],), tuple(rank for rank in ranks if rank != shared[0]))
    wait = "wait" if len(few) > 1 else "waits"
    return _Blame(
        (),
        note=f"{format_ranks(few)} {wait} in {found[0].place} of a group that one of"
        f" {format_ranks(shared or others)} has not entered: which of these is its member, and not"
        " there, is not seen",
    )


def _find_mismatched_candidates(case: Case, candidates: Sequence[RankId]) -> tuple[RankId, ...]:
    """Return the ranks whose calls of collectives do not go with the others', where all candidates
    may wait in one: who waits for something that has a name tells more than a log.
    """
    if not candidates or not all(_may_be_in_an_operation(case, rank) for rank in candidates):
        return ()
    still = {r.rank for r in unfinished_ranks(case) if not (r.moved or is_gone(r))}
    return tuple(rank for rank in find_mismatched_ranks(case.ranks) if rank in still)


def _may_be_in_an_operation(case: Case, rank: RankId) -> bool:
    found = case.rank_waits.get(rank)
    return found is not None and (found.waits_for_peers or is_anonymous(found.wait))


def unfinished_ranks(case: Case) -> list[RankFacts]:
    """Return the ranks that had more to do."""
    return [r for r in case.ranks if not r.finished]


def _may_be_blamed(case: Case, graph: WaitGraph, rank: RankId) -> bool:
    facts = case.facts(rank)
    if facts is None:  # absent
        return True
    is_held = facts.held and rank not in graph.responsible_ranks
    if is_held or case.rank_waits[rank].waits_for_unseen:
        return False
    if case.job.ended == "limit":
        return bool(facts.moved) or facts.busy
    if _ended_well(case, facts) and not graph.waiting:
        return False
    return not facts.moved and not _may_be_at_work(case, facts)


def _ended_well(case: Case, facts: RankFacts) -> bool:
    """Return True if a rank of a script of the user's own is gone, as far as it is known for good,
    or because it was told to go: that is no fault where nobody waits for it.
    """
    is_own = facts.step is not None or not case.job.pipeline
    return is_own and is_gone(facts) and facts.status in _FAULTLESS_STATUSES


def _may_be_at_work(case: Case, facts: RankFacts) -> bool:
    """Return True if a rank of an interrupted job may have been at work."""
    job = case.job
    if job.ended != "interrupted":
        return False
    quiet = (job.still or 0.0) >= _QUIET or (job.past_deadline or 0.0) > 0.0
    wait = case.rank_waits[facts.rank].wait
    return not quiet and not is_gone(facts) and (wait is None or wait.kind in _ORDINARY_WAITS)


def choose_shown_rank(case: Case, ranks: Ranks) -> RankFacts | None:
    """Return the living rank whose stack tells where it hangs.

    That is the culprit; for a rank that never came, or is on another node, one that waits.
    """
    culprit = first_culprit(case, ranks)
    if culprit is not None and not is_gone(culprit):
        return culprit
    if case.job.ended not in NOTHING_MOVES or set(ranks.culprit) & set(ranks.dead):
        return None
    return next(
        (
            f
            for r in ranks.waiting
            if case.rank_waits[r].waits_for_peers and (f := case.facts(r)) is not None
        ),
        None,
    )


def first_culprit(case: Case, ranks: Ranks) -> RankFacts | None:
    """Return the culprit that tells most, of those of which anything is known."""
    told = sort_by_telling(ranks.culprit, case.rank_waits)
    return next((f for rank in told if (f := case.facts(rank))), None)
