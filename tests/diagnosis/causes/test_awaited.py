"""Threads and processes of its own that a rank waits for."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look, Socket

from ..made_up import ALL_REDUCE, SLEEP, job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, on, tcp
from .seen import FOREVER, TIMED, beside, first, pipe

# multiprocessing of Python 3.11; joblib 1.4 with loky; distributed 2024.
PROCESS = (
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "BaseProcess._bootstrap STD/multiprocessing/process.py:314",
    "Popen._launch STD/multiprocessing/popen_fork.py:71",
)
SERVER = tcp("10.1.2.3:443", received=0)
TO_MANAGER = Socket(60, "unix", "", "/tmp/pymp-x/listener-y", "ESTABLISHED", peer_pids=(300,))


def child(*frames: str, **more: object) -> Look:
    """A process of multiprocessing that stands still in these frames."""
    more.setdefault("call", "recvfrom")
    return look(*frames, *PROCESS, pid=300, ppid=100, **more)  # type: ignore[arg-type]


STUCK = child("work data.py:5", descriptors=on(SERVER), sockets=(SERVER,))


def beside_a_waiting_rank(one: Look, *children: Look) -> Facts:
    return job(), [first(one, *children, environment=TORCHRUN), rank(1, ALL_REDUCE)]


def joins() -> Facts:
    one = look(
        "Popen.poll STD/multiprocessing/popen_fork.py:27",
        "Popen.wait STD/multiprocessing/popen_fork.py:43",
        "BaseProcess.join STD/multiprocessing/process.py:149",
        "prepare train.py:9",
        call="wait4",
        args=(300, 0, 0, 0, 0, 0),
    )
    return beside_a_waiting_rank(one, STUCK)


def gets_from_a_queue() -> Facts:
    one = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "Connection.recv_bytes STD/multiprocessing/connection.py:216",
        "Queue.get STD/multiprocessing/queues.py:103",
        "prepare train.py:9",
        call="read",
        descriptors=(pipe(7, 100, 300),),
    )
    return beside_a_waiting_rank(one, STUCK)


def pool_of_processes() -> Facts:
    one = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "prepare train.py:9",
        args=FOREVER,
    )
    manages = (
        "wait STD/multiprocessing/connection.py:947",
        "_ExecutorManagerThread.run STD/concurrent/futures/process.py:352",
    )
    inside = child("work data.py:5", "_process_worker STD/concurrent/futures/process.py:256")
    return beside_a_waiting_rank(beside(one, ("manager", manages), call="poll"), inside)


def local_cluster() -> Facts:
    to_worker = tcp("127.0.0.1:40001", peer_pids=(300,))
    own = Socket(50, "unix", state="ESTABLISHED", peer_pids=(100,))
    one = look(
        "Event.wait STD/threading.py:629",
        "sync SP/distributed/utils.py:436",
        "Client.gather SP/distributed/client.py:2400",
        "prepare train.py:9",
        args=TIMED,
        sockets=(own, to_worker),
    )
    loop = ("EpollSelector.select STD/selectors.py:468", "run SP/tornado/platform/asyncio.py:205")
    one = beside(one, ("IO loop", loop), call="epoll_wait")
    task = one.kernel[1]
    assert task.syscall is not None
    heard = replace(task.syscall, descriptors=(*on(own, 5), *on(to_worker)))
    one = replace(one, kernel=(one.kernel[0], replace(task, syscall=heard)))
    return beside_a_waiting_rank(one, child("work data.py:5"))


def output_of_a_program() -> Facts:
    one = look(
        "tar_file_iterator SP/webdataset/tariterators.py:100",
        "prepare train.py:9",
        call="read",
        descriptors=(pipe(7, 300),),
    )
    curl = look(pid=300, ppid=100, name="curl", call="poll", rung="proc", sockets=(SERVER,))
    return beside_a_waiting_rank(one, curl)


def manager() -> Facts:
    one = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "Connection.recv STD/multiprocessing/connection.py:250",
        "BaseProxy._callmethod STD/multiprocessing/managers.py:822",
        "AcquirerProxy.acquire STD/multiprocessing/managers.py:1064",
        "prepare train.py:9",
        call="read",
        descriptors=on(TO_MANAGER),
        sockets=(TO_MANAGER,),
    )
    serves = child(
        "Event.wait STD/threading.py:629",
        "Server.serve_forever STD/multiprocessing/managers.py:177",
        call="futex",
        args=TIMED,
    )
    answers = ("Server.serve_client STD/multiprocessing/managers.py:253",)
    return beside_a_waiting_rank(one, beside(serves, ("Thread-3", answers)))


def thread() -> Facts:
    one = look(
        "Thread._wait_for_tstate_lock STD/threading.py:1119",
        "Thread.join STD/threading.py:1112",
        "prepare train.py:9",
        args=FOREVER,
    )
    return beside_a_waiting_rank(beside(one, ("loader", ("load train.py:4",)), call="flock"))


def server_beside() -> Facts:
    """A server that neither rank has started; who asks it is not the only one that stands still."""
    to_server = tcp("127.0.0.1:5000", peer_pids=(90,), received=0)
    asks = look(
        "HTTPResponse.begin STD/http/client.py:325",
        "urlopen STD/urllib/request.py:216",
        "generate train.py:27",
        call="recvfrom",
        descriptors=on(to_server),
        sockets=(to_server,),
    )
    stuck = look("Engine.step serve.py:12", pid=90, ppid=70, call="futex", args=FOREVER)
    one = replace(first(asks, stuck), beside=(90,))
    return job(), [one, rank(1, SLEEP, SLEEP)]


def parent_feeds_another() -> Facts:
    takes = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "Queue.get STD/multiprocessing/queues.py:103",
        "batch_of train.py:20",
        call="read",
        descriptors=(pipe(7, 300),),
        ppid=300,
    )
    feeds = look(
        "Queue.put STD/multiprocessing/queues.py:89",
        "feed train.py:42",
        "<module> train.py:58",
        pid=300,
        ppid=1,
    )
    fed = replace(first(takes, feeds), beside=(300,))
    return job(), [fed, rank(1, ALL_REDUCE)]


IN_A_LOOP = (
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "Catalogue.find train.py:30",
    "find_shards train.py:36",
    "Handle._run STD/asyncio/events.py:80",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1922",
    "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
    "run STD/asyncio/runners.py:190",
    "main train.py:78",
)


def waits_in_its_loop() -> Facts:
    """A coroutine hands another one to its own loop, and waits for the result."""
    one = look(*IN_A_LOOP, args=FOREVER)
    (thread,) = one.threads
    hands = replace(thread.frames[2], calls=("asyncio.run_coroutine_threadsafe", "result"))
    frames = (*thread.frames[:2], hands, *thread.frames[3:])
    one = replace(one, threads=(replace(thread, frames=frames),))
    return job(), [first(one), rank(1, ALL_REDUCE)]


SHOWS: Shows = {
    "loop-waits-for-itself": waits_in_its_loop,
    "queue-of-another-full": parent_feeds_another,
    "server-process-stuck": server_beside,
    "child-process-stuck": joins,
    "manager-waits": manager,
    "thread-stuck": thread,
}


def test_a_child_that_shares_its_port_with_a_stranger_may_not_be_who_is_asked() -> None:
    """Both listen there (SO_REUSEPORT); by the kernel either may have the connection."""

    def asks(*peers: int) -> Facts:
        to = tcp("127.0.0.1:8000", peer_pids=peers, received=0)
        one = look("generate train.py:9", call="recvfrom", descriptors=on(to), sockets=(to,))
        return beside_a_waiting_rank(one, child("serve server.py:5", call="epoll_wait"))

    assert "child-process-stuck" in causes_of(asks(300))
    assert "child-process-stuck" not in causes_of(asks(4711, 300))


def test_a_child_is_found_however_it_is_waited_for() -> None:
    for facts in (gets_from_a_queue, pool_of_processes, local_cluster, output_of_a_program):
        found = causes_of(facts())
        assert found["child-process-stuck"].agreement > 0.5, facts.__name__
        assert next(iter(found)) == "child-process-stuck", facts.__name__


def test_what_the_child_does_is_said_not_what_the_rank_does() -> None:
    assert "work (data.py:5)" in causes_of(joins())["child-process-stuck"].why
    assert "serve_client" in causes_of(manager())["manager-waits"].matched[1]


def test_the_end_of_a_with_hides_the_error_that_ended_it() -> None:
    facts, (one, other) = thread()
    ends = look(
        "Thread._wait_for_tstate_lock STD/threading.py:1139",
        "Thread.join STD/threading.py:1119",
        "ThreadPoolExecutor.shutdown STD/concurrent/futures/thread.py:235",
        "Executor.__exit__ STD/concurrent/futures/_base.py:647",
        "train train.py:33",
        args=FOREVER,
    )
    ends = beside(ends, ("prefetch_0", ("prefetch train.py:23",)), call="futex")
    ranks = [replace(one, looks=tuple(replace(ends, at=seen.at) for seen in one.looks)), other]
    assert "an error that ended it" in " ".join(causes_of((facts, ranks))["thread-stuck"].matched)
    assert "an error" not in " ".join(causes_of(thread())["thread-stuck"].matched)


def test_a_manager_that_was_started_beside_the_ranks_is_found_below_another_one() -> None:
    facts, (asks, other) = manager()
    beside_them = replace(other, children=asks.children)
    found = causes_of((facts, [replace(asks, children=()), beside_them]))
    assert "serve_client" in found["manager-waits"].matched[1]
    assert "endpoint-silent" not in found


def test_a_process_that_was_killed_is_why_a_manager_waits() -> None:
    facts, ranks = manager()
    killed = look(pid=310, ppid=100, state="Z", call="", rung="proc", status=-11)
    asks = replace(ranks[0], children=(*ranks[0].children, (killed,)))
    found = causes_of((facts, [asks, *ranks[1:]]))
    assert "manager-waits" not in found
    assert "SIGSEGV" in found["child-died"].why


def test_a_child_that_computes_is_not_stuck() -> None:
    facts, ranks = joins()
    works = replace(ranks[0], children=((replace(STUCK, state="R", kernel=()),),))
    assert "child-process-stuck" not in causes_of((facts, [works, ranks[1]]))


def test_a_pool_that_waits_for_a_task_is_not_what_a_thread_waits_for() -> None:
    facts, ranks = thread()
    idle = ("Queue.get STD/queue.py:171", "_worker STD/concurrent/futures/thread.py:81")
    one = look("Event.wait STD/threading.py:629", "prepare train.py:9", args=FOREVER)
    alone = first(beside(one, ("pool", idle)))
    assert "thread-stuck" not in causes_of((facts, [alone, ranks[1]]))


def test_the_only_other_thread_is_the_one_that_is_joined_whatever_it_waits_for() -> None:
    """A thread that only waits, for an event that nobody sets, is otherwise none of the job's."""
    facts, ranks = thread()
    waits = ("Event.wait STD/threading.py:629", "Thread.run STD/threading.py:982")
    one = look(
        "Thread._wait_for_tstate_lock STD/threading.py:1119",
        "Thread.join STD/threading.py:1112",
        "prepare train.py:9",
        args=FOREVER,
    )
    alone = beside(one, ("check", waits))
    found = causes_of((facts, [first(alone), ranks[1]]))
    assert next(iter(found)) == "thread-stuck"
    assert "thread check" in found["thread-stuck"].why
    two = beside(alone, ("other", waits))
    assert "thread-stuck" not in causes_of((facts, [first(two), ranks[1]]))


