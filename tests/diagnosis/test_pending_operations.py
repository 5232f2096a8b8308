"""Who waits for whom, by what ranks handed out and what is not done: whatever call they stand in,
a rank with an operation that another member of its group has not entered waits for that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Socket, Thread
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.collect.looks import classify_ranks
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch
from hangbisect.diagnosis.collectives.pending_operations import (
    describe_subgroups,
    find_pending_operations,
)
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.report.verdict_rows import word_verdict
from hypothesis import given
from hypothesis import strategies as st

from .made_up import ALL_REDUCE, gone, job, look, rank, silent_peer, stack

_TRAIN = ("train train.py:20", "<module> train.py:30")
ITEM = look("cudaStreamSynchronize <libcudart.so>:0", *_TRAIN, call="", state="R")
ITEM = replace(
    ITEM,
    threads=tuple(
        replace(t, frames=(replace(t.frames[0], native=True), *t.frames[1:])) for t in ITEM.threads
    ),
)
SPIN = look(*_TRAIN, call="", state="R")
FUTEX = look(*_TRAIN)
NAP = look(*_TRAIN, call="clock_nanosleep")
RESULT = look(
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    *_TRAIN,
)
ANONYMOUS = {"item": ITEM, "spin": SPIN, "futex": FUTEX, "nap": NAP, "result": RESULT}
RECV = look("fetch data.py:7", *_TRAIN, call="recvfrom", descriptors=(silent_peer(),))
OWN = look("pause tools.py:5", *_TRAIN, call="clock_nanosleep")

Source = Literal["ring", "torch", "flight recorder"]
Entered = Sequence[tuple[str, str, bool | None]]  # group, kind, done


def log(
    entered: Entered, source: Source = "ring", groups: Mapping[str, tuple[int, ...]] | None = None
) -> CollectiveLog:
    """What a rank entered, in order; numbers go by group."""
    numbers: dict[str, int] = {}
    operations = []
    for at, (group, kind, done) in enumerate(entered):
        numbers[group] = numbers.get(group, 0) + 1
        site = f"train.py:{20 + at % 3} train" if source == "ring" else ""
        operations.append(Collective(group, kind, numbers[group], site, at=100.0 + at, done=done))
    return CollectiveLog(source, tuple(operations), groups or {})


def rounds(count: int, last: bool | None = True, kind: str = "all_reduce") -> Entered:
    """`count` operations of the default group, the last of which is done or not."""
    return [("0", kind, True)] * (count - 1) + [("0", kind, last)]


def standing(number: int, one: Look, *logs: CollectiveLog, **more: object) -> RankFacts:
    seen = rank(number, one, replace(one, at=103.0), replace(one, at=106.0))
    return replace(seen, collectives=logs, busy=one.state == "R", **more)  # type: ignore[arg-type]


def culprits(ranks: Sequence[RankFacts]) -> tuple[object, ...]:
    return judge_job(job("late", len(ranks)), ranks).ranks.culprit


def world(
    size: int, who: int, many: tuple[Look, CollectiveLog], one: tuple[Look, CollectiveLog]
) -> list[RankFacts]:
    return [standing(n, *(one if n == who else many)) for n in range(size)]


# ---- one rank has not come ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("wait", ANONYMOUS)
@pytest.mark.parametrize("source", ["ring", "torch", "flight recorder"])
def test_who_has_not_entered_is_named_though_all_stand_alike(
    source: Source, wait: str, size: int
) -> None:
    """A of eight NCCL ranks: all main threads are in `.item()`, one never entered operation 41."""
    at, who = ANONYMOUS[wait], size // 2
    ahead, behind = log(rounds(41, False), source), log(rounds(40), source)
    assert culprits(world(size, who, (at, ahead), (at, behind))) == (who,)


@pytest.mark.parametrize("size", [2, 8])
def test_a_call_that_returned_once_enqueued_may_not_be_done(size: int) -> None:
    """NCCL's calls return at once: of none it is known whether it is done."""
    ahead = log([("0", "all_reduce", None)] * 41)
    behind = log([("0", "all_reduce", None)] * 40)
    assert culprits(world(size, 1, (ITEM, ahead), (ITEM, behind))) == (1,)


