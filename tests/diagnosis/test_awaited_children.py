"""Why the last process in a chain of children stands still that a rank waits for is the cause."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, FileLock, Frame, Look, Thread
from hangbisect.base.verdict_facts import Cause
from hangbisect.diagnosis.process.helper_processes import is_idle_worker
from hangbisect.diagnosis.process.merged_stacks import find_role
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job, judge_snapshot
from hangbisect.dumps.facts_in_stack import read_rank_locals

from .causes.seen import SHARED
from .made_up import LIB, job, look, rank, silent_peer, stack
from .queues import receives, unix
from .test_helper_threads import feeds_a_full_pipe

SPAWNED = (
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "spawn_main STD/multiprocessing/spawn.py:122",
)
LOCK = FileLock("/cache/model.lock", 5, 999, "python")


def process(pid: int, parent: int, one: Look) -> Look:
    """A look at a process of a rank's, in which the main thread does what it does in `one`."""
    main, *others = one.kernel
    threads = tuple(
        replace(thread, os_id=pid) if thread is one.main else thread for thread in one.threads
    )
    kernel = (replace(main, tid=pid), *others)
    return replace(one, pid=pid, ppid=parent, threads=threads, kernel=kernel)


def cause_of(one: Look, *children: Look) -> Cause | None:
    facts = rank(0, one, children=tuple((child,) for child in children))
    return judge_job(job(world=1), [facts]).cause


ASKS = receives(0, unix(501))
ENGINE = process(501, 100, receives(0, unix(100, 61), unix(502, 63)))
LOADS = process(
    502, 501, look("load model.py:9", *SPAWNED, call="flock", locks=(LOCK,), wchan="locks_lock")
)


def test_the_cause_is_why_the_last_of_the_chain_stands_still() -> None:
    cause = cause_of(ASKS, ENGINE, LOADS)
    assert cause is not None
    assert cause.id == "file-lock-held"
    assert "/cache/model.lock" in cause.why
    assert cause.why.startswith("It waits for python (502), a process of its own. There: ")


def test_it_is_no_proof_that_the_rank_hangs() -> None:
    """It may be a process that has no more to do for it."""
    taken = process(
        502,
        501,
        # Started by no multiprocessing, of which its parent might have the lock.
        look("Lock.acquire STD/multiprocessing/synchronize.py:95", "load model.py:9", args=SHARED),
    )
    facts = rank(0, ASKS, children=((ENGINE,), (taken,)))
    snapshot = Snapshot([facts])
    verdict, graph = judge_snapshot(job(world=1), snapshot)
    assert verdict.cause is not None
    assert verdict.cause.id == "dead-owner"  # which is a proof where it is the rank's own
    assert find_proof_of_hang(verdict, snapshot, graph) == ""


def test_a_guess_why_it_stands_still_says_more_than_a_guess_that_it_does() -> None:
    """Where another process may have the end of the pipe as well, neither is more than that."""
    frames = ("SemLock.__enter__ STD/multiprocessing/synchronize.py:95", "act train.py:17")
    actor = process(502, 100, look(*frames, *SPAWNED, args=SHARED))
    end = Descriptor(3, "pipe", "pipe:[7]", other_ends=(502, 600))
    asks = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "learn train.py:25",
        call="read",
        descriptors=(end,),
    )
    cause = cause_of(asks, actor)
    assert cause is not None
    assert (cause.id, cause.level) == ("dead-owner", "guess")


def test_of_one_that_nothing_explains_it_is_that_it_is_stuck() -> None:
    waits = process(502, 501, look("work model.py:9", *SPAWNED, call="recvfrom"))
    cause = cause_of(ASKS, ENGINE, waits)
    assert cause is not None
    assert cause.id == "child-process-stuck"


def test_its_parent_is_no_server_outside_of_the_job() -> None:
    asks = look("Client.read SP/redis/connection.py:9", *SPAWNED, call="recvfrom")
    parent = unix(501, 71)
    asks = replace(asks, sockets=(parent,))
    (main,) = asks.kernel
    assert main.syscall is not None
    named = ASKS.kernel[1].syscall
    assert named is not None
    descriptor = replace(named.descriptors[2], path="socket:[71]", socket=parent)
    call = replace(main.syscall, descriptors=(descriptor,))
    waits = process(502, 501, replace(asks, kernel=(replace(main, syscall=call),)))
    cause = cause_of(ASKS, ENGINE, waits)
    assert cause is None or cause.id != "endpoint-silent"


def test_one_that_waits_for_the_rank_in_turn_has_no_task_and_is_not_stuck() -> None:
    idle = process(501, 100, receives(0, unix(100, 61)))
    cause = cause_of(ASKS, idle)
    assert cause is None or cause.id != "child-process-stuck"


