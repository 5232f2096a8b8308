"""A process beside the ranks, started with them and by none of them, which a rank asks: a rollout
engine, a replay buffer, a coordinator. It is no stranger: where it stands still it is to blame, and
what it or its own worker stands in is the cause.
"""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.identity import UnknownRank
from hangbisect.base.process_facts import (
    CodeLock,
    Descriptor,
    Kernel,
    Look,
    PipeEnd,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.process.request_waits import keep_feeding_parents
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot

from .made_up import ALL_REDUCE, gone, job, look, rank, stack

SERVER, WORKER = 90, 91
ADDRESS = "127.0.0.1:5000"
ANSWERS = Socket(8, "tcp", local=ADDRESS, peer="127.0.0.1:41000", state="ESTABLISHED")


def asks(server: int = SERVER) -> Look:
    """A rank that waits for the answer to a request."""
    socket = Socket(
        7,
        "tcp",
        local="127.0.0.1:41000",
        peer=ADDRESS,
        state="ESTABLISHED",
        received=0,
        peer_pids=(server,),
        peer_names=("python",),
    )
    end = Descriptor(13, "socket", "socket:[7]", socket=socket)
    return look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:325",
        "urlopen STD/urllib/request.py:216",
        "generate train.py:27",
        "<module> train.py:43",
        call="recvfrom",
        descriptors=(end,),
        sockets=(socket,),
    )


def server(*frames: str, **more: object) -> Look:
    more.setdefault("sockets", (ANSWERS,))
    more.setdefault("command", ("python", "serve.py", "5000"))
    return look(*frames, pid=SERVER, ppid=70, **more)  # type: ignore[arg-type]


READS_ITS_WORKER = server(
    "Connection._recv STD/multiprocessing/connection.py:395",
    "_ConnectionBase.recv STD/multiprocessing/connection.py:250",
    "Handler.do_POST serve.py:30",
    "ThreadingMixIn.process_request_thread STD/socketserver.py:691",
    call="read",
    descriptors=(
        Descriptor(
            5,
            "socket",
            "socket:[30]",
            socket=Socket(
                30,
                "unix",
                state="ESTABLISHED",
                peer_pids=(SERVER, WORKER),
                peer_names=("python",) * 2,
            ),
        ),
    ),
)
POLLS = look(
    "load_adapter serve.py:12",
    "work serve.py:18",
    "BaseProcess.run STD/multiprocessing/process.py:108",
    pid=WORKER,
    ppid=SERVER,
    call="clock_nanosleep",
    command=("python", "serve.py", "5000"),
)


def judge(*around: Look, first: Look | None = None, others: int = 1) -> Verdict:
    one = rank(0, *(first or asks(),) * 3)
    one = replace(
        one, children=tuple((it,) * 3 for it in around), beside=tuple(it.pid for it in around)
    )
    ranks: list[RankFacts] = [one, *(rank(n, *(ALL_REDUCE,) * 3) for n in range(1, others + 1))]
    verdict, _ = judge_snapshot(job(ended="still", world=len(ranks)), Snapshot(ranks))
    return verdict


def said(verdict: Verdict) -> str:
    cause = verdict.cause
    told = (cause.why, *cause.matched, *cause.avoid) if cause is not None else ()
    return "\n".join([*told, *(f"{e.source} {e.target} {e.evidence}" for e in verdict.chain)])


def test_what_a_rank_asks_and_what_that_waits_for_is_followed_to_its_end() -> None:
    verdict = judge(READS_ITS_WORKER, POLLS)
    assert verdict.ranks.culprit == (UnknownRank("n01", WORKER),)
    assert set(verdict.ranks.waiting) == {0, 1}
    assert verdict.cause is not None
    assert verdict.cause.id != "endpoint-silent"
    assert "load_adapter (serve.py:12)" in said(verdict)
    assert [one.pid for one in verdict.where] == [WORKER]


def test_one_that_is_stopped_is_said_to_be_so() -> None:
    verdict = judge(server("serve buffer.py:22", state="T", call="", wchan="do_signal_stop"))
    assert verdict.cause is not None
    assert verdict.cause.id == "stopped"
    assert "kill -CONT 90" in said(verdict)
    assert 1 in verdict.ranks.waiting


