"""Who waits for whom where only frames tell: the rank that a send or a receive is for, and the
group of a collective. Without these, all that stand in torch.distributed look alike, and all of
them are blamed for what one of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hangbisect.base.identity import ProcessId
from hangbisect.base.process_facts import Frame, Look, Socket
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.collect.looks import classify_ranks
from hangbisect.diagnosis.collectives.peer_calls import read_group
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.rank_connections import find_usual_receivers
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job, judge_job_with_graph
from hangbisect.report.verdict_rows import word_verdict
from hypothesis import given
from hypothesis import strategies as st

from .made_up import ALL_REDUCE, job, look, rank, silent_peer

C10D = "SP/torch/distributed/distributed_c10d.py"
SERVER = look(
    "fetch data.py:7", "<module> train.py:30", call="recvfrom", descriptors=(silent_peer(),)
)
SLEEP = look("pause tools.py:5", "<module> train.py:30", call="clock_nanosleep")


def within(one: Look, *told: tuple[tuple[str, str], ...]) -> Look:
    """The same look with these locals in its innermost frames."""
    (thread,) = one.threads
    frames: list[Frame] = list(thread.frames)
    for number, values in enumerate(told):
        frames[number] = replace(frames[number], locals=values)
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


def call(name: str, line: int, group: str = "", **told: object) -> Look:
    """A rank in a function of torch.distributed that train.py calls at `line`. `group`: "given" or
    "None", what the call got for it.
    """
    one = look(
        f"{name} {C10D}:2799",
        "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
        f"train train.py:{line}",
        "<module> train.py:90",
    )
    values = tuple((n, str(value)) for n, value in told.items())
    return within(one, values, (("group", group),) if group else ())


def recv(src: int | None, line: int = 20, group: str = "None", **told: object) -> Look:
    return call("recv", line, group, **{"src": src, "tag": 0, **told})


def send(dst: int, line: int = 21, **told: object) -> Look:
    return call("send", line, "None", **{"dst": dst, "tag": 0, **told})


def still(number: int, one: Look) -> RankFacts:
    return rank(number, one, replace(one, at=103.0), replace(one, at=106.0))


def judged(*looks: Look) -> Verdict:
    return judge_job(job("late", len(looks)), [still(n, one) for n, one in enumerate(looks)])


def test_a_receive_waits_for_its_source() -> None:
    found = Snapshot([still(0, SERVER), still(1, SLEEP), still(2, recv(0))]).waits[2]
    assert found is not None
    assert (found.kind, found.rank) == ("rank", 0)


def test_the_last_of_a_chain_is_to_blame() -> None:
    """Three stages of a pipeline wait for the one before; the first for a server of data."""
    verdict = judged(SERVER, recv(0), recv(1), recv(2))
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1, 2, 3)
    way = [edge.target for edge in verdict.chain]
    assert "recv from rank 0" in way


def test_one_that_does_something_of_its_own_is_not_waited_for_unless_it_is_named() -> None:
    """Rank 3 sleeps as well, and nobody waits for it: without `src` it would be blamed."""
    verdict = judged(SERVER, recv(0), recv(1), SLEEP)
    assert 0 in verdict.ranks.culprit
    assert verdict.ranks.waiting == (1, 2)


@pytest.mark.parametrize("world", [2, 3, 8])
def test_receives_in_a_ring_are_a_ring(world: int) -> None:
    ranks = [still(n, recv((n + 1) % world)) for n in range(world)]
    verdict, graph = judge_job_with_graph(job("late", world), ranks)
    assert verdict.ranks.culprit == tuple(range(world))
    assert verdict.cause is not None
    assert (verdict.cause.id, verdict.cause.level) == ("deadlock", "fits")
    assert len(graph.deadlocks) == 1
    assert find_proof_of_hang(verdict, Snapshot(ranks), graph)


def test_those_outside_of_the_ring_only_wait() -> None:
    verdict = judged(recv(1), recv(2), recv(0), recv(2), recv(3))
    assert verdict.ranks.culprit == (0, 1, 2)
    assert verdict.ranks.waiting == (3, 4)


def test_sends_in_a_ring_are_one_too() -> None:
    assert judged(send(1), send(2), send(0)).cause is not None
    verdict, graph = judge_job_with_graph(job("late", 2), [still(0, send(1)), still(1, send(0))])
    assert graph.deadlocks
    assert verdict.ranks.culprit == (0, 1)


def test_a_send_and_its_receive_are_no_ring() -> None:
    """Both go on together: what is slow there is the network."""
    ranks = [still(0, send(1)), still(1, recv(0))]
    verdict, graph = judge_job_with_graph(job("late", 2), ranks)
    assert not graph.deadlocks
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_with_other_tags_they_never_meet() -> None:
    ranks = [still(0, send(1, tag=3)), still(1, recv(0, tag=4))]
    _, graph = judge_job_with_graph(job("late", 2), ranks)
    assert graph.deadlocks


def test_a_number_within_a_group_is_no_rank_of_the_job() -> None:
    """Rank 1 of a group of ranks 2 and 3 is rank 3: no frame tells that."""
    verdict = judged(SLEEP, SERVER, recv(None, group="given", group_src=1), recv(0))
    assert {0, 1} >= {*verdict.ranks.culprit}
    found = Snapshot([still(0, SLEEP), still(1, recv(None, group="given", group_src=1))])
    assert "rank 1" not in str(found.compare_ranks()[1].place)


def test_in_the_default_group_it_is() -> None:
    found = Snapshot([still(0, SLEEP), still(1, SERVER), still(2, recv(None, group_src=1))])
    wait = found.waits[2]
    assert wait is not None
    assert wait.rank == 1


def test_a_receive_from_any_rank_names_none() -> None:
    verdict = judged(SLEEP, recv(None), recv(None))
    assert verdict.ranks.culprit == (0,)


def test_what_the_job_gave_counts_and_not_what_torch_makes_of_it() -> None:
    """recv_object_list hands the group's number on to recv."""
    inner = recv(None, group="given", group_src=0)
    (thread,) = inner.threads
    outer = replace(thread.frames[0], name="recv_object_list", locals=(("src", "1"),))
    frames = (*thread.frames[:2], outer, *thread.frames[1:])
    one = replace(inner, threads=(replace(thread, frames=frames),))
    wait = Snapshot([still(0, SLEEP), still(1, SLEEP), still(2, one)]).waits[2]
    assert wait is not None
    assert wait.rank == 1


