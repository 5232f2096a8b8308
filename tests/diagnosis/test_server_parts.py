"""An engine that stands still is to blame, and not a worker beside which it was seen."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.identity import UnknownRank
from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Kernel,
    Look,
    PipeEnd,
    Socket,
    Thread,
)
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.server_roles import find_roles, find_titles
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot

from .made_up import look, rank, stack

ENGINE = 90


def waits_for_the_engine(number: int, engine: int = ENGINE) -> RankFacts:
    socket = Socket(7, "unix", peer="/tmp/q", state="ESTABLISHED", peer_pids=(engine,))
    end = Descriptor(5, "socket", "socket:[7]", socket=socket)
    waits = look(
        "WorkerProc.worker_busy_loop SP/vllm/v1/executor/multiproc_executor.py:160",
        call="recvfrom",
        descriptors=(end,),
        command=(f"VLLM::Worker_TP{number}",),
        ppid=ENGINE,
    )
    return rank(number, waits, waits, waits)


def judge(beside: Look, number: int = 2) -> Verdict:
    first, *others = (waits_for_the_engine(n, beside.pid) for n in range(number))
    ranks = [replace(first, children=((beside,) * 3,)), *others]
    verdict, _ = judge_snapshot(JobFacts(ended="still", world_size=number), Snapshot(ranks))
    return verdict


def opens_a_pipe(title: str, pid: int = ENGINE) -> Look:
    return look(
        "EngineCore._initialize_kv_caches SP/vllm/v1/engine/core.py:22",
        pid=pid,
        ppid=80,
        call="openat",
        wchan="wait_for_partner",
        path="/data/feed",
        command=(title,),
        name=title.removeprefix("VLLM::"),
    )


def test_the_engine_is_named_as_a_process_without_a_number() -> None:
    verdict = judge(opens_a_pipe("VLLM::EngineCore_DP0"))
    assert verdict.ranks.culprit == (UnknownRank("n01", ENGINE),)
    assert verdict.ranks.waiting == (0, 1)
    (where,) = verdict.where
    assert (where.role, where.pid) == ("EngineCore_DP0", ENGINE)
    assert where.waits_for is not None
    assert where.waits_for.what == "/data/feed"
    assert verdict.chain[-1].target == "/data/feed"
    assert verdict.chain[0].source.startswith("rank ")


def test_a_helper_of_a_rank_that_is_no_server_is_its_ranks() -> None:
    verdict = judge(opens_a_pipe("python feed.py"), number=1)
    assert verdict.ranks.culprit == (0,)


def looks_again(number: int, line: int = 42) -> RankFacts:
    """A worker that looks at a flag in shared memory again and again."""
    one = look(
        f"Ring.read train.py:{line}",
        "work train.py:53",
        call="clock_nanosleep",
        command=(f"Serve::worker_{number}",),
        ppid=ENGINE,
    )
    return rank(number, one, one, one)


def judge_pollers(engine: Look, *lines: int) -> Verdict:
    first, *others = (looks_again(n, line) for n, line in enumerate(lines))
    ranks = [replace(first, children=((engine,) * 3,)), *others]
    return judge_snapshot(JobFacts(ended="still", world_size=len(ranks)), Snapshot(ranks))[0]


def test_who_has_started_ranks_that_all_look_for_something_is_named() -> None:
    writes = look(
        "Ring.write train.py:30",
        "run_engine train.py:66",
        pid=ENGINE,
        ppid=80,
        call="clock_nanosleep",
        command=("Serve::engine",),
    )
    verdict = judge_pollers(writes, 42, 42, 42)
    assert verdict.ranks.culprit == (UnknownRank("n01", ENGINE),)
    assert verdict.ranks.waiting == (0, 1, 2)
    first, second, *others = (looks_again(n) for n in range(3))
    busy = replace(second.looks[0], state="R", kernel=(Kernel(101, "python", "R", "", None),))
    second = replace(second, looks=(second.looks[0], busy, busy))
    ranks = [replace(first, children=((writes,) * 3,)), second, *others]
    verdict, _ = judge_snapshot(JobFacts(ended="still", world_size=3), Snapshot(ranks))
    assert verdict.ranks.culprit == (UnknownRank("n01", ENGINE),), "it waited for a processor"
    joins = look(
        "Popen.poll STD/multiprocessing/popen_fork.py:27", pid=ENGINE, ppid=80, call="wait4"
    )
    in_library = look("Poller.wait SP/poller/x.py:3", pid=ENGINE, ppid=80, call="clock_nanosleep")
    (main,) = writes.threads
    inner, *outer = main.frames
    only_ends = replace(main, frames=(replace(inner, awaits_ends=True), *outer))
    for other in (joins, in_library, replace(writes, threads=(only_ends,))):
        assert UnknownRank("n01", ENGINE) not in judge_pollers(other, 42, 42, 42).ranks.culprit


def test_a_rank_whose_number_nobody_knows_goes_by_its_own_title() -> None:
    """Of any other one the words that started it say nothing of which it is."""
    titled = waits_for_the_engine(0)
    looks = tuple(replace(one, command=("MyServer::Engine_DP1",)) for one in titled.looks)
    ranks = [replace(titled, rank=UnknownRank("n01", 100), looks=looks), waits_for_the_engine(1)]
    assert find_roles(ranks)[UnknownRank("n01", 100)] == "MyServer::Engine_DP1"
    plain = replace(titled, rank=UnknownRank("n01", 100), looks=(look("f train.py:1"),))
    assert find_roles([plain]) == {}
    assert find_roles([replace(titled, rank=0, looks=looks)]) == {}


def test_ranks_whose_number_nobody_knows_go_by_their_programs_where_these_differ() -> None:
    def runs(pid: int, *words: str) -> RankFacts:
        one = waits_for_the_engine(0)
        looks = tuple(replace(look, pid=pid, command=words) for look in one.looks)
        return replace(one, rank=UnknownRank("n01", pid), pid=pid, looks=looks)

    rollout, train = runs(50, "python", "rollout.py", "5000"), runs(60, "python", "a/train.py")
    assert find_roles([rollout, train]) == {rollout.rank: "rollout.py", train.rank: "train.py"}
    same = runs(70, "python", "a/train.py", "--port", "1")
    assert find_roles([train, same]) == {}
    assert find_roles([rollout, train, same]) == {rollout.rank: "rollout.py"}


def test_numbered_ranks_are_told_by_the_titles_that_they_gave_themselves() -> None:
    """The number stays: whoever looks for a rank finds it by that."""

    def titled(number: int, title: str) -> RankFacts:
        one = waits_for_the_engine(number)
        return replace(one, looks=tuple(replace(each, command=(title,)) for each in one.looks))

    ranks = [titled(0, "textserve::worker_TP0"), titled(1, "textserve::worker_TP1")]
    assert find_titles(ranks) == {0: "textserve::worker_TP0", 1: "textserve::worker_TP1"}
    absent = rank(2, alive=False, never_started=True)
    assert find_titles([*ranks, absent])[2] == "textserve::worker_TP2"
    unlike = [titled(0, "worker 5"), titled(1, "worker 6"), absent]
    assert find_titles(unlike) == {0: "worker 5", 1: "worker 6"}
    assert find_titles([titled(0, "train"), titled(1, "train")]) == {}
    assert find_titles([titled(0, "ray::Trainer.fit"), titled(1, "VLLM::Worker_TP1")]) == {}
    words = [waits_for_the_engine(0)]
    assert find_titles([replace(words[0], looks=(look("f train.py:1"),))]) == {}


# ---- a server of the user's own, whose parts have titles -----------------------------------------


def reads_from(pid: int, *, own: int, parent: int, title: str = "", file: str = "serve.py") -> Look:
    pair = Socket(own, "unix", state="ESTABLISHED", peer_pids=(pid,), peer_names=("python",))
    end = Descriptor(5, "socket", f"socket:[{own}]", socket=pair)
    command = (title,) if title else ("python", file)
    return look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        f"run {file}:9",
        pid=own,
        ppid=parent,
        call="read",
        descriptors=(end,),
        sockets=(pair,),
        command=command,
    )


def front(*parts: Look, world: int = 1) -> Verdict:
    """A program whose parts wait for one another: the first one for `parts[0]`, and so on."""
    main = reads_from(parts[0].pid, own=100, parent=1)
    ranks = [rank(0, main, main, children=tuple((one, one) for one in parts))]
    ranks += [rank(n, look("train.step train.py:3"), pid=900 + n) for n in range(1, world)]
    verdict, _ = judge_snapshot(JobFacts(ended="still", world_size=world), Snapshot(ranks))
    return verdict


ENGINE_PART = reads_from(302, own=301, parent=100, title="textserve::Engine")
STOPPED = look(
    "run_stage serve.py:28", pid=302, ppid=301, call="", state="T", command=("textserve::PP2",)
)


def test_the_last_part_of_a_program_is_named_where_it_is_kept_by_what_is_no_part_of_it() -> None:
    verdict = front(ENGINE_PART, STOPPED)
    assert verdict.ranks.culprit == (UnknownRank("n01", 302),)
    assert verdict.ranks.waiting == (0,)
    assert verdict.where[0].role == "textserve::PP2"
    assert verdict.cause is not None
    assert verdict.cause.id == "stopped"
    lock = FileLock("/tmp/cache.lock", 5, 4711, "indexer")
    waits = replace(STOPPED, state="S", kernel=look(pid=302, call="flock").kernel, locks=(lock,))
    assert front(ENGINE_PART, waits).ranks.culprit == (UnknownRank("n01", 302),)


def test_a_part_that_keeps_the_gil_in_native_code_is_named() -> None:
    """What its other threads were to answer nobody answers: a router that has handed a connection
    over by a thread of multiprocessing's.
    """
    sleeps = look("rebuild_index serve.py:42", pid=302, ppid=301, call="clock_nanosleep")
    (main,) = sleeps.threads
    sleeps = replace(
        sleeps, command=("textserve::router",), threads=(replace(main, owns_gil=True),)
    )
    verdict = front(ENGINE_PART, sleeps)
    assert verdict.ranks.culprit == (UnknownRank("n01", 302),)
    assert verdict.cause is not None
    assert verdict.cause.id == "gil-held"


def test_parts_without_a_title_and_those_that_wait_for_work_belong_to_their_program() -> None:
    plain = replace(STOPPED, command=("python", "serve.py"))
    assert front(ENGINE_PART, plain).ranks.culprit == (0,)
    idle = reads_from(301, own=302, parent=301, title="textserve::PP2")
    assert front(ENGINE_PART, idle).ranks.culprit == (0,)
    assert front(STOPPED, world=2).ranks.culprit != (UnknownRank("n01", 302),)
    listens = Socket(3, "tcp", local="127.0.0.1:8000", state="LISTEN")
    end = Descriptor(6, "socket", "socket:[3]", socket=listens)
    takes = look("accept STD/socket.py:294", pid=302, call="accept4", descriptors=(end,))
    takes = replace(takes, command=("textserve::PP2",), ppid=301, sockets=(listens,))
    assert front(ENGINE_PART, takes).ranks.culprit == (0,)


SYNCS = (
    "Event.wait STD/threading.py:629",
    "sync SP/distributed/utils.py:452",
    "Event.wait SP/distributed/event.py:200",
)


def gathers(*workers: Look) -> Verdict:
    """A client that waits for what its workers of Dask are to give."""
    client = look(
        "Condition.wait STD/threading.py:331",
        "sync SP/distributed/utils.py:452",
        "Client.gather SP/distributed/client.py:2538",
        "main train.py:36",
    )
    one = rank(0, *(client,) * 3, environment={}, children=tuple((it,) * 3 for it in workers))
    return judge_snapshot(JobFacts(ended="still", world_size=1), Snapshot([one]))[0]


def dask_worker(pid: int, *frames: str, call: str = "futex", **more: object) -> Look:
    title = f"dask worker [tcp://127.0.0.1:{pid}]"
    return look(*frames, pid=pid, ppid=100, call=call, command=(title,), name=title, **more)  # type: ignore[arg-type]


def test_a_worker_of_dask_that_opens_a_pipe_with_a_name_is_named_in_place_of_its_client() -> None:
    opens = dask_worker(
        301, "setup train.py:20", call="openat", wchan="wait_for_partner", path="/data/feed"
    )
    idle = dask_worker(300, "EpollSelector.select STD/selectors.py:468", call="epoll_wait")
    verdict = gathers(idle, opens)
    assert verdict.ranks.culprit == (UnknownRank("n01", 301),)
    assert verdict.ranks.waiting == (0,)
    assert verdict.where[0].role == "dask worker [tcp://127.0.0.1:301]"


def test_a_task_that_asks_its_cluster_is_named_where_no_other_one_is_at_work() -> None:
    """What it asks comes by the loop of its worker, which only waits for messages."""
    asks = dask_worker(301, *SYNCS, "write_partition train.py:26")
    loop = Thread(
        401, "MainThread", False, False, stack("EpollSelector.select STD/selectors.py:468")
    )
    heard = replace(look(call="epoll_wait", pid=401).kernel[0], tid=401)
    asks = replace(asks, threads=(*asks.threads, loop), kernel=(*asks.kernel, heard))
    verdict = gathers(asks)
    assert verdict.ranks.culprit == (UnknownRank("n01", 301),)
    assert verdict.cause is None or verdict.cause.id != "thread-stuck"
    reads = dask_worker(302, "encode train.py:31", call="clock_nanosleep")
    assert gathers(asks, reads).ranks.culprit == (0,)


def test_a_task_of_ray_and_the_program_that_it_has_started_read_from_each_other() -> None:
    """Nothing of the task's but its main thread could write; a thread of Ray's may be running."""

    def end(path: str, other: int, fd: int) -> Descriptor:
        return Descriptor(
            fd, "pipe", path, other_ends=(other,), ends=(PipeEnd(other, 1, "python", 301),)
        )

    task = look(
        "ask judge.py:17",
        "compute_score train.py:22",
        pid=301,
        ppid=70,
        call="read",
        command=("ray::compute_score",),
        name="ray::compute_sc",
        descriptors=(end("pipe:[7]", 302, 40),),
    )
    poller = Kernel(310, "server.poll0", "R", "", None)
    task = replace(task, kernel=(*task.kernel, poller))
    judge = look(
        "<module> judge_program.py:4",
        pid=302,
        ppid=301,
        call="read",
        command=("/usr/bin/python", "judge_program.py"),
        descriptors=(end("pipe:[8]", 301, 0),),
    )
    driver = look("get_objects SP/ray/_private/worker.py:1007", "main train.py:40")
    one = rank(0, *(driver,) * 3, environment={}, children=tuple((it,) * 3 for it in (task, judge)))
    verdict = judge_snapshot(JobFacts(ended="still", world_size=1), Snapshot([one]))[0]
    assert verdict.ranks.culprit == (UnknownRank("n01", 301),)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"


def test_the_ranks_of_a_trainer_are_no_workers_of_the_server_beside_them() -> None:
    trainer = rank(0, look("post SP/requests/api.py:134", command=("python", "train.py"), pid=50))
    worker = replace(waits_for_the_engine(0), rank=UnknownRank("n01", 77))
    assert find_roles([trainer, worker]) == {worker.rank: "Worker_TP0"}