@pytest.mark.parametrize("end", ["pipe", "socket"])
def test_who_waits_for_a_thread_of_its_own_waits_for_what_that_one_is_in(end: str) -> None:
    """A stream's thread is in the operation, and the main thread at a pipe that this one writes."""

    def at_its_own(number: int) -> Look:
        pid = 100 + number
        pair = Socket(9, "unix", state="ESTABLISHED", peer_pids=(pid,))
        ends = {
            "pipe": Descriptor(5, "pipe", f"pipe:[{number}]", other_ends=(pid,)),
            "socket": Descriptor(5, "socket", "socket:[9]", socket=pair),
        }
        return look("synchronize dev.py:21", *_TRAIN, call="read", descriptors=(ends[end],))

    ahead, behind = log(rounds(41, False)), log(rounds(40))
    ranks = [standing(n, at_its_own(n), behind if n == 2 else ahead) for n in range(4)]
    assert culprits(ranks) == (2,)
    assert judge_job(job("late", 4), ranks).ranks.waiting == (0, 1, 3)


def test_an_operation_that_ended_by_an_exception_as_a_peer_had_left_waits_for_that_peer() -> None:
    """Gloo's raises once a member closes its connections, here in a helper thread: the main thread
    waits for what that one was to give.
    """
    ahead = log(rounds(41))
    raised = replace(ahead.operations[-1], raised=True)
    failed = replace(ahead, operations=(*ahead.operations[:-1], raised))
    left = replace(gone(2, 0), collectives=(log(rounds(40)),))
    for recorded in ((), (log(rounds(41), "torch"),)):
        ranks = [standing(n, FUTEX, failed, *recorded) for n in (0, 1, 3)]
        ranks.insert(2, left)
        pending = find_pending_operations(ranks)
        assert {rank: one.missing for rank, one in pending.items()} == {0: (2,), 1: (2,), 3: (2,)}
        verdict = judge_job(job("late", 4), ranks)
        assert verdict.ranks.culprit == (2,)
        assert not verdict.guessed
    stays = [one if one.rank != 2 else standing(2, OWN, log(rounds(40))) for one in ranks]
    assert find_pending_operations(stays) == {}


def test_an_operation_that_is_done_makes_nobody_wait() -> None:
    ranks = world(3, 2, (FUTEX, log(rounds(41))), (FUTEX, log(rounds(40))))
    assert judge_job(job("late", 3), ranks).ranks.waiting == ()


def test_what_was_begun_before_one_that_is_done_is_done() -> None:
    ahead = log([("0", "all_reduce", None)] * 40 + [("0", "barrier", True)])
    behind = log([("0", "all_reduce", None)] * 39)
    ranks = world(3, 2, (FUTEX, ahead), (FUTEX, behind))
    assert judge_job(job("late", 3), ranks).ranks.waiting == ()


@pytest.mark.parametrize("size", [2, 8])
def test_another_size_is_put_down_to_its_rank(size: int) -> None:
    """B: one rank's tensor has another shape; by two nobody can tell which is the wrong one."""

    def sized(shape: str) -> CollectiveLog:
        one = log(rounds(41, False), "torch")
        return replace(one, operations=tuple(replace(o, shape=shape) for o in one.operations))

    ranks = world(size, 1, (ITEM, sized("float32[4]")), (ITEM, sized("float32[8]")))
    assert culprits(ranks) == ((1,) if size > 2 else (0, 1))


def test_an_own_wait_with_a_name_is_not_a_wait_for_peers() -> None:
    """It handed an operation out and then asked a server: the server is what it waits for."""
    ranks = [
        standing(0, RECV, log(rounds(41, None))),
        standing(1, ALL_REDUCE, log(rounds(42, False))),
        standing(2, ALL_REDUCE, log(rounds(42, False))),
    ]
    assert culprits(ranks) == (0,)


