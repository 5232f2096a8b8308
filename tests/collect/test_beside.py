"""What was started beside a rank by the same program, and what is a stranger to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket, Syscall, Thread
from hangbisect.collect.beside import ProcessesBeside, has_spawned, was_started_with
from hangbisect.diagnosis.process.request_threads import (
    put_request_thread_first,
    put_stuck_request_first,
)
from hangbisect.diagnosis.proof_of_hang import describe_waiting_for_work
from hangbisect.evidence.process import descendants, words_of

from ..diagnosis.made_up import look, rank, stack

# It starts one beside the other, each with a child, and says who they are.
STARTS = """
import os, subprocess, sys
SLEEPS = "import subprocess as s; p = s.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
found = []
for apart in (False, False, True):
    one = subprocess.Popen(
        [sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, text=True, start_new_session=apart
    )
    found += [one.pid, int(one.stdout.readline())]
print(*found, flush=True)
sys.stdin.read()
for pid in found:
    os.kill(pid, 9)
"""


@contextmanager
def started() -> Iterator[list[int]]:
    """A rank, a server and one of another session, each followed by its child."""
    words = [sys.executable, "-c", STARTS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdin is not None
        yield [int(word) for word in one.stdout.readline().split()]
        one.stdin.close()


def asks(pid: int, *peers: int) -> Look:
    socket = Socket(7, "tcp", peer="127.0.0.1:5000", state="ESTABLISHED", peer_pids=peers)
    end = Descriptor(3, "socket", "socket:[7]", socket=socket)
    return look("get train.py:3", pid=pid, call="recvfrom", descriptors=(end,))


@pytest.mark.parametrize("descriptor", [1, 2])
def test_who_reads_what_a_rank_prints_is_not_asked_by_it(descriptor: int) -> None:
    """`python train.py | tee log`: that the rank cannot print is the rank's own wait."""
    with started() as (rank, _, reader, *_):
        pipe = Descriptor(descriptor, "pipe", "pipe:[7]", other_ends=(reader,))
        prints = look("emit train.py:3", pid=rank, call="write", descriptors=(pipe,))
        other = look("send train.py:3", pid=rank, call="write", descriptors=(replace(pipe, fd=5),))
        assert ProcessesBeside().find([(rank, prints)], {rank}) == {}
        assert reader in ProcessesBeside().find([(rank, other)], {rank})


def test_who_was_started_beside_a_rank_is_followed_with_what_it_has_started() -> None:
    with started() as (rank, child, server, worker, apart, _):
        assert was_started_with(rank, server)
        assert was_started_with(rank, worker)
        assert not was_started_with(rank, child)
        assert not was_started_with(rank, os.getpid())
        assert not was_started_with(rank, apart)
        # torchrun gives each of its ranks a session; it may have been a shell before (exec).
        assert was_started_with(apart, server)
        found = ProcessesBeside().find([(rank, asks(rank, server, apart))], {rank, child})
        assert found == {server: rank, worker: rank}


def test_who_is_at_the_other_end_of_a_group_is_followed_too() -> None:
    """A collective waits in no call that names its connections."""
    with started() as (rank, child, server, *_rest):
        asked = asks(rank, server).kernel[0].syscall
        assert asked is not None
        ends = tuple(one.socket for one in asked.descriptors if one.socket is not None)
        meets = "all_reduce SP/torch/distributed/distributed_c10d.py:3252"
        inside = look(meets, "main train.py:3", pid=rank, sockets=ends)
        assert server in ProcessesBeside().find([(rank, inside)], {rank})
        # Of several ranks they are most often what the others are, and services of a library.
        two = [(rank, inside), (child, inside)]
        assert ProcessesBeside().find(two, {rank, child}) == {}
        makes = look(
            "_new_process_group_helper SP/torch/distributed/distributed_c10d.py:2169",
            "init_process_group SP/torch/distributed/distributed_c10d.py:1899",
            "main train.py:3",
            pid=rank,
            sockets=ends,
        )
        assert server in ProcessesBeside().find([(rank, makes)], {rank})
        outside = look("main train.py:3", pid=rank, sockets=ends)
        assert ProcessesBeside().find([(rank, outside)], {rank}) == {}


def test_who_a_thread_of_the_job_hears_is_looked_at_where_the_main_thread_waits_for_it() -> None:
    with started() as (rank, _, server, worker, *_rest):
        hears = replace(asks(rank, server).kernel[0], tid=95)
        waits = look("Queue.get STD/queue.py:171", "run_busy_loop train.py:44", pid=rank)
        own = Thread(95, "input", False, False, stack("process_input train.py:36"))
        inside = replace(waits, threads=(*waits.threads, own), kernel=(*waits.kernel, hears))
        assert ProcessesBeside().find([(rank, inside)], {rank}) == {server: rank, worker: rank}
        library = replace(own, frames=stack("run SP/grpc/_channel.py:20"))
        inside = replace(inside, threads=(*waits.threads, library))
        assert ProcessesBeside().find([(rank, inside)], {rank}) == {}


def test_who_was_asked_once_is_looked_at_again_until_it_is_gone() -> None:
    beside = ProcessesBeside()
    with started() as (rank, _, server, worker, *_rest):
        beside.find([(rank, asks(rank, server))], {rank})
        assert beside.find([(rank, asks(rank))], {rank}) == {server: rank, worker: rank}
    end = time.monotonic() + 20  # init reaps them
    while beside.find([(rank, asks(rank))], {rank}) and time.monotonic() < end:
        time.sleep(0.05)
    assert beside.asked_by == {}


# Its engine starts a worker and is killed: the worker is init's, and nobody asks for the engine.
ABOVE = """
import os, signal, sys, time
read, write = os.pipe()
if (engine := os.fork()) == 0:
    if (worker := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    os.write(write, b"%d " % worker)
    os.kill(os.getpid(), int(sys.argv[1]))
worker = int(os.read(read, 10))
print(engine, worker, flush=True)
sys.stdin.read()
os.kill(worker, 9)
"""


@pytest.mark.parametrize(("signal", "is_found"), [("9", True), ("15", False)])
def test_what_had_started_an_orphan_and_was_killed_is_beside_it(
    signal: str, is_found: bool
) -> None:
    words = [sys.executable, "-c", ABOVE, signal]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdin is not None
        engine, worker = map(int, one.stdout.readline().split())
        end, found = time.monotonic() + 20, False
        while time.monotonic() < end and not found:
            found = engine in ProcessesBeside().find([(worker, asks(worker))], {worker})
            if not is_found:
                break
            time.sleep(0.05)
        one.stdin.close()
    assert found is is_found


def test_the_thread_that_answers_is_shown_in_place_of_the_one_that_takes_connections() -> None:
    takes = look(
        "_PollLikeSelector.select STD/selectors.py:415",
        "BaseServer.serve_forever STD/socketserver.py:233",
        "<module> serve.py:40",
        pid=90,
        call="poll",
    )
    answers = Thread(95, "Thread-2", False, False, stack("recv STD/x.py:1", "do_POST serve.py:30"))
    idle = Thread(96, "Thread-1", False, False, stack("wait STD/threading.py:5"))
    shown = put_request_thread_first(replace(takes, threads=(*takes.threads, idle, answers)))
    assert shown.main is not None
    assert [frame.name for frame in shown.main.frames] == ["recv", "do_POST"]
    alone = replace(takes, threads=(*takes.threads, idle))
    assert put_request_thread_first(alone) is alone
    works = look("step serve.py:3", pid=90)
    works = replace(works, threads=(*works.threads, answers))
    assert put_request_thread_first(works) is works


def serves(*frames: str, call: str, socket: Socket | None = None) -> Look:
    """Return a server with a thread for each connection, one of which is in `frames`."""
    listens = Socket(3, "tcp", local="127.0.0.1:8000", state="LISTEN")
    takes = look(
        "_PollLikeSelector.select STD/selectors.py:415",
        "BaseServer.serve_forever STD/socketserver.py:233",
        "<module> serve.py:40",
        pid=90,
        call="poll",
        sockets=(listens,),
    )
    below = "ThreadingMixIn.process_request_thread STD/socketserver.py:691"
    one = Thread(95, "Thread-2", False, False, stack(*frames, below))
    ends = () if socket is None else (Descriptor(3, "socket", "socket:[7]", socket=socket),)
    (kernel,) = look(call=call, pid=95, descriptors=ends).kernel
    return replace(takes, threads=(*takes.threads, one), kernel=(*takes.kernel, kernel))


def test_a_request_that_stands_still_is_shown_of_any_server_and_the_next_one_of_a_client_not() -> (
    None
):
    """A server without a request waits for work: nothing is said of it, however long."""
    inside = serves("Condition.wait STD/threading.py:327", "do_POST serve.py:30", call="futex")
    shown = put_stuck_request_first(inside)
    assert shown.main is not None
    assert [frame.name for frame in shown.main.frames][:2] == ["Condition.wait", "do_POST"]
    assert describe_waiting_for_work([replace(rank(0), looks=(shown,))]) == ""
    client = Socket(7, "tcp", "127.0.0.1:8000", "127.0.0.1:9", "ESTABLISHED", peer_pids=(80,))
    pair = Socket(7, "unix", peer_pids=(91,))  # to a process that it has started
    child = serves("Connection._recv STD/c.py:1", "handle serve.py:9", call="read", socket=pair)
    assert put_stuck_request_first(child) is not child
    # A handler that asks another server has a socket of its own port.
    asks_on = Socket(7, "tcp", "127.0.0.1:40001", "127.0.0.1:9", "ESTABLISHED", peer_pids=(80,))
    other = serves("do_GET serve.py:9", call="recvfrom", socket=asks_on)
    assert put_stuck_request_first(other) is not other
    for waits in (
        serves("readinto STD/socket.py:706", "handle serve.py:9", call="recvfrom", socket=client),
        serves("handle serve.py:9", call="recvfrom", socket=client),
        serves("handle_one_request STD/http/server.py:413", call="futex"),
    ):
        assert put_stuck_request_first(waits) is waits
        # It is not looked at in place of the main thread where the server is asked, either.
        assert put_request_thread_first(waits) is waits
        assert describe_waiting_for_work([replace(rank(0), looks=(waits,))])


def test_a_thread_that_reads_the_next_request_of_its_client_answers_nobody() -> None:
    """A server with a thread for each client: only one of them is asked, and waits for a worker."""
    listens = Socket(20, "unix", local="data.sock", state="LISTEN")
    client = Socket(21, "unix", local="data.sock", state="ESTABLISHED", peer_pids=(101,))
    worker = Socket(22, "unix", state="ESTABLISHED", peer_pids=(91,))

    def serves(tid: int, read: str, socket: Socket) -> tuple[Thread, Kernel]:
        frames = stack(read, "Handler.handle service.py:30")
        end = Descriptor(9, "socket", f"socket:[{socket.inode}]", socket=socket)
        call = Syscall(0, "recvfrom", (), descriptors=(end,))
        return Thread(tid, f"T-{tid}", False, False, frames), Kernel(tid, "python", "S", "", call)

    takes = look("BaseServer.serve_forever STD/socketserver.py:233", pid=90, call="poll")
    first, idle = serves(95, "SocketIO.readinto STD/socket.py:706", client)
    second, asks_it = serves(96, "Connection._recv STD/multiprocessing/connection.py:395", worker)
    both = replace(
        takes,
        threads=(*takes.threads, first, second),
        kernel=(*takes.kernel, idle, asks_it),
        sockets=(listens, client, worker),
    )
    shown = put_request_thread_first(both)
    assert shown.main is not None
    assert shown.main.name == "T-96"
    alone = replace(both, threads=(*takes.threads, first))
    assert put_request_thread_first(alone) is alone


def test_who_has_spawned_a_rank_is_looked_at_where_that_waits_for_it_and_nothing_else_of_it() -> (
    None
):
    with started() as (rank, child, *_rest):  # the child of the rank, as if that had spawned it
        assert not has_spawned(child, rank)  # another program
        assert not has_spawned(rank, child)
    words = [sys.executable, "-c", "import os, time; os.fork() or time.sleep(60); time.sleep(60)"]
    with subprocess.Popen(words) as parent:
        try:
            until = time.monotonic() + 20
            while not (forked := descendants([parent.pid])) and time.monotonic() < until:
                time.sleep(0.05)
            assert has_spawned(forked[0], parent.pid)
            found = ProcessesBeside().find([(forked[0], asks(forked[0], parent.pid))], {*forked})
            assert found == {parent.pid: forked[0]}
        finally:
            for pid in (*forked, parent.pid):
                os.kill(pid, 9)


STARTS_A_TITLE = """
import subprocess, sys
words = ["engine::Core_DP1"] if sys.argv[1] == "title" else [sys.executable, "-c", ""]
with subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE) as one:
    print(one.pid, flush=True)
    sys.stdin.read()
"""


def is_spawned(script: Path, text: str, *words: str, shows: str) -> bool:
    """Return whether what a script has started, and told the pid of, was spawned by it, once that
    has `shows` among its words.
    """
    script.write_text(text)
    command = [sys.executable, str(script), *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.readline())
        until = time.monotonic() + 20
        while shows not in words_of(child) and time.monotonic() < until:
            time.sleep(0.02)
        found = has_spawned(child, parent.pid)
        parent.stdin.close()
    return found


@pytest.mark.parametrize(("name", "expected"), [("serve.py", True), ("torchrun", False)])
def test_who_gave_itself_a_title_was_started_by_the_program_above_it(
    tmp_path: Path, name: str, expected: bool
) -> None:
    """A title overwrites the words by which multiprocessing is known."""
    found = is_spawned(tmp_path / name, STARTS_A_TITLE, "title", shows="engine::Core_DP1")
    assert found is expected


def test_who_has_started_ranks_that_all_look_for_something_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be the one that is to give it."""
    found: dict[float, dict[int, int]] = {}
    monkeypatch.setattr("hangbisect.collect.beside.has_spawned", lambda rank, pid: pid == 70)
    monkeypatch.setattr(
        "hangbisect.collect.beside.read_stat", lambda pid: SimpleNamespace(ppid=70, state="S")
    )
    monkeypatch.setattr("hangbisect.collect.beside._list_failed_siblings", lambda rank: [])
    monkeypatch.setattr("hangbisect.collect.beside._list_failed_starters", lambda rank: [])
    for seconds in (0.004, 30.0):
        syscall = Syscall(230, "clock_nanosleep", (), timeout=seconds)
        looks = [
            replace(look("read train.py:9", pid=pid), kernel=(Kernel(pid, "p", "S", "", syscall),))
            for pid in (101, 102)
        ]
        seen = [(one.pid, one) for one in looks]
        found[seconds] = ProcessesBeside().find(seen, {101, 102})
    assert found == {0.004: {70: 101}, 30.0: {}}


@pytest.mark.parametrize(("name", "expected"), [("serve.py", True), ("torchrun", False)])
def test_so_was_what_runs_its_own_script_once_more(
    tmp_path: Path, name: str, expected: bool
) -> None:
    again = "import subprocess, sys\n"
    again += "if len(sys.argv) > 1: sys.exit(len(sys.stdin.read()))\n"
    again += "words = [sys.executable, *sys.argv, 'trainer']\n"
    again += "one = subprocess.Popen(words, stdin=subprocess.PIPE); print(one.pid, flush=True)\n"
    again += "sys.stdin.read()\n"
    assert is_spawned(tmp_path / name, again, shows="trainer") is expected


FAILS = """
import multiprocessing, os, sys, time
def rank(): time.sleep(60)
def helper(status): os._exit(status)
fork = multiprocessing.get_context("fork")
made = [fork.Process(target=rank), *(fork.Process(target=helper, args=(n,)) for n in (0, 3))]
[one.start() for one in made]  # each start reaps who has ended before it
print(*(one.pid for one in made), flush=True)
sys.stdin.read()
made[0].kill()
"""


def test_a_helper_that_failed_is_found_by_what_has_started_the_rank_too() -> None:
    words = [sys.executable, "-c", FAILS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdin is not None
        pid, _, failed = [int(word) for word in one.stdout.readline().split()]
        end = time.monotonic() + 20
        found: dict[int, int] = {}
        while failed not in found and time.monotonic() < end:
            found = ProcessesBeside().find([(pid, look("wait train.py:3", pid=pid))], ())
            time.sleep(0.1)
        assert found == {failed: pid}
        one.stdin.close()


def test_the_handler_of_grpc_that_stands_still_is_shown_in_place_of_who_waits_for_the_end() -> None:
    server = look(
        "wait SP/grpc/_common.py:116",
        "_Server.wait_for_termination SP/grpc/_server.py:1485",
        "serve reward.py:26",
        pid=90,
        call="futex",
    )
    handler = look(
        "score reward.py:15",
        "_call_behavior SP/grpc/_server.py:600",
        "_WorkItem.run STD/concurrent/futures/thread.py:58",
        pid=95,
        call="openat",
    )
    one = replace(
        server,
        threads=(*server.threads, *handler.threads),
        kernel=(*server.kernel, *handler.kernel),
    )
    shown = put_stuck_request_first(one)
    assert shown.threads[0].frames[0].name == "score"
    assert shown.main is shown.threads[0]


def test_who_has_started_all_is_no_stranger_to_whom_other_ranks_belong() -> None:
    """A program around the job serves a rank, to which another rank is connected: it is asked, and
    none of the job for that.
    """
    with started() as (rank, _, _, other, _, _):
        listens = Socket(8, "tcp", "127.0.0.1:51216", state="LISTEN")
        joined = replace(listens, inode=9, peer="127.0.0.1:4", state="ESTABLISHED")
        joined = replace(joined, peer_pids=(other,))
        one = asks(rank, os.getpid())
        one = replace(one, sockets=(*one.sockets, listens, joined))
        assert os.getpid() not in ProcessesBeside().find([(rank, one)], {rank, other})


def test_a_stranger_that_is_connected_to_the_rank_in_turn_is_looked_at() -> None:
    """The engine of a trainer, which was started in another session: its worker is in the group."""
    with started() as (rank, _, _, _, apart, worker):
        listens = Socket(8, "tcp", "127.0.0.1:51216", state="LISTEN")
        joined = replace(listens, inode=9, peer="127.0.0.1:4", state="ESTABLISHED")
        joined = replace(joined, peer_pids=(worker,))
        one = asks(rank, apart)
        assert ProcessesBeside().find([(rank, one)], {rank}) == {}
        one = replace(one, sockets=(*one.sockets, listens, joined))
        assert {apart, worker} <= {*ProcessesBeside().find([(rank, one)], {rank})}
