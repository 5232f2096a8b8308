"""What a search for bad nodes knows, while it runs and at its end: what nodes.json holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ..base.lazy_dataclass import dataclass
from ..base.schema_types import Duration, Ordinal
from .node_findings import NodeFinding, SizeFinding
from .node_search import NodeSearchEnd
from .node_starts import SetResult

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
    engine: Literal["hosts", "slurm", "ray"]
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