def test_one_that_waits_for_a_rank_in_turn_is_not_blamed_alone() -> None:
    """A server that waits in the group for the weights, for a rank that has not joined it."""
    meets = server(
        "_create_c10d_store SP/torch/distributed/rendezvous.py:199",
        "init_process_group SP/torch/distributed/distributed_c10d.py:1892",
        "Handler.do_POST serve.py:30",
        call="poll",
    )
    assert UnknownRank("n01", SERVER) not in judge(meets).ranks.culprit
    back = Socket(9, "unix", state="ESTABLISHED", peer_pids=(101,), peer_names=("python",))
    reads = server(
        "serve service.py:11",
        call="recvfrom",
        descriptors=(Descriptor(4, "socket", "socket:[9]", socket=back),),
    )
    assert UnknownRank("n01", SERVER) not in judge(reads).ranks.culprit


def test_it_is_no_descendant_of_the_rank_that_asks_it() -> None:
    """A worker that is dead there is none of the rank's, nor is a child that it may wait for."""
    joins = look(
        "Popen.wait STD/multiprocessing/popen_fork.py:43",
        "BaseProcess.join STD/multiprocessing/process.py:149",
        "main train.py:9",
        call="wait4",
    )
    verdict = judge(server("serve serve.py:3", call="poll"), first=joins)
    assert verdict.ranks.culprit == (0,)
    assert "process 90" not in said(verdict)


def test_of_two_ranks_that_ask_it_neither_waits_for_the_other() -> None:
    one = rank(0, *(asks(),) * 3)
    one = replace(one, children=((READS_ITS_WORKER,) * 3, (POLLS,) * 3), beside=(SERVER, WORKER))
    ranks = [one, rank(1, *(asks(),) * 3)]
    verdict, _ = judge_snapshot(job(ended="still"), Snapshot(ranks))
    assert verdict.ranks.culprit == (UnknownRank("n01", WORKER),)
    assert set(verdict.ranks.waiting) == {0, 1}


def test_a_rank_that_stands_still_by_itself_is_to_blame_as_before() -> None:
    computes = look("step train.py:5", "<module> train.py:9", call="clock_nanosleep")
    idle = server("_PollLikeSelector.select STD/selectors.py:415", call="poll")
    verdict = judge(idle, first=computes)
    assert verdict.ranks.culprit == (0,)


def test_a_program_that_it_started_is_not_blamed_in_its_place() -> None:
    """A coordinator that writes to a helper which does not read: it is the coordinator's to ask how
    its helper does; what multiprocessing started in a server is the server itself.
    """
    pipe = Descriptor(4, "pipe", "pipe:[5]", other_ends=(WORKER,))
    writes = server(
        "coordinate serve.py:42",
        call="write",
        wchan="pipe_write",
        descriptors=(pipe,),
        command=("MyServer::Coordinator",),
        name="MyServer::Coord",
    )
    helper = replace(POLLS, command=("/usr/bin/python", "counts.py"))
    verdict = judge(writes, helper)
    assert verdict.ranks.culprit == (UnknownRank("n01", SERVER),)
    assert [one.role for one in verdict.where] == ["MyServer::Coordinator"]


def test_a_full_pipe_says_more_than_that_its_reader_has_no_thread_to_wait_for() -> None:
    """Its helper waits for an event that it alone could set: that some thread of it had ended is no
    more than a guess.
    """
    pipe = Descriptor(4, "pipe", "pipe:[5]", other_ends=(WORKER,))
    writes = server(
        "coordinate serve.py:42",
        call="write",
        wchan="pipe_write",
        descriptors=(pipe,),
        command=("MyServer::Coordinator",),
    )
    waits = look(
        "Condition.wait STD/threading.py:327",
        "Event.wait STD/threading.py:629",
        "<module> counts.py:4",
        pid=WORKER,
        ppid=SERVER,
        call="futex",
        command=("/usr/bin/python", "counts.py"),
    )
    cause = judge(writes, waits).cause
    assert cause is not None
    assert cause.id == "pipe-unread"