def test_who_waits_by_name_for_one_that_moves_is_not_hung() -> None:
    moves = replace(still(0, SLEEP), moved="computes (90 % of a core)")
    ranks = [moves, still(1, recv(0)), still(2, recv(1))]
    found = classify_ranks(ranks, Snapshot(ranks).waits)
    assert not found.hung
    assert not judge_job(job("late", 3), ranks).ranks.culprit


def test_a_peer_that_is_on_another_node_is_no_reason_to_blame_anybody_here() -> None:
    ranks = [still(2, recv(0)), still(3, recv(2))]
    verdict = judge_job(job("late", 4, local_ranks=(2, 3)), ranks)
    assert not verdict.ranks.culprit


def test_a_stage_that_went_on_to_a_collective_is_named_with_the_one_that_waits_for_it() -> None:
    """It left a message out, or the other asks for one too many: frames do not tell which."""
    verdict = judged(call("barrier", 40), recv(0), recv(1), call("barrier", 40))
    assert verdict.ranks.culprit == (0, 1)
    assert verdict.ranks.waiting == (2, 3)
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_where_most_wait_for_one_by_name_it_alone_is_named() -> None:
    verdict = judged(call("barrier", 40), recv(0), recv(0), recv(0))
    assert verdict.ranks.culprit == (0,)
    assert verdict.guessed


# ---- collectives of which only frames tell -------------------------------------------------------