def test_who_moves_is_waited_for_and_not_named() -> None:
    ranks = world(4, 3, (SPIN, log(rounds(41, None))), (OWN, log(rounds(40))))
    ranks[3] = replace(ranks[3], moved="its child gzip reads 2 MB/s")
    seen = Snapshot(ranks)
    settled = classify_ranks(seen.ranks, seen.waits)
    assert list(settled.moving) == [3]
    assert sorted(settled.waiting) == [0, 1, 2]
    assert not settled.hung


def test_who_spins_in_an_operation_is_not_at_work() -> None:
    """The others spin on the handle: not busy, for the one that they wait for stands still."""
    ranks = world(4, 3, (SPIN, log(rounds(41, None))), (OWN, log(rounds(40))))
    seen = Snapshot(ranks)
    settled = classify_ranks(seen.ranks, seen.waits)
    assert settled.busy == frozenset()
    assert settled.hung >= {3}


# ---- several groups ----------------------------------------------------------------------------

PAIRS = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}


def test_who_is_missing_in_a_part_of_the_ranks() -> None:
    """Rank 1 is missing in its pair; the others wait for both of the pair in the whole group."""
    done: Entered = [("0", "all_reduce", True)] * 5
    ranks = [
        standing(0, FUTEX, log([*done, ("1", "all_reduce", None)], groups=PAIRS)),
        standing(1, FUTEX, log(done, groups=PAIRS)),
        standing(2, ITEM, log([*done, ("0", "all_reduce", None)], groups=PAIRS)),
        standing(3, ITEM, log([*done, ("0", "all_reduce", None)], groups=PAIRS)),
    ]
    assert culprits(ranks) == (1,)


def test_a_group_of_others_says_nothing_of_a_rank_outside_it() -> None:
    """Ranks 0 and 1 wait in their pair for rank 1: not for 2 and 3, that sleep elsewhere."""
    done: Entered = [("0", "all_reduce", True)] * 5
    ranks = [
        standing(0, FUTEX, log([*done, ("1", "all_reduce", False)], groups=PAIRS)),
        standing(1, RECV, log(done, groups=PAIRS)),
        standing(2, ITEM, log([*done, ("0", "barrier", False)], groups=PAIRS)),
        standing(3, ITEM, log([*done, ("0", "barrier", False)], groups=PAIRS)),
    ]
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2, 3)


# ---- helper threads ----------------------------------------------------------------------------


def with_thread(one: Look, *frames: str) -> Look:
    helper = Thread(4242, "saver", False, False, stack(*frames))
    return replace(one, threads=(*one.threads, helper))


IN_A_THREAD = with_thread(
    RESULT,
    "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
    "save checkpoint.py:8",
    "_worker STD/concurrent/futures/thread.py:83",
)
THREAD_ASKS = with_thread(
    RESULT,
    "SocketIO.readinto STD/socket.py:706",
    "save checkpoint.py:9",
    "_worker STD/concurrent/futures/thread.py:83",
)


@pytest.mark.parametrize("size", [2, 4])
def test_a_collective_in_a_helper_thread_by_the_log(size: int) -> None:
    ranks = world(
        size, 1, (IN_A_THREAD, log(rounds(7, False))), (THREAD_ASKS, log(rounds(6, True)))
    )
    assert culprits(ranks) == (1,)


@pytest.mark.parametrize("size", [2, 4])
def test_a_collective_in_a_helper_thread_by_its_stack(size: int) -> None:
    ranks = [standing(n, THREAD_ASKS if n == 1 else IN_A_THREAD) for n in range(size)]
    assert culprits(ranks) == (1,)


# ---- one to one --------------------------------------------------------------------------------


def to_peer(kind: str, peer: int, done: bool | None, number: int = 1) -> Collective:
    return Collective("0", kind, number, "train.py:20 train", at=150.0, done=done, peer=peer)


def add(one: CollectiveLog, *operations: Collective) -> CollectiveLog:
    return replace(one, operations=(*one.operations, *operations))


