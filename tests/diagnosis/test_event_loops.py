"""Who awaits whom where a main thread runs an event loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import (
    AsyncTask,
    Descriptor,
    Kernel,
    Look,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.rank_history import SILENT
from hangbisect.base.verdict_facts import Wait
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job

from .causes.scenes import causes_of, on, tcp
from .made_up import gone, held, job, look, rank, stack

EPOLL = Descriptor(7, "anon", "anon_inode:[eventpoll]")
OWN = Socket(60, "unix", "", "", "ESTABLISHED", peer_pids=(100,), peer_inode=61)
SELECTS = (
    "EpollSelector.select STD/selectors.py:468",
    "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
    "BaseEventLoop.run_forever STD/asyncio/base_events.py:607",
    "Runner.run STD/asyncio/runners.py:118",
    "<module> serve.py:12",
)
FETCH = stack(
    "StreamReader.read STD/asyncio/streams.py:730", "fetch serve.py:3", "worker serve.py:5"
)
TASKS = (
    AsyncTask("Task-1", stack("main serve.py:9"), awaits=("load shards",)),
    AsyncTask("load shards", FETCH),
)


def loop(*sockets: Socket, **more: object) -> Look:
    named = (EPOLL, *on(OWN, 12), *(d for n, s in enumerate(sockets) for d in on(s, 20 + n)))
    one = look(*SELECTS, call="epoll_wait", wchan="do_epoll_wait", descriptors=named)
    return replace(one, **more)  # type: ignore[arg-type]  # fields of Look


def wait_of(one: Look) -> Wait:
    found = Snapshot([rank(0, one)]).waits[0]
    assert found is not None
    return found


def test_a_loop_is_said_to_wait_and_for_what_its_descriptors_are() -> None:
    found = wait_of(loop(tcp("10.0.0.1:80"), tcp("10.0.0.2:81", inode=72)))
    assert found.kind == "socket"
    assert "in an event loop" in found.detail
    assert "10.0.0.1:80" in found.detail
    assert "10.0.0.2:81" in found.detail


def test_the_innermost_tasks_are_named_with_where_they_await() -> None:
    found = wait_of(loop(tcp("10.0.0.1:80"), tasks=TASKS))
    assert "task 'load shards' awaits StreamReader.read in fetch (serve.py:3)" in found.detail
    assert "Task-1" not in found.detail


def test_the_chain_says_so_beside_what_came_over_the_connection() -> None:
    verdict = judge_job(job(), [rank(0, loop(tcp("10.0.0.1:80"), tasks=TASKS)), held(1)])
    (edge,) = [edge for edge in verdict.chain if edge.target == "10.0.0.1:80"]
    assert "ESTABLISHED" in edge.evidence
    assert "in an event loop: task 'load shards' awaits" in edge.evidence


def test_a_loop_that_nothing_can_wake_names_what_was_lost() -> None:
    facts = job(), [rank(0, loop(tasks=TASKS)), held(1)]
    cause = causes_of(facts)["event-loop"]
    assert "task 'load shards' awaits StreamReader.read in fetch (serve.py:3)" in cause.why
    without = causes_of((job(), [rank(0, loop()), held(1)]))["event-loop"]
    assert "?" not in without.why


def test_tasks_that_await_one_another_are_named_and_may_not_be_all_that_hangs() -> None:
    one = loop(task_ring=("writes", "reads", "writes"))
    cause = causes_of((job(), [rank(0, one), held(1)]))["tasks-await-one-another"]
    assert cause.level == "fits"
    assert "writes -> reads -> writes" in cause.why


def test_what_runs_no_loop_says_nothing_of_one() -> None:
    assert "event loop" not in wait_of(look("f train.py:1", call="clock_nanosleep")).detail


def test_a_pipe_by_which_it_wakes_itself_is_no_proof_beside_another_wait() -> None:
    wakes = Descriptor(30, "pipe", "pipe:[5]", other_ends=(100,))
    reads = Descriptor(31, "pipe", "pipe:[6]", other_ends=(999,))
    one = look(*SELECTS, call="epoll_wait", descriptors=(EPOLL, wakes, reads))
    found = wait_of(one)
    assert (found.kind, found.pid) == ("pipe", 999)
    assert "its own" not in found.detail


# ---- a loop waits for any of several -------------------------------------------------------------

LISTENS = Socket(99, "tcp", "127.0.0.1:4700", "", "LISTEN")


def to(*ranks: int) -> list[Socket]:
    """Return connections to these ranks' processes, which have the pids from 100 on."""
    return [tcp(f"127.0.0.1:{5000 + r}", inode=70 + r, peer_pids=(100 + r,)) for r in ranks]