def test_threads_that_meet_in_a_barrier_are_the_jobs_own() -> None:
    """No library's thread waits for work there; one elsewhere may be the one that is joined."""
    facts, ranks = thread()
    meets = (
        "Condition.wait STD/threading.py:327",
        "Barrier._wait STD/threading.py:732",
        "Barrier.wait STD/threading.py:697",
        "Thread.run STD/threading.py:982",
    )
    one = look(
        "Thread._wait_for_tstate_lock STD/threading.py:1139",
        "Thread.join STD/threading.py:1119",
        "load train.py:23",
        args=FOREVER,
    )
    three = beside(one, ("first", meets), ("second", meets), ("third", meets))
    found = causes_of((facts, [first(three), ranks[1]]))
    assert next(iter(found)) == "thread-stuck"
    assert "Barrier" in found["thread-stuck"].why
    waits = ("Event.wait STD/threading.py:629", "Thread.run STD/threading.py:982")
    mixed = beside(one, ("first", meets), ("other", waits))
    assert "thread-stuck" not in causes_of((facts, [first(mixed), ranks[1]]))


def test_what_a_thread_at_work_may_give_a_loop_does_not_wait_for_itself() -> None:
    found = causes_of(waits_in_its_loop())
    assert next(iter(found)) == "loop-waits-for-itself"
    assert "dead-producer" not in found
    about, (one, other) = waits_in_its_loop()
    works = beside(
        one.looks[-1], ("convert", ("convert data.py:12", "Thread.run STD/threading.py:982"))
    )
    assert "loop-waits-for-itself" not in causes_of((about, [first(works), other]))


def test_of_a_job_inside_of_the_job_the_rank_that_keeps_the_others_is_told() -> None:
    """A rank evaluates by a torchrun of its own, whose launcher only looks whether they live."""
    api = "SP/torch/distributed/elastic/agent/server/api.py"
    waits = look(
        "Popen.communicate STD/subprocess.py:1196",
        "run STD/subprocess.py:550",
        "score train.py:38",
        call="read",
        descriptors=(pipe(5, 300),),
    )
    agent = look(
        f"SimpleElasticAgent._invoke_run {api}:923", f"run {api}:745", pid=300, ppid=100, call="nap"
    )
    sleeps = look("evaluate train.py:27", "<module> train.py:53", pid=301, ppid=300, call="nap")
    meets = replace(ALL_REDUCE, pid=302, ppid=300)
    found = causes_of((job(), [first(waits, agent, sleeps, meets), rank(1, ALL_REDUCE)]))
    assert "evaluate (train.py:27), in python (301)" in found["child-process-stuck"].why
