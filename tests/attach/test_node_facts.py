"""Facts that one machine tells another come out as they went in."""

from __future__ import annotations

import json

import pytest
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.base.json_codec import Misfit, from_json, to_json
from hangbisect.base.process_facts import Socket
from hangbisect.base.rank_facts import RankFacts

from .test_words import BARRIER, SLEEP, node, rank


def there_and_back(facts: NodeFacts) -> NodeFacts:
    found = from_json(NodeFacts, json.loads(json.dumps(to_json(facts))))
    return found


def test_what_one_machine_tells_is_the_same_elsewhere() -> None:
    facts = node(
        rank(0, BARRIER, "futex", environment={"RANK": "0"}), rank(1, SLEEP, "clock_nanosleep")
    )
    assert there_and_back(facts) == facts
    assert (
        judge_nodes([there_and_back(facts)], now=1.0).verdict
        == judge_nodes([facts], now=1.0).verdict
    )


def test_what_is_not_there_has_its_default_and_what_is_not_known_is_left_out() -> None:
    made = from_json(RankFacts, {"rank": 3, "from_a_later_version": 1})
    assert made == RankFacts(3)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (RankFacts, []),
        (RankFacts, {"rank": "3"}),
        (RankFacts, {"rank": 3, "looks": 5}),
        (RankFacts, {}),
        (Socket, {"inode": None, "family": "tcp"}),
    ],
)
def test_what_is_no_fact_is_refused(kind: type, data: object) -> None:
    with pytest.raises(Misfit):
        from_json(kind, data)