@pytest.mark.parametrize("wait", ANONYMOUS)
def test_who_receives_waits_for_who_is_to_send(wait: str) -> None:
    """A pipeline: 1 waits for 0, 2 for 1, 3 for 2; and 0 stands in a place of its own."""
    at = ANONYMOUS[wait]
    ranks = [standing(0, OWN, log(rounds(3)))]
    ranks += [standing(n, at, add(log(rounds(3)), to_peer("irecv", n - 1, None))) for n in (1, 2)]
    ranks += [standing(3, at, add(log(rounds(3)), to_peer("recv", 2, False)))]
    assert culprits(ranks) == (0,)
    assert judge_job(job("late", 4), ranks).ranks.waiting == (1, 2, 3)


def test_two_that_each_receive_from_the_other() -> None:
    ranks = [
        standing(0, FUTEX, add(log(rounds(3)), to_peer("recv", 1, False))),
        standing(1, FUTEX, add(log(rounds(3)), to_peer("recv", 0, False))),
        standing(2, ALL_REDUCE, log(rounds(4, False))),
    ]
    assert culprits(ranks) == (0, 1)


def test_of_a_log_that_keeps_only_the_last_ones_nothing_is_counted() -> None:
    """A healthy pipeline: 1 was sent to by 0 and 2, and its log has lost what it took."""
    sent = [to_peer("isend", 1, None, number) for number in (600, 601)]
    ranks = [
        standing(0, FUTEX, add(log(rounds(3)), *sent)),
        standing(1, OWN, add(log(rounds(3)), to_peer("irecv", 0, None, 1400))),
        standing(2, FUTEX, add(log(rounds(3)), *sent)),
    ]
    assert find_pending_operations(ranks) == {}


@pytest.mark.parametrize("source", ["torch", "flight recorder"])
@pytest.mark.parametrize("groups", [{}, {"0": (0, 1)}], ids=["members unknown", "members known"])
def test_a_rank_whose_record_cannot_be_read_may_be_the_one_that_is_missing(
    source: Source, groups: dict[str, tuple[int, ...]]
) -> None:
    """It is stopped, and tells nothing: that all known members have entered says nothing of it."""
    waits = standing(0, ALL_REDUCE, log(rounds(3, False), source, groups))
    silent = standing(1, OWN)
    assert culprits([waits, silent]) == (1,)


# ---- a log that parts --------------------------------------------------------------------------


def test_a_mismatch_counts_where_ranks_wait_in_ways_of_their_own() -> None:
    """Rank 0 made a barrier more, and waits in the last call; the others have no more to call."""
    sites = [("all_reduce", "train.py:20 train")] * 3 + [("broadcast", "train.py:25 end")]
    extra = [sites[0], ("barrier", "train.py:22 train"), *sites[1:]]

    def made(calls: list[tuple[str, str]], last: bool | None) -> CollectiveLog:
        return CollectiveLog(
            "ring",
            tuple(
                Collective(
                    "0", kind, n + 1, site, at=100.0 + n, done=last if n + 1 == len(calls) else None
                )
                for n, (kind, site) in enumerate(calls)
            ),
        )

    ranks = [standing(n, SPIN, made(sites, None)) for n in range(4)]
    ranks[2] = standing(2, FUTEX, made(extra, False))
    assert culprits(ranks) == (2,)


# ---- whatever the job --------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*ANONYMOUS.values(), RECV, OWN, ALL_REDUCE]),
            st.integers(1, 5),
            st.sampled_from([True, False, None]),
            st.booleans(),
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from(["late", "still", "busy"]),
)
def test_a_rank_that_moved_is_never_named(
    ranks: list[tuple[Look, int, bool | None, bool]], ended: str
) -> None:
    made = [
        standing(n, at, log(rounds(count, done)), moved="reads" if moved else "")
        for n, (at, count, done, moved) in enumerate(ranks)
    ]
    named = judge_job(job(ended, len(made)), made).ranks.culprit  # type: ignore[arg-type]
    assert not {r.rank for r in made if r.moved} & {*named}


