"""Which nodes and links the starts so far show to be bad. It judges; it asks for no start.

Nobody is named on one failure, nor without a control, a start of the same kind that passed:

- a node that fails alone: it failed alone `confirm` times, and another node passes alone;
- a node that fails in company: it is in no set of two or more that passes, such sets with it failed
  `confirm` times, with two different partners at least that pass with others;
- a link: each of its two nodes passed in pairs without the other one, twice `confirm` times, and
  the two together failed `confirm` times. Where starts pass now and then, Fisher's exact test (as
  in the search for flaky hangs) has to say so too;
- a number of nodes: sets of so many fail, whichever nodes they are, and sets of one less pass.

How likely it is by chance that one side only fails is said by the same test, one-sided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, comb
from typing import Literal

from ..base.lazy_dataclass import dataclass
from ..base.schema_types import Natural, Ordinal, Share
from .node_starts import NodeSet, NodeStarts
from .trial_results import fisher

FindingKind = Literal["alone", "in company", "link"]
# Different sets of one size, until it is said that the size alone matters.
SAME_SIZE_SETS, MOST_SIZE_SETS = 4, 8
_CHANCE = 0.05  # at most: of a link where starts pass now and then


@dataclass(frozen=True)
class NodeFinding:
    """A node, or the link between two, that makes starts fail."""

    kind: FindingKind
    nodes: tuple[str, ...]  # one, or the two ends of the link
    fails: Natural  # starts with it that failed: of a node in company those with good partners
    starts: Natural  # of these starts all
    control_passes: Natural  # starts of the same kind without it that passed
    p_value: Share  # of so large a difference by chance: Fisher's exact test, one-sided


@dataclass(frozen=True)
class SizeFinding:
    """From so many nodes on it fails, whichever they are."""

    nodes: Ordinal
    fails: Natural  # different sets of so many nodes that failed: all that were started
    passes: Natural  # different sets of one node less that pass: all that were started


@dataclass(frozen=True)
class NodeFindings:
    """What is shown so far."""

    bad: tuple[NodeFinding, ...]
    size: SizeFinding | None
    # The smallest sets that failed and are not explained by what is named.
    unexplained: tuple[NodeSet, ...]

    @property
    def bad_nodes(self) -> NodeSet:
        """The nodes that are named, links left out."""
        return frozenset(one.nodes[0] for one in self.bad if one.kind != "link")

    @property
    def links(self) -> tuple[NodeSet, ...]:
        """The links that are named."""
        return tuple(frozenset(one.nodes) for one in self.bad if one.kind == "link")


def find_bad(starts: NodeStarts, confirm: int) -> NodeFindings:
    """Return what these starts show; `confirm`: how many failing starts a name takes."""
    singles = [starts.result(frozenset({node})) for node in starts.nodes]
    alone = find_bad_alone(starts, confirm) if "pass" in singles else ()
    company = _find_bad_in_company(starts, confirm, {one.nodes[0] for one in alone})
    nodes = (*alone, *company)
    bad = (*nodes, *_without_contradicted(starts, nodes, _find_links(starts, confirm)))
    unsized = NodeFindings(bad, None, _find_unexplained(starts, bad, "pass" in singles))
    size = _find_size(starts, unsized)
    if size is None:
        return unsized
    left = tuple(one for one in unsized.unexplained if len(one) < size.nodes)
    return NodeFindings(bad, size, left)


def find_bad_alone(starts: NodeStarts, confirm: int) -> tuple[NodeFinding, ...]:
    """Return the nodes that fail alone; some other node passes alone."""
    control = sum(starts.counts[one].passes for one in starts.passing() if len(one) == 1)
    found = []
    for node in starts.nodes:
        counts = starts.counts.get(frozenset({node}))
        if counts is not None and counts.fails >= confirm:
            chance = fisher(0, control, counts.fails, counts.starts)
            one = NodeFinding("alone", (node,), counts.fails, counts.starts, control, chance)
            found.append(one)
    return tuple(found)


def _find_bad_in_company(
    starts: NodeStarts, confirm: int, alone: set[str]
) -> tuple[NodeFinding, ...]:
    good = starts.good()
    control = sum(starts.counts[one].passes for one in starts.passing(2))
    found = []
    for node in starts.nodes:
        if node in good or node in alone or not control:
            continue
        failing = [one for one in starts.failing(2) if node in one and not one & alone]
        with_good = [one for one in failing if _passes_without(starts, one, node, good)]
        partners = frozenset().union(*with_good) - {node}
        fails = sum(starts.counts[one].fails for one in failing)
        if fails < confirm or len(with_good) < 2 or len(partners) < 2:
            continue
        shown = [starts.counts[one] for one in with_good]
        known, made = sum(one.fails for one in shown), sum(one.starts for one in shown)
        chance = fisher(0, control, known, made)
        found.append(NodeFinding("in company", (node,), known, made, control, chance))
    return tuple(found)


def _passes_without(starts: NodeStarts, nodes: NodeSet, node: str, good: NodeSet) -> bool:
    """Return whether a set is known to pass without this node, or has but one other, a good one."""
    others = nodes - {node}
    if len(others) == 1:
        return others <= good
    return any(others <= one for one in starts.passing(len(others)))


def _find_links(starts: NodeStarts, confirm: int) -> tuple[NodeFinding, ...]:
    good = starts.good()
    found = []
    for pair in starts.in_order(one for one in starts.failing(2) if len(one) == 2):
        counts = starts.counts[pair]
        if counts.fails < confirm or not pair <= good:
            continue
        each = [count_passes_without(starts, node, pair - {node}) for node in starts.ordered(pair)]
        with_one = (one for one in starts.passing(2) if len(pair & one) == 1)
        control = sum(starts.counts[one].passes for one in with_one)
        chance = fisher(0, control, counts.fails, counts.starts)
        if min(each) < passes_of_ends(confirm) or (counts.passes and chance > _CHANCE):
            continue
        ends = starts.ordered(pair)
        found.append(NodeFinding("link", ends, counts.fails, counts.starts, control, chance))
    return tuple(found)


def _without_contradicted(
    starts: NodeStarts, nodes: Sequence[NodeFinding], links: Sequence[NodeFinding]
) -> tuple[NodeFinding, ...]:
    """Return those links of which no node is in a failing set that nothing named explains.

    That node, and no link, may be what fails there, now and then.
    """
    left = [*_find_unexplained(starts, [*nodes, *links], alone_counts=False)]
    if starts.repeats > 1 or starts.both_ways():  # nor where two of them have it in common
        ends = Counter(node for link in links for node in link.nodes)
        left += [frozenset({node}) for node, count in ends.items() if count > 1]
    return tuple(link for link in links if not any(set(link.nodes) & one for one in left))


def passes_of_ends(confirm: int) -> int:
    """Return how often each end of a link has to pass without the other one.

    Twice as often as the two have to fail: an end that is bad itself, in half of the starts, passes
    so often in one of 64 cases, and then it would be the link that is named.
    """
    return 2 * confirm


def count_passes_without(starts: NodeStarts, node: str, other: NodeSet) -> int:
    """Return how many starts passed with `node` and one other node, not `other`.

    Not those of larger sets: a search goes on where these fail, so that they passed is no accident.
    """
    sets = (one for one in starts.passing(2) if len(one) == 2 and node in one and not other & one)
    return sum(starts.counts[one].passes for one in sets)


def _find_unexplained(
    starts: NodeStarts, bad: Sequence[NodeFinding], alone_counts: bool
) -> tuple[NodeSet, ...]:
    """Return the failing sets without anything named in them; of these the smallest ones."""
    named = [frozenset(one.nodes) for one in bad]
    failing = starts.failing(1 if alone_counts else 2)
    left = [one for one in failing if not any(name <= one for name in named)]
    least = [one for one in left if not any(other < one for other in left)]
    return tuple(starts.in_order(least))


def _find_size(starts: NodeStarts, known: NodeFindings) -> SizeFinding | None:
    """Return from how many nodes on it fails; None where that is not shown.

    Among the nodes that are not named: all sets of k or more that were started failed, all of less
    passed, and of k and k - 1 there are SAME_SIZE_SETS each (as many as there are at most).
    """
    rest = frozenset(starts.nodes) - known.bad_nodes
    if known.links or not known.unexplained or len(rest) < 3:  # two: the link, or one of them
        return None
    least = len(known.unexplained[0])
    if least < 2 or any(one <= rest for one in starts.passing(least)):
        return None
    made = {
        size: [
            one for one in starts.counts if len(one) == size and one <= rest and starts.result(one)
        ]
        for size in (least, least - 1)
    }
    fails = [one for one in made[least] if starts.result(one) == "fail"]
    passes = [one for one in made[least - 1] if starts.result(one) == "pass"]
    enough_fail = len(fails) >= sets_of_size(len(rest), least)
    enough_pass = len(passes) >= sets_of_size(len(rest), least - 1)
    if not (enough_fail and enough_pass) or _has_needed_node(fails, len(rest)):
        return None
    return SizeFinding(least, len(fails), len(passes))


def sets_of_size(nodes: int, size: int) -> int:
    """Return how many different sets of so many of `nodes` have to be started: as many as it takes
    to leave out each node once, MOST_SIZE_SETS at most.
    """
    lacking_each = ceil(nodes / (nodes - size)) if size < nodes else 1
    return min(max(SAME_SIZE_SETS, lacking_each), MOST_SIZE_SETS, comb(nodes, size))


def _has_needed_node(sets: Sequence[NodeSet], nodes: int) -> bool:
    """Return whether a node is in all of the sets: that one may be what fails, and not the number.

    Where they are nearly all of the nodes, so many sets are not started: then the sets of one node
    less decide, which pass.
    """
    size = len(sets[0])
    if size == nodes or ceil(nodes / (nodes - size)) > MOST_SIZE_SETS:
        return False
    return bool(frozenset(sets[0]).intersection(*sets))
