"""Which thread of an actor of Ray is looked at in place of its main one."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look, Thread
from hangbisect.diagnosis.process.helper_processes import put_job_thread_first
from hangbisect.diagnosis.snapshot import Snapshot

from .made_up import look, rank, stack

LOOP = ("Worker.main_loop SP/ray/_private/worker.py:1069",)
RUNNER = "ThreadRunner.run SP/ray/train/v2/_internal/execution/worker_group/thread_runner.py:37"


def worker(main: tuple[str, ...], *others: tuple[str, ...], title: str = "ray::Trainer") -> Look:
    """Return a look at an actor with further threads, whose ids are 101, 102, ..."""
    one = look(*main, pid=100)
    more = [
        Thread(101 + n, f"Thread-{n}", False, False, stack(*frames))
        for n, frames in enumerate(others)
    ]
    return replace(one, command=(title,), threads=(*one.threads, *more))


def names(one: Look) -> list[str]:
    return [frame.name for frame in (one.main.frames if one.main else ())]


def test_the_training_thread_of_ray_train_stands_for_the_main_one() -> None:
    seen = worker(
        LOOP, ("poll monitor.py:3",), ("read_shard train.py:19", "loop train.py:25", RUNNER)
    )
    assert names(put_job_thread_first(seen))[:2] == ["read_shard", "loop"]


def test_a_method_in_a_thread_of_a_threaded_actor_does_too() -> None:
    seen = worker(LOOP, ("Event.wait STD/threading.py:629",), ("serve engine.py:7",))
    assert names(put_job_thread_first(seen)) == ["serve"]


def test_an_actor_that_runs_its_method_in_the_main_thread_stays_as_it_is() -> None:
    seen = worker(("load train.py:3", *LOOP), ("serve engine.py:7",))
    assert put_job_thread_first(seen) is seen


def test_so_does_an_idle_one_and_whatever_is_no_actor() -> None:
    idle = worker(LOOP, ("Event.wait STD/threading.py:629",))
    assert put_job_thread_first(idle) is idle
    script = worker(LOOP, ("serve engine.py:7",), title="python")
    assert put_job_thread_first(script) is script


GETS = ("Worker.get_objects SP/ray/_private/worker.py:1007", "get SP/ray/_private/worker.py:3009")
STEP = "Handle._run STD/asyncio/events.py:80"


def test_an_actor_in_ray_get_is_not_idle_though_that_is_in_the_file_of_its_loop() -> None:
    asks = worker((*GETS, "Rollout.epoch train.py:28", *LOOP), ("serve engine.py:7",))
    assert put_job_thread_first(asks) is asks


def test_of_several_actors_one_that_stands_still_by_itself_is_waited_for() -> None:
    """Then one whose coroutine blocks its loop, one that awaits others, one without work."""

    def awaited(*titles_and_frames: tuple[str, tuple[str, ...]]) -> str:
        found = [
            (replace(worker(frames, title=title), pid=300 + n, ppid=100),)
            for n, (title, frames) in enumerate(titles_and_frames)
        ]
        driver = look(*GETS, "main train.py:50", pid=100)
        (wait,) = Snapshot([rank(0, driver, children=tuple(found))]).waits.values()
        assert wait is not None
        return wait.process or ""

    idle = ("ray::Queue.put", LOOP)
    asks = ("ray::Rollout.epoch", (*GETS, "Rollout.epoch train.py:28", *LOOP))
    blocks = ("ray::Server.register", (*GETS, "Server.launch train.py:44", STEP))
    stuck = ("ray::Worker.load", ("load train.py:9", *LOOP))
    assert awaited(idle, asks) == "Rollout.epoch"
    assert awaited(idle, asks, blocks) == "Server.register"
    assert awaited(idle, asks, blocks, stuck) == "Worker.load"