@given(st.integers(2, 8), st.data())
def test_of_those_that_entered_different_numbers_the_last_are_named(
    size: int, data: st.DataObject
) -> None:
    """All stand alike, in what has no name: never all where the log tells a part of them."""
    counts = data.draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    least = min(counts)
    at = ANONYMOUS[data.draw(st.sampled_from(sorted(ANONYMOUS)))]
    made = [standing(n, at, log(rounds(count, None))) for n, count in enumerate(counts)]
    assert culprits(made) == tuple(n for n, count in enumerate(counts) if count == least)


# ---- who has gone on --------------------------------------------------------------------------


@pytest.mark.parametrize("who", [0, 1, 2])
def test_who_is_in_another_operation_of_the_same_number_has_not_entered_it(who: int) -> None:
    """It left out one of sixteen and went on to a barrier: as many operations as the others."""
    others = log(rounds(16, False), "torch")
    left_out = log([*rounds(15), ("0", "barrier", False)], "torch")
    ranks = world(3, who, (FUTEX, others), (FUTEX, left_out))
    found = find_pending_operations(ranks)
    rest = tuple(n for n in range(3) if n != who)
    assert all(found[n].missing == (who,) for n in rest)
    assert found[who].missing == rest
    assert culprits(ranks) == (who,)


def pipeline(messages: int, skips: int) -> list[RankFacts]:
    """Four stages that pass messages on; stage 1 leaves out to send number `skips`, and goes on to
    the barrier at the end.
    """
    sites = {"recv": "pipe.py:7 stage", "send": "pipe.py:9 stage", "barrier": "pipe.py:10 main"}
    programs: list[list[tuple[str, int | None]]] = []
    for stage in range(4):
        made: list[tuple[str, int | None]] = []
        for number in range(messages):
            made += [("recv", stage - 1)] if stage > 0 else []
            made += [("send", stage + 1)] if stage < 3 and (stage, number) != (1, skips) else []
        programs.append([*made, ("barrier", None)])
    # The last message comes never: those behind stage 1 wait for it.
    programs[2] = programs[2][: 2 * messages - 1]
    programs[3] = programs[3][:messages]
    ranks = []
    for stage, made in enumerate(programs):
        numbers: dict[bool, int] = {}
        operations = []
        for at, (kind, peer) in enumerate(made):
            numbers[peer is None] = numbers.get(peer is None, 0) + 1
            operations.append(
                Collective(
                    *("0", kind, numbers[peer is None], sites[kind]),
                    at=100.0 + at,
                    done=at < len(made) - 1,
                    peer=peer,
                )
            )
        known = CollectiveLog("ring", tuple(operations), {"0": (0, 1, 2, 3)})
        ranks.append(standing(stage, FUTEX, known))
    return ranks


def ring_of_batches(rounds_made: int, who: int) -> list[RankFacts]:
    """Five ranks that hand out a receive and a send at once, round by round, and then meet; in the
    last round one sends nothing, and the next one waits at the handles.
    """
    next_one = (who + 1) % 5
    site, ranks = "ring.py:7 exchange", []
    at_handles = look("exchange ring.py:8", "<module> train.py:30")
    native = replace(at_handles.threads[0].frames[0], name="c10d::Work::wait", native=True)
    shown = replace(at_handles.threads[0], frames=(native, *at_handles.threads[0].frames))
    for number in range(5):
        made: list[Collective] = []
        counts = [0, 0]

        def add(kind: str, peer: int | None, done: bool | None, made=made, counts=counts) -> None:  # type: ignore[no-untyped-def]  # bound for this rank
            counts[peer is None] += 1
            where = site if peer is not None else "ring.py:9 main"
            one = Collective("0", kind, counts[peer is None], where, at=100.0 + len(made))
            made.append(replace(one, done=done, peer=peer))

        for turn in range(rounds_made):
            is_last = turn == rounds_made - 1
            add("irecv", (number - 1) % 5, None)
            if not (is_last and number == who):
                add("isend", (number + 1) % 5, None)
            if not (is_last and number == next_one):
                add("all_reduce", None, not is_last)
        known = CollectiveLog("ring", tuple(made), {"0": (0, 1, 2, 3, 4)})
        one = replace(at_handles, threads=(shown,)) if number == next_one else ALL_REDUCE
        ranks.append(standing(number, one, known))
    return ranks


