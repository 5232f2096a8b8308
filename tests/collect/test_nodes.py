"""What the monitors of several nodes wrote of one job is judged as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.identity import ProcessId
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.node_record import NodeClock, NodeRecord, make_node_record
from hangbisect.base.process_facts import Descriptor, Socket
from hangbisect.base.rank_facts import (
    Ended,
    JobFacts,
    LostNode,
    MachineFacts,
    RankFacts,
    SlowStep,
)
from hangbisect.base.verdict_facts import NodeSeen, Outcome, Verdict
from hangbisect.collect.node_connections import UnheardHost, connect_nodes
from hangbisect.collect.nodes import (
    JointNodes,
    RecordedNode,
    find_who_goes_on,
    judge_nodes,
    judge_recorded_nodes,
)
from hangbisect.diagnosis.verdict import OUTCOMES, judge_job

from ..diagnosis.made_up import ALL_REDUCE, GROUP, SLEEP, gone, job, look, rank

WALL = 1_800_000_000.0


def on(host: str, facts: RankFacts, **more: Any) -> RankFacts:
    """The rank on a host; every first process of a host has pid 100 there."""
    looks = tuple(
        replace(
            one,
            pid=100,
            threads=tuple(replace(t, os_id=100) for t in one.threads),
            kernel=tuple(replace(k, tid=100) for k in one.kernel),
        )
        for one in facts.looks
    )
    return replace(facts, host=host, pid=100, local_rank=0, looks=looks, **more)


def node(
    host: str,
    *ranks: RankFacts,
    ended: Ended = "still",
    outcome: Outcome | None = None,
    at: float = 120.0,
    clock: float = 0.0,
    **more: Any,
) -> RecordedNode:
    """What a node wrote `at` (on a clock that all share), whose own clock is `clock` ahead."""
    told = job(ended, 2, now=at + clock, started=20.0 + clock, still=22.0)
    told = replace(told, **{"local_ranks": tuple(r.rank for r in ranks), "pipeline": "", **more})
    verdict = judge_job(told, ranks)
    verdict = replace(verdict, outcome=outcome or OUTCOMES[ended])
    return RecordedNode(
        record=make_node_record(host, told, ranks, NodeClock(at + clock, WALL + at)),
        ranks=ranks,
        verdict=verdict,
    )


def judge(*nodes: RecordedNode) -> Verdict:
    found = judge_recorded_nodes(nodes)
    assert found is not None
    return found.verdict


WAITS = on("n1", rank(0, ALL_REDUCE, ALL_REDUCE))
SLEEPS = on("n2", rank(1, SLEEP, SLEEP))
AWAY = on("n3", rank(2, ALL_REDUCE, ALL_REDUCE))


def test_the_rank_of_another_node_is_to_blame_and_its_host_is_named() -> None:
    """Neither node alone can tell: on the first nobody but ranks that wait, on the second a rank
    of which nothing says that anybody waits for it.
    """
    found = judge(node("n1", WAITS, outcome="silent"), node("n2", SLEEPS, outcome="silent"))
    assert found.outcome == "silent"
    assert found.ranks.culprit == (1,)
    assert found.ranks.waiting == (0,)
    assert [(one.rank, one.host, one.pid) for one in found.where] == [(1, "n2", 100)]
    assert found.seen_ranks == (0, 1)
    assert found.chain[0].source == "rank 0"


def test_what_a_node_said_of_one_that_it_did_not_see_is_no_cause_any_more() -> None:
    """That the other node has not come is what the first alone has to believe."""
    alone = node("n1", WAITS, outcome="hang")
    found = judge(alone, node("n2", SLEEPS, outcome="silent"))
    assert found.cause is None or found.cause.id != "other-node-missing"
    assert found.ranks.culprit == (1,)


def test_a_rank_that_never_came_to_its_node_is_to_blame_and_its_host_is_named() -> None:
    """The launcher of n2 counts on two ranks there. Nobody else sees that one is not started."""
    waits = on("n2", rank(1, ALL_REDUCE, ALL_REDUCE))
    other = node("n2", waits, outcome="silent", local_ranks=(1, 2), world_size=3)
    found = judge(node("n1", WAITS, outcome="silent", world_size=3), other)
    assert (found.ranks.culprit, found.ranks.never_started) == ((2,), (2,))
    assert found.ranks.waiting == (0, 1)
    assert [(one.rank, one.host) for one in found.where] == [(2, "n2")]


def test_one_node_alone_names_itself_where_a_rank_of_its_own_never_came() -> None:
    waits = on("n2", rank(1, ALL_REDUCE, ALL_REDUCE))
    found = judge_job(job("still", 3, local_ranks=(1, 2)), [waits])
    assert [(one.rank, one.host) for one in found.where] == [(2, "n2")]


def test_a_crash_before_the_others_stand_still_is_the_answer() -> None:
    """Rank 1 fails at 60 s; rank 0 waits for it in vain, and is called hung at 120 s."""
    failed = on("n2", gone(1, 1, "ValueError: no such shard"), left_at=60.0)
    crash = node("n2", failed, ended="crash", at=60.0)
    found = judge(node("n1", WAITS, outcome="hang"), crash)
    assert found.outcome == "crash"
    assert found.ranks.culprit == (1,)
    assert found.ranks.waiting == (0,)


def test_what_fails_once_a_hang_was_ended_is_not_the_answer() -> None:
    """Rank 1 sleeps, its node has it ended at 120 s; that rank 0 loses its peer is no cause."""
    lost = on("n1", gone(0, 1, "RuntimeError: Connection closed by peer"), left_at=121.0)
    found = judge(
        node("n1", lost, ended="crash", at=121.0), node("n2", SLEEPS, outcome="hang", at=120.0)
    )
    assert found.outcome == "hang"
    assert found.ranks.culprit == (1,)
    assert found.seen_ranks == (1,)
    assert any("n1" in note and "rank 0" in note for note in found.notes), found.notes


@pytest.mark.parametrize("status", [-15, -2, -1, None])  # None: who started it has the status
def test_who_was_told_to_end_once_another_node_stood_still_did_not_die(status: int | None) -> None:
    """A person ends a job that stands still: on the node that had not judged yet, its ranks end."""
    waits = on("n2", rank(1, ALL_REDUCE, ALL_REDUCE))
    stands = node("n2", waits, outcome="silent", at=120.0)
    told = on("n1", gone(0, status, left_at=130.0))
    ended = node("n1", told, ended="interrupted", at=131.0)
    found = judge(ended, stands)
    assert found.outcome == "silent"
    assert found.ranks.dead == ()
    assert found.cause is None or found.cause.id != "rank-died"
    assert "rank 0 on n1 was told to end after that" in "; ".join(found.notes)
    # One that ended so before the other stood still may be what that one waits for.
    early = node("n1", told, ended="interrupted", at=100.0)
    assert judge(early, stands).ranks.dead == (0,)
    killed = node("n1", on("n1", gone(0, -9, left_at=130.0)), ended="interrupted", at=131.0)
    assert judge(killed, stands).ranks.dead == (0,)


def test_clocks_of_nodes_begin_anywhere() -> None:
    """The second machine has run for 10,000 s longer: its times are no later for that."""
    said = replace(SLEEPS, last_line="epoch 0", last_line_at=10_100.0, entered=10_050.0)
    said = replace(said, looks=tuple(replace(one, at=10_119.0) for one in said.looks))
    found = judge_recorded_nodes(
        [node("n1", WAITS, outcome="silent"), node("n2", said, outcome="silent", clock=10_000.0)]
    )
    assert found is not None
    assert found.verdict.where[0].last_line_age == pytest.approx(20.0)
    assert found.verdict.seconds.total == pytest.approx(100.0)
    (second,) = [facts for facts in found.ranks if facts.rank == 1]
    assert second.looks[0].at == pytest.approx(119.0)
    assert second.entered == pytest.approx(50.0)


def test_a_rank_that_two_nodes_have_is_left_out_and_said() -> None:
    found = judge(
        node("n1", WAITS, outcome="silent"),
        node("n2", SLEEPS, on("n2", rank(0, SLEEP, SLEEP)), outcome="silent"),
    )
    assert any("rank 0 runs on n1 and on n2" in note for note in found.notes), found.notes
    assert found.ranks.culprit == (1,)


def test_ranks_of_nodes_that_left_nothing_are_named_and_not_blamed() -> None:
    nodes = [
        node("n1", WAITS, outcome="silent", world_size=4),
        node("n2", on("n2", rank(1, ALL_REDUCE, ALL_REDUCE)), outcome="silent", world_size=4),
    ]
    found = judge(*nodes)
    assert found.ranks.culprit == ()
    assert found.seen_ranks == (0, 1)
    assert any("ranks 2-3" in note for note in found.notes), found.notes


def test_a_rank_that_moves_makes_the_job_slow() -> None:
    works = replace(SLEEPS, moved="read 40 MiB")
    found = judge(node("n1", WAITS, outcome="silent"), node("n2", works, ended="limit"))
    assert found.outcome == "slow"
    assert found.ranks.stuck == ()


def test_where_all_ended_well_all_are_seen() -> None:
    done = [on(f"n{n + 1}", gone(n, 0, finished=True)) for n in range(2)]
    found = judge(*(node(f"n{n + 1}", one, ended="done") for n, one in enumerate(done)))
    assert found.outcome == "ok"
    assert found.seen_ranks == (0, 1)


def test_slow_steps_and_notes_of_all_nodes_are_kept() -> None:
    step = SlowStep(4, "tokenizer", None, (1,), 40.0, 30.0, "read 3 MiB")
    found = judge(
        node("n1", WAITS, outcome="silent", notes=("the first",)),
        node("n2", SLEEPS, outcome="silent", notes=("the second",), slow_steps=(step,)),
    )
    assert {"the first", "the second"} <= set(found.notes)
    assert found.slow_steps == (step,)


# ---- connections between nodes -------------------------------------------------------------------


def connected(local: str, peer: str, state: str = "ESTABLISHED") -> Descriptor:
    made = Socket(7, "tcp", local=local, peer=peer, state=state)
    return Descriptor(3, "socket", "socket:[7]", socket=made)


def test_a_connection_to_a_rank_of_another_node_is_an_edge() -> None:
    """Without this the rank that waits is blamed: "a server that does not answer"."""
    reading = look(
        "recv train.py:5",
        "<module> train.py:9",
        call="recvfrom",
        descriptors=(connected("10.0.0.2:41234", "10.0.0.1:9100"),),
    )
    reads = on("n2", rank(1, reading, reading))
    other = connected("10.0.0.1:9100", "10.0.0.2:41234").socket
    assert other is not None
    sleeping = replace(SLEEP, sockets=(other,))
    found = judge(
        node("n1", on("n1", rank(0, sleeping, sleeping)), outcome="silent"),
        node("n2", reads, outcome="silent"),
    )
    assert found.ranks.culprit == (0,)
    assert found.ranks.waiting == (1,)
    assert [(edge.source, edge.target) for edge in found.chain] == [
        ("rank 1", "10.0.0.1:9100"),
        ("10.0.0.1:9100", "rank 0"),
        ("rank 0", found.chain[2].target),
    ]


@pytest.mark.parametrize(
    ("local", "peer"),
    [
        ("127.0.0.1:41234", "127.0.0.1:9100"),
        ("[::1]:41234", "[::1]:9100"),
    ],
)
def test_a_loopback_address_is_that_of_each_node(local: str, peer: str) -> None:
    here = on(
        "n1", rank(0, look("f t.py:1", call="recvfrom", descriptors=(connected(local, peer),)))
    )
    there = on("n2", rank(1, look("f t.py:1", sockets=(connected(peer, local).socket,))))
    first, second = connect_nodes([here, there])
    assert first.looks == here.looks
    assert second.looks == there.looks


A_PORT = "10.0.0.2:9"


def test_an_address_mapped_from_ipv4_is_the_same_address() -> None:
    """A server on [::] shows its connections so."""
    here = on(
        "n1", rank(0, look("f t.py:1", sockets=(connected("10.0.0.1:5", "10.0.0.2:9").socket,)))
    )
    mapped = connected("[::ffff:10.0.0.2]:9", "[::ffff:10.0.0.1]:5").socket
    there = on("n2", rank(1, look("f t.py:1", sockets=(mapped,))))
    first, second = connect_nodes([here, there])
    assert first.looks[0].sockets[0].remote == ProcessId("n2", 100)
    assert second.looks[0].sockets[0].remote == ProcessId("n1", 100)


def test_a_connection_that_nobody_has_accepted_ends_at_who_listens_there() -> None:
    here = on("n1", rank(0, look("f t.py:1", sockets=(connected("10.0.0.1:5", A_PORT).socket,))))
    listens = Socket(9, "tcp", local="0.0.0.0:9", state="LISTEN")
    others = connected("10.0.0.2:7", "10.0.0.9:80").socket
    there = on("n2", rank(1, look("f t.py:1", sockets=(listens, others))))
    assert connect_nodes([here, there])[0].looks[0].sockets[0].remote == ProcessId("n2", 100)
    # A process that it has started has accepted it.
    worker = look("g t.py:1", pid=300, sockets=(connected(A_PORT, "10.0.0.1:5").socket,))
    there = replace(there, children=((worker,),))
    assert connect_nodes([here, there])[0].looks[0].sockets[0].remote == ProcessId("n2", 300)


MAKES = look("init_process_group SP/torch/distributed/distributed_c10d.py:1899", "main t.py:9")


@pytest.mark.parametrize("port", ["29500", "29501"])
def test_one_rank_on_two_hosts_is_there_twice_where_both_name_one_master(port: str) -> None:
    """As where a cluster tells no machine its number. Two jobs have two masters."""
    places = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    first = on("n1", rank(0, MAKES, MAKES), environment=places)
    second = on("n2", rank(0, MAKES, MAKES), environment=places | {"MASTER_PORT": port})
    found = judge(node("n1", first, outcome="silent"), node("n2", second, outcome="silent"))
    cause = found.cause.id if found.cause is not None else ""
    assert (cause == "duplicate-rank") is (port == "29500")
    if found.cause is not None and cause == "duplicate-rank":
        assert "100 on n1 and 100 on n2" in found.cause.matched[0]


def waits_for(peer: str) -> RankFacts:
    """Rank 0 on n1, which reads from a peer that nobody who was looked at has."""
    reading = look(
        *("recv train.py:5", "<module> train.py:9"),
        call="recvfrom",
        descriptors=(connected("10.0.0.1:9100", peer),),
    )
    return on("n1", rank(0, reading, reading))


ENDED = on("n2", gone(1, 0), left_at=110.0)


def test_a_rank_that_ended_before_anybody_looked_had_the_end_that_nobody_has() -> None:
    """What it started keeps the connection open: without this rank 0 is blamed for a server that
    does not answer.
    """
    here = node("n1", waits_for("10.0.0.2:39300"), outcome="silent")
    there = replace(node("n2", ENDED, ended="done"), address="10.0.0.2")
    found = judge(here, there)
    assert found.ranks.culprit == (1,)
    assert found.cause is not None
    assert found.cause.id == "rank-left"
    assert ("10.0.0.2:39300", "rank 1") in [(edge.source, edge.target) for edge in found.chain]


def test_of_one_that_ended_and_one_that_was_seen_without_it_the_first_had_it() -> None:
    others = look("f t.py:1", sockets=(connected("10.0.0.2:5", "10.0.0.9:80").socket,))
    lives = replace(on("n2", rank(2, others, others)), pid=101)
    first, second, third = connect_nodes([waits_for("10.0.0.2:39300"), ENDED, lives])
    (kernel,) = first.looks[0].kernel
    assert kernel.syscall is not None
    (named,) = kernel.syscall.descriptors
    assert named.socket is not None
    assert named.socket.remote == ProcessId("n2", 100)
    assert (second, third) == (ENDED, lives)


@pytest.mark.parametrize("peer", ["10.0.0.3:39300", "10.0.0.1:39300"])
def test_an_end_on_another_machine_was_not_that_rank_s(peer: str) -> None:
    ranks = [waits_for(peer), ENDED]
    assert connect_nodes(ranks, {"10.0.0.2": "n2"}) == ranks


def test_an_end_that_a_rank_may_have_which_was_not_looked_at_is_left_open() -> None:
    unseen = replace(on("n2", rank(2)), pid=101)
    both = replace(ENDED, rank=3, pid=102)
    for more in (unseen, both):
        ranks = [waits_for("10.0.0.2:39300"), ENDED, more]
        assert connect_nodes(ranks, {"10.0.0.2": "n2"}) == ranks


def test_both_ends_on_one_node_are_left_to_its_own_evidence() -> None:
    mine = connected("10.0.0.1:5", "10.0.0.1:9").socket
    other = connected("10.0.0.1:9", "10.0.0.1:5").socket
    ranks = [
        on("n1", rank(0, look("f t.py:1", sockets=(mine,)))),
        on("n1", rank(1, look("f t.py:1", sockets=(other,)))),
    ]
    assert connect_nodes(ranks) == ranks


# ---- while it runs -------------------------------------------------------------------------------


def test_a_rank_at_work_on_another_node_keeps_the_others_from_being_judged() -> None:
    works = replace(SLEEPS, moved="reads t.py")
    waiting = node("n1", WAITS, outcome="silent")
    joint = JointNodes([waiting, node("n2", works)])
    assert "rank 1 on n2 is at work (reads t.py)" in find_who_goes_on(joint)
    assert find_who_goes_on(JointNodes([waiting, node("n2", SLEEPS)])) == "", "it hangs"


def test_a_rank_that_hangs_is_judged_whatever_another_node_does() -> None:
    works = on("n1", rank(0, SLEEP, SLEEP), moved="reads t.py")
    assert find_who_goes_on(JointNodes([node("n1", works), node("n2", SLEEPS)])) == ""


def test_who_waits_for_a_process_of_a_lost_node_is_not_to_blame() -> None:
    peer = Socket(7, "tcp", "10.0.0.1:9100", "10.0.0.2:5", "ESTABLISHED")
    call = Descriptor(4, "socket", "socket:[7]", socket=peer)
    waits = look("recv t.py:1", call="recvfrom", descriptors=(call,), sockets=(peer,))
    alone = node("n1", on("n1", rank(0, waits, waits)), outcome="silent")
    assert judge_nodes(JointNodes([alone]), "still").verdict.ranks.culprit == (0,)
    lost = LostNode("n2", (1,), 9.0, "rank 1 at its script", "10.0.0.2")
    found = judge_nodes(JointNodes([alone]), "still", [lost]).verdict
    assert found.ranks.culprit == ()
    assert found.ranks.waiting == (0,)
    assert found.cause is not None
    assert found.cause.id == "node-lost"
    assert found.notes == ("n2 (rank 1) is not seen from here, for 9.0 s",)  # not: left nothing


# ---- the file ------------------------------------------------------------------------------------


def test_a_record_is_read_back_as_it_was_written() -> None:
    facts = replace(WAITS, environment={"RANK": "0"}, last_line="here")
    told: JobFacts = job("still", 2, notes=("a sentence",))
    made = make_node_record("n1", told, [facts], NodeClock(5.0, WALL))
    read = from_json(NodeRecord, to_json(made))
    assert read == made
    assert read.job.table == told.table
    assert read.ranks[0].last_line == "here"
    assert read.ranks[0].looks == ()  # they are in evidence.json


def test_a_node_without_evidence_still_says_who_its_ranks_are() -> None:
    whole = node("n1", WAITS, outcome="silent")
    found = judge(whole, replace(node("n2", SLEEPS, outcome="silent"), ranks=()))
    assert found.seen_ranks == (0, 1)


def test_one_node_alone_is_what_it_said() -> None:
    assert judge_recorded_nodes([node("n1", WAITS, outcome="silent")]) is None


def test_a_node_that_was_lost_and_left_nothing_is_lost_where_files_are_read_too() -> None:
    nodes = [
        node("n1", WAITS, outcome="silent", world_size=3),
        node("n2", on("n2", rank(1, ALL_REDUCE, ALL_REDUCE)), outcome="silent", world_size=3),
    ]
    seen = (NodeSeen("n1", True, (0,)), NodeSeen("n2", True, (1,)), NodeSeen("n3", False, (2,)))
    told = [replace(one, verdict=replace(one.verdict, nodes=seen)) for one in nodes]
    found = judge(*told)
    assert found.ranks.culprit == ()
    assert found.cause is not None
    assert found.cause.id == "node-lost"
    assert "n3 (rank 2) is not seen" in found.notes
    there = node("n3", on("n3", rank(2, SLEEP, SLEEP)), outcome="silent", world_size=3)
    found = judge(*told, there)
    assert found.ranks.culprit == (2,)


@pytest.mark.parametrize(
    ("listens", "is_known"), [("10.0.0.1:46000", True), ("[::]:46000", True), ("[::]:46001", False)]
)
def test_a_connection_that_nobody_answers_is_for_whoever_listens_there(
    listens: str, is_known: bool
) -> None:
    asks = connected("10.0.0.2:39300", "10.0.0.1:46000", "SYN_SENT").socket
    server = Socket(8, "tcp", local=listens, state="LISTEN")
    seen = connected("10.0.0.1:50000", "10.0.0.9:80").socket
    here = on("n1", rank(0, look("f t.py:1", sockets=(server, seen))))
    there = on("n2", rank(1, look("f t.py:1", sockets=(asks,))))
    _, second = connect_nodes([here, there])
    assert second.looks[0].sockets[0].remote == (ProcessId("n1", 100) if is_known else None)


# ---- hosts that no node has told of --------------------------------------------------------------


def serves(*accepted: Socket, size: int = 3) -> RecordedNode:
    """Rank 0 on n1, at whose port 29400 are who has connected, and rank 1 of another node."""
    listens = Socket(1, "tcp", local="0.0.0.0:29400", state="LISTEN")
    of_rank_1 = Socket(2, "tcp", local="10.0.0.1:29400", peer="10.0.0.2:41000", state="ESTABLISHED")
    waits = replace(ALL_REDUCE, sockets=(listens, of_rank_1, *accepted))
    return node("n1", on("n1", rank(0, waits, waits)), outcome="silent", world_size=size)


def asks(**more: Any) -> RecordedNode:
    mine = Socket(7, "tcp", local="10.0.0.2:41000", peer="10.0.0.1:29400", state="ESTABLISHED")
    waits = replace(ALL_REDUCE, sockets=(mine,))
    return node("n2", on("n2", rank(1, waits, waits)), outcome="silent", **more)


def accepted(peer: str, **more: Any) -> Socket:
    return replace(
        Socket(9, "tcp6", local="[::ffff:10.0.0.1]:29400", peer=peer, state="ESTABLISHED"), **more
    )


def test_a_host_from_which_a_rank_has_come_and_of_which_nobody_tells_is_known_by_its_address() -> (
    None
):
    nodes = [serves(accepted("[::ffff:10.0.0.3]:40000", resent=6)), asks()]
    assert JointNodes(nodes).unheard == ((2,), [UnheardHost("10.0.0.3", 6)])


@pytest.mark.parametrize(
    "other",
    [
        accepted("10.0.0.2:41002"),  # a node that is seen
        accepted("127.0.0.1:41002"),  # the same machine
        accepted("10.0.0.3:41002", state="TIME_WAIT"),
        accepted("10.0.0.3:443", local="10.0.0.1:50000"),  # a server that the rank has asked
    ],
)
def test_no_other_connection_is_that_of_a_rank_which_nobody_has_told_of(other: Socket) -> None:
    assert JointNodes([serves(other), asks()]).unheard[1] == []


def test_where_all_ranks_are_seen_whoever_else_has_connected_is_no_rank() -> None:
    assert JointNodes([serves(accepted("10.0.0.3:40000"), size=2), asks()]).unheard == ((), [])


def test_a_lost_host_without_a_monitor_is_why_the_others_wait() -> None:
    lost = LostNode("n3", (2,), None, "", "10.0.0.3")
    joint = JointNodes([serves(accepted("10.0.0.3:40000")), asks()])
    found = judge_nodes(joint, "still", [lost]).verdict
    assert found.cause is not None
    assert found.cause.id == "node-lost"
    assert not found.ranks.culprit


def test_who_waits_at_a_host_of_the_job_of_which_nobody_tells_is_not_to_blame() -> None:
    """Its monitor has failed: rank 2 is there, and serves rank 1 at a socket of its own."""
    asked = connected("10.0.0.2:51000", "10.0.0.3:5555")
    reads = look(
        "recv_batch train.py:30", "<module> train.py:9", call="recvfrom", descriptors=(asked,)
    )
    mine = Socket(7, "tcp", local="10.0.0.2:41000", peer="10.0.0.1:29400", state="ESTABLISHED")
    assert asked.socket is not None
    reads = replace(reads, sockets=(mine, asked.socket))
    second = node("n2", on("n2", rank(1, reads, reads)), outcome="silent", world_size=3)
    for came, culprit in ((accepted("10.0.0.3:40000"), ()), (accepted("10.0.0.2:41002"), (1,))):
        found = judge_nodes(JointNodes([serves(came), second]), "still").verdict
        assert found.ranks.culprit == culprit
        assert 1 in (culprit or found.ranks.waiting)


def test_a_verdict_that_was_given_on_more_nodes_than_have_left_anything_stands() -> None:
    """The rank of n2 was started again, in the same folder: what it left first is gone."""
    whole = judge(node("n1", WAITS), node("n2", SLEEPS, outcome="silent"), node("n3", AWAY))
    seen = tuple(NodeSeen(f"n{n + 1}", True, (n,)) for n in range(3))
    told = replace(whole, nodes=seen)
    left = [replace(node(f"n{n + 1}", one), verdict=told) for n, one in ((0, WAITS), (2, AWAY))]
    found = judge_recorded_nodes(left)
    assert found is not None
    assert found.verdict.ranks.culprit == (1,)
    both = [*left, node("n2", SLEEPS, outcome="silent")]
    again = judge_recorded_nodes(both)
    assert again is not None
    assert again.verdict is not told


def test_of_nodes_that_judged_together_one_that_failed_after_that_takes_its_rank_not_with_it() -> (
    None
):
    whole = judge(node("n1", WAITS), node("n2", SLEEPS, outcome="silent"))
    told = replace(whole, nodes=tuple(NodeSeen(f"n{n + 1}", True, (n,)) for n in range(2)))
    here = replace(node("n1", WAITS, outcome="silent"), verdict=told)
    ended = on("n2", gone(1, 1, "ConnectionError: the other side is gone"))
    found = judge(here, node("n2", ended, ended="crash", at=140.0))
    assert found.ranks.culprit == (1,)
    assert found.outcome == whole.outcome


def test_a_node_that_was_paused_is_to_blame_and_may_be_let_go_on() -> None:
    stopped = on("n2", rank(1, look("f t.py:1", state="T"), look("f t.py:1", state="T")))
    for paused, outcome in (("", "hang"), ("the launcher is stopped", "silent")):
        found = judge(node("n1", WAITS), node("n2", stopped, outcome="silent", paused=paused))
        assert found.outcome == outcome
        assert found.ranks.culprit == (1,)


def test_a_launcher_that_waits_on_once_all_ranks_have_ended_well_is_what_is_told() -> None:
    waits = node("n1", WAITS, outcome="silent", at=150.0)
    waits = replace(waits, verdict=replace(waits.verdict, component="launcher", world_size=0))
    over = node("n2", on("n2", gone(1, 0)), ended="done", outcome="ok")
    assert judge(waits, over) is waits.verdict


def differing(verdict: Verdict) -> dict[str, dict[str, tuple[str, ...]]]:
    """What differs between nodes: hosts by value, by name."""
    return {
        one.name: {each.value: each.nodes for each in one.values} for one in verdict.differences
    }


def nodes_with(
    *machines: dict[str, str],
    versions: tuple[dict[str, str], ...] = (),
    environments: tuple[dict[str, str], ...] = (),
) -> list[RecordedNode]:
    """Nodes of one rank each, that have this installed, imported, and as variables."""
    found = []
    for number in range(max(map(len, (machines, versions, environments)))):
        host, at = f"n{number + 1}", (SLEEP if number == 1 else ALL_REDUCE)
        own = environments[number] if environments else {}
        facts = on(host, rank(number, at, at), environment=own)
        installed = machines[number] if machines else {}
        told: dict[str, Any] = {"versions": versions[number]} if versions else {}
        found.append(node(host, facts, machine=MachineFacts(installed=installed), **told))
    return found


def test_a_node_with_other_versions_is_named_in_the_verdict_on_all() -> None:
    usual = {"torch": "2.13.0", "NCCL": "2.28.9", "driver": "570.158.01", "Python": "3.12.3"}
    other = {"torch": "2.12.1", "NCCL": "2.27.5", "driver": "550.54", "Python": "3.11.9"}
    ours = ({"hangbisect": "0.1.0"},) * 2 + ({"hangbisect": "0.0.9", "python": "3.11.9"},)
    found = differing(judge(*nodes_with(usual, usual, other, versions=ours)))
    assert found["hangbisect"] == {"0.1.0": ("n1", "n2"), "0.0.9": ("n3",)}
    for name, value in usual.items():
        assert found[name] == {value: ("n1", "n2"), other[name]: ("n3",)}
    assert found.keys() == {"hangbisect", *usual}


def test_what_a_node_could_not_read_or_has_not_imported_yet_differs_from_nothing() -> None:
    usual = {"torch": "2.13.0", "NCCL": "2.28.9"}
    versions = ({"hangbisect": "1", "lightning": "2.6"}, {"hangbisect": "1"})
    assert judge(*nodes_with(usual, {}, versions=versions)).differences == ()
    found = differing(judge(*nodes_with(usual, {"torch": "2.13.0"}, versions=versions)))
    assert found == {"NCCL": {"2.28.9": ("n1",), "": ("n2",)}}
    imported = ({"torch": "2.13.0"}, {"torch": "2.14.0"})  # it is what counts, where it is known
    found = differing(judge(*nodes_with(usual, usual, versions=imported)))
    assert found == {"torch": {"2.13.0": ("n1",), "2.14.0": ("n2",)}}


def test_variables_that_decide_how_ranks_talk_are_compared_and_no_others() -> None:
    ones = {"NCCL_IB_DISABLE": "1", "RANK": "0", "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO"}
    others = {"RANK": "1", "CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "INFO"}
    own = {"WANDB_RUN_ID": "x", "NCCL_DEBUG_FILE": "/tmp/a", "TORCHELASTIC_ERROR_FILE": "/tmp/b"}
    found = differing(judge(*nodes_with(environments=(ones, others | own))))
    assert found == {"NCCL_IB_DISABLE": {"1": ("n1",), "": ("n2",)}}
    assert judge(*nodes_with(environments=(ones, {}))).differences == ()  # it is not known there


def test_what_many_nodes_have_is_told_of_some() -> None:
    many = [{"NCCL": "2.27.5" if number == 7 else "2.28.9"} for number in range(100)]
    (one,) = judge(*nodes_with(*many)).differences
    usual, other = one.values
    assert (usual.count, len(usual.nodes)) == (99, 8)
    assert (other.count, other.nodes) == (1, ("n8",))


def waits_for_more(host: str, number: int, **variables: str) -> RecordedNode:
    """A node of a job of three, whose rank waits for those of others."""
    return node(host, on(host, rank(number, GROUP, GROUP), environment=variables), world_size=3)


@pytest.mark.parametrize(
    ("variables", "absent"),
    [
        ({"SLURM_JOB_NODELIST": "n[1-3]"}, ("n3",)),
        ({"SLURM_NODELIST": "n[1-2],m07"}, ("m07",)),
        # A step may have fewer nodes than its allocation.
        ({"SLURM_JOB_NODELIST": "n[1-64]", "SLURM_STEP_NODELIST": "n[1-2,4]"}, ("n4",)),
        ({"SLURM_JOB_NODELIST": "n[1-2]"}, ()),
        ({"SLURM_JOB_NODELIST": "node[01-03]"}, ()),  # Slurm calls them otherwise than they do
        ({"SLURM_JOB_NODELIST": "n[1-"}, ()),
        ({}, ()),
    ],
)
def test_hosts_of_slurms_that_have_not_come_are_named(
    variables: dict[str, str], absent: tuple[str, ...]
) -> None:
    nodes = [waits_for_more("n1.cluster.example", 0, **variables), waits_for_more("n2", 1)]
    found = judge_nodes(JointNodes(nodes), "still")
    assert found.facts.absent_hosts == absent
    assert found.verdict.cause is not None
    assert found.verdict.cause.id == "other-node-missing"
    for name in absent:
        assert any(name in matched for matched in found.verdict.cause.matched)
        assert any(name in note for note in found.verdict.notes)


def test_where_all_ranks_are_there_no_host_is_missing() -> None:
    """An allocation may have more nodes than the job."""
    own = {"SLURM_JOB_NODELIST": "n[1-9]"}
    nodes = [node("n1", replace(WAITS, environment=own)), node("n2", SLEEPS)]
    assert judge_nodes(JointNodes(nodes), "still").facts.absent_hosts == ()