def test_one_that_only_takes_connections_is_not_blamed() -> None:
    """A multiprocessing.Manager in which a rank waits for an item that another is to put: it does
    what it was asked, in a thread of the library's.
    """
    manager = server(
        "Condition.wait STD/threading.py:331",
        "Event.wait STD/threading.py:629",
        "Server.serve_forever STD/multiprocessing/managers.py:176",
        "BaseManager._run_server STD/multiprocessing/managers.py:598",
        "BaseProcess.run STD/multiprocessing/process.py:108",
        "<module> train.py:45",
    )
    verdict = judge(manager)
    assert verdict.ranks.culprit == (0,)
    assert verdict.cause is None or verdict.cause.id in ("endpoint-silent", "manager-waits")


def test_one_that_asks_its_own_store_waits_for_whoever_is_to_set_it() -> None:
    own = Socket(9, "tcp", peer="127.0.0.1:59910", state="ESTABLISHED", peer_pids=(SERVER,))
    waits = server(
        "Handler.do_POST serve.py:15",
        "BaseServer.serve_forever STD/socketserver.py:238",
        call="poll",
        descriptors=(Descriptor(15, "socket", "socket:[9]", socket=own),),
    )
    assert judge(waits).ranks.culprit == (0,)


LISTENS = Socket(3, "tcp", local=ADDRESS, state="LISTEN")
PAIR = Socket(
    17,
    "tcp",
    local="127.0.0.1:51000",
    peer="127.0.0.1:52000",
    state="ESTABLISHED",
    peer_pids=(SERVER,),
    peer_names=("python",),
)
BROADCASTS = look(
    "broadcast SP/torch/distributed/distributed_c10d.py:3151",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "update_weights train.py:49",
    "<module> train.py:69",
    sockets=(PAIR,),
)
SERVES = server(
    "_PollLikeSelector.select STD/selectors.py:415",
    "BaseServer.serve_forever STD/socketserver.py:233",
    "<module> rollout.py:46",
    call="poll",
    command=("python", "rollout.py", "5000"),
)


def test_the_only_rank_in_a_collective_waits_for_the_process_at_its_connections() -> None:
    """A trainer and its rollout server, two programs with a group for the weights: the server has
    refused to take them, and serves on. It is a member of the group, though no rank of the job.
    """
    verdict = judge(SERVES, first=BROADCASTS, others=0)
    assert verdict.ranks.culprit == (UnknownRank("n01", SERVER),)
    assert verdict.ranks.waiting == (0,)
    assert [one.role for one in verdict.where] == ["rollout.py"]
    assert [(one.source, one.target) for one in verdict.chain[:2]] == [
        ("rank 0", "collective broadcast"),
        ("collective broadcast", f"process {SERVER}"),
    ]
    assert verdict.call == "socketserver.BaseServer.serve_forever"


def test_one_that_is_in_the_collective_too_or_at_work_is_not_blamed_for_it() -> None:
    receives = server(
        "broadcast SP/torch/distributed/distributed_c10d.py:3151",
        "update_weights rollout.py:21",
    )
    works = server("load_weights rollout.py:9", state="R", call="")
    for one in (receives, works):
        assert judge(one, first=BROADCASTS, others=0).ranks.culprit != (UnknownRank("n01", SERVER),)


def test_where_a_rank_of_the_job_is_not_in_the_collective_that_one_is_waited_for() -> None:
    one = rank(0, *(BROADCASTS,) * 3, children=((SERVES,) * 3,), beside=(SERVER,))
    computes = look("step train.py:5", "<module> train.py:9", call="clock_nanosleep")
    ranks = [one, rank(1, *(computes,) * 3)]
    verdict, _ = judge_snapshot(job(ended="still"), Snapshot(ranks))
    assert verdict.ranks.culprit == (1,)