def test_the_few_in_another_collective_are_named() -> None:
    for place in range(4):
        looks = [call("all_reduce", 20)] * 4
        looks[place] = call("barrier", 40)
        verdict = judged(*looks)
        assert verdict.ranks.culprit == (place,)
        assert verdict.guessed


def test_of_two_in_different_collectives_both_are_named() -> None:
    assert judged(call("all_reduce", 20), call("barrier", 40)).ranks.culprit == (0, 1)


def test_the_root_of_a_broadcast_may_stand_in_a_line_of_its_own() -> None:
    looks = [call("broadcast", 20), *[call("broadcast", 25)] * 3]
    assert len(judged(*looks).ranks.culprit) == 4


def test_the_one_that_most_of_a_group_lack_is_named() -> None:
    """Three are in a collective over a group, one in the barrier of all: it is what they lack."""
    few = [call("all_reduce", 20, group="given")] * 3
    assert judged(*few, call("barrier", 40, group="None")).ranks.culprit == (3,)


def test_who_waits_in_a_group_of_some_is_not_blamed_by_those_outside_of_it() -> None:
    """Two wait in their group for a third one, and all others in the barrier of all for them: one
    of the many is missing, and frames do not tell which.
    """
    few = [call("all_reduce", 20, group="given")] * 2
    ranks = [
        still(n, one) for n, one in enumerate([*few, *[call("barrier", 40, group="None")] * 6])
    ]
    verdict = judge_job(job("late", 8), ranks)
    assert verdict.ranks.culprit == ()
    said = " ".join(verdict.notes)
    assert "ranks 0-1" in said
    assert "one of ranks 2-7" in said
    assert "none that can be named" in str(word_verdict(verdict, job("late", 8), ranks))


def test_a_rank_of_its_own_is_still_what_the_members_of_a_group_wait_for() -> None:
    few = [call("all_reduce", 20, group="given")] * 2
    verdict = judged(*few, SERVER, *[call("barrier", 40, group="None")] * 5)
    assert verdict.ranks.culprit == (2,)


SHAPES = st.sampled_from(
    [
        *(recv(n) for n in range(4)),
        *(send(n) for n in range(4)),
        call("barrier", 40, group="None"),
        call("all_reduce", 20, group="given"),
        SERVER,
        SLEEP,
    ]
)


@given(st.lists(st.tuples(SHAPES, st.booleans()), min_size=1, max_size=6))
def test_whatever_ranks_wait_for_one_that_moved_is_never_named(
    ranks: list[tuple[Look, bool]],
) -> None:
    facts = [
        replace(still(n, one), moved="a file grew" if moved else "")
        for n, (one, moved) in enumerate(ranks)
    ]
    verdict = judge_job(job("late", len(ranks)), facts)
    assert not {r.rank for r in facts if r.moved} & {*verdict.ranks.culprit}


def logged(facts: RankFacts, kind: str, peer: int) -> RankFacts:
    """A rank with the log of `hangbisect run`, whose last operation is this one."""
    last = Collective("0", kind, 1, "train.py:14 exchange", at=90.0, done=False, peer=peer)
    log = CollectiveLog("ring", (last,), {"0": (0, 1, 2, 3)})
    return replace(facts, collectives=(log,))


def in_barrier(number: int) -> RankFacts:
    waits = Collective("0", "barrier", 1, "train.py:24 main", at=90.0, done=False)
    log = CollectiveLog("ring", (waits,), {"0": (0, 1, 2, 3)})
    return replace(still(number, call("barrier", 24, "None")), collectives=(log,))