def test_of_a_worker_of_a_pool_it_is_what_the_worker_waits_for() -> None:
    """Of a ProcessPoolExecutor as of any child: that it stands still in its initializer says less
    than that it waits there for a lock, and who has that.
    """
    asks = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "_chain_from_iterable_of_lists STD/concurrent/futures/process.py:620",
        "main train.py:31",
    )
    initializes = (
        "load_model train.py:17",
        "_process_worker STD/concurrent/futures/process.py:240",
        *SPAWNED,
    )
    locked = look(*initializes, call="flock", locks=(LOCK,), wchan="locks_lock_inode_wait")
    cause = cause_of(asks, process(501, 100, locked), process(502, 100, locked))
    assert cause is not None
    assert cause.id == "file-lock-held"
    assert "/cache/model.lock" in cause.why
    unknown = look(*initializes, call="read", wchan="folio_wait")
    cause = cause_of(asks, process(501, 100, unknown))
    assert cause is not None
    assert cause.id == "worker-stuck"


def test_who_starts_a_process_by_a_fork_server_waits_for_that() -> None:
    """The pipe with the pid of the new process is on its way to the fork server, which has not
    taken it: nobody has the other end. It imports first what it was told to.
    """
    starts = look(
        "read_signed STD/multiprocessing/forkserver.py:326",
        "Popen._launch STD/multiprocessing/popen_forkserver.py:59",
        "Popen.__init__ STD/multiprocessing/popen_fork.py:19",
        "BaseProcess.start STD/multiprocessing/process.py:121",
        "main train.py:24",
        call="read",
        descriptors=(Descriptor(8, "pipe", "pipe:[8]"),),
    )
    imports = look(
        "SocketIO.readinto STD/socket.py:706",
        "HTTPResponse.begin STD/http/client.py:325",
        "urlopen STD/urllib/request.py:216",
        "<module> settings.py:6",
        "_find_and_load <frozen importlib._bootstrap>:1176",
        "main STD/multiprocessing/forkserver.py:178",
        "<module> <string>:1",
        call="recvfrom",
        descriptors=(silent_peer(),),
        sockets=(silent_peer().socket,),
        command=("python", "-c", "from multiprocessing.forkserver import main; main(5, 7, ['a'])"),
    )
    tracker = process(502, 100, look("main STD/multiprocessing/resource_tracker.py:227"))
    server = process(501, 100, imports)
    facts = rank(0, starts, children=((tracker,), (server,)))
    verdict = judge_job(job(world=1), [facts])
    assert verdict.waits_for is not None
    assert (verdict.waits_for.kind, verdict.waits_for.pid) == ("process", 501)
    assert verdict.cause is not None
    assert verdict.cause.id == "endpoint-silent"


# What a process that a fork server has forked shows (multiprocessing/forkserver.py, Python 3.11).
BY_FORK_SERVER = (
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "BaseProcess._bootstrap STD/multiprocessing/process.py:314",
    "_main STD/multiprocessing/spawn.py:135",
    "_serve_one STD/multiprocessing/forkserver.py:313",
    "main STD/multiprocessing/forkserver.py:274",
    "<module> <string>:1",
)


def test_what_a_fork_server_has_forked_is_at_work_as_any_other_process() -> None:
    """The server's own frames are below those of the process, as in every fork."""
    reads = look("work model.py:9", *BY_FORK_SERVER, call="recvfrom")
    assert not is_idle_worker(reads)
    takes = (
        "Connection._recv STD/multiprocessing/connection.py:395",
        "Queue.get STD/multiprocessing/queues.py:103",
    )
    assert is_idle_worker(look(*takes, "work model.py:9", *BY_FORK_SERVER, call="read"))
    spawned = Frame("_wrap", f"{LIB}/torch/multiprocessing/spawn.py", 87, locals=(("i", "1"),))
    inside = stack(*BY_FORK_SERVER)
    (main,) = reads.threads
    ranked = replace(reads, threads=(replace(main, frames=(*main.frames[:1], spawned, *inside)),))
    assert read_rank_locals(ranked).any_number == 1
    assert find_role(reads) == "python"
    serves = ("EpollSelector.select STD/selectors.py:468",)
    own = look(*serves, "main STD/multiprocessing/forkserver.py:230")
    assert find_role(own) == "fork server"
    assert read_rank_locals(own).worker
    assert is_idle_worker(look(*serves, "main STD/multiprocessing/forkserver.py:230"))
    server = process(501, 100, look(*serves, "main STD/multiprocessing/forkserver.py:230"))
    cause = cause_of(receives(0, unix(502)), server, process(502, 501, reads))
    assert cause is not None
    assert cause.id == "child-process-stuck"


def test_of_a_child_that_waits_for_a_thread_of_its_own_it_is_why_that_is_stuck() -> None:
    child = process(501, 100, feeds_a_full_pipe())
    joins = look(
        "wait STD/multiprocessing/connection.py:947",
        "ProcessContext.join SP/torch/multiprocessing/spawn.py:140",
        "main train.py:9",
        call="wait4",
        args=(501, 0, 0, 0, 0, 0),
    )
    cause = cause_of(joins, child)
    assert cause is not None
    assert cause.id == "pipe-unread"


