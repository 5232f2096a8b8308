"""What nodes report of their ranks, as it comes in: a summary of each rank, then the stacks that no
node has told yet, and the texts of the processes that are to be shown.

Ranks of a large job stand in few different places. Told whole, the looks at one rank are some
200 kB of JSON, and 500 ranks took over 1 GB here; summaries of 10,000 were 87 MB. So of many ranks
that wait for others in the same place some are told of, and of the rest that they are like these.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame
from ..base.rank_facts import RankFacts
from .channel import Refused
from .look_summary import (
    HeardLooks,
    ShownProcesses,
    Stacks,
    put_looks_together,
    read_looks,
    read_stacks,
)
from .messages import LookDetails, RankKind, RankLooks, Report, WantDetails

_MOST_STACKS = 100_000  # that are kept from one inquiry for the next
# Ranks that are alike and are told of all the same: of all nodes, and of one. The node of a hub has
# connections to all others, and those of a ring each to the next: nothing is concluded of one rank.
MOST_ALIKE, _MOST_OF_NODE = 32, 4


@dataclass
class _Incoming:
    """A report of which not all has come."""

    report: Report
    ranks: list[HeardLooks] = field(default_factory=list)
    stacks: frozenset[str] = frozenset()  # of all of them
    texts: dict[str, Sequence[str]] = field(default_factory=dict)  # of looks, by pid
    asked: frozenset[str] | None = None  # the stacks that its node is asked for; None: nothing
    expected: int = 0  # ranks
    alike: tuple[RankKind, ...] = ()  # those of which no more is told


@dataclass(frozen=True)
class ToldRanks:
    """What a report that is whole tells of its ranks, as it came."""

    heard: Sequence[HeardLooks] = ()
    stacks: Stacks = field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alike: tuple[RankKind, ...] = ()  # of which no more is told

    def put_together(self) -> tuple[RankFacts, ...]:
        """Return those that are told of. Raises Refused where that cannot be read."""
        with _refusing():
            ranks = [put_looks_together(one, self.stacks, self.texts) for one in self.heard]
        return tuple(facts for each in ranks for facts in each)


class AlikeRanks:
    """Which ranks stand for many that wait for others in the same place."""

    def __init__(self) -> None:
        self._chosen: dict[RankId, str] = {}  # the kinds of those that do
        self._counts = Counter[str]()  # of them, by kind

    def choose(self, report: Report) -> tuple[int, ...]:
        """Return the ranks, of those of a report that are alike, of which its node is to tell: some
        of each kind, spread over the nodes, and all that it blames.
        """
        for facts in report.record.ranks:  # they may have stood for others in an earlier inquiry
            if before := self._chosen.pop(facts.rank, ""):
                self._counts[before] -= 1
        here = Counter[str]()
        for one in report.alike:
            is_needed = self._counts[one.kind] < MOST_ALIKE and here[one.kind] < _MOST_OF_NODE
            if is_needed or one.rank in report.verdict.ranks.culprit:
                self._chosen[one.rank] = one.kind
                self._counts[one.kind] += 1
                here[one.kind] += 1
        return tuple(one.rank for one in report.alike if one.rank in self._chosen)

    def find_told(self, told: Collection[RankId]) -> dict[str, RankId]:
        """Return for each kind a rank that stands for it, of those that were told of."""
        return {kind: rank for rank, kind in self._chosen.items() if rank in told}


class Reports:
    """The reports of all nodes, each by the node's name."""

    def __init__(
        self,
        ask: Callable[[str, WantDetails], None],
        take: Callable[[str, Report, ToldRanks], None],
        refuse: Callable[[str, Refused], None],
    ) -> None:
        """`ask` sends a node a question, `take` is given each report that is whole, `refuse` a node
        whose report cannot be read.
        """
        self._ask_node, self._take, self._refuse = ask, take, refuse
        self._alike = AlikeRanks()
        self._incoming: dict[str, _Incoming] = {}
        self._stacks: dict[str, tuple[Frame, ...]] = {}  # what nodes have told, by hash
        self._asked: dict[str, str] = {}  # which node is to tell a stack
        self._waiting: dict[str, None] = {}  # whose reports wait for what others are asked for
        self._shown = ShownProcesses()
        self.heard = 0.0  # when the last part of a report came, monotonic

    def begin_inquiry(self) -> None:
        """Choose anew whose texts are to be shown."""
        self._shown = ShownProcesses()
        if len(self._stacks) > _MOST_STACKS and not self._incoming:
            self._stacks = {}

    def find_told(self, told: Collection[RankId]) -> dict[str, RankId]:
        """Return for each kind of ranks that are alike one that stands for it, of those told of."""
        return self._alike.find_told(told)

    def hear(self, node: str, said: Report | RankLooks | LookDetails) -> None:
        """Take in a part of a node's report. Raises Refused where it cannot be read."""
        self.heard = time.monotonic()
        if isinstance(said, Report):
            self.forget(node)
            self._incoming[node] = one = _Incoming(said)
            wanted = self._alike.choose(said)
            one.alike = tuple(each for each in said.alike if each.rank not in wanted)
            one.expected = said.looks + len(wanted)
            if wanted:
                self._ask_node(node, WantDetails(ranks=wanted))
            self._ask_for_details(node)
        elif node in self._incoming and isinstance(said, RankLooks):
            with _refusing():
                heard = read_looks((said.facts,), [said.looks], said.parts)
            self._incoming[node].ranks.append(heard)
            self._ask_for_details(node)
        elif node in self._incoming and isinstance(said, LookDetails):
            self._take_details(node, said)

    def end(self, node: str) -> None:
        """A node is gone: of its report, if all ranks have come, the stacks stay empty that nobody
        has told; what it was asked for another one is to tell.
        """
        one = self._incoming.get(node)
        if one is not None and len(one.ranks) == one.expected:
            self._let_go(one)
            self._take_whole(node, defaultdict(tuple, self._stacks))
        self.forget(node)

    def forget(self, node: str) -> None:
        """Wait for no more of a node's report; what it was asked for another one is to tell."""
        if node in self._incoming:
            self._let_go(self._incoming.pop(node))
            self._waiting.pop(node, None)
            self._see_to_waiting()

    def _ask_for_details(self, node: str) -> None:
        """Once all ranks of a report have come, ask for the stacks that nobody has told or is asked
        for, and for the texts of the processes that are to be shown.
        """
        one = self._incoming[node]
        if len(one.ranks) < one.expected:
            return
        one.stacks = frozenset[str]().union(*(heard.stacks for heard in one.ranks))
        quiet = one.report.verdict.ranks.culprit
        pids = [pid for heard in one.ranks for pid in self._shown.choose(heard, quiet)]
        self._ask(node, pids)

    def _ask(self, node: str, pids: Sequence[int] = ()) -> None:
        """Ask a node for what nobody has told or is asked for; where that is nothing, its report is
        whole, or waits.
        """
        one = self._incoming[node]
        missing = one.stacks - self._stacks.keys()
        own = missing - self._asked.keys()
        if own or pids:
            self._asked |= dict.fromkeys(own, node)
            one.asked = own
            self._ask_node(node, WantDetails(tuple(sorted(own)), tuple(pids)))
        elif missing:
            self._waiting[node] = None
        else:
            self._take_whole(node, self._stacks)

    def _take_whole(self, node: str, stacks: Stacks) -> None:
        one = self._incoming.pop(node)
        self._take(node, one.report, ToldRanks(one.ranks, stacks, one.texts, one.alike))

    def _take_details(self, node: str, said: LookDetails) -> None:
        one = self._incoming[node]
        if one.asked is None:
            return
        with _refusing():
            self._stacks |= read_stacks(said.stacks or {})
            one.texts |= {str(pid): [*map(str, texts)] for pid, texts in (said.texts or {}).items()}
        if said.is_last:
            if one.asked - self._stacks.keys():
                raise Refused("it does not tell the stacks that it has")
            self._let_go(one)
            self._ask(node)
            self._see_to_waiting()

    def _see_to_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for node in waiting:
            if node in self._incoming:
                try:
                    self._ask(node)
                except Refused as error:
                    self._let_go(self._incoming.pop(node))
                    self._refuse(node, error)

    def _let_go(self, one: _Incoming) -> None:
        """Ask the node of a report for nothing more."""
        for name in one.asked or ():
            self._asked.pop(name, None)
        one.asked = None


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Refuse what cannot be read."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(str(error)[:200]) from None
