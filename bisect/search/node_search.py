"""The search for a bad node or link: which sets of nodes are started next, and what is known of it
while it runs and at its end. It touches no process.

    search = search_nodes(nodes)
    sets = next(search)                     # a round: sets without a node in common
    sets = search.send(("pass", "fail"))    # what came of each; StopIteration has the answer

1. Each node alone. What fails alone is started alone again, beside the next rounds.
2. The others in pairs. A node of a pair that failed is then started with nodes of pairs that
   passed, each time with another one: the bad one fails again, and its partner of before passes.
   Beside them all other good nodes are started together.
3. All good nodes together. Where that fails, a link is searched: both halves; where both pass, what
   fails is between them, and they are halved together (`_search_between`).
4. A link is confirmed by starts of its two nodes, together and apart, and by all others together
   with the one and with the other.
5. Sets that fail though no part of them does: from how many nodes on it fails, whichever they are.

Of n nodes up to four bad ones take 4 rounds, a bad link takes 2 log2(n) + 14 at most
(benchmarks/node_search.py). A set that failed and passed shows a fault that comes and goes: then a
set passes only after REPEATS starts without a failure, and the search begins anew with all that is
known. What the starts show is judged in node_findings.py alone, so the search names nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import field
from random import Random
from typing import Literal

from ..base.lazy_dataclass import dataclass
from ..base.schema_types import Duration, Ordinal
from .node_findings import (
    NodeFinding,
    NodeFindings,
    SizeFinding,
    count_passes_without,
    find_bad,
    passes_of_ends,
    sets_of_size,
)
from .node_starts import (
    NodeSet,
    NodeStarts,
    Part,
    Round,
    SetResult,
    Wish,
    gather,
    pack_round,
    settle,
)

CONFIRM = 3  # failing starts before a node or link is named, as `search` takes to confirm a change
REPEATS = 8  # starts without a failure before a set passes, of a fault that comes and goes
_MOST_COMPANY_ROUNDS = 16  # in pairs: each suspect meets as many partners
_MOST_WITHOUT_GOOD = 4  # of these rounds, while no pair at all passes
_MOST_LINKS = 6  # more are no faults of links
_NEARLY_ALL = 0.9  # of the good nodes, in one set that passes

# "found": all that failed is explained by what is named. "no_fault": nothing failed. "size": it
# fails from a number of nodes on. "not_resolved": something failed that is not explained.
NodeOutcome = Literal["found", "no_fault", "size", "not_resolved"]


@dataclass(frozen=True)
class NodeSearchEnd:
    """What a search comes to."""

    outcome: NodeOutcome
    findings: NodeFindings
    starts: NodeStarts
    comes_and_goes: bool
    not_seen: tuple[str, ...]  # nodes on which nothing could be started
    control: NodeSet  # the largest set that passes, empty if none does


def search_nodes(
    nodes: Sequence[str], *, confirm: int = CONFIRM, repeats: int = 1
) -> Generator[Round, Sequence[SetResult], NodeSearchEnd]:
    """Yield rounds and be sent what came of them; return what is found.

    `repeats`: so often a set is started before it is said to pass, from the beginning. Raises
    ValueError for less than two nodes, or one that is named twice.
    """
    if len(nodes) < 2 or len(set(nodes)) < len(nodes):
        raise ValueError(f"{len(nodes)} nodes, {len(set(nodes))} of them different: two at least")
    starts = NodeStarts(nodes, repeats)
    plan = _search(starts, confirm)
    while True:
        try:
            wishes = next(plan)
        except StopIteration:
            return summarize_nodes(starts, confirm)
        chosen = pack_round(wishes)
        results = yield chosen
        for one, result in zip(chosen, results, strict=True):
            starts.add(one, result)
        if starts.both_ways() and starts.repeats < REPEATS:
            starts.repeats = REPEATS
            plan = _search(starts, confirm)


def summarize_nodes(starts: NodeStarts, confirm: int = CONFIRM) -> NodeSearchEnd:
    """Return what these starts come to, at the end of a search or in the midst of it."""
    findings = find_bad(starts, confirm)
    if findings.size is not None and not findings.unexplained:
        outcome: NodeOutcome = "size"
    elif findings.unexplained or (starts.failing() and not findings.bad):
        outcome = "not_resolved"
    else:
        outcome = "found" if findings.bad else "no_fault"
    control = max(starts.passing(), key=len, default=frozenset())
    return NodeSearchEnd(
        outcome,
        findings,
        starts,
        bool(starts.both_ways()),
        starts.ordered(starts.unseen()),
        control,
    )


def _search(starts: NodeStarts, confirm: int) -> Part[None]:
    """Start all that it takes to know which nodes or links are bad."""
    singles = [frozenset({node}) for node in starts.nodes]
    yield from settle(starts, [Wish(one) for one in singles])
    failing = [one for one in singles if starts.result(one) == "fail"]
    seen = [node for node in starts.nodes if starts.result(frozenset({node})) != "unknown"]
    if len(failing) >= len(seen):  # alone it works nowhere: that tells nothing about any node
        failing = []
    able = tuple(node for node in seen if frozenset({node}) not in failing)
    again = settle(starts, [Wish(one, confirm) for one in failing])
    yield from gather([_search_in_company(starts, able, confirm), again])
    good = frozenset(able) & starts.good()
    if len(good) > 1:
        yield from _search_among(starts, good, confirm)


# ---- nodes that fail in company ------------------------------------------------------------------


def _search_in_company(starts: NodeStarts, able: Sequence[str], confirm: int) -> Part[None]:
    """Have all of these nodes started with others until it is known of each what it does there."""
    if len(able) < 2:
        return
    met: dict[str, set[str]] = defaultdict(set)
    groups = _pair_up(able, met)
    for number in range(1, _MOST_COMPANY_ROUNDS + 1):
        for one in groups:
            for node in one:
                met[node] |= one - {node}
        yield from settle(starts, [Wish(one) for one in [*groups, *_rest(starts, able, groups)]])
        good = starts.good()
        bad = find_bad(starts, confirm).bad_nodes
        done = good | bad | starts.unseen()
        suspects = [node for node in able if node not in done]
        if not suspects or (number >= _MOST_WITHOUT_GOOD and not good):
            return
        groups = _pair_suspects(starts, suspects, met)
        if not groups:
            return


def _pair_up(nodes: Sequence[str], met: dict[str, set[str]]) -> list[NodeSet]:
    """Return pairs of nodes that have not met yet, each node once as far as that goes."""
    left, pairs = deque(nodes), []
    while len(left) > 1:
        node = left.popleft()
        other = next((one for one in left if one not in met[node]), None)
        if other is not None:
            left.remove(other)
            pairs.append(frozenset({node, other}))
    return pairs


def _pair_suspects(
    starts: NodeStarts, suspects: Sequence[str], met: dict[str, set[str]]
) -> list[NodeSet]:
    """Return each suspect with a good node that it has not met, and the others among themselves."""
    fresh = deque(starts.ordered(starts.good()))
    pairs, alone = [], []
    for node in suspects:
        partner = next((one for one in fresh if one not in met[node]), None)
        if partner is None:
            alone.append(node)
            continue
        fresh.remove(partner)
        fresh.rotate(-1)  # neighbours often share what fails
        pairs.append(frozenset({node, partner}))
    return pairs + _pair_up(alone, met)


def _rest(starts: NodeStarts, able: Sequence[str], groups: Sequence[NodeSet]) -> list[NodeSet]:
    """Return the good nodes that are in no group, as one set, to be started beside the groups."""
    busy = frozenset().union(*groups)
    rest = (starts.good() & frozenset(able)) - busy
    known = any(rest <= one for one in starts.passing(2))
    return [rest] if len(rest) > 1 and not known else []


# ---- links ---------------------------------------------------------------------------------------


def _search_among(starts: NodeStarts, good: NodeSet, confirm: int) -> Part[None]:
    """Find what fails among nodes each of which passes in company: links, or a number of nodes."""
    links: list[NodeSet] = []
    while len(links) <= _MOST_LINKS:
        failing = yield from _find_failing(starts, good, links)
        if failing is None:
            break
        found = yield from _search_inside(starts, failing)
        links += [one for one in found if len(one) == 2 and one not in links]
        if larger := [one for one in found if len(one) > 2]:
            yield from _search_size(starts, good, min(larger, key=len))
            return
    for link in links:
        yield from _confirm_link(starts, link, good, links, confirm)


def _find_failing(
    starts: NodeStarts, good: NodeSet, links: Sequence[NodeSet]
) -> Part[NodeSet | None]:
    """Return a set of good nodes that fails, and has no two nodes of one of `links`; None if there
    is none: of each link the one node is left out, then the other.
    """
    known = [one for one in starts.failing(2) if one <= good]
    known = [one for one in known if not any(link <= one for link in links)]
    if known:
        return known[0]
    if not links and _passes_as_good_as_whole(starts, good):
        return None
    ends = [starts.ordered(link) for link in links]
    for which in (0, -1) if links else (0,):
        whole = good - {pair[which] for pair in ends}
        if len(whole) < 2 or any(whole <= one for one in starts.passing(len(whole))):
            continue
        yield from settle(starts, [Wish(whole)])
        if starts.result(whole) == "fail":
            return whole
    return None


def _passes_as_good_as_whole(starts: NodeStarts, good: NodeSet) -> bool:
    """Return whether nearly all of these nodes pass together, where others are named: or every two
    of few.
    """
    passing = [one & good for one in starts.passing(2)]
    if len(good) == len(starts.nodes):
        return good in passing
    if any(len(one) >= _NEARLY_ALL * len(good) for one in passing):
        return True
    pairs = {frozenset({a, b}) for a in good for b in good if a < b} if len(good) < 8 else {good}
    return all(any(pair <= one for one in passing) for pair in pairs)


def _search_inside(starts: NodeStarts, failing: NodeSet) -> Part[list[NodeSet]]:
    """Return sets inside of one that fails, none of which has a part that is known to fail: links,
    or larger ones of which no part was found that fails.
    """
    if len(failing) == 2:
        return [failing]
    first, second = _halves(starts, failing)
    halves = [one for one in (first, second) if len(one) > 1]
    yield from settle(starts, _unless_in_passing(starts, halves))
    bad = [one for one in halves if starts.result(one) == "fail"]
    if bad:
        found = yield from gather([_search_inside(starts, one) for one in bad])
        return [one for some in found for one in some]
    return (yield from _search_between(starts, first, second))


def _search_between(starts: NodeStarts, first: NodeSet, second: NodeSet) -> Part[list[NodeSet]]:
    """Return the same for two sets that pass each, and fail together.

    Both are halved; each half of the one is started with each of the other. Two of these four
    have no node in common, so it takes two rounds at most, however large the sets are.
    """
    if len(first) == len(second) == 1:
        return [first | second]
    ones, others = _halves(starts, first), _halves(starts, second)
    for turn in (others, others[::-1]):
        both = [(a, b) for a, b in zip(ones, turn, strict=True) if a and b]
        yield from settle(starts, _unless_in_passing(starts, [a | b for a, b in both]))
        bad = [(a, b) for a, b in both if starts.result(a | b) == "fail"]
        if bad:
            found = yield from gather([_search_between(starts, a, b) for a, b in bad])
            return [one for some in found for one in some]
    return [first | second]


def _halves(starts: NodeStarts, nodes: NodeSet) -> tuple[NodeSet, NodeSet]:
    """Return the two halves of a set; the second of one node is empty."""
    order = starts.ordered(nodes)
    middle = (len(order) + 1) // 2
    return frozenset(order[:middle]), frozenset(order[middle:])


def _unless_in_passing(starts: NodeStarts, sets: Iterable[NodeSet]) -> list[Wish]:
    """Return wishes for those sets that are in no set that passes."""
    return [
        Wish(one) for one in sets if not any(one <= known for known in starts.passing(len(one)))
    ]


def _confirm_link(
    starts: NodeStarts, link: NodeSet, good: NodeSet, links: Sequence[NodeSet], confirm: int
) -> Part[None]:
    """Start the two nodes of a link together until they failed often enough, and each of them with
    others until it passed as often.
    """
    yield from settle(starts, [Wish(link, confirm)])
    one, other = starts.ordered(link)
    enough = passes_of_ends(confirm)
    for _ in range(enough):
        lacking = [
            node
            for node, without in ((one, other), (other, one))
            if count_passes_without(starts, node, frozenset({without})) < enough
        ]
        if not lacking:
            return
        taken = set(link)
        wishes = []
        for node in lacking:
            partner = _find_partner(starts, node, good - taken, links)
            if partner is not None:
                taken.add(partner)
                pair = frozenset({node, partner})
                wishes.append(Wish(pair, passes=starts.counts[pair].passes + 1))
        yield from settle(starts, wishes)


def _find_partner(
    starts: NodeStarts, node: str, others: NodeSet, links: Sequence[NodeSet]
) -> str | None:
    """Return a node with which `node` is to pass: one that it has not met, if there is one."""
    order = [one for one in starts.ordered(others) if frozenset({node, one}) not in links]
    new = [one for one in order if frozenset({node, one}) not in starts.counts]
    return next(iter(new or order), None)


# ---- a number of nodes ---------------------------------------------------------------------------


def _search_size(starts: NodeStarts, good: NodeSet, failing: NodeSet) -> Part[None]:
    """Find from how many nodes on sets fail; `failing` is one of which no part is known to."""
    yield from settle(starts, [Wish(failing, 2)])
    random = Random(len(good))  # the same sets when a search is resumed
    few, many = 2, len(failing)  # of `few` nodes sets pass, as it seems
    while many - few > 1:
        middle = (few + many) // 2
        some = _draw(starts, random, good, middle)
        yield from settle(starts, [Wish(some)])
        if starts.result(some) == "fail":
            many = middle
        else:
            few = middle
    for size in (many, many - 1):
        sets = {one for one in starts.counts if len(one) == size and one <= good}
        wanted = sets_of_size(len(good), size)
        sets |= set(_leave_out_each(starts, good, size)[:wanted])
        while len(sets) < wanted:
            sets.add(_draw(starts, random, good, size))
        yield from settle(starts, [Wish(one) for one in starts.in_order(sets)])


def _leave_out_each(starts: NodeStarts, good: NodeSet, size: int) -> list[NodeSet]:
    """Return sets of this size, of which each node is left out by one."""
    order, lack = starts.ordered(good), len(good) - size
    if not lack:
        return [good]
    starting = [min(first, len(order) - lack) for first in range(0, len(order), lack)]
    return [good - set(order[first : first + lack]) for first in starting]


def _draw(starts: NodeStarts, random: Random, good: NodeSet, size: int) -> NodeSet:
    return frozenset(random.sample(starts.ordered(good), size))


# "found": a node or a link is bad, and all that failed is explained by that. "no_fault": nothing
# failed. "size": it fails from a number of nodes on, whichever they are. "not_resolved": something
# failed that is not explained. "not_started": on no two nodes anything could be started.
# "interrupted": by a person; it can be resumed.
NodesOutcome = Literal["found", "no_fault", "size", "not_resolved", "not_started", "interrupted"]


@dataclass(frozen=True)
class NodesStart:
    """One start on one set of nodes."""

    round: Ordinal
    nodes: tuple[str, ...]
    result: SetResult
    seconds: Duration  # from when all of its nodes were ready
    why: str = ""  # of one that did not pass, in a sentence: who said so, and what


@dataclass(frozen=True)
class NodesAnswer:
    """The answer, or as much of it as is known so far."""

    outcome: NodesOutcome
    nodes: tuple[str, ...]  # all that were to be searched, in their order
    command: tuple[str, ...]  # what was started; empty: our probe
    engine: Literal["hosts", "slurm", "ray", "kubernetes"]
    starts: tuple[NodesStart, ...]
    seconds: Duration  # that all rounds took
    bad: tuple[NodeFinding, ...] = ()
    size: SizeFinding | None = None
    unexplained: tuple[tuple[str, ...], ...] = ()  # the smallest sets that failed beside these
    not_seen: tuple[str, ...] = ()  # nodes on which nothing could be started
    control: tuple[str, ...] = ()  # the largest set that passes
    comes_and_goes: bool = False  # a set failed and passed
    exclude: tuple[str, ...] = ()  # the nodes to leave out, of a link one end
    why: str = ""  # a sentence, where it is not found
    next: str = ""  # the next step, as a sentence or a command
    options: Mapping[str, object] = field(default_factory=dict)  # as asked, for who resumes
    schema: Literal[1] = 1

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return max((start.round for start in self.starts), default=0)


def choose_excluded(end: NodeSearchEnd) -> tuple[str, ...]:
    """Return the nodes to leave out: the bad ones, and of each link an end, the one that most of
    the other links have too.
    """
    left = [set(link) for link in end.findings.links]
    chosen = set(end.findings.bad_nodes)
    while left := [link for link in left if not link & chosen]:
        ends = Counter(node for link in left for node in end.starts.ordered(link))
        chosen.add(ends.most_common(1)[0][0])
    return end.starts.ordered(chosen)


def explain_nodes(end: NodeSearchEnd) -> str:
    """Return in a sentence why no name explains all that failed, "" where one does."""
    unexplained = end.findings.unexplained
    if end.outcome in ("found", "no_fault", "size"):
        return ""
    if not end.starts.passing() and end.starts.failing():
        return "no set of nodes passes: the command or the probe may work on none"
    if len(end.starts.nodes) == 2 and len(unexplained) == 1 and len(unexplained[0]) == 2:
        one, other = end.starts.nodes
        return f"{one} and {other} fail together and pass alone: a third node would tell which"
    some = "+".join(end.starts.ordered(unexplained[0])[:6]) if unexplained else ""
    if end.comes_and_goes:
        return f"a set failed and passed, and it is not known what makes {some or 'it'} fail"
    return f"it is not known what makes {some or 'it'} fail"