@pytest.mark.parametrize(("rounds_made", "who"), [(2, 3), (7, 3), (7, 0)])
def test_who_left_a_send_out_of_a_batch_is_named_though_its_neighbour_has_sent(
    rounds_made: int, who: int
) -> None:
    """The last that the neighbour handed out is its own send; it waits for what comes before."""
    ranks = ring_of_batches(rounds_made, who)
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.others) == ("unsent", (who,), ((who + 1) % 5,))
    assert f"message {rounds_made} of rank {who}" in found.sentence
    assert culprits(ranks) == (who,)


def test_the_recorder_of_torch_is_told_by_our_log_who_is_in_a_group() -> None:
    """All main threads wait for an event; who reduces is a thread, and of one it reduces nothing:
    torch's recorder does not say who is in a group of gloo's.
    """
    groups = {"1": (0, 1, 2, 3)}
    ranks = []
    for number in range(4):
        made = 20 if number == 2 else 24
        ours = log([("1", "all_reduce", None)] * made, "ring", groups)
        open_ones = [("1", "all_reduce", False)] * (made - 20)
        torchs = log([*[("1", "all_reduce", True)] * 20, *open_ones], "torch")
        ranks.append(standing(number, RESULT, ours, torchs))
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)


@pytest.mark.parametrize("skips", [0, 1, 2])
def test_a_stage_that_left_out_a_message_and_went_on_is_named(skips: int) -> None:
    ranks = pipeline(3, skips)
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.others) == ("unsent", (1,), (2,))
    assert found.sentence == (
        "rank 2 waits in recv (pipe.py:7 stage) for message 3 of rank 1, which has sent 2 and went"
        " on to barrier (pipe.py:10 main)"
    )
    assert culprits(ranks) == (1,)


def exchange(*programs: Sequence[tuple[str, int]]) -> list[RankFacts]:
    """Ranks that send and receive, each by a program of its own, and wait in the last of it."""
    ranks = []
    for number, made in enumerate(programs):
        operations = tuple(
            Collective(
                *("0", kind, at + 1, f"pipe.py:{7 if kind == 'recv' else 9} stage"),
                at=100.0 + at,
                done=at < len(made) - 1,
                peer=peer,
            )
            for at, (kind, peer) in enumerate(made)
        )
        everybody = {"0": tuple(range(len(programs)))}
        kind, peer = made[-1]
        frames = (f"{kind} SP/torch/distributed/distributed_c10d.py:2799", *_TRAIN)
        one = look(*frames, call="futex")
        told = replace(one.threads[0].frames[0], locals=(("src", str(peer)),))
        thread = replace(one.threads[0], frames=(told, *one.threads[0].frames[1:]))
        known = CollectiveLog("ring", operations, everybody)
        ranks.append(standing(number, replace(one, threads=(thread,)), known))
    return ranks


def test_a_stage_that_left_out_a_message_and_waits_for_its_answer_is_named() -> None:
    """The last stage waits for the message, and the one before for the gradient of it."""
    passes = [("recv", 0), ("send", 2)]
    ranks = exchange(
        [("send", 1)] * 4 + [("recv", 1)],
        [*passes, *passes, ("recv", 0), *passes, ("recv", 2)],
        [("recv", 1)] * 4,
    )
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks, found.others) == ("unsent", (1,), (2,))
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "message-left-out"


