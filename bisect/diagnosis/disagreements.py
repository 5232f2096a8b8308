"""Ranks that make the same call and do not mean the same by it: they name another root, make
another group in its place, look for the others elsewhere, or have other members in a group.
Pure.

Their logs are the same: each made the same calls. Locals of torch's frames tell what each means by
them (torch/distributed/distributed_c10d.py): `src` or `dst` of a collective with a root, which are
numbers in the whole job, and the name and the members of a group that is made. Groups are named by
a counter, and meet by their names (_process_group_name, _new_process_group_helper); only those
whose members alone meet are named by a hash, and may be made in any order. Which group a collective
goes over no frame tells, but the logs do, and where there is only one of some ranks connections do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations
from typing import Literal, NamedTuple

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.masking import MASK
from ..base.process_facts import Frame
from ..base.rank_facts import Collective, RankFacts
from ..base.words import begin_sentence, format_ranks
from .collectives.collective_mismatch import (
    DEFAULT_GROUP,
    GROUP_MAKING_KINDS,
)
from .collectives.common_path import MAKES_FIRST_GROUP, CollectivePlace, find_collective_place
from .collectives.peer_calls import Root, find_root
from .process.frames import unqualified_name
from .process.process_snapshot import ProcessSnapshot
from .rank_connections import find_group_partners, find_only_group
from .rank_waits import RankWait
from .rendezvous_claims import (
    GROUP_HELPER,
    LocalGroup,
    find_local_group,
    find_other_worlds,
    read_group_values,
    read_worlds,
)
from .single_ranks import is_gone

_C10D = "torch/distributed/distributed_c10d.py"
_OF_SOME = "the only group of some ranks"
_ROLES = dict.fromkeys(("gather", "gather_object", "reduce"), "destination")  # of a root
_MOST_MEANINGS = 8  # of one call, by which ranks are told apart


@dataclass(frozen=True)
class Disagreement:
    """What ranks that stand in the same call do not agree about."""

    ranks: tuple[RankId, ...]  # those to blame: the fewest without which all others agree
    others: tuple[RankId, ...]
    call: str  # "broadcast"
    sentence: str
    # Of a call, of a group, of one whose members alone meet, or of its name, of one that logs know,
    # where all meet, or how many they are.
    about: Literal["root", "members", "local", "named", "made", "meeting", "world"]

    @property
    def is_sure(self) -> bool:
        """Whether no log tells more: a group that its members alone make waits for nobody else, and
        of groups under one name with other members logs tell themselves.
        """
        return self.about in ("local", "made")


class _Meaning(NamedTuple):
    """What a rank means by the call in which it stands."""

    about: Hashable  # equal for two ranks that have to agree
    value: str
    words: str  # "take rank 2 for the source"
    where: str = ""  # "in broadcast (train (train.py:20)) "
    place: str = ""  # where it is called, if ranks meet that call it in different lines


def find_disagreement(
    ranks: Iterable[RankFacts], waits: Mapping[RankId, RankWait], package: str
) -> Disagreement | None:
    """Return what ranks do not agree about that all stand in collectives, None if frames do not
    tell, or if one of them stands elsewhere or moves: what keeps that one tells more.

    Of two ranks that disagree, or of two halves, all are to blame. `package`: the folder of our own
    code.
    """
    standing = [facts for facts in ranks if not facts.finished]
    views = {facts.rank: waits[facts.rank].view for facts in standing if not is_gone(facts)}
    if meetings := _read_meetings(standing, views):
        calls = dict.fromkeys(meetings, MAKES_FIRST_GROUP)
        return _compare_meanings("meeting", meetings, calls)
    if worlds := _read_other_worlds(standing, waits):
        return _compare_meanings("world", worlds, dict.fromkeys(worlds, MAKES_FIRST_GROUP))
    places = [
        place
        for rank, view in views.items()
        if (place := find_collective_place(rank, view, package, with_groups=True))
    ]
    if len(places) < max(len(standing), 2) or any(facts.moved for facts in standing):
        return None
    logs = _list_operations(standing)
    together = find_only_group(find_group_partners(standing)) if not logs else frozenset[RankId]()
    members = {
        r.rank: log.groups for r in standing for log in r.collectives if log.source == "ring"
    }
    roots: dict[RankId, _Meaning] = {}
    groups: dict[RankId, _Meaning] = {}
    local: dict[RankId, LocalGroup] = {}
    made_now: dict[RankId, _Meaning] = {}
    refuted: set[RankId] = set()
    for place in places:
        view = views[place.rank]
        frames = view.frames if view is not None else ()
        last = logs[place.rank][-1] if place.rank in logs else None
        named = _name_group_of_some(place, last) or (_OF_SOME if place.rank in together else "")
        known = _name_logged_group(place, last)
        if root := find_root(frames, named or known):
            roots[place.rank] = _word_root(place, root, last)
            if _is_done_there(root, place.rank, last, logs.get(root.rank, ())):
                refuted.add(place.rank)
        if group := _read_made_group(frames):
            made_now[place.rank] = group
        if group := group or _read_used_group(last, members.get(place.rank)):
            groups[place.rank] = group
        if made := find_local_group(frames):
            local[place.rank] = made
    roots |= _read_logged_roots(roots, logs)
    calls = {place.rank: place.call for place in places}
    return (
        _compare_local_groups(local, calls)
        or _compare_known_groups(members, calls, made_now)
        or _compare_earlier_roots(logs, calls)
        or _compare_meanings("root", roots, calls, refuted)
        or _compare_meanings("members", groups, calls)
        or _find_members_elsewhere(made_now, places, logs)
        or _compare_local_names(local, calls)
    )


def _compare_known_groups(
    known: Mapping[RankId, Mapping[str, Sequence[int]] | None],
    calls: Mapping[RankId, str],
    made_now: Mapping[RankId, _Meaning],
) -> Disagreement | None:
    """Return which ranks have made, as their logs say, a group of some that has other members under
    its name elsewhere, wherever they stand by now; None where they are not the fewer, and no rank
    makes now, under another name, what they have made under this one.
    """
    names = {name for groups in known.values() for name in groups or () if name.isdecimal()}
    for name in sorted(names - {DEFAULT_GROUP}, key=int):
        made = {r: tuple(groups[name]) for r, groups in known.items() if groups and name in groups}
        meanings = {
            rank: _Meaning(name, shown, f"have made group {name} of ranks {shown}")
            for rank, members in made.items()
            if (shown := f"[{', '.join(map(str, members))}]")
        }
        later = {one.value for one in made_now.values() if one.about != name}
        refuted = {rank for rank, one in meanings.items() if one.value in later}
        if not {*made} <= {*calls}:
            continue
        found = _compare_meanings("members", meanings, calls, refuted)
        if found and (2 * len(found.ranks) < len(made) or {*found.ranks} <= refuted):
            return replace(found, about="made")
    return None


def _find_members_elsewhere(
    made: Mapping[RankId, _Meaning],
    places: Sequence[CollectivePlace],
    logs: Mapping[RankId, Sequence[Collective]],
) -> Disagreement | None:
    """Return which members of the group that ranks are making, all of them the same one, stand in
    another call: they take the group for one of others, or have left its making out. Who is no
    member is through with it at once. None where these are not fewer than who makes it, or where
    logs say that none but its makers have come to it.
    """
    groups = {*made.values()}
    if len(groups) != 1:
        return None
    (group,) = groups
    numbers = [one.strip() for one in group.value.strip("[]").split(",")]
    members = {int(one) for one in numbers if one.isdecimal()}
    there = {place.rank: place for place in places if place.rank not in made}
    away = tuple(sorted(rank for rank in there if rank in members))
    if len(members) < len(numbers) or not 0 < len(away) < len(made):
        return None
    if logs:
        counts = {r: sum(o.kind in GROUP_MAKING_KINDS for o in log) for r, log in logs.items()}
        most = max(counts.get(rank, 0) for rank in made)
        if not any(counts.get(rank, 0) >= most for rank in there):
            return None
    elsewhere = "; ".join(
        f"{format_ranks([r for r in away if there[r].words == words])} {'is' if n == 1 else 'are'}"
        f" not there: in {words}"
        for words, n in Counter(there[rank].words for rank in away).items()
    )
    sentence = (
        f"{begin_sentence(format_ranks(sorted(made)))} make group {group.about} of ranks "
        f"{group.value}, and {elsewhere}"
    )
    others = tuple(place.rank for place in places if place.rank not in away)
    about: Literal["made", "members"] = "made" if logs else "members"
    return Disagreement(away, others, there[away[0]].call, sentence, about)


def _compare_meanings(
    about: Literal["root", "members", "named", "meeting", "world"],
    meanings: Mapping[RankId, _Meaning],
    calls: Mapping[RankId, str],
    refuted: Set[RankId] = frozenset(),
) -> Disagreement | None:
    """Return what ranks in these calls do not agree about. Of equally many those are to blame whose
    meaning is `refuted` by what other ranks did, where it is that of some.
    """
    counts = Counter(meanings.values())
    if len(counts) > _MOST_MEANINGS:
        return None
    differ = {
        pair
        for pair in combinations(counts, 2)
        if pair[0].about == pair[1].about and pair[0].value != pair[1].value
    }
    if not differ:
        return None
    if about == "members":
        # The same group under another number: one of the two has made another one before it.
        differ |= {pair for pair in combinations(counts, 2) if pair[0].value == pair[1].value}
    wrong = _find_fewest(differ, counts)
    wrong = {one for rank, one in meanings.items() if one in wrong and rank in refuted} or wrong
    ranks = tuple(sorted(rank for rank, one in meanings.items() if one in wrong))
    others = tuple(sorted(rank for rank in calls if rank not in ranks))
    return Disagreement(ranks, others, calls[ranks[0]], _describe_meanings(meanings, ranks), about)


def _compare_local_groups(
    made: Mapping[RankId, LocalGroup], calls: Mapping[RankId, str]
) -> Disagreement | None:
    """Return which of these ranks are the fewest that wait for one another in groups of unlike
    members, which their members alone make; None where none do.
    """
    meanings = {
        rank: _Meaning("local", one.shown, f"make a group of ranks {one.shown} alone")
        for rank, one in made.items()
    }
    differ = {
        (meanings[one], meanings[other])
        for one, other in combinations(sorted(made), 2)
        if made[one].members != made[other].members
        and one in made[other].members
        and other in made[one].members
    }
    if not differ or len({*meanings.values()}) > _MOST_MEANINGS:
        return None
    wrong = _find_fewest(differ, Counter(meanings.values()))
    ranks = tuple(rank for rank, one in sorted(meanings.items()) if one in wrong)
    others = tuple(sorted(rank for rank in calls if rank not in ranks))
    sentence = _describe_meanings(meanings, ranks)
    return Disagreement(ranks, others, calls[ranks[0]], sentence, "local")


def _compare_local_names(
    made: Mapping[RankId, LocalGroup], calls: Mapping[RankId, str]
) -> Disagreement | None:
    """Return which of the members of a group that its members alone make are making it under
    another name: that counts the groups that a rank has (torch's _hash_ranks_to_str), so it has
    made more groups, or fewer (pytorch/pytorch#173608). None where none are.
    """
    meanings = {
        rank: _Meaning(
            (one.members, "name"),
            one.name,
            f"make the group of ranks {one.shown} under the name {one.name[:_SHOWN_OF_A_NAME]}",
        )
        for rank, one in made.items()
    }
    return _compare_meanings("named", meanings, calls)


_SHOWN_OF_A_NAME = 8  # characters of a hash


def _find_fewest(
    differ: Iterable[tuple[_Meaning, _Meaning]], counts: Counter[_Meaning]
) -> Set[_Meaning]:
    """Return the meanings of the fewest ranks without which the rest agrees; of several such sets
    all of them.
    """
    pairs = list(differ)
    involved = sorted({one for pair in pairs for one in pair}, key=str)
    found: list[tuple[int, frozenset[_Meaning]]] = [
        (sum(counts[one] for one in chosen), frozenset(chosen))
        for size in range(1, len(involved))
        for chosen in combinations(involved, size)
        if all({*pair} & {*chosen} for pair in pairs)
    ]
    fewest = min(count for count, _ in found)
    return frozenset[_Meaning]().union(*(one for count, one in found if count == fewest))


def _describe_meanings(meanings: Mapping[RankId, _Meaning], first: Sequence[RankId]) -> str:
    """Return in words what the ranks mean that have to agree with `first`, and those first."""
    wrong = [meanings[rank] for rank in first]
    places = {one.place for one in meanings.values() if _have_to_agree(wrong[0], one)}
    others = (
        rank
        for rank, one in sorted(meanings.items())
        if rank not in first and any(_have_to_agree(one, other) for other in wrong)
    )
    by_words: dict[str, list[RankId]] = {}
    for rank in (*first, *others):
        one = meanings[rank]
        words = f"{one.words} in {one.place}" if len(places) > 1 else one.words
        by_words.setdefault(words, []).append(rank)
    told: list[str] = []
    for words, ranks in by_words.items():
        verb, _, rest = words.partition(" ")
        told.append(f"{format_ranks(ranks)} {verb}{'s' if len(ranks) == 1 else ''} {rest}")
    where = wrong[0].where if len(places) < 2 else ""
    return begin_sentence(where + ", ".join(told))


def _have_to_agree(one: _Meaning, other: _Meaning) -> bool:
    return one.about == other.about or one.value == other.value


def _word_root(place: CollectivePlace, root: Root, last: Collective | None) -> _Meaning:
    """Return what a rank means by its call: in a loop over all roots ranks are in different rounds
    of it, and their logs tell in which. Operations of one number meet, wherever they are called;
    where no log tells the number, only those of one line do for sure, and in such a loop those
    whose counters tell the round.
    """
    words = f"take rank {root.rank} for the {root.role}"
    if last is not None and _name_logged_group(place, last):
        met = (root.call, last.group, last.number)
        return _Meaning(met, str(root.rank), words, f"in {place.words} ", place.words)
    where = tuple((frame.file, frame.name, frame.line) for frame in place.own)
    number: Hashable = last.number if last is not None else 0
    line = place.own[-1] if place.own else None
    if last is None and line is not None and (line.turns or line.file.startswith("<")):
        number = line.counters or ("round", root.rank)
    return _Meaning((root.call, where, number), str(root.rank), words, f"in {place.words} ")


def _read_logged_roots(
    standing: Mapping[RankId, _Meaning], logs: Mapping[RankId, Sequence[Collective]]
) -> dict[RankId, _Meaning]:
    """Return what other ranks have meant by the calls in which ranks are `standing`: those that are
    past them, or of which no frame tells it.
    """
    like = {(one.about, one.value): one for one in standing.values()}
    any_of = {one.about: one for one in standing.values()}
    found: dict[RankId, _Meaning] = {}
    for rank, operations in logs.items():
        for one in operations if rank not in standing else ():
            met = (one.kind, one.group, one.number)
            if one.root is None or met not in any_of:
                continue
            role = any_of[met].words.rpartition(" ")[2]
            words = f"take rank {one.root} for the {role}"
            other = any_of[met]._replace(value=str(one.root), words=words)
            found[rank] = like.get((met, str(one.root)), other)
    return found


def _compare_earlier_roots(
    logs: Mapping[RankId, Sequence[Collective]], calls: Mapping[RankId, str]
) -> Disagreement | None:
    """Return what ranks do not agree about in the first operation of a group in which some of them
    have logged another root than others: small messages let most of them go on, and where they
    stand by now only follows from it. None where a few are not the fewer, or where they have called
    something else under a number before.
    """
    made: dict[tuple[str, int], dict[RankId, Collective]] = {}
    for rank, operations in logs.items():
        for one in operations:
            made.setdefault((one.group, one.number), {})[rank] = one
    parted: set[str] = set()
    found: list[tuple[float, dict[RankId, Collective]]] = []
    for (group, _), there in sorted(made.items()):
        roots = {one.root for one in there.values() if one.root is not None}
        if group in parted or (len({one.kind for one in there.values()}) == 1 and len(roots) < 2):
            continue
        parted.add(group)
        if len({one.kind for one in there.values()}) == 1:
            found.append((min(one.at for one in there.values()), there))
    for _, there in sorted(found, key=lambda one: one[0]):
        meanings = {
            rank: _word_logged_root(one) for rank, one in there.items() if one.root is not None
        }
        told = _compare_meanings("root", meanings, calls)
        if told is not None and 2 * len(told.ranks) < len(meanings):
            return told
    return None


def _word_logged_root(one: Collective) -> _Meaning:
    place = f"{one.kind} ({one.site})" if one.site else one.kind
    words = f"take rank {one.root} for the {_ROLES.get(one.kind, 'source')}"
    met = (one.kind, one.group, one.number)
    return _Meaning(met, str(one.root), words, f"in {place} ", place)


def _name_group_of_some(place: CollectivePlace, last: Collective | None) -> str:
    """Return the name of the group over which the collective goes in which a rank stands, "" for
    that of all ranks, or if its log does not tell.
    """
    group = _name_logged_group(place, last)
    return group if group != DEFAULT_GROUP else ""


def _name_logged_group(place: CollectivePlace, last: Collective | None) -> str:
    """Return the name of the group over which the collective goes in which a rank stands, as its
    log has it; "" if its log does not tell.
    """
    stands_in_it = last is not None and last.kind == place.call and last.done is False
    return last.group if last is not None and stands_in_it else ""


def _is_done_there(
    root: Root, rank: RankId, last: Collective | None, of_root: Sequence[Collective]
) -> bool:
    """Return whether the root that a rank waits for is through with that collective: it can have
    sent nothing in it to that rank, and was not the root of it.
    """
    if last is None or last.done is not False or root.rank == rank or last.kind != root.call:
        return False
    return any(
        (one.group, one.number, one.kind) == (last.group, last.number, last.kind) and one.done
        for one in of_root
    )


def _list_operations(ranks: Iterable[RankFacts]) -> dict[RankId, tuple[Collective, ...]]:
    """Return what each rank has logged."""
    return {
        facts.rank: log.operations
        for facts in ranks
        for log in facts.collectives
        if log.source == "ring" and log.operations
    }


def _read_made_group(frames: Iterable[Frame]) -> _Meaning | None:
    for frame in frames:
        if frame.file.endswith(_C10D) and unqualified_name(frame.name) == GROUP_HELPER:
            told = dict(frame.locals)
            name = told.get("group_name", "").strip("\"'")
            members = told.get("global_ranks_in_group", "")
            if not name.isdecimal() or not members:
                return None
            return _Meaning(name, members, f"make group {name} of ranks {members}")
    return None


def _read_used_group(
    last: Collective | None, known: Mapping[str, Sequence[int]] | None
) -> _Meaning | None:
    """Return the group of some ranks over which a rank has made its last call, as its log has it:
    one that was made with other members elsewhere has the same name.
    """
    members = known.get(last.group) if last is not None and known is not None else None
    if last is None or not members or last.group == DEFAULT_GROUP or not last.group.isdecimal():
        return None
    named = f"[{', '.join(map(str, members))}]"
    return _Meaning(last.group, named, f"use group {last.group} of ranks {named}")


def _read_meetings(
    ranks: Sequence[RankFacts], views: Mapping[RankId, ProcessSnapshot | None]
) -> dict[RankId, _Meaning]:
    """Return where each rank looks for the others to make the first group, {} if not all of the
    world stand there: who has not come tells more.
    """
    found: dict[RankId, _Meaning] = {}
    for facts in ranks:
        view = views.get(facts.rank)
        values = read_group_values(view.frames) if view is not None else {}
        place = _read_meeting_place(view.frames) if view is not None else ""
        if not place or values.get("world_size") != len(ranks) or facts.moved:
            return {}
        found[facts.rank] = _Meaning("store", place, f"look for the others at {place}")
    return found


def _read_other_worlds(
    ranks: Sequence[RankFacts], waits: Mapping[RankId, RankWait]
) -> dict[RankId, _Meaning]:
    """Return on how many ranks each counts that makes the first group; {} where all agree, where
    most do not count on those that are there, or where one neither makes it nor is past it and
    waits for the others: that one tells more.
    """
    views = {facts.rank: waits[facts.rank].view for facts in ranks}
    sizes = read_worlds({r: view.frames for r, view in views.items() if view is not None})
    past = [r.rank for r in ranks if r.rank not in sizes and waits[r.rank].waits_for_peers]
    if len(sizes) + len(past) < len(ranks) or any(r.moved or is_gone(r) for r in ranks):
        return {}
    if not find_other_worlds(ranks, sizes, past):
        return {}
    sizes |= dict.fromkeys(past, len(ranks))  # they have found as many as there are
    return {r: _Meaning("world", str(n), f"count on {n} ranks") for r, n in sizes.items()}


# Until another rank has told its address the store waits (c10d's FileStore.cpp); who has all
# addresses, as those of an earlier run, connects.
_WAITS_FOR_KEYS = "FileStore::wait"
_CONNECTS = re.compile(r"gloo::\S*(?:waitUntilConnected|Pair::connect)")


def find_unshared_file(
    ranks: Sequence[RankFacts], views: Mapping[RankId, ProcessSnapshot | None]
) -> str:
    """Return the file by which ranks of several machines look for one another, where all of the
    world have come to it, and none finds the others: each machine has a file of its own under that
    name. "" where it is not so.
    """
    met = {one.value for one in _read_meetings(ranks, views).values()}
    if len(met) != 1 or len({facts.host for facts in ranks}) < 2:
        return ""
    seen = [views[facts.rank] for facts in ranks]
    native = [f.name for view in seen if view is not None for f in view.frames if f.native]
    connects = any(_CONNECTS.search(name) for name in native)
    return "" if connects and not any(_WAITS_FOR_KEYS in name for name in native) else met.pop()


def _read_meeting_place(frames: Iterable[Frame]) -> str:
    """Return the file by which a rank joins the first group, "" if its frames tell none. Of a store
    at an address its connections tell (rendezvous_claims.py).
    """
    for frame in frames:
        if frame.file.endswith(_C10D) and unqualified_name(frame.name) == MAKES_FIRST_GROUP:
            told = dict(frame.locals).get("init_method", "").strip("\"'")
            path = told.removeprefix("file://").partition("?")[0]
            return path if told.startswith("file://") and MASK not in told else ""
    return ""
