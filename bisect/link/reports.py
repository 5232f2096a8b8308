"""What nodes report of their ranks, as it comes in: a summary of each rank, then the stacks that no
node has told yet, and the texts of the processes that are to be shown.

Ranks of a large job stand in few different places. Told whole, the looks at one rank are some
200 kB of JSON, and 500 ranks took over 1 GB here.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

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
from .messages import LookDetails, RankLooks, Report, WantDetails

_MOST_STACKS = 100_000  # that are kept from one inquiry for the next


@dataclass
class _Incoming:
    """A report of which not all has come."""

    report: Report
    ranks: list[HeardLooks] = field(default_factory=list)
    stacks: frozenset[str] = frozenset()  # of all of them
    texts: dict[str, Sequence[str]] = field(default_factory=dict)  # of looks, by pid
    asked: frozenset[str] | None = None  # the stacks that its node is asked for; None: nothing


class Reports:
    """The reports of all nodes, each by the node's name."""

    def __init__(
        self,
        ask: Callable[[str, WantDetails], None],
        take: Callable[[str, Report, tuple[RankFacts, ...]], None],
        refuse: Callable[[str, Refused], None],
    ) -> None:
        """`ask` sends a node a question, `take` is given each report that is whole, `refuse` a node
        whose report cannot be read.
        """
        self._ask_node, self._take, self._refuse = ask, take, refuse
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

    def hear(self, node: str, said: Report | RankLooks | LookDetails) -> None:
        """Take in a part of a node's report. Raises Refused where it cannot be read."""
        self.heard = time.monotonic()
        if isinstance(said, Report):
            self.forget(node)
            self._incoming[node] = _Incoming(said)
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
        if one is not None and len(one.ranks) == one.report.looks:
            self._let_go(one)
            with contextlib.suppress(Refused):
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
        if len(one.ranks) < one.report.looks:
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
        one = self._incoming[node]
        with _refusing():
            ranks = [put_looks_together(each, stacks, one.texts) for each in one.ranks]
        del self._incoming[node]
        self._take(node, one.report, tuple(rank for each in ranks for rank in each))

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
