"""What proves a hang, and what only waits for work."""

from __future__ import annotations

import signal
from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, FileLock, Look, Socket, Syscall, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.proof_of_hang import (
    describe_listening,
    describe_waiting_for_work,
    find_kept_outside,
    find_proof_of_hang,
)
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.report.verdict_rows import word_verdict

from .made_up import ALL_REDUCE, GROUP, RECV, SLEEP, gone, job, look, rank, silent_peer

LISTENS = Socket(3, "tcp", local="127.0.0.1:8000", state="LISTEN")
EVENT_LOOP = look(
    "EpollSelector.select STD/selectors.py:468",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1871",
    "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
    "<module> serve.py:9",
    call="epoll_wait",
    sockets=(LISTENS,),
)


def proof(*ranks: RankFacts, **more: object) -> str:
    verdict, graph = judge_job_with_graph(job("still", world=len(ranks), **more), ranks)
    return find_proof_of_hang(verdict, Snapshot(ranks), graph)


def test_a_rank_that_has_ended_and_is_waited_for_proves_it() -> None:
    assert proof(rank(0, ALL_REDUCE), gone(1, -9)) == "rank 1, for which others wait, has ended"


def test_a_rank_that_was_never_started_proves_it_only_after_a_while() -> None:
    ranks = [rank(0, ALL_REDUCE)]
    absent = job("still", world=2, local_ranks=(0, 1), now=30.0)
    for now, proved in ((30.0, False), (120.0, True)):
        verdict, graph = judge_job_with_graph(replace(absent, now=now), ranks)
        assert verdict.ranks.never_started == (1,)
        assert bool(find_proof_of_hang(verdict, Snapshot(ranks), graph)) is proved


def test_a_rank_that_may_still_be_started_proves_nothing_however_late_it_is() -> None:
    """A program that forks its ranks itself may load data, or sleep, before each of them."""
    ranks = [rank(0, GROUP)]
    told = "process 90 (python), which starts the ranks, sleeps"
    late = job("still", world=2, local_ranks=(0, 1), now=900.0, starting=told)
    verdict, graph = judge_job_with_graph(late, ranks)
    assert verdict.ranks.never_started == (1,)
    assert find_proof_of_hang(verdict, Snapshot(ranks), graph) == ""
    assert verdict.cause is None or verdict.cause.id != "rank-never-started"
    assert told in verdict.notes
    rows = word_verdict(replace(verdict, outcome="silent"), late, ranks).rows
    assert [row.text for row in rows if row.label in ("culprit", "starts")] == [
        "rank 1 not started yet",
        told,
    ]


def test_a_stopped_rank_proves_it() -> None:
    stopped = look("step train.py:5", call="", state="T")
    assert proof(rank(0, ALL_REDUCE), rank(1, stopped)) == "a process is stopped by a signal"


def test_sleep_an_answer_that_does_not_come_and_one_collective_prove_nothing() -> None:
    assert proof(rank(0, ALL_REDUCE), rank(1, SLEEP)) == ""
    assert proof(rank(0, RECV), rank(1, ALL_REDUCE)) == ""
    assert proof(rank(0, ALL_REDUCE), rank(1, ALL_REDUCE)) == ""


def test_a_sleep_that_outlasts_every_group_that_waits_for_it_proves_it() -> None:
    """Process groups give up after 10 or 30 minutes, or what somebody has set; not after a day."""
    for seconds, proved in ((3600.0, False), (2 * 86_400.0, True)):
        (kernel,) = SLEEP.kernel
        call = replace(kernel.syscall, timeout=seconds) if kernel.syscall else None
        sleeps = replace(SLEEP, kernel=(replace(kernel, syscall=call),))
        assert bool(proof(rank(0, ALL_REDUCE), rank(1, sleeps))) is proved
        serves = Thread(907, "server", False, False, ())
        assert (
            proof(rank(0, ALL_REDUCE), rank(1, replace(sleeps, threads=(*sleeps.threads, serves))))
            == ""
        )
        assert proof(rank(0, ALL_REDUCE), rank(1, replace(sleeps, sockets=(LISTENS,)))) == ""
        assert proof(rank(0, sleeps)) == ""


def test_what_waits_for_the_other_end_of_its_own_pipe_proves_it() -> None:
    pipe = Descriptor(3, "pipe", "pipe:[7]", other_ends=(100,))
    own = look("read STD/os.py:1", call="read", descriptors=(pipe,))
    assert proof(rank(0, own)).startswith("nobody else has the other end")


def test_a_server_without_a_request_waits_for_work() -> None:
    assert "listens at 127.0.0.1:8000" in describe_waiting_for_work([rank(0, EVENT_LOOP)])
    accepts = look("accept STD/socket.py:295", call="accept4", sockets=(LISTENS,))
    assert describe_waiting_for_work([rank(0, accepts)])
    child = (replace(EVENT_LOOP, pid=300),)
    assert (
        describe_waiting_for_work([rank(0, look("wait STD/subprocess.py:1", call="wait4"))]) == ""
    )
    parent = rank(0, look("wait STD/subprocess.py:1", call="wait4"), children=(child,))
    assert "process 300" in describe_waiting_for_work([parent])
    beside = rank(0, ALL_REDUCE, children=(child,), beside=(300,))
    assert describe_waiting_for_work([beside]) == ""