def reads_from(number: int) -> Look:
    (socket,) = to(number)
    return look("step train.py:5", call="recvfrom", wchan="wait_woken", descriptors=on(socket, 9))


def test_in_a_ring_of_loops_nobody_is_named_by_chance() -> None:
    """Each is connected to the one before and the one after: which is to send is not seen."""
    ranks = [rank(n, loop(*to((n - 1) % 4, (n + 1) % 4), LISTENS)) for n in range(4)]
    verdict = judge_job(job("still", world=4), ranks)
    assert verdict.ranks.culprit == ()
    assert verdict.ranks.waiting == (0, 1, 2, 3)
    (note,) = [note for note in verdict.notes if "several" in note]
    assert note.startswith("ranks 0-3 ")


@pytest.mark.parametrize("by", ["run", "attach"])
def test_nor_is_a_rank_that_has_done_its_part_to_blame_for_a_ring_of_loops(by: str) -> None:
    """Whether it told us of its steps, below `run`, or not, as `attach` sees it."""
    done = gone(1, 0, step=SILENT if by == "run" else None)
    ranks = [done, *(rank(n, loop(*to(*{0, 2, 3} - {n}), LISTENS)) for n in (0, 2, 3))]
    about = job("still", world=4, pipeline="")
    verdict = judge_job(about, sorted(ranks, key=lambda one: one.rank))
    assert (verdict.ranks.culprit, verdict.cause) == ((), None)


def test_of_loops_the_neighbour_that_stands_in_something_of_its_own_is_to_blame() -> None:
    stuck = look("warm train.py:7", call="clock_nanosleep")
    ranks = [
        rank(n, stuck if n == 2 else loop(*to((n - 1) % 4, (n + 1) % 4), LISTENS)) for n in range(4)
    ]
    verdict = judge_job(job("still", world=4), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))