@pytest.mark.parametrize("kind", ["recv", "send"])
def test_a_ring_is_one_where_a_log_tells_of_it_as_well(kind: str) -> None:
    """The same answer below `hangbisect run`, which has logs, as by `attach`, which has none."""
    place = recv if kind == "recv" else send
    ranks = [
        in_barrier(0),
        logged(still(1, place(2)), kind, 2),
        logged(still(2, place(1)), kind, 1),
        in_barrier(3),
    ]
    bare = [replace(facts, collectives=()) for facts in ranks]
    for known in (ranks, bare):
        verdict, graph = judge_job_with_graph(job("late", 4), known)
        assert verdict.ranks.culprit == (1, 2)
        assert verdict.ranks.waiting == (0, 3)
        assert verdict.cause is not None
        assert verdict.cause.id == "deadlock"
        assert find_proof_of_hang(verdict, Snapshot(known), graph)


def test_a_send_and_its_receive_in_the_logs_are_no_ring() -> None:
    ranks = [logged(still(0, send(1)), "send", 1), logged(still(1, recv(0)), "recv", 0)]
    assert not judge_job_with_graph(job("late", 2), ranks)[1].deadlocks


# ---- handles of several sends and receives -------------------------------------------------------


def at_handles(rank_number: int, step: int, *peers: int) -> RankFacts:
    """A rank that has handed out a send to and a receive from each peer, in each of `step` + 1
    rounds, and waits for their handles in a line of the job's own.
    """
    one = look("exchange halo.py:23", "main train.py:38", "<module> train.py:49")
    (thread,) = one.threads
    inner, main, module = thread.frames
    frames = (
        replace(inner, calls=("request.wait",)),
        replace(main, counters=(("step", step),)),
        module,
    )
    gloo = replace(one.kernel[0], comm="pt_gloo_runloop")
    one = replace(one, threads=(replace(thread, frames=frames),), kernel=(*one.kernel, gloo))
    handed = [
        (kind, peer) for _ in range(step + 1) for peer in peers for kind in ("isend", "irecv")
    ]
    operations = tuple(
        Collective("0", kind, n, "halo.py:22 exchange", at=100.0 + n, done=None, peer=peer)
        for n, (kind, peer) in enumerate(handed, 1)
    )
    return replace(still(rank_number, one), collectives=(CollectiveLog("ring", operations),))


def test_a_neighbour_that_is_a_round_ahead_waits_for_the_one_that_is_not() -> None:
    """Rank 0 has all that rank 1 sent it and asks it for more: the edge that does not come is
    between others. That it is in another round accuses nobody.
    """
    ranks = [at_handles(0, 1, 1), *(at_handles(n, 0, n - 1, n + 1) for n in (1, 2))]
    verdict = judge_job(job("late", 4, pipeline=""), [*ranks, at_handles(3, 0, 2)])
    assert verdict.ranks.culprit == (1, 2, 3)
    assert verdict.ranks.waiting == (0,)
    assert verdict.cause is None or verdict.cause.id != "other-round"


def test_who_waits_for_handles_waits_for_the_peers_that_they_name() -> None:
    """Ranks 0 and 1 wait for one another, ranks 2 and 3 as well: nobody of the one pair waits for
    the other.
    """
    ranks = [at_handles(0, 0, 1), at_handles(1, 0, 0), at_handles(2, 0, 3), at_handles(3, 0, 2)]
    found = Snapshot(ranks).compare_ranks()
    assert [found[n].other_awaited for n in range(4)] == [{1}, {0}, {3}, {2}]


def sums_at_the_end(number: int, *, sent_to: int | None) -> RankFacts:
    """A rank that has sent its part on, if it was to, and waits in the sum of all."""
    sum_of_all = Collective("0", "all_reduce", 1, "halo.py:43 train", at=120.0, done=False)
    sends = Collective("0", "isend", 1, "halo.py:31 run", at=110.0, done=None, peer=sent_to)
    made = ([sends] if sent_to is not None else []) + [sum_of_all]
    log = CollectiveLog("ring", tuple(made), {"0": (0, 1, 2, 3)})
    return replace(still(number, call("all_reduce", 43, "None")), collectives=(log,))