def test_a_master_that_waits_for_a_word_by_signal_is_kept_from_work_though_its_worker_listens() -> (
    None
):
    """Its worker is to send SIGUSR2; a master that waits for its own end waits for work."""

    def judge(*signals: int, timeout: float | None = None) -> str:
        waits = look("wait_for_worker train.py:33", call="rt_sigtimedwait", pid=100)
        call = Syscall(128, "rt_sigtimedwait", (), timeout, signals=signals)
        waits = replace(waits, kernel=(replace(waits.kernel[0], syscall=call),))
        worker = replace(EVENT_LOOP, pid=300, ppid=100)
        return describe_waiting_for_work([rank(0, waits, children=((worker,),))])

    assert judge(signal.SIGUSR2) == ""
    assert judge(signal.SIGUSR1, 64) == ""
    assert judge(signal.SIGTERM, signal.SIGINT)
    assert judge(signal.SIGUSR1, signal.SIGCHLD)
    assert judge(signal.SIGUSR2, timeout=5.0)
    assert judge()  # its memory could not be read


def test_a_server_one_of_whose_processes_died_of_an_error_does_not_wait_for_work() -> None:
    """Its event loop looks the same where an answer was to come from the one that died."""

    def served(status: int | None) -> str:
        dead = look(pid=300, ppid=200, state="Z", call="", rung="proc", status=status)
        return describe_waiting_for_work([rank(0, EVENT_LOOP, children=((dead,),))])

    assert served(-signal.SIGKILL) == ""
    assert served(1) == ""
    for ended_well in (0, None, -signal.SIGTERM):
        assert "listens at" in served(ended_well)


def test_whoever_listens_and_waits_for_something_else_is_no_server() -> None:
    in_collective = replace(ALL_REDUCE, sockets=(LISTENS,))
    asks = replace(RECV, sockets=(LISTENS,))
    stopped = replace(EVENT_LOOP, state="T")
    waits_for_children = look(
        "_SelectorSelectorImpl.select STD/selectors.py:415",
        "wait STD/multiprocessing/connection.py:930",
        "notebook_launcher SP/accelerate/launchers.py:1",
        "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
        call="poll",
        sockets=(LISTENS,),
    )
    for one in (in_collective, asks, stopped, waits_for_children):
        assert describe_listening([one]) == ""
    assert describe_listening([EVENT_LOOP], "8000") == ""
    assert describe_waiting_for_work([rank(0, EVENT_LOOP), rank(1, SLEEP)]) == ""


def test_ranks_that_hear_one_another_do_not_wait_for_work_though_each_listens() -> None:
    def hears(number: int, other: int) -> RankFacts:
        peer = Socket(9, "tcp", "127.0.0.1:9", "127.0.0.1:8", "ESTABLISHED", peer_pids=(other,))
        named = (Descriptor(9, "socket", "socket:[9]", socket=peer),)
        polls = look(call="epoll_wait", descriptors=named).kernel
        return rank(number, replace(EVENT_LOOP, kernel=polls))

    assert describe_waiting_for_work([hears(0, 101), hears(1, 100)]) == ""
    assert describe_waiting_for_work([hears(0, 700), hears(1, 800)])  # of others, its clients


def test_a_server_that_a_process_of_its_own_has_asked_does_not_wait_for_work() -> None:
    """A thread that reads a stream of its own server; a client that was started beside it."""

    def asks(pid: int, *ends: int, port: int = 8000) -> Look:
        socket = Socket(
            9, "tcp", "127.0.0.1:50000", f"127.0.0.1:{port}", "ESTABLISHED", peer_pids=ends
        )
        named = (Descriptor(9, "socket", "socket:[9]", socket=socket),)
        return look("readinto STD/socket.py:706", pid=pid, call="recvfrom", descriptors=named)

    def served(*children: Look, **environment: str) -> str:
        own = tuple((one,) for one in children)
        return describe_waiting_for_work(
            [rank(0, EVENT_LOOP, children=own, environment=environment)]
        )

    assert served(asks(300, 100)) == ""
    inside = rank(0, EVENT_LOOP)
    with_thread = replace(
        inside,
        looks=tuple(
            replace(one, kernel=(*one.kernel, replace(asks(100, 100).kernel[0], tid=907)))
            for one in inside.looks
        ),
    )
    assert describe_waiting_for_work([with_thread]) == ""
    assert served(asks(300, 700))  # a server of somebody else's, at the same port
    assert served(asks(300, 100, port=9000))
    store = replace(LISTENS, local="127.0.0.1:29500")
    both = replace(EVENT_LOOP, sockets=(LISTENS, store))
    asked = ((asks(300, 100, port=29500),),)
    for master, waits in (("29500", True), ("", False)):
        facts = rank(0, both, children=asked, environment={"MASTER_PORT": master})
        assert bool(describe_waiting_for_work([facts])) is waits


