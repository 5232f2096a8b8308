"""Tools and settings for debugging that are the cause themselves."""

from __future__ import annotations

from hangbisect.base.process_facts import Socket

from ..made_up import ALL_REDUCE, SLEEP, held, job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, with_native

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


def waits_for_debugger() -> Facts:
    waits = look(
        "Event.wait STD/threading.py:629",
        "wait_for_client SP/debugpy/server/api.py:200",
        "main train.py:5",
        sockets=(Socket(7, "tcp", "0.0.0.0:5678", state="LISTEN"),),
    )
    return job(), [rank(0, waits), held(1)]


def debug_detail_group() -> Facts:
    wrapped = with_native(
        ALL_REDUCE, "gloo::barrier", "c10d::ProcessGroupWrapper::runCollectiveChecks"
    )
    return job(), [rank(n, wrapped, environment=DETAIL) for n in (0, 1)]


def tracer_attached() -> Facts:
    one = look("step train.py:5", call="", state="R", traced_by=4711)
    facts = rank(0, one, one, moved="runs through new code")
    return job("limit"), [facts, held(1)]


def test_the_extra_group_of_a_setting_that_one_node_has_is_told_as_that() -> None:
    frames = ("_create_process_group_wrapper SP/torch/distributed/distributed_c10d.py:5456",)
    there = {**TORCHRUN, "RANK": "1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    asks = with_native(look(*frames, "main train.py:10", call="poll"), "c10d::TCPStore::doWait")
    ranks = [rank(0, ALL_REDUCE, environment=TORCHRUN), rank(1, asks, environment=there)]
    (found, *_) = causes_of((job(), ranks)).values()
    assert found.id == "debug-detail-group"
    assert "rank 0 without it" in " ".join(found.matched)


SHOWS: Shows = {
    "waits-for-debugger": waits_for_debugger,
    "debug-detail-group": debug_detail_group,
    "tracer-attached": tracer_attached,
}


def test_the_setting_alone_is_no_cause() -> None:
    found = causes_of((job(), [rank(0, SLEEP, environment=DETAIL), held(1)]))
    assert "debug-detail-group" not in found


def test_a_lower_setting_adds_no_group() -> None:
    ranks = [rank(n, ALL_REDUCE, environment={"TORCH_DISTRIBUTED_DEBUG": "INFO"}) for n in (0, 1)]
    assert "debug-detail-group" not in causes_of((job(), ranks))


def test_a_rank_that_nobody_traces_is_not_slowed_down() -> None:
    one = look("step train.py:5", call="", state="R")
    facts = job("limit"), [rank(0, one, one, moved="runs through new code"), held(1)]
    assert "tracer-attached" not in causes_of(facts)


def test_a_server_of_the_jobs_own_waits_for_no_debugger() -> None:
    serves = look("accept STD/socket.py:294", "serve train.py:5", call="accept4")
    assert "waits-for-debugger" not in causes_of((job(), [rank(0, serves), held(1)]))