def test_a_server_that_a_rank_waits_for_in_a_collective_does_not_wait_for_a_client() -> None:
    """As a job of two programs, neither of which has a number."""
    serves = server(
        "_PollLikeSelector.select STD/selectors.py:415",
        "BaseServer.serve_forever STD/socketserver.py:233",
        "<module> rollout.py:46",
        call="poll",
        command=("python", "rollout.py", "5000"),
        descriptors=(Descriptor(3, "socket", "socket:[3]", socket=LISTENS),),
        sockets=(ANSWERS, LISTENS),
    )
    ranks = [
        replace(rank(0, *(serves,) * 3), rank=UnknownRank("n01", 100), local_rank=0),
        replace(rank(1, *(BROADCASTS,) * 3), rank=UnknownRank("n01", 101), local_rank=1),
    ]
    verdict, _ = judge_snapshot(job(ended="still", local_ranks=()), Snapshot(ranks))
    assert verdict.ranks.culprit == (UnknownRank("n01", 100),)
    assert verdict.cause is None or verdict.cause.id == "rank-conditional-collective"
    alone, _ = judge_snapshot(job(ended="still", world=1), Snapshot([rank(0, *(serves,) * 3)]))
    assert alone.cause is not None
    assert alone.cause.id == "nobody-sends"


PARENT = 50
FEEDS = look(
    "Queue.put STD/multiprocessing/queues.py:89",
    "feed train.py:42",
    "<module> train.py:58",
    pid=PARENT,
    ppid=1,
    call="futex",
    command=("python", "train.py"),
)
JOINS = look(
    "wait STD/multiprocessing/connection.py:947",
    "ProcessContext.join SP/torch/multiprocessing/spawn.py:140",
    "<module> train.py:58",
    pid=PARENT,
    ppid=1,
    call="poll",
    command=("python", "train.py"),
)


def spawned(parent: Look) -> list[RankFacts]:
    """Rank 1 waits for an item of its queue, whose pipe its parent has; rank 0 for rank 1."""
    ends = (PipeEnd(PARENT, 5, "python", 1),)
    empty = Descriptor(6, "pipe", "pipe:[7]", other_ends=(PARENT,), ends=ends)
    takes = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "Queue.get STD/multiprocessing/queues.py:103",
        "batch_of train.py:20",
        call="read",
        descriptors=(empty,),
        ppid=PARENT,
    )
    meets = replace(ALL_REDUCE, ppid=PARENT)
    fed = rank(1, *(takes,) * 3, children=((parent,) * 3,), beside=(PARENT,))
    return keep_feeding_parents([rank(0, *(meets,) * 3), fed])


def test_the_parent_that_feeds_the_ranks_is_to_blame_where_it_waits_for_room() -> None:
    """It fills the queue of one rank, which waits for another one that gets nothing."""
    ranks = spawned(FEEDS)
    verdict, _ = judge_snapshot(job(ended="still"), Snapshot(ranks))
    assert verdict.ranks.culprit == (UnknownRank("n01", PARENT),)
    assert set(verdict.ranks.waiting) == {0, 1}
    assert verdict.call == "multiprocessing.Queue.put"
    assert verdict.cause is not None
    assert verdict.cause.id == "queue-of-another-full"
    assert "feed (train.py:42)" in verdict.cause.why


def test_a_parent_that_waits_for_the_ends_of_the_ranks_is_none_of_the_story() -> None:
    ranks = spawned(JOINS)
    assert [(one.beside, one.children) for one in ranks] == [((), ())] * 2
    verdict, _ = judge_snapshot(job(ended="still"), Snapshot(ranks))
    assert verdict.ranks.culprit == (1,)


def test_a_parent_is_kept_that_a_rank_has_asked_at_a_port_or_that_looks_for_something() -> None:
    listens = Socket(3, "tcp", "127.0.0.1:8080", "", "LISTEN")
    loop = "BaseEventLoop._run_once STD/asyncio/base_events.py:1884"
    server = replace(look(loop, pid=PARENT, ppid=1, call="epoll_wait"), sockets=(listens,))
    asked = Socket(6, "tcp", "127.0.0.1:40", "127.0.0.1:8080", "ESTABLISHED", peer_pids=(PARENT,))
    asks = look("train train.py:9", call="recvfrom", ppid=PARENT, sockets=(asked,))
    polls = look("write train.py:9", pid=PARENT, ppid=1, call="clock_nanosleep")
    for parent, sockets, kept in ((server, (asked,), True), (server, (), False), (polls, (), True)):
        one = replace(asks, sockets=sockets)
        fed = rank(0, one, children=((parent,),), beside=(PARENT,))
        (found,) = keep_feeding_parents([fed])
        assert (found.beside == (PARENT,)) is kept


