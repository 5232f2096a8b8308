"""What is known of each rank, folded from what it says."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from hangbisect.base.events import Hello, decode
from hangbisect.base.rank_state import NodeRanks, RankState, find_local_ranks
from hangbisect.monitor.job_facts import describe_contradictions, make_rank_facts
from hypothesis import given
from hypothesis import strategies as st

from .made_up import TABLE, hello, say, told

Event = tuple[int, dict[str, Any]]


def known(members: NodeRanks) -> list[dict[str, Any]]:
    """What was folded, without what only the watch adds."""
    seen = {"places", "looks", "children", "stays"}
    names = [f.name for f in fields(RankState) if f.name not in seen]
    return [{name: getattr(one, name) for name in names} for one in members]


def first_word(message: dict[str, Any]) -> Hello:
    found = decode(message)
    assert isinstance(found, Hello)
    return found


# ---- what ranks may say -----------------------------------------------------------------------

_text = st.text(max_size=8)
_checkpoints = st.integers(1, len(TABLE))
_SAID: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "enter": {"n": _checkpoints},
    "world": {"size": st.integers(1, 8)},
    "phase": {"name": st.sampled_from(["process_group", "first_step", "steady"])},
    "call": {"call": _text},
    "line": {"text": _text},
    "logged": {"text": _text},
    "import": {"module": _text, "seconds": st.floats(0, 100), "version": st.none() | _text},
    "pulse": {"step": st.integers(0, 1000)},
    "reached": {"n": _checkpoints},
    "arrive": {"n": _checkpoints},
    "await": {"what": _text, "ranks": st.just([0])},
    "did": {"what": _text},
    "exercised": {"missing": st.lists(_text, max_size=2)},
    "environ": {"changed": st.dictionaries(_text, _text, max_size=2)},
    "finished": {},
    "bye": {"status": st.integers(-9, 5), "error": _text, "finished": st.booleans()},
    "something of a later version": {},
}
_words = st.sampled_from(sorted(_SAID)).flatmap(
    lambda kind: st.fixed_dictionaries(
        {"t": st.just(kind), "at": st.floats(0, 1e6), **_SAID[kind]},
    )
)
_hellos = st.builds(hello, st.integers(0, 3), st.just(4), st.floats(0, 1e6))
_events = st.lists(st.tuples(st.integers(0, 3), _words | _hellos), max_size=40)


@given(_events)
def test_the_same_events_read_from_a_file_give_the_same_members(events: list[Event]) -> None:
    live, replayed = NodeRanks(TABLE), NodeRanks(TABLE)
    lines = []
    for number, event in events:
        rank = event["rank"] if event["t"] == "hello" else number
        say(live, rank, event)
        lines.append(json.dumps({"wall": 1.0, **event, "rank": rank}))
    for line in lines:
        replayed.apply(decode(json.loads(line)))
    assert known(replayed) == known(live)
    assert replayed.expected == live.expected
    assert replayed.done == live.done


@given(_events)
def test_no_order_of_words_takes_a_checkpoint_back(events: list[Event]) -> None:
    members = told(world=4)
    before = {m.rank: m.reached for m in members}
    for rank, event in events:
        if event["t"] == "hello":
            continue
        say(members, rank, event)
        assert members.by_rank[rank].reached >= before[rank]
        before[rank] = members.by_rank[rank].reached


# ---- one by one -------------------------------------------------------------------------------


def test_a_word_of_a_rank_that_has_not_said_hello_is_left_out() -> None:
    members = NodeRanks(TABLE)
    say(members, 1, {"t": "reached", "n": 3, "at": 1.0})
    assert list(members) == []


def test_a_rank_that_greets_a_new_monitor_keeps_what_is_known_of_it() -> None:
    members = told((0, "reached", 5.0, {"n": 3}))
    say(members, 0, hello(0, at=9.0))
    assert members.by_rank[0].reached == 3


def test_another_process_with_the_same_rank_begins_anew() -> None:
    members = told((0, "reached", 5.0, {"n": 3}))
    say(members, 0, hello(0, at=9.0, pid=4711))
    assert (members.by_rank[0].reached, members.by_rank[0].pid) == (0, 4711)


def test_a_new_step_forgets_the_phase_and_the_call_and_the_looks_of_the_last() -> None:
    members = told(
        (0, "enter", 1.0, {"n": 4}),
        (0, "phase", 2.0, {"name": "first_step"}),
        (0, "call", 3.0, {"call": "wandb.init"}),
    )
    one = members.by_rank[0]
    one.places.add("seen")
    assert (one.phase, one.announced) == ("first_step", "wandb.init")
    say(members, 0, {"t": "reached", "n": 4, "at": 4.0})
    assert (one.phase, one.announced) == (None, "")
    say(members, 0, {"t": "enter", "n": 5, "at": 5.0})
    assert one.places == set()


def test_time_of_imports_is_counted_in_its_step() -> None:
    members = told(
        (0, "enter", 0.0, {"n": 2}),
        (0, "import", 2.0, {"module": "torch", "seconds": 1.5, "version": "2"}),
        (0, "import", 3.0, {"module": "wandb", "seconds": 1.0, "version": None}),
        (0, "reached", 4.0, {"n": 2}),
    )
    one = members.by_rank[0]
    assert (one.imports, one.took, one.versions) == ({2: 2.5}, {2: 4.0}, {"torch": "2"})


def test_the_phase_and_the_checkpoint_of_a_member_are_those_of_its_step() -> None:
    members = told((0, "enter", 0.0, {"n": 4}), (0, "phase", 1.0, {"name": "steady"}))
    one = members.by_rank[0]
    checkpoint, phase = members.checkpoint_of(one), members.phase_of(one)
    assert checkpoint is not None
    assert checkpoint.name == "training"
    assert phase is not None
    assert phase.deadline is None
    say(members, 0, {"t": "reached", "n": 4, "at": 2.0})
    assert members.checkpoint_of(one) is None


@given(st.integers(0, 7), st.integers(1, 8), st.integers(0, 100))
def test_the_ranks_of_a_node_follow_one_another(local: int, size: int, node: int) -> None:
    local %= size
    world = (node + 1) * size
    place = hello(node * size + local, world, local_rank=local, local_world_size=size)
    assert find_local_ranks(first_word(place)) == set(range(node * size, (node + 1) * size))


def test_where_one_node_has_all_ranks_they_are_all_of_the_job() -> None:
    """LOCAL_RANK=0 by hand on each, where each sees a GPU of its own."""
    assert find_local_ranks(first_word(hello(1, 2, local_rank=0))) == {0, 1}


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9), st.integers(1, 10))
def test_no_rank_beyond_the_world_is_counted_on(
    rank: int, local: int, size: int, world: int
) -> None:
    rank %= world
    place = hello(rank, world, local_rank=local, local_world_size=size)
    found = find_local_ranks(first_word(place))
    assert rank in found
    assert found <= set(range(world))


def test_a_nodes_ranks_are_those_that_its_launcher_names() -> None:
    place = hello(2, 4, local_rank=1, neighbours=[0, 2])
    assert find_local_ranks(first_word(place)) == {0, 2}


def test_ranks_that_are_counted_and_not_listed_get_no_numbers() -> None:
    members = NodeRanks(TABLE)
    say(members, 2, hello(2, 4, local_rank=1, local_world_size=2, in_order=False))
    assert (members.expected, members.unnamed, members.are_here) == ({2}, 1, False)
    assert members.unstarted == "1 of 2 ranks of this node has not started"
    say(members, 0, hello(0, 4, local_rank=0, local_world_size=2, in_order=False))
    assert (members.expected, members.unstarted, members.are_here) == ({0, 2}, "", True)


def test_where_nobody_counts_the_ranks_of_a_node_none_is_missed() -> None:
    members = NodeRanks(TABLE)
    say(members, 3, hello(3, 4, counted=False, in_order=False))
    assert (members.expected, members.size, members.world_size) == ({3}, 1, 4)


def test_a_size_that_is_a_typing_error_lists_nobody() -> None:
    assert find_local_ranks(first_word(hello(2, 10**8))) == {2}


def test_what_ranks_found_contradictory_is_told_for_a_few_of_them() -> None:
    members = NodeRanks(TABLE)
    for number in range(5):
        say(members, number, hello(number, 5, contradictions=["RANK=9"]))
    said = describe_contradictions(members)
    assert said[0] == "rank 0: RANK=9"
    assert said[-1] == "and 2 more such contradictions"
    assert len(said) == 4


def test_a_member_is_plain_enough_to_be_written_down() -> None:
    members = told((0, "line", 1.0, {"text": "hello"}))
    written = asdict(members.by_rank[0])
    assert written["last_line"] == "hello"


def test_two_local_ranks_that_say_one_number_are_told_and_nobody_is_missed_for_them() -> None:
    """Where the ranks of a node begin each says otherwise: 2 with LOCAL_RANK 0, and with 1."""
    members = NodeRanks(TABLE)
    one = {"local_world_size": 2, "counted": True, "in_order": True}
    say(members, 2, hello(2, 4, local_rank=0, pid=27, **one))
    say(members, 2, hello(2, 4, local_rank=1, pid=28, **one))
    assert (members.expected, members.unnamed) == ({2}, 0)
    assert members.by_rank[2].twin == 27
    assert make_rank_facts(members.by_rank[2]).twin == 27


def test_a_rank_that_is_started_anew_has_no_twin() -> None:
    members = NodeRanks(TABLE)
    say(members, 0, hello(0, pid=27))
    say(members, 0, hello(0, pid=28))  # with the same LOCAL_RANK: one after the other
    assert members.by_rank[0].twin is None
    assert members.expected == {0, 1}


def test_a_rank_that_joins_a_larger_group_tells_how_many_ranks_there_are() -> None:
    members = told(world=1)
    say(members, 0, {"t": "world", "at": 1.0, "size": 4})
    assert members.world_size == 4
    assert members.expected == {0}
