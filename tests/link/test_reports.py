"""What nodes report comes whole, however their messages mix; each stack is told once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import Frame
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.link.channel import Refused
from hangbisect.link.look_summary import LookSummary
from hangbisect.link.messages import (
    FROM_NODE,
    LookDetails,
    RankKind,
    RankLooks,
    Report,
    WantDetails,
    decode,
    encode,
)
from hangbisect.link.node import list_alike
from hangbisect.link.reports import MOST_ALIKE, Reports, ToldRanks
from hypothesis import given
from hypothesis import strategies as st

from ..diagnosis.made_up import SLEEP, rank
from .test_star import join_of, report_of

Part = Report | RankLooks | LookDetails


class Nodes:
    """Nodes that report, and are asked, in any order."""

    def __init__(self) -> None:
        self.reports = Reports(self._ask, self._take, lambda node, error: self.refused.append(node))
        self.told: dict[str, list[LookSummary]] = {}
        self.asked: list[tuple[str, WantDetails]] = []
        self.whole: dict[str, tuple[RankFacts, ...]] = {}
        self.left_out: dict[str, list[int]] = {}  # ranks that are like others
        self.refused: list[str] = []
        self.ahead: dict[str, deque[Part]] = {}  # messages that have not arrived

    def send(
        self,
        node: str,
        ranks: list[RankFacts],
        blamed: tuple[int, ...] = (),
        waiting: tuple[int, ...] = (),
    ) -> None:
        """Have a node report; those that wait are told of where that is wanted."""
        self.told[node] = told = [LookSummary((one,)) for one in ranks]
        report = report_of(join_of(0, [one.rank for one in ranks if isinstance(one.rank, int)]))
        verdict = replace(
            report.verdict, ranks=replace(report.verdict.ranks, culprit=blamed, waiting=waiting)
        )
        report = replace(report, verdict=verdict)
        alike = list_alike(report, told)
        kinds = tuple(RankKind(rank, kind) for rank, kind in alike.items())
        report = replace(report, looks=len(ranks) - len(alike), alike=kinds)
        self.ahead[node] = deque([report])
        self._tell_looks(node, {one.ranks[0].rank for one in told} - alike.keys())

    def _tell_looks(self, node: str, ranks: Collection[RankId]) -> None:
        for one in self.told[node]:
            if one.ranks[0].rank in ranks:
                self.ahead[node].append(RankLooks(one.ranks[0], one.looks[0], one.parts))

    def arrive(self, node: str) -> None:
        """Have the next message of a node arrive."""
        said = decode(encode(self.ahead[node].popleft()), FROM_NODE)
        assert isinstance(said, (Report, RankLooks, LookDetails))
        self.reports.hear(node, said)

    def _ask(self, node: str, wanted: WantDetails) -> None:
        self.asked.append((node, wanted))
        if wanted.ranks:
            self._tell_looks(node, wanted.ranks)
            return
        for one in self.told[node]:
            stacks, texts = one.give_details(wanted.stacks, wanted.pids)
            self.ahead[node].append(LookDetails(stacks, texts))
        self.ahead[node].append(LookDetails(is_last=True))

    def _take(self, node: str, report: Report, told: ToldRanks) -> None:
        self.whole[node] = told.put_together()
        self.left_out[node] = [one.rank for one in told.alike]


def waits(number: int, place: int, dump: str = "") -> RankFacts:
    """A rank that waits at a place of the script."""
    made = rank(number, SLEEP, SLEEP)
    frames = (Frame("wait", "/home/ada/train.py", place),)
    looks = tuple(
        replace(look, dump=dump, threads=tuple(replace(one, frames=frames) for one in look.threads))
        for look in made.looks
    )
    return replace(made, looks=looks)


@given(st.data())
def test_whatever_comes_first_all_reports_come_whole(data: st.DataObject) -> None:
    nodes = Nodes()
    sent: dict[str, list[RankFacts]] = {}
    for name in "abcd":
        places = data.draw(st.lists(st.integers(1, 4), max_size=3))
        sent[name] = [waits(n, place) for n, place in enumerate(places)]
        nodes.send(name, sent[name])
    while ready := [name for name, messages in nodes.ahead.items() if messages]:
        nodes.arrive(data.draw(st.sampled_from(ready)))
    assert {name: list(ranks) for name, ranks in nodes.whole.items()} == sent
    stacks = [stack for _, wanted in nodes.asked for stack in wanted.stacks]
    assert len(stacks) == len(set(stacks))
    assert nodes.refused == []


def test_a_node_that_goes_before_it_tells_a_stack_costs_no_other_one() -> None:
    nodes = Nodes()
    for name in "ab":
        nodes.send(name, [waits(0, 7)])
        nodes.arrive(name)
        nodes.arrive(name)
    assert [name for name, _ in nodes.asked] == ["a"]
    nodes.reports.forget("a")
    assert [name for name, _ in nodes.asked] == ["a", "b"]
    while nodes.ahead["b"]:
        nodes.arrive("b")
    assert nodes.whole == {"b": (waits(0, 7),)}


def test_the_report_of_a_node_that_has_gone_counts_with_the_stacks_that_are_known() -> None:
    """It said how its ranks ended, and was gone before it was asked for anything."""
    nodes = Nodes()
    nodes.send("a", [waits(0, 7)])
    nodes.send("b", [waits(1, 7), waits(2, 8)])
    for name in "abb":
        nodes.arrive(name)
    nodes.reports.end("b")
    assert "b" not in nodes.whole  # a rank of it is not known
    while nodes.ahead["a"]:
        nodes.arrive("a")
    nodes.send("b", [waits(1, 7), waits(2, 8)])
    for name in "bbb":
        nodes.arrive(name)
    nodes.reports.end("b")
    known, unknown = nodes.whole["b"]
    assert known == waits(1, 7)
    assert [one.frames for look in unknown.looks for one in look.threads] == [(), ()]


def test_who_does_not_tell_the_stack_that_it_has_is_refused() -> None:
    nodes = Nodes()
    nodes.send("a", [waits(0, 7)])
    nodes.arrive("a")
    nodes.arrive("a")
    with pytest.raises(Refused, match="does not tell the stacks"):
        nodes.reports.hear("a", LookDetails(is_last=True))


def test_texts_are_told_of_one_rank_of_each_kind_and_of_those_that_are_blamed() -> None:
    nodes = Nodes()
    ranks = [waits(number, place, "text") for number, place in enumerate([3, 3, 3, 9])]
    nodes.send("a", ranks, blamed=(2,))
    while nodes.ahead["a"]:
        nodes.arrive("a")
    texts = [[look.dump for look in one.looks] for one in nodes.whole["a"]]
    assert texts == [["text", "text"], ["", ""], ["text", "text"], ["text", "text"]]


def test_of_many_ranks_that_wait_in_one_place_some_are_told_of() -> None:
    """From several nodes; and all that stand elsewhere, or are blamed."""
    nodes = Nodes()
    for number in range(20):
        ranks = range(8 * number, 8 * number + 8)
        elsewhere = {77: 4}
        nodes.send(
            str(number),
            [waits(one, elsewhere.get(one, 3)) for one in ranks],
            blamed=(90,) if 90 in ranks else (),
            waiting=tuple(one for one in ranks if one != 90),
        )
        while nodes.ahead[str(number)]:
            nodes.arrive(str(number))
    told = {facts.rank for ranks in nodes.whole.values() for facts in ranks}
    assert len(told) == MOST_ALIKE + 2
    assert {77, 90} <= told
    assert len({rank // 8 for rank in told if isinstance(rank, int)}) > MOST_ALIKE // 8
    left_out = {rank for ranks in nodes.left_out.values() for rank in ranks}
    assert told | left_out == {*range(160)}
    assert not told & left_out
    place = nodes.told["0"][0].name_kind()
    assert nodes.reports.find_told(told)[place] in told - {77}
    assert set(nodes.reports.find_told({77})) == {nodes.told["9"][5].name_kind()}


def test_what_stood_for_others_is_told_of_again_in_the_next_inquiry() -> None:
    nodes = Nodes()
    for _ in range(2):
        for number in range(20):
            ranks = tuple(range(8 * number, 8 * number + 8))
            nodes.send(str(number), [waits(one, 3) for one in ranks], waiting=ranks)
            while nodes.ahead[str(number)]:
                nodes.arrive(str(number))
        told = {facts.rank for ranks in nodes.whole.values() for facts in ranks}
        assert len(told) == MOST_ALIKE


def test_who_is_stopped_or_at_another_operation_is_like_nobody_else() -> None:
    def name_kind(facts: RankFacts) -> str:
        return LookSummary((facts,)).name_kind()

    waiting = waits(3, 7)
    assert name_kind(waits(4, 7)) == name_kind(waiting)
    stopped = replace(waiting, looks=tuple(replace(one, state="T") for one in waiting.looks))
    log = CollectiveLog("ring", (Collective("0", "all_reduce", 7, at=3.0),), sequence={"0": 7})
    logged = replace(waiting, collectives=(log,))
    behind = replace(log, operations=(replace(log.operations[0], number=6),), sequence={"0": 6})
    kinds = [waiting, stopped, logged, replace(waiting, collectives=(behind,)), waits(3, 8)]
    assert len({name_kind(one) for one in kinds}) == len(kinds)
    later = replace(log, operations=(replace(log.operations[0], at=9.0),))
    assert name_kind(replace(logged, rank=5, collectives=(later,))) == name_kind(logged)


def test_what_cannot_be_read_is_refused() -> None:
    nodes = Nodes()
    nodes.send("a", [waits(0, 7)])
    nodes.arrive("a")
    with pytest.raises(Refused):
        nodes.reports.hear("a", RankLooks(rank(0), looks=[[{"threads": [5]}]], parts=[]))
    for stacks, texts in (("x", {}), ({"a": 3}, {}), ({}, [1])):
        nodes = Nodes()
        nodes.send("a", [waits(0, 7)])
        nodes.arrive("a")
        nodes.arrive("a")
        with pytest.raises(Refused):
            nodes.reports.hear("a", LookDetails(stacks, texts))