def unix(inode: int, other: int, local: str = "", peer: str = "") -> Descriptor:
    """A connection over a Unix socket, which both ends call by the path of the one that listens."""
    socket = Socket(inode, "unix", local, peer, "ESTABLISHED", peer_pids=(other,))
    return Descriptor(13, "socket", f"socket:[{inode}]", socket=socket)


def reads_over_unix(pid: int, end: Descriptor, *frames: str) -> Look:
    sockets = (end.socket,) if end.socket is not None else ()
    return look(
        *("SocketIO.readinto STD/socket.py:706", *frames),
        pid=pid,
        ppid=70,
        call="recvfrom",
        descriptors=(end,),
        sockets=sockets,
        command=("python", "serve.py", "data.sock"),
    )


def test_two_connections_over_one_path_are_not_one_connection() -> None:
    """Rank 0 waits for the service; the service reads the next request of rank 1. Whoever waits for
    rank 0 waits for the service, and not for rank 1.
    """
    asks_it = reads_over_unix(100, unix(7, SERVER, peer="data.sock"), "batch train.py:38")
    hears = reads_over_unix(SERVER, unix(9, 101, local="data.sock"), "handle serve.py:30")
    verdict = judge(hears, first=asks_it, others=2)
    assert 1 not in verdict.ranks.culprit
    assert 2 not in verdict.ranks.culprit


def test_a_process_of_the_job_that_waits_for_its_ranks_is_no_silent_server() -> None:
    """An engine reads words of the program that has spawned it, which waits for another engine, or
    for the end of the engines.
    """
    asks_it = reads_over_unix(100, unix(7, SERVER, peer="words"), "process_input train.py:36")
    hears = reads_over_unix(SERVER, unix(9, 101, local="words"), "main train.py:90")
    joins = server("Popen.poll STD/multiprocessing/popen_fork.py:27", call="wait4", args=(100, 0))
    for parent in (hears, joins):
        verdict = judge(parent, first=asks_it)
        assert verdict.ranks.culprit == (0,)
        assert verdict.cause is None or verdict.cause.id != "endpoint-silent"
    stranger = judge(first=asks_it)
    assert stranger.cause is not None
    assert stranger.cause.id == "endpoint-silent"


AT_A_QUEUE = ("Connection._recv STD/multiprocessing/connection.py:395", "train train.py:31")


def two_that_wait_for(dead: Look, *more: RankFacts, kind: str = "pipe") -> Verdict:
    """Two ranks at the pipe of a queue, whose other end they and their parent have; a process that
    the parent has started besides.
    """
    end = Descriptor(3, "pipe", "pipe:[7]", other_ends=(70, 100, 101))
    at_pipe = look(*AT_A_QUEUE, call="read", descriptors=(end,), ppid=70)
    at_work = look("sleep train.py:9", call="clock_nanosleep", ppid=70)
    first = rank(0, at_pipe, environment={}, children=((dead,),), beside=(dead.pid,))
    second = rank(1, at_pipe if kind == "pipe" else at_work, environment={})
    ranks = [first, second, *more]
    return judge_snapshot(job(world=len(ranks), pipeline=""), Snapshot(ranks))[0]


def died(status: int = -11, ppid: int = 70, state: str = "Z") -> Look:
    return look(pid=95, ppid=ppid, state=state, call="", rung="proc", status=status)


def test_a_dead_helper_is_to_blame_in_place_of_those_that_wait_for_it() -> None:
    verdict = two_that_wait_for(died())
    assert verdict.ranks.culprit == (UnknownRank("n01", 95),)
    assert verdict.ranks.waiting == (0, 1)
    assert verdict.cause is not None
    assert verdict.cause.id == "child-died"
    assert verdict.where[0].ended == "ended by SIGSEGV"
    assert (verdict.call, verdict.waits_for) == (None, None)


