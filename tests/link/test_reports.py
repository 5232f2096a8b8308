"""What nodes report comes whole, however their messages mix; each stack is told once."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Frame
from hangbisect.base.rank_facts import RankFacts
from hangbisect.link.channel import Refused
from hangbisect.link.look_summary import LookSummary
from hangbisect.link.messages import (
    FROM_NODE,
    LookDetails,
    RankLooks,
    Report,
    WantDetails,
    decode,
    encode,
)
from hangbisect.link.reports import Reports
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
        self.refused: list[str] = []
        self.ahead: dict[str, deque[Part]] = {}  # messages that have not arrived

    def send(self, node: str, ranks: list[RankFacts], blamed: tuple[int, ...] = ()) -> None:
        """Have a node report."""
        self.told[node] = [LookSummary((one,)) for one in ranks]
        report = report_of(join_of(0))
        verdict = replace(
            report.verdict, ranks=replace(report.verdict.ranks, culprit=blamed, waiting=())
        )
        report = replace(report, verdict=verdict, looks=len(ranks))
        looks = [RankLooks(one.ranks[0], one.looks[0], one.parts) for one in self.told[node]]
        self.ahead[node] = deque([report, *looks])

    def arrive(self, node: str) -> None:
        """Have the next message of a node arrive."""
        said = decode(encode(self.ahead[node].popleft()), FROM_NODE)
        assert isinstance(said, (Report, RankLooks, LookDetails))
        self.reports.hear(node, said)

    def _ask(self, node: str, wanted: WantDetails) -> None:
        self.asked.append((node, wanted))
        for one in self.told[node]:
            stacks, texts = one.give_details(wanted.stacks, wanted.pids)
            self.ahead[node].append(LookDetails(stacks, texts))
        self.ahead[node].append(LookDetails(is_last=True))

    def _take(self, node: str, report: Report, ranks: tuple[RankFacts, ...]) -> None:
        self.whole[node] = ranks


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
