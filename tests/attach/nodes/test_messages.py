"""What a node tells in two steps comes out as it went in, whatever else is printed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hangbisect.attach.node_answer import make_details
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.node_messages import (
    LINE_LENGTH,
    MessageReader,
    Summary,
    put_together,
    read_summary,
    write_message,
)
from hangbisect.base.process_facts import AwaitedFile, Frame
from hangbisect.base.rank_facts import RankFacts
from hangbisect.link.look_summary import read_stacks
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_together import POLLS, holds_a_lock, machine, two_machines, waits_for_a_child


def tell(facts: NodeFacts) -> NodeFacts:
    """What arrives of facts that are told in two steps."""
    summary = Summary(facts)
    first = json.loads(json.dumps(summary.message()))
    heard = read_summary(first)
    pids = [pid for place in range(len(facts.ranks)) for pid in heard.looks.pids_of(place)]
    second = json.loads(json.dumps(summary.details(heard.looks.stacks, pids)))
    return put_together(heard, read_stacks(second["stacks"]), second["texts"])


@settings(max_examples=40, deadline=None)
@given(two_machines())
def test_nothing_of_what_was_seen_is_lost(nodes: tuple[NodeFacts, NodeFacts]) -> None:
    for facts in nodes:
        assert tell(facts) == facts


def test_what_changes_between_looks_is_told_and_what_is_gone_again_too() -> None:
    rank = holds_a_lock(0, 7)
    first, last = rank.looks
    waited = AwaitedFile("/x", 1.0, 7, "load (train.py:3)")
    middle = replace(first, at=2.0, awaited_files=(waited,), dump="text", threads=(), waits=3)
    facts = machine("a", replace(rank, looks=(first, middle, replace(last, at=3.0, dump="more"))))
    assert tell(facts) == facts


def test_what_two_looks_or_two_ranks_share_is_told_once() -> None:
    frames = tuple(Frame(f"f{n}", "/home/ada/train.py", n) for n in range(300))
    threads = tuple(replace(t, frames=frames) for t in waits_for_a_child(0).looks[0].threads)
    looks = tuple(replace(one, threads=threads) for one in waits_for_a_child(0).looks * 8)
    ranks = [replace(waits_for_a_child(n), looks=looks) for n in range(8)]
    summary = Summary(machine("a", *ranks))
    size = len(json.dumps(summary.message()))
    assert len(summary.looks.stacks) == 1
    assert size < 10_000 < len(json.dumps(summary.details(summary.looks.stacks, ())))


def test_a_question_to_another_node_of_the_same_step_is_not_answered() -> None:
    """Its answer would be taken for that to the question which comes next."""
    summary = Summary(machine("n1", waits_for_a_child(0)))
    summary.message()
    asked = {"is": "details", "of": {"n1": {"stacks": [*summary.looks.stacks], "pids": [7]}}}
    assert make_details("n0", summary, asked) is None
    told = make_details("n1", summary, asked)
    assert told == summary.details(summary.looks.stacks, [7])


def test_ranks_in_the_same_places_are_of_one_kind() -> None:
    other = replace(holds_a_lock(2, 9), children=())
    heard = read_summary(
        Summary(machine("a", waits_for_a_child(0), waits_for_a_child(1), other)).message()
    )
    kinds = [heard.looks.kind_of(place) for place in range(3)]
    assert kinds[0] == kinds[1] != kinds[2]


def test_lines_of_several_nodes_may_come_between_those_of_one() -> None:
    told = {name: {"is": "x", "of": [f"{name}{n}" for n in range(4000)]} for name in ("n1", "n2")}
    lines = [write_message(name, one).splitlines(keepends=True) for name, one in told.items()]
    assert all(len(one) > 1 for one in lines)
    assert all(len(line) <= LINE_LENGTH for one in lines for line in one)
    mixed = [line for pair in zip(*lines, strict=False) for line in (*pair, b"Welcome to n1\r\n")]
    mixed += [line for one in lines for line in one[len(mixed) // 3 :]]
    reader = MessageReader()
    heard = [said for line in mixed if (said := reader.take(line)) is not None]
    assert dict(heard) == told


def test_a_node_without_a_name_of_its_own_has_none() -> None:
    (line,) = write_message("", {"is": "ready"}).splitlines()
    assert MessageReader().take(line) == ("", {"is": "ready"})


@pytest.mark.parametrize("lost", [0, 1])
def test_an_answer_with_a_gap_is_no_answer(lost: int) -> None:
    lines = write_message("n1", {"of": [f"{n * n}" for n in range(4000)]}).splitlines()
    reader = MessageReader()
    kept = lines[:lost] + lines[lost + 1 :]
    with pytest.raises(ValueError, match=r"missing|cannot be read") as error:
        [reader.take(line) for line in kept]
    assert error.value.args[0] == "n1"


@given(st.binary(max_size=120))
def test_whatever_a_client_prints_is_a_message_a_sentence_or_nothing(printed: bytes) -> None:
    for line in (printed, b"hangbisect n1 0 " + printed, b"hangbisect - 3 " + printed):
        try:
            assert MessageReader().take(line) is None
        except ValueError as error:
            node, why = error.args
            assert node in ("", "n1")
            assert "\n" not in why


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(_JSON, _JSON, _JSON)
def test_no_summary_is_a_sentence(facts: object, looks: object, parts: object) -> None:
    good = dict(Summary(machine("a", RankFacts(0, pid=7), holds_a_lock(1, 8))).message())
    for wrong in (
        {"facts": facts, "looks": looks, "parts": parts},
        {**good, "looks": looks},
        {**good, "parts": parts},
        {**good, "facts": facts},
    ):
        try:
            heard = read_summary(wrong)
            put_together(heard, dict.fromkeys(heard.looks.stacks, POLLS), {})
        except ValueError as error:
            told = str(error)
        else:
            told = "its facts"
        assert told.startswith(("its facts", "its looks"))


def test_facts_of_another_version_are_said_to_be_that() -> None:
    told = {**Summary(machine("a")).message(), "version": "9.9", "facts": {"host": 3}}
    with pytest.raises(ValueError, match=r"another version of hangbisect \(9\.9, not "):
        read_summary(told)