def test_of_two_that_each_wait_for_the_other_first_none_left_a_message_out() -> None:
    passes = [("recv", 0), ("send", 2), ("recv", 2)]
    ranks = exchange(
        [("send", 1)] * 3 + [("recv", 1)],
        [*passes, *passes, ("recv", 0), ("recv", 2)],
        [("recv", 1), ("send", 1)] * 2 + [("recv", 1)],
    )
    assert find_mismatch(ranks) is None
    verdict = judge_job(job("late", 3), ranks)
    assert verdict.ranks.culprit == (1, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"


def skips(round_of_first: Sequence[tuple[str, int]]) -> list[RankFacts]:
    """Five stages, of which the last but one takes a skip connection of the first, and the last one
    that of stage 1; the first is in its `round_of_first` after three that were alike.
    """
    return exchange(
        [("send", 1), ("send", 3)] * 3 + [*round_of_first],
        [("recv", 0), ("send", 2), ("send", 4)] * 4,
        [("recv", 1), ("send", 3)] * 3 + [("recv", 1), ("recv", 0), ("send", 3), ("recv", 1)],
        [("recv", 2), ("recv", 0), ("send", 4)] * 3 + [("recv", 2), ("recv", 0)],
        [("recv", 3), ("recv", 1)] * 3 + [("recv", 3)],
    )


def test_in_a_ring_the_two_are_named_of_which_one_has_come_by_the_place_of_their_message() -> None:
    """The first has sent its skip connection to another one, and is in its next round."""
    ranks = skips([("send", 1), ("send", 2), ("send", 1)])
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("unsent", (0, 3))
    verdict = judge_job(job("late", 5), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((0, 3), (1, 2, 4))
    assert verdict.cause is not None
    assert verdict.cause.id == "message-left-out"
    assert find_mismatch(skips([("send", 1)])) is None  # it may come to the place yet


def test_where_no_message_came_before_both_ends_are_named() -> None:
    """Stage 0 makes its messages itself: nothing tells how many there were to be."""
    ranks = pipeline(3, skips=2)[1:3]
    first, second = ranks
    (log_of_first,) = first.collectives
    rest = [one for one in log_of_first.operations if one.kind != "recv"]
    sends = tuple(replace(one, number=n + 1) for n, one in enumerate(rest[:-1]))
    first = replace(first, collectives=(replace(log_of_first, operations=(*sends, rest[-1])),))
    found = find_mismatch([first, second])
    assert found is not None
    assert (found.kind, found.ranks) == ("unsent", (1, 2))


def reports(*peers: int | None) -> list[RankFacts]:
    """Each rank but the first has sent a report at one line, to these peers (None: it did not, and
    went on at once); all but those whose message nobody takes are in the barrier after that.
    """
    ranks = []
    for number, peer in enumerate((None, *peers)):
        is_wrong = peer not in (None, 0)
        sent = Collective(
            "0", "send", 1, "gather.py:9 main", at=100.0, done=not is_wrong, peer=peer
        )
        barrier = Collective("0", "barrier", 1, "gather.py:10 main", at=101.0, done=False)
        made = [*([sent] if peer is not None else []), *([] if is_wrong else [barrier])]
        known = CollectiveLog("ring", tuple(made), {"0": tuple(range(len(peers) + 1))})
        ranks.append(standing(number, FUTEX, known))
    return ranks


def test_who_sends_to_another_one_than_all_others_at_that_line_is_named_alone() -> None:
    found = find_mismatch(reports(0, 1, 0, 0))
    assert found is not None
    assert (found.kind, found.ranks, found.others) == ("unsent", (2,), (1,))
    assert found.sentence == (
        "rank 2 waits in send (gather.py:9 main) to hand message 1 to rank 1, which has taken 0 "
        "and went on to barrier (gather.py:10 main); ranks 1,3-4 do so there to rank 0"
    )


@pytest.mark.parametrize("peers", [(0, 1), (0, 1, None, None), (0, 1, 3, 0)])
def test_of_too_few_others_or_of_several_peers_both_ends_are_named(
    peers: tuple[int | None, ...],
) -> None:
    found = find_mismatch(reports(*peers))
    assert found is not None
    assert set(found.ranks) == {1, 2}


# ---- operations of a group of some ranks ---------------------------------------------------------

GROUPS = {"0": (0, 1, 2, 3), "2": (0, 2), "3": (1, 3)}
LOOP = look("own_loop train.py:44", "<module> train.py:50", call="", state="R")


def in_subgroup(number: int, one: Look, *entered: tuple[str, str, bool | None]) -> RankFacts:
    return standing(number, one, log(entered, groups=GROUPS))


def test_of_a_group_of_some_it_is_said_who_is_in_it_and_who_of_them_is_elsewhere() -> None:
    ranks = [
        in_subgroup(0, ALL_REDUCE, ("0", "barrier", True), ("2", "all_reduce", False)),
        in_subgroup(1, ALL_REDUCE, ("0", "barrier", True), ("3", "all_reduce", True)),
        in_subgroup(2, LOOP, ("0", "barrier", True)),
        in_subgroup(3, ALL_REDUCE, ("0", "barrier", True), ("3", "all_reduce", True)),
    ]
    assert describe_subgroups(ranks) == [
        "group 2 (ranks 0,2): rank 0 is in all_reduce (train.py:21 train); rank 2 has not "
        "entered it: it is at own_loop (train.py:44)"
    ]
    told = judge_job(job("late", 4), ranks)
    answer = word_verdict(told, job("late", 4), ranks)
    rows = [row.text for row in answer.rows if row.label == "group"]
    assert rows == [one.removeprefix("group ") for one in describe_subgroups(ranks)]


def test_one_that_waits_in_another_group_is_told_to_be_there() -> None:
    ranks = [
        in_subgroup(0, ALL_REDUCE, ("2", "all_reduce", False)),
        in_subgroup(1, LOOP, ("0", "barrier", True)),
        in_subgroup(2, ALL_REDUCE, ("0", "barrier", True), ("0", "barrier", False)),
        in_subgroup(3, ALL_REDUCE, ("0", "barrier", True)),
    ]
    (told,) = describe_subgroups(ranks)
    assert told.endswith("it is in barrier (train.py:21 train) of group 0")


def test_of_the_group_of_all_and_of_one_without_members_nothing_is_said() -> None:
    alone = [standing(n, ALL_REDUCE, log(rounds(2 + n, False))) for n in (0, 1)]
    assert describe_subgroups(alone) == []
    assert describe_subgroups([rank(0, ALL_REDUCE)]) == []


# ---- all ranks in collectives --------------------------------------------------------------------

BARRIER = look(
    "barrier SP/torch/distributed/distributed_c10d.py:5356",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    *_TRAIN,
)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_where_all_wait_in_collectives_each_waits_in_its_own(size: int) -> None:
    """None of them is what another one lacks: the one in the barrier is not late (zoo H31)."""
    ranks = [standing(n, ALL_REDUCE, log(rounds(4, False))) for n in range(size)]
    ranks[1] = standing(1, BARRIER, log([*rounds(3), ("0", "barrier", False)]))
    waits = Snapshot(ranks).waits
    assert {one.kind for one in waits.values() if one} == {"collective"}
    found = judge_job(job("late", size), ranks)
    assert 1 in found.ranks.culprit
    assert found.waits_for is not None
    assert found.waits_for.kind == "collective"
    assert found.waits_for.detail.startswith(("barrier", "all_reduce"))


def test_where_one_is_elsewhere_the_others_wait_for_it() -> None:
    ranks = [standing(n, ALL_REDUCE, log(rounds(4, False))) for n in range(3)]
    ranks[1] = standing(1, RECV, log(rounds(3)))
    wait = Snapshot(ranks).waits[0]
    assert wait is not None
    assert (wait.kind, wait.rank) == ("rank", 1)


def test_what_gloo_does_by_another_operation_is_called_as_the_job_called_it() -> None:
    """Gloo's reduce_scatter is an all_reduce in torch's recorder."""
    ranks = [
        standing(
            n,
            ITEM,
            log([("0", "reduce_scatter_tensor" if n != 1 else "all_gather_into_tensor", False)]),
            log([("0", "all_reduce" if n != 1 else "all_gather", False)], "torch"),
        )
        for n in range(3)
    ]
    verdict = judge_job(job(world=3), ranks)
    words = f"{verdict.waits_for} {verdict.chain}"
    assert "all_reduce" not in words
    assert "reduce_scatter_tensor" in words