def test_a_fork_server_is_no_server_that_waits_for_work() -> None:
    """It listens for its own program as long as that runs."""
    fork_server = look(
        "EpollSelector.select STD/selectors.py:468",
        "main STD/multiprocessing/forkserver.py:218",
        "<module> <string>:1",
        pid=300,
        call="epoll_wait",
        sockets=(LISTENS,),
        descriptors=(Descriptor(3, "socket", "socket:[3]", socket=LISTENS),),
    )
    learner = look("Connection._recv STD/multiprocessing/connection.py:395", call="read")
    assert describe_listening([fork_server]) == ""
    assert describe_waiting_for_work([rank(0, learner, children=((fork_server,),))]) == ""


def test_ranks_that_are_kept_by_what_is_outside_of_their_server_have_a_request() -> None:
    def kept(wait: Look, *server: int) -> object:
        return find_kept_outside(Snapshot([rank(0, ALL_REDUCE), rank(1, wait)]), server)

    def asks(*ends: int, peer: str = "127.0.0.1:9") -> Look:
        named = (silent_peer(peer, peer_pids=ends),)
        return look("get SP/requests/api.py:87", call="recvfrom", descriptors=named)

    assert kept(asks(700)) == 1
    assert kept(asks(700), 700) is None  # its API server, which has nothing for it
    assert kept(asks(peer="10.0.0.1:443")) == 1
    assert kept(asks()) is None  # of this machine, and nobody knows whose
    fifo = Descriptor(3, "fifo", "/data/feed")
    opens = look("load train.py:3", call="openat", path="/data/feed", descriptors=(fifo,))
    assert kept(opens) == 1
    assert kept(ALL_REDUCE) is None
    assert kept(look("Queue.get STD/queue.py:171", "loop train.py:3")) is None
    assert find_kept_outside(Snapshot([rank(0, SLEEP), rank(1, asks(700))]), ()) is None


def test_a_lock_file_that_was_left_proves_nothing_where_it_is_given_up_in_time() -> None:
    asks = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "BaseFileLock.acquire SP/filelock/_api.py:1037",
        "count train.py:28",
        "<module> train.py:41",
        call="clock_nanosleep",
        stale_locks=(FileLock("/w/counts.lock", 7, None, waiting=False, age=12.0),),
    )
    main = asks.threads[0]
    for timeout, proves in (("-1", True), ("40", False)):
        told = (("self", "<SoftFileLock>"), ("lock_filename", '"/w/counts.lock"'))
        frames = (
            replace(main.frames[0], locals=(*told, ("timeout", timeout))),
            *main.frames[1:],
        )
        waits = replace(asks, threads=(replace(main, frames=frames),))
        assert bool(proof(rank(0, ALL_REDUCE), rank(1, waits))) is proves


def test_a_server_one_of_whose_processes_is_kept_from_its_work_does_not_wait_for_work() -> None:
    """Whoever listens, what is behind it stands still, and no client can help that."""

    def served(*children: Look) -> str:
        return describe_waiting_for_work(
            [rank(0, EVENT_LOOP, children=tuple((one,) for one in children))]
        )

    opens = look("load s.py:3", pid=300, call="openat", wchan="wait_for_partner")
    full = look("send s.py:3", pid=300, call="write", wchan="anon_pipe_write")
    stopped = look("work s.py:3", pid=300, call="", state="T")
    asks = look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:325",
        "load s.py:3",
        pid=300,
        call="recvfrom",
    )
    sleeps = look("wait_for_health s.py:3", pid=300, call="clock_nanosleep")
    below = replace(sleeps.threads[0].frames[0], handler="except URLError")
    tries = replace(sleeps, threads=(replace(sleeps.threads[0], frames=(below,)),))
    for one in (opens, full, stopped, asks, tries):
        assert served(one) == ""
    idle = look("get s.py:3", pid=300, call="read", wchan="anon_pipe_read")
    assert served(idle, sleeps)


def test_the_turn_to_accept_may_be_a_lock_that_another_worker_has() -> None:
    accepts = look("accept STD/socket.py:295", pid=300, call="accept4", sockets=(LISTENS,))

    def served(holder: int) -> str:
        lock = FileLock("/tmp/accept.lock", 5, holder)
        waits = look("serve s.py:3", pid=301, call="flock", locks=(lock,))
        return describe_waiting_for_work(
            [rank(0, look("pause s.py:9", call="pause"), children=((accepts,), (waits,)))]
        )

    assert served(300)
    assert served(4711) == ""


def test_a_server_that_has_heard_a_request_and_said_nothing_does_not_wait_for_one() -> None:
    taken = Socket(9, "tcp", "127.0.0.1:8000", "127.0.0.1:5", "ESTABLISHED", received=90, sent=0)

    def served(one: Socket) -> str:
        return describe_waiting_for_work([rank(0, replace(EVENT_LOOP, sockets=(LISTENS, one)))])

    assert served(taken) == ""
    assert served(replace(taken, sent=200))  # a connection that is kept for the next request
    assert served(replace(taken, received=0))
    assert served(replace(taken, local="127.0.0.1:9"))  # one that it has made itself