def test_a_send_by_a_handle_that_nobody_takes_is_a_message_left_out() -> None:
    ranks = [
        *(sums_at_the_end(n, sent_to=n + 1) for n in (0, 1)),
        sums_at_the_end(2, sent_to=None),
        at_handles(3, 0, 0),
    ]
    (log,) = ranks[3].collectives
    only_sends = tuple(one for one in log.operations if one.kind == "isend")
    groups = {"0": (0, 1, 2, 3)}
    ranks[3] = replace(ranks[3], collectives=(replace(log, operations=only_sends, groups=groups),))
    verdict = judge_job(job("late", 4, pipeline=""), ranks)
    assert verdict.ranks.culprit == (0, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "message-left-out"
    assert "rank 3 waits in isend" in verdict.cause.why.lower()


def test_who_handed_a_message_out_and_stands_elsewhere_waits_for_nobody_to_take_it() -> None:
    """Its receiver may take it after the sum."""
    ranks = [sums_at_the_end(n, sent_to=n + 1) for n in range(3)]
    handed_out = at_handles(3, 0, 0).collectives
    asks = replace(still(3, SERVER), collectives=handed_out)
    verdict = judge_job(job("late", 4, pipeline=""), [*ranks, asks])
    assert verdict.ranks.culprit == (3,)
    assert verdict.cause is None or verdict.cause.id != "message-left-out"


def stage(number: int, *made: tuple[str, int]) -> RankFacts:
    """A stage of a pipeline that handed these out, and waits for the handle of the last."""
    one = at_handles(number, 0)
    operations = tuple(
        Collective("0", kind, n, "pipe.py:9 step", at=100.0 + n, done=None, peer=peer)
        for n, (kind, peer) in enumerate(made, 1)
    )
    return replace(one, collectives=(CollectiveLog("ring", operations, {"0": (0, 1, 2)}),))


def forward(number: int, count: int) -> list[tuple[str, int]]:
    """So many microbatches that stage `number` of three takes and hands on."""
    takes = [("irecv", number - 1)] if number else []
    gives = [("isend", number + 1)] if number < 2 else []
    return [*takes, *gives] * count


def test_of_two_stages_that_wait_for_one_another_the_one_that_stopped_taking_is_named() -> None:
    """Stage 0 hands it a fifth microbatch, and stage 2 wants a fifth one of it."""
    stages = [
        stage(0, *forward(0, 5)),
        stage(1, *forward(1, 4), ("irecv", 2)),
        stage(2, *forward(2, 5)),
    ]
    verdict = judge_job(job("late", 3, pipeline=""), stages)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((1,), (0, 2))
    assert verdict.cause is not None
    assert verdict.cause.id == "message-left-out"
    assert "has not taken message 5 of rank 0" in verdict.cause.why


def test_where_all_that_was_handed_out_was_taken_none_of_the_two_is_told_from_the_other() -> None:
    stages = [
        stage(0, *forward(0, 4), ("irecv", 1)),
        stage(1, *forward(1, 4), ("irecv", 2)),
        stage(2, *forward(2, 5)),
    ]
    verdict = judge_job(job("late", 3, pipeline=""), stages)
    assert verdict.ranks.culprit == (1, 2)


def ring_turn(number: int, turns: int, takes: int) -> RankFacts:
    """One of four in a ring that sends its block on in each turn, and takes one in some; it waits
    for its last send where all turns have both, else in the sum of all.
    """
    operations: list[Collective] = []
    for turn in range(turns):
        n, left, right = len(operations) + 1, (number - 1) % 4, (number + 1) % 4
        sends = Collective("0", "isend", n, "ring.py:24 shift", at=100.0 + n, peer=right)
        takes_one = Collective("0", "recv", n + 1, "ring.py:28 shift", at=101.0 + n, peer=left)
        operations += [sends, replace(takes_one, done=True)][: 2 if turn < takes else 1]
    groups = {"0": (0, 1, 2, 3)}
    if number == 2:
        one = at_handles(number, 0)
        return replace(one, collectives=(CollectiveLog("ring", tuple(operations), groups),))
    operations += sums_at_the_end(number, sent_to=None).collectives[0].operations
    log = CollectiveLog("ring", tuple(operations), groups)
    return replace(still(number, call("all_reduce", 43, "None")), collectives=(log,))


def test_who_takes_a_message_less_than_all_others_do_is_named_and_not_who_sent_it() -> None:
    """Rank 2 has received since it handed its block out, and waits for rank 3 to take it."""
    ranks = [ring_turn(n, 3, 2 if n == 3 else 3) for n in range(4)]
    verdict = judge_job(job("late", 4, pipeline=""), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((3,), (0, 1, 2))
    assert verdict.cause is not None
    assert verdict.cause.id == "message-left-out"
    assert "ranks 0-2 have received 3 each at ring.py:28" in verdict.cause.why


def test_who_sends_one_more_than_all_others_do_is_named() -> None:
    ranks = [ring_turn(n, 3 if n == 2 else 2, 2) for n in range(4)]
    verdict = judge_job(job("late", 4, pipeline=""), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.cause is not None
    assert "have sent 2 each" in verdict.cause.why


@pytest.mark.parametrize(
    ("work", "says"),
    [("Send", "one of ranks 0-1,3 is to take"), ("Recv", "one of ranks 0-1,3 is to send")],
)
def test_who_waits_for_a_handle_of_which_frames_do_not_tell_the_peer_is_not_blamed(
    work: str, says: str
) -> None:
    """All others are in the sum: one of them has not done its part, and none of them looks so."""
    one = at_handles(2, 0)
    name = f"c10d::ProcessGroupGloo::{work}Work::wait"
    (thread,) = one.looks[0].threads
    frames = (Frame(name, "SP/torch/lib/libtorch_cpu.so", 0, native=True), *thread.frames)
    native = (replace(thread, frames=frames),)
    waits = replace(one, collectives=(), looks=tuple(replace(k, threads=native) for k in one.looks))
    ranks = [still(n, call("all_reduce", 43, "None")) for n in range(4)]
    ranks[2] = waits
    verdict = judge_job(job("late", 4, pipeline=""), ranks)
    assert verdict.ranks.culprit == ()
    assert says in " ".join(verdict.notes)


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_stage_that_stopped_in_the_middle_is_named_without_the_one_before_it(
    passes_on: bool,
) -> None:
    """Stage 2 of four has left its step and is in the sum of all: stage 1 hands it a message that
    it does not take, and stage 3 waits for one that it has not passed on. Where nobody waits for
    that, stage 1 may as well have sent one too many.
    """

    def sums(number: int, *made: tuple[str, int]) -> RankFacts:
        one = sums_at_the_end(number, sent_to=None)
        before = stage(number, *made).collectives[0].operations
        log = replace(one.collectives[0], operations=before + one.collectives[0].operations)
        return replace(one, collectives=(log,))

    stages = [
        stage(0, *forward(0, 4), ("irecv", 1)),
        stage(1, *forward(1, 4)),
        sums(2, *[("irecv", 1), ("isend", 3)] * 2, ("irecv", 1)),
        stage(3, *[("irecv", 2)] * 3) if passes_on else sums(3, *[("irecv", 2)] * 2),
    ]
    everybody = {"0": (0, 1, 2, 3)}
    stages = [
        replace(one, collectives=(replace(one.collectives[0], groups=everybody),)) for one in stages
    ]
    verdict = judge_job(job("late", 4, pipeline=""), stages)
    assert verdict.ranks.culprit == ((2,) if passes_on else (1, 2))


def at_message(kind: str, *handed_out: tuple[str, int]) -> Look:
    """A rank at the handle of a send or a receive, as its native frames show."""
    one = look("exchange halo.py:26", "main halo.py:36")
    (thread,) = one.threads
    own = replace(thread.frames[0], handed_out=handed_out)
    native = Frame(f"c10d::ProcessGroupGloo::{kind}Work::wait", "libtorch_cpu.so", 0, native=True)
    return replace(one, threads=(replace(thread, frames=(native, own, thread.frames[1])),))


def in_the_sum(count: int) -> list[RankFacts]:
    return [still(n, call("all_reduce", 40, "None")) for n in range(count)]


def test_who_waits_for_the_handle_of_one_message_waits_for_the_rank_that_it_is_of() -> None:
    """What is sent to another one is no part of it."""
    ranks = [*in_the_sum(4), still(4, at_message("Recv", ("irecv", 3), ("isend", 0)))]
    verdict = judge_job(job("late", 5, pipeline=""), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((3, 4), (0, 1, 2))


@pytest.mark.parametrize(
    ("kind", "handed_out", "said"),
    [
        ("Recv", (("irecv", 1), ("irecv", 3)), "for a message that one of ranks 1,3 is to send"),
        ("Recv", (), "for a message that one of ranks 0-3 is to send"),
        ("Send", (("irecv", 3),), "to hand a message over, which one of ranks 0-3 is to take"),
    ],
)
def test_who_waits_for_a_message_of_one_of_several_is_not_named_for_it(
    kind: str, handed_out: tuple[tuple[str, int], ...], said: str
) -> None:
    ranks = [*in_the_sum(4), still(4, at_message(kind, *handed_out))]
    verdict = judge_job(job("late", 5, pipeline=""), ranks)
    assert verdict.ranks.culprit == ()
    assert any(said in one for one in verdict.notes)


# ---- for whom a message is, by what goes over connections ----------------------------------------


def in_ring(number: int, one: Look, sent: Sequence[int]) -> RankFacts:
    """One of several ranks, each on a host of its own, that has sent so many bytes to each."""
    made = rank(number, one, one, host=f"n{number}")
    sockets = tuple(
        Socket(
            *(10 + other, "tcp", f"10.0.0.{number}:{other}", f"10.0.0.{other}:9", "ESTABLISHED"),
            sent=count,
            remote=ProcessId(f"n{other}", 100 + other),
        )
        for other, count in enumerate(sent)
        if other != number
    )
    return replace(made, looks=tuple(replace(one, sockets=sockets) for one in made.looks))


def hands_over() -> Look:
    one = look("shift ring.py:29", "<module> ring.py:49")
    inside = "c10d::ProcessGroupGloo::SendWork::wait"
    native = replace(one.threads[0].frames[0], name=inside, native=True)
    frames = (native, *one.threads[0].frames)
    return replace(one, threads=(replace(one.threads[0], frames=frames),))


IN_RING = (
    (0, ALL_REDUCE, (0, 1872, 0, 144)),
    (1, ALL_REDUCE, (152, 0, 1872, 0)),
    (2, hands_over(), (9, 153, 0, 1264)),
    (3, ALL_REDUCE, (1833, 9, 153, 0)),
)


def test_who_hands_over_what_it_sends_to_one_rank_alone_waits_for_that_one() -> None:
    ranks = [in_ring(*one) for one in IN_RING]
    assert find_usual_receivers(ranks) == {0: 1, 1: 2, 2: 3, 3: 0}
    found = judge_job(job("still", 4), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((3,), (0, 1, 2))
    assert found.cause is not None
    assert found.cause.id == "message-left-out"
    assert "1264 bytes to rank 3" in found.cause.why


def test_of_ranks_that_all_wait_for_messages_none_is_named_because_its_peer_is_known() -> None:
    """The first of a line of slabs sends to one rank alone, the others to two each."""
    sends = hands_over()
    main = sends.threads[0]
    hears = (replace(main.frames[0], name=_HEARS), *main.frames[1:])
    receives = replace(sends, threads=(replace(main, frames=hears),))
    looks = [
        (0, sends, (0, 1872, 9, 9)),
        (1, receives, (900, 0, 900, 9)),
        (2, receives, (9, 900, 0, 900)),
        (3, receives, (9, 9, 900, 0)),
    ]
    ranks = [in_ring(*one) for one in looks]
    assert find_usual_receivers(ranks)[0] == 1
    assert judge_job(job("still", 4), ranks).ranks.culprit in ((), (0, 1, 2, 3))


_HEARS = "c10d::ProcessGroupGloo::RecvWork::wait"


def test_native_frames_that_were_not_read_in_time_change_nothing() -> None:
    ranks = [in_ring(*one) for one in IN_RING]
    ranks[2] = in_ring(2, look("shift ring.py:29", "<module> ring.py:49"), IN_RING[2][2])
    found = judge_job(job("still", 4), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((3,), (0, 1, 2))
    ranks[2] = in_ring(2, SERVER, IN_RING[2][2])
    assert judge_job(job("still", 4), ranks).ranks.culprit == (2,)


def test_who_has_sent_as_much_as_the_others_may_have_sent_one_too_many() -> None:
    ranks = [in_ring(*one) for one in IN_RING]
    ranks[2] = in_ring(2, hands_over(), (9, 153, 0, 1912))
    found = judge_job(job("still", 4), ranks)
    assert found.ranks.culprit != (3,)
    assert found.cause is None or found.cause.id != "message-left-out"


def test_where_several_get_as_much_or_connections_are_not_known_it_may_be_for_any() -> None:
    ranks = [in_ring(*one) for one in IN_RING]
    even = [*ranks[:2], in_ring(2, hands_over(), (500, 700, 0, 1264)), ranks[3]]
    assert 2 not in find_usual_receivers(even)
    unknown = [*ranks[:2], rank(2, hands_over(), host="n2"), ranks[3]]
    assert 2 not in find_usual_receivers(unknown)
    assert find_usual_receivers(ranks[:2]) == {}


def test_of_collectives_in_one_another_the_outermost_tells_the_group() -> None:
    """gather_object() hands the default group on by its name."""
    wrapper = "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83"
    gathers = look(
        *(f"all_gather {C10D}:4287", wrapper, f"gather_object {C10D}:3631", wrapper),
        *(
            "_DistWrapper.gather_object SP/torch/distributed/checkpoint/utils.py:135",
            "f train.py:1",
        ),
    )
    given_group, none_given = (("group", "given"),), (("group", "None"),)
    assert read_group(within(gathers, (), given_group, (), none_given).threads[0].frames) == (
        "default"
    )
    assert read_group(within(gathers, (), none_given, (), given_group).threads[0].frames) == "given"


# ---- one call over two groups --------------------------------------------------------------------


def below(condition: str, one: Look) -> Look:
    """The same look, whose line of the job's own stands below a condition."""
    main = one.threads[0]
    frames = tuple(
        replace(frame, condition=condition) if frame.name == "train" else frame
        for frame in main.frames
    )
    return replace(one, threads=(replace(main, frames=frames),))


def test_one_call_over_all_ranks_and_over_some_is_two_where_only_some_come_by_a_line() -> None:
    """Even and odd ranks sum over their own pair and over all, two of them the other way round."""
    over_pair, over_all = call("all_reduce", 19, "given"), call("all_reduce", 16, "None")
    odd = below("if step > 2 and rank >= 2", over_all)
    verdict = judged(over_pair, over_pair, odd, odd)
    assert verdict.ranks.culprit == (0, 1, 2, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "Rank 0 in all_reduce (train (train.py:19)) over a group of some" in verdict.cause.why
    assert "rank 2 in all_reduce (train (train.py:16)) over all ranks" in verdict.cause.why
    plain = judged(over_pair, over_pair, over_all, over_all).cause
    assert plain is None or plain.id != "collective-mismatch"


def test_of_a_group_whose_members_alone_come_by_their_line_the_others_may_wait() -> None:
    """Two of four ranks sum over their own group first, which may take its time (NCCL)."""
    over_pair = below("if rank < 2", call("all_reduce", 16, "given"))
    over_all = call("all_reduce", 19, "None")
    verdict = judged(over_pair, over_pair, over_all, over_all)
    assert verdict.cause is None or verdict.cause.id != "collective-mismatch"
