"""Which thread of an actor of Ray is looked at in place of its main one."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Kernel, Look, RayCluster, Socket, Syscall, Thread
from hangbisect.diagnosis.process.actor_waits import (
    put_job_thread_first,
    put_same_thread_first,
)
from hangbisect.diagnosis.proof_of_hang import describe_waiting_for_work
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


def test_a_look_without_a_stack_shows_the_thread_that_the_look_before_showed() -> None:
    """On a machine with much to do a stack does not come in time; the kernel tells all the same."""
    names = ("MainThread", "Dummy-1")
    seen = worker(LOOP, ("forward train.py:28",))
    threads = tuple(replace(t, name=n) for t, n in zip(seen.threads, names, strict=True))
    before = put_job_thread_first(replace(seen, threads=threads))
    idle = Kernel(100, "ray::Model", "S", "do_epoll_wait", Syscall(232, "epoll_wait", (0,) * 6))
    opens = Kernel(101, "ray::Model", "S", "wait_for_partner", Syscall(257, "openat", (0,) * 6))
    bare = replace(seen, threads=(), kernel=(idle, opens), rung="proc")
    for looks in ([before], [before, bare]):
        shown = put_same_thread_first(looks, bare)
        calls = {task.tid: task.syscall.name for task in shown.kernel if task.syscall}
        assert calls == {100: "openat", 101: "epoll_wait"}
    assert put_same_thread_first([before], seen) is seen
    assert put_same_thread_first([seen], bare) is bare
    assert put_same_thread_first([], bare) is bare


def test_who_spins_at_a_channel_of_a_compiled_graph_waits_for_the_actor_that_does_not() -> None:
    """A driver that reads the output, and a stage that reads its input, are on a core all the
    time; the stage between them stands in the job's code, in the thread of the graph's loop.
    """
    reads = (
        "Worker.get_objects SP/ray/_private/worker.py:1007",
        "Channel.read SP/ray/experimental/channel/shared_memory_channel.py:492",
    )
    graph = ("do_exec_tasks SP/ray/dag/compiled_dag_node.py:247",)
    driver = look(
        *reads,
        "CompiledDAG._execute_until SP/ray/dag/compiled_dag_node.py:2531",
        "main train.py:50",
    )
    driver = replace(driver, kernel=(Kernel(100, "python", "R", "", None),))
    call = "ray::{}.__ray_call__".format
    first = worker(LOOP, (*reads, *graph), title=call("Tokenizer"))
    model = worker(LOOP, ("Model.forward train.py:28", *graph), title=call("Model"))
    children = tuple(
        (put_job_thread_first(replace(one, pid=300 + n, ppid=100)),)
        for n, one in enumerate((first, model))
    )
    (wait,) = Snapshot([rank(0, driver, children=children)]).waits.values()
    assert wait is not None
    assert wait.process == "Model.__ray_call__"


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


TRIAL = (
    "Condition.wait STD/threading.py:331",
    "Queue.get STD/queue.py:180",
    "FunctionTrainable.step SP/ray/tune/trainable/function_trainable.py:128",
    "actor_method_executor SP/ray/_private/function_manager.py:740",
    *LOOP,
)


def test_the_thread_of_a_trial_stands_for_the_one_that_waits_for_it_in_a_library_of_rays() -> None:
    seen = worker(TRIAL, (*GETS, "objective train.py:27"), title="ray::ImplicitFunc.train")
    assert names(put_job_thread_first(seen))[-1] == "objective"


def test_the_thread_of_a_task_stands_for_the_loop_of_a_worker_of_dask() -> None:
    idle = ("EpollSelector.select STD/selectors.py:468",)
    title = "dask worker [tcp://127.0.0.1:36483]"
    assert names(put_job_thread_first(worker(idle, ("encode train.py:9",), title=title))) == [
        "encode"
    ]
    resting = worker(idle, ("_worker SP/distributed/threadpoolexecutor.py:51",), title=title)
    assert put_job_thread_first(resting) is resting


def awaited_by(driver: Look, *workers: Look) -> str:
    """Return whom a driver waits for, of these processes below it."""
    below = tuple((replace(one, pid=300 + n, ppid=100),) for n, one in enumerate(workers))
    (wait,) = Snapshot([rank(0, driver, children=below)]).waits.values()
    assert wait is not None
    return wait.process or ""


STUCK = worker(("look_up train.py:21", *LOOP), title="ray::MapBatches(add_features)")
BETWEEN = worker(LOOP, title="ray::Cache")


def test_a_driver_inside_of_a_library_of_rays_waits_for_a_task_at_work() -> None:
    frames = (
        "OpState.get_output_blocking SP/ray/data/_internal/execution/streaming_executor_state.py:5",
        "Dataset.materialize SP/ray/data/dataset.py:7957",
    )
    sleeps = look(*frames, "main train.py:33", call="clock_nanosleep", pid=100)
    assert awaited_by(sleeps, BETWEEN, STUCK) == "MapBatches(add_features)"
    assert awaited_by(sleeps, BETWEEN) == ""
    own = look("main train.py:33", call="clock_nanosleep", pid=100)  # it sleeps itself
    assert awaited_by(own, STUCK) == ""


def test_a_loop_of_a_driver_waits_for_an_actor_in_a_method() -> None:
    frames = (
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "run STD/asyncio/runners.py:190",
        "main train.py:37",
    )
    awaits = look(*frames, call="epoll_wait", pid=100, ray=RayCluster(folder="/tmp/ray/logs"))
    answers = worker(LOOP, title="ray::Rollout.generate")
    assert awaited_by(awaits, BETWEEN, answers) == "Rollout.generate"
    assert awaited_by(replace(awaits, ray=None), answers) == ""  # no driver


def test_the_port_at_which_a_driver_of_ray_is_answered_makes_it_no_server() -> None:
    frames = (
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
    )
    hears = Socket(7, "tcp6", "[::]:41337", "", "LISTEN")
    one = look(*frames, call="epoll_wait", pid=100, sockets=(hears,))
    assert describe_waiting_for_work([rank(0, one)])
    driver = replace(one, ray=RayCluster(folder="/tmp/ray/logs"))
    assert describe_waiting_for_work([rank(0, driver)]) == ""
    serves = replace(driver, sockets=(hears, Socket(8, "tcp", "0.0.0.0:8000", "", "LISTEN")))
    assert describe_waiting_for_work([rank(0, serves)])


def test_a_library_that_polls_waits_for_the_only_process_below_it_in_the_jobs_code() -> None:
    polls = look(
        "Job.wait SP/submitit/core/core.py:401", "main train.py:21", call="clock_nanosleep", pid=100
    )
    reads = look("count train.py:13", "_submit SP/submitit/core/_submit.py:11", call="openat")
    rests = look("Controller.wait SP/submitit/local/local.py:366", call="clock_nanosleep")
    assert awaited_by(polls, rests, replace(reads, name="python3")) == "python3"
    assert awaited_by(polls, rests) == ""
    assert awaited_by(polls, reads, look("pack train.py:44", call="openat")) == ""


def test_an_async_method_that_blocks_is_one_under_uvloop_too() -> None:
    wrapper = "async_span_wrapper.<locals>._resume_span SP/ray/util/tracing/tracing_helper.py:530"
    blocks = worker((*GETS, "Server.launch train.py:44", wrapper), title="ray::Server.register")
    asks = worker((*GETS, "Rollout.epoch train.py:28", *LOOP), title="ray::Rollout.epoch")
    gets = look(*GETS, "main train.py:50", pid=100)
    assert awaited_by(gets, asks, blocks) == "Server.register"