def test_whoever_reads_from_a_loop_waits_for_it() -> None:
    """The loop hears all of its clients, and they hear it alone."""
    ranks = [rank(0, loop(*to(1, 2, 3), LISTENS)), *(rank(n, reads_from(0)) for n in (1, 2, 3))]
    verdict = judge_job(job("still", world=4), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((0,), (1, 2, 3))


def test_a_loop_waits_for_the_client_that_does_something_else() -> None:
    stuck = look("warm train.py:7", call="clock_nanosleep")
    ranks = [
        rank(0, loop(*to(1, 2, 3), LISTENS)),
        *(rank(n, stuck if n == 3 else reads_from(0)) for n in (1, 2, 3)),
    ]
    verdict = judge_job(job("still", world=4), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((3,), (0, 1, 2))


@pytest.mark.parametrize("stuck", [300, 301, 302])
def test_of_several_children_one_is_waited_for_that_does_not_read_what_it_is_asked(
    stuck: int,
) -> None:
    children = (300, 301, 302)
    outputs = tuple(
        Descriptor(n, "pipe", f"pipe:[{n}]", other_ends=(pid,))
        for n, pid in enumerate(children, 20)
    )
    asks = look(*SELECTS, call="epoll_wait", descriptors=(EPOLL, *outputs))
    end = Descriptor(0, "pipe", "pipe:[9]", other_ends=(100,))
    found = tuple(
        (
            look(
                "<module> environment.py:10",
                pid=pid,
                ppid=100,
                call="write" if pid == stuck else "read",
                descriptors=(end,),
            ),
        )
        for pid in children
    )
    wait = Snapshot([rank(0, asks, children=found)]).waits[0]
    assert wait is not None
    assert wait.pid == stuck


# ---- a loop of another thread --------------------------------------------------------------------

SYNC = (
    "Condition.wait STD/threading.py:331",
    "Event.wait STD/threading.py:629",
    "sync SP/fsspec/asyn.py:94",
    "main train.py:6",
)


def waits_for_loops(*numbers: int) -> Look:
    """A main thread at an event, and other threads with these ids that run event loops."""
    one, heard = look(*SYNC, args=(0,) * 6), loop(tcp("10.0.0.1:80"))
    assert heard.main is not None
    for number in numbers:
        thread = replace(heard.main, os_id=number, name="fsspecIO")
        task = replace(heard.kernel[0], tid=number)
        one = replace(one, threads=(*one.threads, thread), kernel=(*one.kernel, task))
    return one


def wait_at_an_event(*numbers: int) -> Wait:
    one = waits_for_loops(*numbers)
    (found,) = Snapshot([replace(rank(0, one), looks=(one,))]).waits.values()
    assert found is not None
    return found


def test_who_waits_for_what_the_loop_of_another_thread_sets_waits_for_no_lock() -> None:
    found = wait_at_an_event(912)
    assert found.kind == "thread"
    assert "thread fsspecIO, an event loop at 10.0.0.1:80" in found.detail


@pytest.mark.parametrize("numbers", [(), (912, 913)])
def test_of_no_loop_or_of_two_none_is_named(numbers: tuple[int, ...]) -> None:
    assert wait_at_an_event(*numbers).kind == "lock"


def test_a_loop_that_has_stopped_to_read_its_child_waits_for_that() -> None:
    """Asyncio stops at twice its limit; the child waits in write() from then on."""
    full = Descriptor(1, "pipe", "pipe:[7]", other_ends=(100,))
    child = look("<module> <string>:6", pid=300, ppid=100, call="write", descriptors=(full,))
    child = replace(child, kernel=(replace(child.kernel[0], wchan="pipe_write"),))
    reads = replace(child, kernel=look(pid=300, call="read", descriptors=(full,)).kernel)
    for other, kind in ((child, "process"), (reads, "itself")):
        facts = rank(0, loop(), children=((other,),))
        found = Snapshot([facts]).waits[0]
        assert found is not None
        assert found.kind == kind
    causes = causes_of((job(), [rank(0, loop(), children=((child,),)), held(1)]))
    assert next(iter(causes)) == "pipe-unread"


IN_A_POOL = (
    "Connection._recv STD/multiprocessing/connection.py:395",
    "_WorkItem.run STD/concurrent/futures/thread.py:58",
    "_worker STD/concurrent/futures/thread.py:83",
)


def hands_over(child: Look, frames: tuple[str, ...] = IN_A_POOL) -> tuple[Look, Look]:
    """A loop that hears itself alone, and a thread of it that reads from a child."""
    end = Descriptor(9, "pipe", "pipe:[44]", other_ends=(child.pid,))
    read = Kernel(150, "python", "S", "pipe_read", Syscall(0, "read", (9,), descriptors=(end,)))
    one = loop()
    threads = (*one.threads, Thread(150, "asyncio_0", False, False, stack(*frames)))
    return replace(one, threads=threads, kernel=(*one.kernel, read)), child


def test_a_loop_waits_for_the_child_for_which_a_thread_of_its_pool_waits() -> None:
    sleeps = look("bind train.py:30", pid=300, ppid=100, call="clock_nanosleep", name="engine")
    one, child = hands_over(sleeps)
    facts = rank(0, one, children=((child,),))
    found = Snapshot([facts]).waits[0]
    assert found is not None
    assert (found.pid, found.process) == (300, "engine")
    assert "bind (train.py:30), in an event loop" in found.detail
    assert "event-loop" not in causes_of((job(), [facts, held(1)]))


def test_it_does_not_where_that_waits_for_the_loop_in_turn_or_no_pool_has_the_thread() -> None:
    end = Descriptor(4, "pipe", "pipe:[45]", other_ends=(100,))
    asks = look("serve train.py:9", pid=300, ppid=100, call="read", descriptors=(end,))
    still = replace(asks, kernel=look("f train.py:1", pid=300).kernel)
    for child, frames in ((asks, IN_A_POOL), (still, ("read train.py:3",))):
        one, child = hands_over(child, frames)
        found = Snapshot([rank(0, one, children=((child,),))]).waits[0]
        assert found is not None
        assert found.kind == "itself"


def _beside_a_thread(number: int, *thread: str, heard: Socket | None = None) -> RankFacts:
    """A rank in an event loop that hears itself alone, and a thread of its own in these frames."""
    own = replace(OWN, peer_pids=(100 + number,))
    named = (EPOLL, *on(own, 12), *(on(heard, 20) if heard is not None else ()))
    one = look(*SELECTS, call="epoll_wait", wchan="do_epoll_wait", descriptors=named)
    beside = Thread(900 + number, "asyncio_0", False, False, stack(*thread))
    one = replace(one, threads=(*one.threads, beside))
    return rank(number, one, replace(one, at=103.0))


def test_a_loop_whose_thread_is_in_a_collective_waits_for_the_rank_whose_thread_is_not() -> None:
    """asyncio.to_thread(dist.all_reduce, total) on all of them; one awaits an event of its own."""
    pool = "_worker STD/concurrent/futures/thread.py:83"
    reduces = ("all_reduce SP/torch/distributed/distributed_c10d.py:3252", pool)
    ranks = [_beside_a_thread(n, *(reduces if n != 2 else (pool,))) for n in range(4)]
    verdict = judge_job(job("late", 4), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))
    asks = _beside_a_thread(0, *reduces, heard=tcp("10.0.0.1:80"))
    (alone,) = Snapshot([asks]).single_ranks.ranks
    assert alone.group == ""  # the loop may be woken by that server as well
