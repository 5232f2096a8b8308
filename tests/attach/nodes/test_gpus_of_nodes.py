"""What each machine of a job tells of its GPUs reaches the verdict with its host: by `attach`, and
by what monitors wrote.
"""

from __future__ import annotations

from dataclasses import replace

from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.node_record import NodeClock, NodeRecord, make_node_record
from hangbisect.base.rank_facts import MachineFacts
from hangbisect.collect.nodes import JointNodes, RecordedNode
from hangbisect.collect.nodes import judge_nodes as judge_recorded
from hangbisect.diagnosis.verdict import judge_job

from ...diagnosis.made_up import job
from ...diagnosis.test_lost_gpus import EACH, LINES, WORLD, errors, machine, standing

OFF = LINES["off the bus"]


def told(host: str, on: MachineFacts, at: float) -> NodeFacts:
    """What a machine tells whose clock shows `at`; its error came when that showed 90."""
    ranks = tuple(facts for facts in standing() if facts.host == host)
    return NodeFacts(host, ("python", "t.py"), WORLD, False, 100.0, at, 2.5, ranks, machine=on)


def nodes(host: str = "n02", at: float = 120.0) -> list[NodeFacts]:
    first = machine(0, EACH, *(errors(OFF, 1) if host == "n01" else ()))
    second = machine(EACH, EACH, *(errors(OFF, 1) if host == "n02" else ()))
    return [told("n01", first, at), told("n02", second, at)]


def test_the_gpu_of_either_machine_names_its_rank() -> None:
    for host, who in (("n01", 1), ("n02", 5)):
        verdict = judge_nodes(nodes(host), now=120.0).verdict
        assert verdict.ranks.culprit == (who,)
        assert verdict.cause is not None
        assert verdict.cause.matched[0].startswith(f"{host}: GPU 1 (0000:01:00) of rank {who}: Xid")


def test_how_long_ago_it_was_goes_by_the_clock_of_its_machine() -> None:
    """That clock shows 150 when ours shows 5,000: the error came a minute before."""
    cause = judge_nodes(nodes(at=150.0), now=5000.0).verdict.cause
    assert cause is not None
    assert cause.matched[0].endswith(", 60 s ago")


def test_two_machines_with_one_name_are_not_told_apart() -> None:
    """Then nothing is said of either's GPUs, and nobody is accused by them."""
    both = [
        replace(one, host="pod", ranks=tuple(replace(r, host="pod") for r in one.ranks))
        for one in nodes()
    ]
    verdict = judge_nodes(both, now=120.0).verdict
    assert verdict.ranks.culprit != (5,)


def test_what_monitors_wrote_tells_the_same() -> None:
    written = []
    for one in nodes():
        about = job("still", WORLD, machine=one.machine, still=22.0, pipeline="")
        about = replace(about, local_ranks=tuple(facts.rank for facts in one.ranks))
        record = make_node_record(one.host, about, one.ranks, NodeClock(120.0, 1.8e9))
        again = from_json(NodeRecord, to_json(record))
        written.append(RecordedNode(again, one.ranks, judge_job(about, one.ranks)))
    verdict = judge_recorded(JointNodes(written)).verdict
    assert verdict.ranks.culprit == (5,)
    assert verdict.cause is not None
    assert verdict.cause.matched[0].startswith("n02: GPU 1 (0000:01:00) of rank 5: Xid 79")


def test_drivers_that_differ_are_told() -> None:
    first, second = nodes()
    versions = ("570.158.01", "580.65.06")
    both = [
        replace(one, machine=replace(one.machine, driver=version))
        for one, version in zip((first, second), versions, strict=True)
    ]
    notes = judge_nodes(both, now=120.0).verdict.notes
    assert "NVIDIA's drivers differ: 570.158.01 on n01, 580.65.06 on n02" in notes
    same = judge_nodes([both[0], replace(both[1], machine=both[0].machine)], now=120.0)
    assert not any("drivers differ" in note for note in same.verdict.notes)
