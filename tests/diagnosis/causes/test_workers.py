"""Workers of a rank: stuck, lost, or running the script again."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Futex, Look, Socket
from hangbisect.base.rank_facts import MachineFacts, RestartedProcess
from hangbisect.diagnosis.process.helper_processes import is_idle_worker
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import ALL_REDUCE, RECV, SLEEP, held, job, look, rank
from ..queues import LISTENS as QUEUE
from ..queues import receives, unix
from .scenes import Facts, Shows, causes_of
from .seen import FORK, LOADER, beside, first, worker

POOL = look(
    "Condition.wait STD/threading.py:327",
    "Event.wait STD/threading.py:629",
    "ApplyResult.wait STD/multiprocessing/pool.py:765",
    "ApplyResult.get STD/multiprocessing/pool.py:768",
    "Pool.map STD/multiprocessing/pool.py:367",
    "<module> train.py:7",
)
MAP = look(
    "iflatmap_unordered SP/datasets/utils/py_utils.py:718",
    "Dataset.map SP/datasets/arrow_dataset.py:3171",
    "<module> train.py:12",
    call="clock_nanosleep",
)
STUCK = worker("Shards.__getitem__ data.py:9", call="read", wchan="folio_wait")
GUARDLESS = look(
    "Condition.wait STD/threading.py:327",
    "_create_c10d_store SP/torch/distributed/rendezvous.py:199",
    "init_process_group SP/torch/distributed/distributed_c10d.py:1860",
    "<module> train.py:9",
    "_run_code <frozen runpy>:88",
    "_fixup_main_from_path STD/multiprocessing/spawn.py:297",
    "prepare STD/multiprocessing/spawn.py:246",
    "spawn_main STD/multiprocessing/spawn.py:122",
    pid=300,
    ppid=100,
)


def idle(pid: int, age: float) -> Look:
    return look(
        "Connection._recv_bytes STD/multiprocessing/connection.py:430",
        "SimpleQueue.get STD/multiprocessing/queues.py:365",
        "worker STD/multiprocessing/pool.py:114",
        *FORK[2:],
        pid=pid,
        ppid=100,
        call="read",
        age=age,
    )


def of(one: Look, *children: Look) -> Facts:
    return job(), [first(one, *children), held(1)]


def worker_stuck() -> Facts:
    return of(LOADER, STUCK)


def map_worker_stuck() -> Facts:
    child = look("encode data.py:3", *FORK[2:], pid=300, ppid=100, call="read")
    return of(MAP, child)


def pool_worker_lost() -> Facts:
    return of(POOL, idle(300, 40.0), idle(301, 12.0))


def worker_dead() -> Facts:
    dead = look(pid=300, ppid=100, name="pt_data_worker", state="Z", call="", rung="proc")
    return of(LOADER, dead)


RECEIVES = (
    "Connection._recv STD/multiprocessing/connection.py:395",
    "_ConnectionBase.recv STD/multiprocessing/connection.py:250",
    "launch serve.py:7",
    "<module> serve.py:20",
)


def died(status: int | None, *frames: str, **more: Any) -> Facts:
    """A rank that waits for what nobody but a child could send, which ended with a status."""
    own = Descriptor(3, "pipe", "pipe:[7]", other_ends=(100,))
    waits = look(*(frames or RECEIVES), call="read", descriptors=(own,), **more)
    return of(waits, look(pid=300, ppid=100, state="Z", call="", rung="proc", status=status))


def child_died() -> Facts:
    return died(-signal.SIGSEGV)


def shm_full() -> Facts:
    puts = worker(
        "reduce_storage SP/torch/multiprocessing/reductions.py:593",
        "ForkingPickler.dumps STD/multiprocessing/reduction.py:51",
        call="ftruncate",
    )
    small = MachineFacts(shm_free=0, shm_total=64 << 20)
    return job(machine=small), [first(LOADER, puts), held(1)]


def script_runs_again() -> Facts:
    return of(LOADER, GUARDLESS)


def collective_in_a_worker() -> Facts:
    meets = worker(
        "barrier SP/torch/distributed/distributed_c10d.py:5356",
        "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
        "Shards.__getitem__ data.py:9",
    )
    return of(LOADER, meets)


FUTURE = look(
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "<module> train.py:7",
)
MANAGES = (
    "_PollLikeSelector.select STD/selectors.py:415",
    "wait STD/multiprocessing/connection.py:947",
    "_ExecutorManagerThread.wait_result_broken_or_wakeup STD/concurrent/futures/process.py:417",
    "_ExecutorManagerThread.run STD/concurrent/futures/process.py:344",
)
TRACKER = look("main STD/multiprocessing/resource_tracker.py:227", pid=300, ppid=100, call="read")


def executor_without_workers() -> Facts:
    return of(beside(FUTURE, ("Thread-1", MANAGES), call="poll"), TRACKER)


def at_barrier(pid: int) -> Look:
    frames = (
        "Condition.wait STD/multiprocessing/synchronize.py:268",
        "Condition.wait_for STD/multiprocessing/synchronize.py:320",
        "Barrier._wait STD/threading.py:732",
        "Barrier.wait STD/threading.py:697",
        "simulate train.py:16",
        "BaseProcess.run STD/multiprocessing/process.py:108",
    )
    one = look(*frames, pid=pid, ppid=100, wchan="futex_do_wait")
    (main,) = one.kernel
    assert main.syscall is not None
    futex = Futex(0x7F00, 0, file="/dev/shm/sem.mp-1", sharers=(100, 301, 302))
    return replace(one, kernel=(replace(main, syscall=replace(main.syscall, futex=futex)),))


GATHERS = look(
    "Connection._recv STD/multiprocessing/connection.py:395",
    "Queue.get STD/multiprocessing/queues.py:103",
    "gather train.py:23",
    call="read",
    descriptors=(Descriptor(3, "pipe", "pipe:[7]", other_ends=(301, 302)),),
)


def barrier_of_too_many() -> Facts:
    return of(GATHERS, at_barrier(301), at_barrier(302))


SHOWS: Shows = {
    "barrier-of-too-many": barrier_of_too_many,
    "executor-without-workers": executor_without_workers,
    "worker-stuck": worker_stuck,
    "collective-in-a-worker": collective_in_a_worker,
    "map-worker-stuck": map_worker_stuck,
    "pool-worker-lost": pool_worker_lost,
    "worker-dead": worker_dead,
    "child-died": child_died,
    "shm-full": shm_full,
    "script-runs-again": script_runs_again,
}


def test_a_barrier_that_one_has_not_come_to_waits_for_that_one() -> None:
    elsewhere = look("load train.py:9", *FORK[2:], pid=303, ppid=100, call="read")
    dead = look(pid=303, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    for other in (elsewhere, dead):
        found = causes_of(of(GATHERS, at_barrier(301), at_barrier(302), other))
        assert "barrier-of-too-many" not in found
    assert "barrier-of-too-many" not in causes_of(of(GATHERS, at_barrier(301)))


def test_a_dead_worker_is_named_with_what_ended_it() -> None:
    facts, (one, other) = worker_dead()
    killed = tuple((replace(looks[-1], status=-signal.SIGKILL),) for looks in one.children)
    said = causes_of((facts, [replace(one, children=killed), other]))["worker-dead"].matched
    assert "pt_data_worker (300) is dead: it was ended by SIGKILL" in said
    facts = replace(facts, machine=MachineFacts(oom_kills=1))
    said = causes_of((facts, [replace(one, children=killed), other]))["worker-dead"].matched
    assert "want of memory" in str(said)
    said = causes_of((facts, [one, other]))["worker-dead"].matched  # nothing kills with status 0
    assert "want of memory" not in str(said)


def test_a_worker_in_a_collective_is_no_worker_that_is_merely_stuck() -> None:
    assert "worker-stuck" not in causes_of(collective_in_a_worker())
    assert "collective-in-a-worker" not in causes_of(worker_stuck())


def test_an_executor_with_a_worker_or_one_that_dies_is_not_without() -> None:
    waits = beside(FUTURE, ("Thread-1", MANAGES), call="poll")
    works = look("read train.py:4", *FORK[2:], pid=301, ppid=100, call="read")
    assert "executor-without-workers" not in causes_of(of(waits, TRACKER, works))
    assert "executor-without-workers" not in causes_of(of(FUTURE, TRACKER))


def test_a_child_that_died_is_why_nobody_is_connected_to_a_queue_of_messages() -> None:
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    waits = receives(0, QUEUE)
    found = causes_of(of(waits, dead))
    assert "SIGKILL" in found["child-died"].why
    assert max(found.values(), key=lambda one: one.agreement).id == "child-died"
    assert "child-died" not in causes_of(of(receives(0, unix(100)), dead))  # somebody is


def test_a_child_that_died_is_named_with_what_ended_it() -> None:
    found = causes_of(child_died())
    assert next(iter(found)) == "child-died"
    assert found["child-died"].level == "seen"  # nobody else has the other end
    assert "python (300) was ended by SIGSEGV" in found["child-died"].matched
    found = causes_of(died(3))
    assert "python (300) ended with status 3" in found["child-died"].matched


@pytest.mark.parametrize(
    ("pid", "place"), [(299, "the first of 3"), (301, "number 2 of 3"), (310, "the last of 3")]
)
def test_which_of_several_alike_has_died_is_told_by_those_that_live(pid: int, place: str) -> None:
    """Nothing is left of a zombie but its name and its number."""
    waits = look("Condition.wait STD/threading.py:327", *RECEIVES[2:], call="futex")
    dead = look(pid=pid, ppid=100, state="Z", call="", rung="proc", status=1)
    started = "BaseProcess.run STD/multiprocessing/process.py:108"

    def lives(pid: int, function: str = "work") -> Look:
        frames = ("Queue.get STD/multiprocessing/queues.py:103", f"{function} serve.py:33", started)
        return look(*frames, pid=pid, ppid=100, call="read")

    said = causes_of(of(waits, dead, lives(300), lives(305)))["child-died"].matched
    assert f"python ({pid}), {place} workers in work (serve.py), ended with status 1" in said
    for others in ((lives(300), lives(305, "listen")), (replace(lives(300), ppid=9),), ()):
        said = causes_of(of(waits, dead, *others))["child-died"].matched
        assert f"python ({pid}) ended with status 1" in said


@pytest.mark.parametrize("status", [0, None, -signal.SIGTERM])
def test_a_child_that_ended_well_or_was_told_to_is_no_cause(status: int | None) -> None:
    assert "child-died" not in causes_of(died(status))


def test_where_others_could_send_a_dead_child_only_fits() -> None:
    waits = look("Condition.wait STD/threading.py:327", *RECEIVES[2:], call="futex")
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    assert causes_of(of(waits, dead))["child-died"].level == "fits"


def test_a_dead_child_is_not_why_a_rank_sleeps_or_waits_for_another() -> None:
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=-signal.SIGKILL)
    for one in (SLEEP, ALL_REDUCE, RECV):
        assert "child-died" not in causes_of(of(one, dead))


LISTENS = Socket(3, "tcp", local="127.0.0.1:8000", state="LISTEN")


def served(*frames: str, status: int | None) -> Facts:
    """A server whose main thread takes connections, and a child of its engine that has ended."""
    named = (Descriptor(3, "socket", "socket:[3]", socket=LISTENS),)
    waits = look(*frames, call="epoll_wait", descriptors=named, sockets=(LISTENS,))
    engine = look(*RECEIVES, pid=200, ppid=100, call="read")
    return of(
        waits, engine, look(pid=300, ppid=200, state="Z", call="", rung="proc", status=status)
    )


@pytest.mark.parametrize(
    "frames",
    [
        (
            "EpollSelector.select STD/selectors.py:468",
            "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
            "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
            "<module> serve.py:94",
        ),
        (
            "_PollLikeSelector.select STD/selectors.py:415",
            "BaseServer.serve_forever STD/socketserver.py:233",
            "<module> serve.py:46",
        ),
    ],
)
def test_a_server_waits_for_its_child_that_died_rather_than_for_a_client(
    frames: tuple[str, ...],
) -> None:
    """Its main thread takes connections all the same; an answer was to come from the child."""
    found = causes_of(served(*frames, status=-signal.SIGKILL))
    assert next(iter(found)) == "child-died"
    assert "python (300) was ended by SIGKILL" in found["child-died"].matched
    assert "nobody-sends" not in found
    assert "child-died" not in causes_of(served(*frames, status=0))
    assert "nobody-sends" in causes_of(served(*frames, status=0))


def test_a_worker_that_waits_for_its_next_task_is_not_stuck() -> None:
    assert "worker-stuck" not in causes_of(of(LOADER, idle(300, 40.0)))


def test_a_worker_at_work_is_not_stuck() -> None:
    busy = worker("Shards.__getitem__ data.py:9", call="", state="R")
    assert "worker-stuck" not in causes_of(of(LOADER, busy))


def test_a_pool_with_a_worker_at_work_has_lost_none() -> None:
    at_work = replace(STUCK, name="python", pid=302)
    assert "pool-worker-lost" not in causes_of(of(POOL, idle(300, 40.0), at_work))


def test_a_task_is_lost_in_a_pool_of_a_fork_server_too_and_no_helper_is_waited_for() -> None:
    tracker = look(
        "main STD/multiprocessing/resource_tracker.py:227", pid=290, ppid=100, call="read"
    )
    server = look(
        "main STD/multiprocessing/forkserver.py:208", pid=291, ppid=100, call="epoll_wait"
    )
    young, old = (replace(one, ppid=291) for one in (idle(300, 40.0), idle(301, 12.0)))
    facts = of(POOL, tracker, server, young, old)
    assert "pool-worker-lost" in causes_of(facts)
    awaited = judge_job(*facts).waits_for
    assert awaited is not None
    assert awaited.pid in (300, 301)


def test_workers_of_one_age_are_all_of_the_first_hour() -> None:
    found = causes_of(of(POOL, idle(300, 40.0), idle(301, 40.0)))
    assert found["pool-worker-lost"].agreement <= 0.8


def test_the_answer_names_the_worker_and_where_it_is() -> None:
    why = causes_of(worker_stuck())["worker-stuck"].why
    assert "pt_data_worker (300)" in why
    assert "Shards.__getitem__ (data.py:9)" in why


def test_a_worker_that_only_imports_the_script_does_what_it_should() -> None:
    imports = look(
        "<module> SP/torch/__init__.py:5",
        "_find_and_load <frozen importlib._bootstrap>:1176",
        "<module> train.py:1",
        "_fixup_main_from_path STD/multiprocessing/spawn.py:297",
        pid=300,
        ppid=100,
    )
    assert "script-runs-again" not in causes_of(of(LOADER, imports))


def test_a_worker_that_imports_the_script_at_each_start_in_vain_lacks_no_guard() -> None:
    ended = RestartedProcess("python", 301, 9, 4.0, 1, error="KeyError: 'a'", is_sure=True)
    facts, ranks = script_runs_again()
    found = causes_of((replace(facts, restarted=ended), ranks))
    assert "script-runs-again" not in found
    assert next(iter(found)) == "restarted-in-vain"


def test_shared_memory_with_room_is_not_full() -> None:
    roomy = MachineFacts(shm_free=32 << 30, shm_total=64 << 30)
    facts, ranks = worker_stuck()
    assert "shm-full" not in causes_of((replace(facts, machine=roomy), ranks))


QUEUE_OF_ITS_OWN = (
    "Connection._recv_bytes STD/multiprocessing/connection.py:430",
    "Queue.get STD/multiprocessing/queues.py:103",
)


def test_a_worker_in_a_queue_of_the_datasets_own_has_a_task() -> None:
    """Its colleague is through and waits for the next one: it is not what the rank waits for."""
    through = look(
        "_PollLikeSelector.select STD/selectors.py:415",
        "wait STD/multiprocessing/connection.py:947",
        "Connection._poll STD/multiprocessing/connection.py:440",
        "Queue.get STD/multiprocessing/queues.py:113",
        *FORK[1:],
        pid=300,
        ppid=100,
        name="pt_data_worker",
        call="poll",
    )
    takes = worker(*QUEUE_OF_ITS_OWN, "Shards.__iter__ data.py:20", pid=301, call="read")
    found = causes_of(of(LOADER, through, takes))["worker-stuck"]
    assert "301" in found.why
    verdict = judge_job(*of(LOADER, through, takes))
    assert verdict.waits_for is not None
    assert verdict.waits_for.pid == 301


def test_a_worker_of_a_pool_in_a_queue_of_its_function_has_a_task() -> None:
    busy = look(
        *QUEUE_OF_ITS_OWN,
        "tokenize data.py:9",
        "mapstar STD/multiprocessing/pool.py:48",
        "worker STD/multiprocessing/pool.py:125",
        *FORK[2:],
        pid=301,
        ppid=100,
        call="read",
    )
    verdict = judge_job(*of(POOL, idle(300, 40.0), busy))
    assert verdict.waits_for is not None
    assert verdict.waits_for.pid == 301


def test_a_process_that_takes_its_tasks_from_a_queue_is_idle_there() -> None:
    run = "BaseProcess.run STD/multiprocessing/process.py:108"
    assert is_idle_worker(look(*QUEUE_OF_ITS_OWN, "serve work.py:9", run))


def readers(*lock_sharers: int, status: int = -signal.SIGKILL) -> Facts:
    """A rank that reads what its readers put: one has died, two wait for the lock of their queue,
    which these processes have mapped.
    """
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=status)
    waits = look(
        "SemLock.__enter__ STD/multiprocessing/synchronize.py:95",
        "Queue.get STD/multiprocessing/queues.py:102",
        "work train.py:4",
        "BaseProcess.run STD/multiprocessing/process.py:108",
        *FORK[2:],
        call="futex",
    )
    (main,) = waits.kernel
    assert main.syscall is not None
    futex = Futex(1, 0, file="/dev/shm/sem.x (deleted)", sharers=lock_sharers)
    kernel = replace(main, syscall=replace(main.syscall, futex=futex))
    both = [
        replace(waits, pid=pid, ppid=100, kernel=(replace(kernel, tid=pid),)) for pid in (301, 302)
    ]
    pipe = Descriptor(5, "pipe", "pipe:[7]", other_ends=(301, 302, 100))
    reads = look(
        *RECEIVES[:2],
        "Queue.get STD/multiprocessing/queues.py:103",
        "main train.py:9",
        call="read",
        descriptors=(pipe,),
    )
    return of(reads, dead, *both)


def test_a_reader_that_died_with_the_lock_of_the_queue_is_dead_and_the_others_not_stuck() -> None:
    found = causes_of(readers(100, 301, 302))
    assert next(iter(found)) == "worker-dead"
    assert "python (301) and 1 more wait for a lock of processes" in str(found["worker-dead"])


@pytest.mark.parametrize("facts", [readers(100, 301, 302, 303), readers(100, 301, 302, status=0)])
def test_a_lock_that_one_who_lives_may_have_is_not_of_the_dead(facts: Facts) -> None:
    assert "worker-dead" not in causes_of(facts)


COPY = (
    "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "step_once train.py:35",
    "main train.py:46",
    "<module> train.py:58",
)
WAITS_FOR_COPY = look(
    "Snapshots.wait train.py:30", "main train.py:51", call="wait4", args=(300,) * 6
)


def test_a_copy_that_was_forked_has_no_thread_of_its_group() -> None:
    """It was to end by os._exit(), and trains on: its rank waits for its end."""
    copy = look(*COPY, pid=300, ppid=100)
    found = causes_of(of(WAITS_FOR_COPY, copy))
    assert "collective-in-a-worker" in found
    assert "step_once (train.py:35)" in found["collective-in-a-worker"].why


def test_a_program_that_trains_by_itself_has_threads_of_its_group() -> None:
    trains = look(*COPY, pid=300, ppid=100)
    task = replace(trains.kernel[0], tid=301, comm="pt_gloo_runloop")
    trains = replace(trains, kernel=(*trains.kernel, task))
    assert "collective-in-a-worker" not in causes_of(of(WAITS_FOR_COPY, trains))


def test_a_dead_worker_is_known_by_the_title_of_those_that_live() -> None:
    """The kernel keeps 15 bytes of a title, of a zombie nothing else."""
    idle = replace(worker("Queue.get STD/queue.py:1", pid=301), command=("embedserver: worker 0",))
    dead = look(
        *(), pid=302, ppid=100, state="Z", call="", rung="proc", name="embedserver: wo", status=-9
    )
    waits = causes_of((job(), [first(LOADER, idle, dead), held(1)]))
    assert "embedserver: wo (302) is dead: it was ended by SIGKILL" in waits["worker-dead"].matched
    for other in (replace(dead, name="git"), replace(dead, status=0)):
        assert "worker-dead" not in causes_of((job(), [first(LOADER, idle, other), held(1)]))


def test_a_child_that_died_is_why_a_loop_looks_in_vain() -> None:
    """It sleeps for a moment, again and again, for what that child was to do."""
    dead = look(pid=300, ppid=100, state="Z", call="", rung="proc", status=1)
    sleeps = look("wait_until_up serve.py:32", "main serve.py:43", call="clock_nanosleep")

    def asleep(at: float, left: float) -> Look:
        (main,) = sleeps.kernel
        assert main.syscall is not None
        return replace(
            sleeps,
            at=at,
            kernel=(replace(main, syscall=replace(main.syscall, timeout=left)),),
        )

    polls = [asleep(100.0, 0.02), asleep(101.0, 0.04)]
    facts = job(world=1), [rank(0, *polls, children=((dead,),))]
    found = causes_of(facts)
    assert next(iter(found)) == "child-died"
    assert "polling-loop" not in found
    alone = job(world=1), [rank(0, *polls)]
    assert next(iter(causes_of(alone))) == "polling-loop"
