"""What libraries say when they give up waiting for other ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts

from ..made_up import ALL_REDUCE, gone, job, rank
from .scenes import Facts, Shows, causes_of

# pytorch/pytorch#118369, NVIDIA/Megatron-LM#1207
WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
)
STORE = "DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/2"
CLOSED = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41234"
)


def watched(number: int, at: int) -> RankFacts:
    said = WATCHDOG.format(rank=number, number=at)
    return gone(number, -6, left_at=90.0, output=(said,))


def collective_timed_out() -> Facts:
    return job("crash"), [watched(0, 808), watched(1, 807)]


def store_timed_out() -> Facts:
    ranks = [gone(n, 1, STORE, left_at=90.0) for n in (0, 1)]
    return job("crash", world=3), ranks


def store_not_reached() -> Facts:
    error = (
        "DistNetworkError: The client socket has timed out after 300000ms while trying to connect "
        "to (10.0.0.1, 29500)."
    )
    return job("crash"), [gone(1, 1, error, left_at=90.0), rank(0, ALL_REDUCE)]


def peer_ended_early() -> Facts:
    done = gone(1, 0, finished=True, left_at=80.0)
    return job("crash"), [gone(0, 1, CLOSED, left_at=90.0), done]


def operation(kind: str, number: int, condition: str = "") -> Collective:
    site = f"train.py:{10 + number} main"
    return Collective("0", kind, number, site, at=80.0 + number, condition=condition)


def logged(*operations: Collective) -> tuple[CollectiveLog, ...]:
    return (CollectiveLog("ring", operations, {"0": (0, 1)}),)


def ended_below_a_condition() -> Facts:
    """Rank 0 alone came to a barrier, and rank 1 was done: of no batch is anything known."""
    failed = gone(0, 1, CLOSED, left_at=90.0)
    both = operation("all_reduce", 1)
    failed = replace(
        failed, collectives=logged(both, operation("barrier", 2, condition="if rank == 0"))
    )
    done = gone(1, 0, finished=True, left_at=80.0, collectives=logged(both))
    return job("crash"), [failed, done]


def peer_out_of_batches() -> Facts:
    _, (failed, done) = peer_ended_early()
    trains = logged(operation("ddp", 1), operation("all_reduce", 2), operation("all_reduce", 3))
    return job("crash"), [replace(failed, collectives=trains), done]


SHOWS: Shows = {
    "peer-out-of-batches": peer_out_of_batches,
    "collective-timed-out": collective_timed_out,
    "store-timed-out": store_timed_out,
    "store-not-reached": store_not_reached,
    "peer-ended-early": peer_ended_early,
}


def test_the_store_s_key_names_the_rank_that_did_not_come() -> None:
    assert causes_of(store_timed_out())["store-timed-out"].why.startswith("rank 2 ")


def test_a_key_of_the_scripts_own_may_be_what_did_not_come() -> None:
    error = "DistStoreError: wait timeout after 10ms, keys: /some/key"
    found = causes_of((job("crash"), [gone(n, 1, error, left_at=90.0) for n in (0, 1)]))
    assert found["store-timed-out"].agreement < 0.8
    assert causes_of(store_timed_out())["store-timed-out"].agreement > 0.8


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ("Timed out after 301 seconds waiting for clients. 1/4 clients joined.", "3 of 4 ranks"),
        ("DistStoreError: wait timeout after 10ms, keys: /some/key", "a rank"),
    ],
)
def test_other_messages_of_the_store(error: str, missing: str) -> None:
    found = causes_of((job("crash"), [gone(0, 1, error, left_at=90.0), rank(1, ALL_REDUCE)]))
    assert missing in found["store-timed-out"].why


def test_gloo_s_own_time_out_is_one_of_a_collective() -> None:
    error = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
    error += "for recv operation to complete"
    found = causes_of((job("crash"), [gone(0, 1, error, left_at=90.0), rank(1, ALL_REDUCE)]))
    assert "collective-timed-out" in found


def test_a_rank_that_is_behind_makes_it_more_certain() -> None:
    even = job("crash"), [watched(0, 808), watched(1, 808)]
    uneven = causes_of(collective_timed_out())["collective-timed-out"]
    assert uneven.agreement > causes_of(even)["collective-timed-out"].agreement
    assert any("rank 1 is at" in fact for fact in uneven.matched)


def test_a_peer_that_failed_first_did_not_end_early() -> None:
    first = gone(1, 1, "ValueError: bad batch", left_at=80.0)
    found = causes_of((job("crash"), [gone(0, 1, CLOSED, left_at=90.0), first]))
    assert "peer-ended-early" not in found


def test_a_peer_that_still_runs_did_not_end_early() -> None:
    found = causes_of((job("crash"), [gone(0, 1, CLOSED, left_at=90.0), rank(1, ALL_REDUCE)]))
    assert "peer-ended-early" not in found
    late = replace(gone(1, 0, finished=True), left_at=95.0)
    found = causes_of((job("crash"), [gone(0, 1, CLOSED, left_at=90.0), late]))
    assert "peer-ended-early" not in found


def test_a_call_below_a_condition_of_the_script_s_is_to_come_out_of_it() -> None:
    found = causes_of(ended_below_a_condition())
    assert "peer-out-of-batches" not in found
    (advice,) = found["peer-ended-early"].avoid
    assert advice.startswith("take barrier (train.py:12 main) out of `if rank == 0`")
    assert any("if rank == 0" in fact for fact in found["peer-ended-early"].matched)


def test_where_nothing_is_known_of_batches_nothing_is_advised_of_them() -> None:
    found = causes_of(peer_ended_early())
    assert "peer-out-of-batches" not in found
    assert "drop_last" not in str(found["peer-ended-early"].avoid)


def test_a_condition_counts_for_more_than_that_the_job_trains() -> None:
    about, (failed, done) = ended_below_a_condition()
    (log,) = failed.collectives
    trains = (replace(log, operations=(operation("ddp", 1), *log.operations[1:])),)
    found = causes_of((about, [replace(failed, collectives=trains), done]))
    assert "peer-ended-early" in found
    assert "peer-out-of-batches" not in found


def test_a_data_loader_in_the_stack_speaks_for_batches() -> None:
    about, (failed, done) = peer_ended_early()
    trace = 'File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 7'
    found = causes_of((about, [replace(failed, traceback=trace), done]))
    assert "peer-out-of-batches" in found
    assert "peer-ended-early" not in found