def test_what_had_started_the_ranks_is_to_blame_where_it_was_killed_above_them() -> None:
    """The ranks are init's now, each has both ends of its queue, and the script has not asked how
    the engine ended.
    """
    own = Descriptor(3, "pipe", "pipe:[7]", other_ends=(100,))
    orphan = look(*AT_A_QUEUE, call="read", descriptors=(own,), ppid=1)
    verdicts = []
    for engine in (died(-9), replace(died(-9), age=60.0), replace(died(-9, ppid=95), age=60.0)):
        first = rank(0, orphan, environment={}, children=((engine,),), beside=(95,))
        own = Descriptor(3, "pipe", "pipe:[8]", other_ends=(101,))
        ranks = [first, rank(1, replace(orphan, pid=101), environment={})]
        verdicts.append(judge_snapshot(job(world=2, pipeline=""), Snapshot(ranks))[0])
    younger, above, of_another = verdicts
    assert above.ranks.culprit == (UnknownRank("n01", 95),)
    assert above.ranks.waiting == (0, 1)
    assert above.cause is not None
    assert above.cause.id == "child-died"
    assert above.where[0].ended == "ended by SIGKILL"
    assert UnknownRank("n01", 95) not in (*younger.ranks.culprit, *of_another.ranks.culprit)


def test_a_dead_helper_is_to_blame_where_the_ranks_wait_for_who_has_started_both() -> None:
    """It was seen with what the server consists of, and not as a process beside the ranks."""
    connected = Socket(7, "unix", peer="/tmp/q", state="ESTABLISHED", peer_pids=(70,))
    end = Descriptor(5, "socket", "socket:[7]", socket=connected)
    waits = look("schedule train.py:31", call="recvfrom", descriptors=(end,), ppid=70)
    starter = look("generate train.py:60", pid=70, ppid=3, call="epoll_wait")
    for dead, is_named in ((died(-9), True), (died(0), False)):
        around = ((dead,), (starter,))
        first = rank(0, waits, waits, environment={}, children=around)
        verdict, _ = judge_snapshot(job(world=1, pipeline=""), Snapshot([first]))
        named = UnknownRank("n01", 95) in verdict.ranks.culprit
        assert named is is_named
        if is_named:
            assert verdict.cause is not None
            assert verdict.cause.id == "child-died"


def test_a_helper_that_ended_well_or_is_anothers_or_lives_is_not_to_blame() -> None:
    for one in (died(0), died(-15), died(ppid=3), died(state="S")):
        assert UnknownRank("n01", 95) not in two_that_wait_for(one).ranks.culprit


def test_where_a_rank_is_gone_or_stands_elsewhere_a_dead_helper_is_not_to_blame() -> None:
    assert UnknownRank("n01", 95) not in two_that_wait_for(died(), gone(2, 1)).ranks.culprit
    assert UnknownRank("n01", 95) not in two_that_wait_for(died(), kind="sleep").ranks.culprit


def test_the_cause_is_that_of_the_thread_that_has_the_lock_for_which_all_others_wait() -> None:
    """A server whose saver opens a pipe with a name, with the lock that each request wants."""
    lock = CodeLock("lock", "server.py:lock")

    pulls = server("Shard.pull server.py:18", "Shard.handle server.py:15", call="futex")
    (task,) = pulls.kernel
    assert task.syscall is not None
    for_ever = replace(task.syscall, args=(0x7F00, 393, 0, 0, 0, 0))
    wants = tuple(replace(f, takes=lock) if f.line == 18 else f for f in pulls.threads[0].frames)
    second = Thread(211, "Thread-2", False, False, wants)
    saves = stack("save_now_and_then server.py:28", "Thread.run STD/threading.py:982")
    saver = Thread(212, "saver", False, False, (replace(saves[0], inside=(lock,)), *saves[1:]))
    opens = Syscall(257, "openat", (0,) * 6, path="/data/feed")
    pulls = replace(
        pulls,
        threads=(replace(pulls.threads[0], frames=wants), second, saver),
        kernel=(
            replace(task, syscall=for_ever),
            Kernel(211, "python", "S", "futex_do_wait", for_ever),
            Kernel(212, "python", "S", "wait_for_partner", opens),
        ),
    )
    cause = judge(pulls).cause
    assert cause is not None
    assert cause.id == "pipe-no-writer"
    assert "/data/feed" in cause.why
