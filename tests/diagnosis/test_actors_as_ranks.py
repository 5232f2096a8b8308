"""Actors of Ray that are ranks: whom one asks that waits in ray.get, and one without work."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look, Socket
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot

from .made_up import ALL_REDUCE, job, look, rank

GETS = (
    "Worker.get_objects SP/ray/_private/worker.py:1007",
    "get SP/ray/_private/worker.py:3009",
    "Learner.send_weights train.py:49",
    "Learner.train train.py:58",
    "Worker.main_loop SP/ray/_private/worker.py:960",
)
BROADCAST = (
    "broadcast SP/torch/distributed/distributed_c10d.py:3151",
    "Engine.take_weights train.py:30",
    "Worker.main_loop SP/ray/_private/worker.py:960",
)


def connected(pid: int, name: str, inode: int = 7) -> Socket:
    ends = ("10.0.0.2:33034", "10.0.0.2:36187")
    return Socket(inode, "tcp", *ends, "ESTABLISHED", peer_pids=(pid,), peer_names=(name,))


def actor(title: str, *frames: str, sockets: tuple[Socket, ...] = ()) -> Look:
    more = {"name": title[:15], "command": (title,), "sockets": sockets}
    return look(*frames, **more)  # type: ignore[arg-type]


def judge(learner: Look, engine: Look) -> Verdict:
    ranks = [rank(0, *(learner,) * 3), rank(1, *(engine,) * 3)]
    return judge_snapshot(job(ended="still", pipeline=""), Snapshot(ranks))[0]


ENGINE = actor("ray::Engine.take_weights", *BROADCAST)
ASKS = (
    connected(101, "ray::Engine.take_weights"),
    connected(70, "gcs_server", 8),
    connected(71, "python", 9),
    connected(72, "ray::DashboardAgent", 10),
)


def test_who_waits_for_an_answer_waits_for_the_only_actor_that_it_is_connected_to() -> None:
    """A worker of Ray sends its calls to an actor itself, by a connection that stays."""
    verdict = judge(actor("ray::Learner.train", *GETS, sockets=ASKS), ENGINE)
    assert set(verdict.ranks.culprit) == {0, 1}
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"
    assert any("Engine.take_weights" in edge.evidence for edge in verdict.chain)


def test_of_several_that_it_is_connected_to_none_is_taken() -> None:
    more = (*ASKS, connected(102, "ray::tokenize", 11))
    verdict = judge(actor("ray::Learner.train", *GETS, sockets=more), ENGINE)
    assert verdict.ranks.culprit == (0,)
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_an_actor_that_has_no_call_to_answer_is_not_asked() -> None:
    idle = actor("ray::Engine", "Worker.main_loop SP/ray/_private/worker.py:960")
    asks = (connected(101, "ray::Engine"),)
    verdict = judge(actor("ray::Learner.train", *GETS, sockets=asks), replace(idle, kernel=()))
    assert verdict.cause is None or verdict.cause.id != "deadlock"


def test_an_actor_between_two_calls_waits_for_its_next_one() -> None:
    """Its connections to the services of Ray are not what it waits for."""
    idle = actor(
        "ray::Worker",
        "Worker.main_loop SP/ray/_private/worker.py:960",
        "<module> SP/ray/_private/workers/default_worker.py:321",
        sockets=(connected(70, "gcs_server"),),
    )
    (main,) = idle.kernel
    assert main.syscall is not None
    call = replace(main.syscall, name="epoll_wait")
    idle = replace(idle, kernel=(replace(main, syscall=call),))
    ranks = [rank(0, *(ALL_REDUCE,) * 3), rank(1, *(idle,) * 3)]
    verdict = judge_snapshot(job(ended="still", pipeline=""), Snapshot(ranks))[0]
    assert verdict.ranks.culprit == (1,)
    assert verdict.waits_for is not None
    assert "next call" in verdict.waits_for.detail
    assert verdict.call is None or "default_worker" not in verdict.call


def test_the_only_actor_that_is_no_rank_is_named_to_which_it_is_connected() -> None:
    """A learner is connected to the other learners too, by their group."""
    asks = (connected(101, "ray::Learner.fit"), connected(300, "ray::Buffer.sample", 8))
    learner = actor("ray::Learner.fit", *GETS, sockets=asks)
    other = actor("ray::Learner.fit", "all_reduce SP/torch/distributed/distributed_c10d.py:3252")
    ranks = [rank(0, *(learner,) * 3), rank(1, *(other,) * 3)]
    wait = Snapshot(ranks).waits[0]
    assert wait is not None
    assert (wait.kind, wait.pid, wait.process) == ("process", 300, "ray::Buffer.sample")