def sleeps(pid: int) -> Look:
    return process(pid, 100, look("serve train.py:29", call="clock_nanosleep"))


def test_of_several_that_may_be_meant_it_is_the_one_that_stands_still_by_itself() -> None:
    """Any child may end, and whoever has the other end of a pipe may write."""
    stuck = process(
        503, 100, look("load model.py:9", call="flock", locks=(LOCK,), wchan="locks_lock")
    )
    held = FileLock("/cache/turn.lock", 6, 503, "python")
    turn = process(502, 100, look("serve train.py:30", call="flock", locks=(held,)))
    ends = Descriptor(5, "pipe", "pipe:[7]", other_ends=(501, 502, 503))
    waits = look("main train.py:58", call="wait4", args=(0xFFFFFFFF, 0, 0, 0, 0, 0))
    reads = look("main train.py:46", call="read", descriptors=(ends,))
    for one in (waits, reads):
        facts = rank(0, one, children=tuple((each,) for each in (sleeps(501), turn, stuck)))
        verdict = judge_job(job(world=1), [facts])
        assert verdict.waits_for is not None
        assert verdict.waits_for.pid == 503
    facts = rank(0, waits, children=((sleeps(501),), (sleeps(502),)))
    verdict = judge_job(job(world=1), [facts])
    assert verdict.waits_for is not None
    assert verdict.waits_for.pid == 501  # nothing tells them apart


def test_a_shell_that_waits_for_its_children_by_a_signal_waits_for_them() -> None:
    """`wait` of dash sleeps in sigsuspend(2) until SIGCHLD comes."""
    shell = look(call="rt_sigsuspend", rung="proc", name="sh")
    cause = cause_of(shell, process(501, 100, look("load model.py:9", call="flock", locks=(LOCK,))))
    assert cause is not None
    assert cause.id != "signal-wait"
    waits = look("main train.py:58", call="rt_sigsuspend")
    cause = cause_of(waits, sleeps(501))
    assert cause is not None
    assert cause.id == "signal-wait"  # a Python has asked for a signal itself


def test_a_worker_that_unpickles_its_task_in_code_of_the_job_is_not_idle() -> None:
    unpickles = look(
        "Tokenizer.__setstate__ train.py:21",
        "Queue.get STD/multiprocessing/queues.py:122",
        "_process_worker STD/concurrent/futures/process.py:249",
        *SPAWNED,
        call="openat",
    )
    assert not is_idle_worker(unpickles)


def test_whose_only_executor_has_processes_waits_for_one_of_these() -> None:
    one = look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        "main train.py:38",
    )
    manages = stack(
        "wait STD/multiprocessing/connection.py:947",
        "_ExecutorManagerThread.run STD/concurrent/futures/process.py:344",
    )
    thread = replace(one.threads[0], os_id=777, name="Thread-1", frames=manages)
    kernel = (*one.kernel, replace(one.kernel[0], tid=777))
    one = replace(one, threads=(*one.threads, thread), kernel=kernel)
    works = process(
        501, 100, look("load model.py:9", *SPAWNED, call="flock", locks=(LOCK,), wchan="locks_lock")
    )
    cause = cause_of(one, works)
    assert cause is not None
    assert cause.id == "file-lock-held"


def test_a_process_that_waits_for_its_parent_too_is_followed_to_what_it_has_started() -> None:
    """A kernel of a notebook that is busy in a cell, say, and hears from its client as well."""
    kernel = process(501, 100, receives(0, unix(100, 61), unix(502, 63)))
    cause = cause_of(ASKS, kernel, LOADS)
    assert cause is not None
    assert cause.id == "file-lock-held"
    assert "(502)" in cause.why


def test_of_a_worker_of_dask_the_thread_of_its_task_tells_where_it_stands_still() -> None:
    waits = look(
        "Event.wait STD/threading.py:629",
        "sync SP/distributed/utils.py:452",
        "Client.gather SP/distributed/client.py:2538",
        "main train.py:28",
        pid=100,
    )
    title = ("dask worker [tcp://127.0.0.1:36483]",)
    loop = Thread(301, "loop", False, False, stack("<module> <string>:1"))
    task = look("count_all train.py:21", "encode train.py:17", pid=300, ppid=100)
    task = replace(task, command=title, name=title[0], threads=(loop, *task.threads))
    resting = replace(task, pid=302, threads=(replace(loop, os_id=302),))
    cause = cause_of(waits, resting, task)
    assert cause is not None
    assert "count_all (train.py:21)" in cause.why
    locked = ("sync SP/distributed/utils.py:452", "write train.py:12")
    other = Thread(299, "MainThread", False, False, stack(*locked))
    turn = replace(task, pid=299, threads=(loop, other), kernel=(replace(task.kernel[0], tid=299),))
    cause = cause_of(waits, turn, task)
    assert cause is not None
    assert "count_all (train.py:21)" in cause.why
