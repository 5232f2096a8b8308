"""What a blocked process waits for."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import Descriptor, FileLock, Frame, Look, Socket, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Wait
from hangbisect.diagnosis.process.blocking_reason import ProcessContext, find_blocking_reason
from hangbisect.diagnosis.process.frames import is_signal_handler
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.rank.messages import Signals

from .causes.seen import with_futex
from .made_up import GROUP, RECV, SLEEP, WANDB, gone, held, look, rank, silent_peer, wandb_core


def waits(*looks: Look, **more: object) -> Wait:
    facts = rank(0, *looks, **more)  # type: ignore[arg-type]  # fields of RankFacts
    found = Snapshot([facts]).waits[0]
    assert found is not None
    return found


def test_a_rank_that_is_gone_waits_for_nothing() -> None:
    assert Snapshot([gone(0, 0)]).waits[0] is None


def test_a_rank_that_no_look_found_waits_for_something_unknown() -> None:
    assert waits().kind == "unknown"


def test_held_waiting_and_meeting_ranks_wait_for_the_one_that_is_missing() -> None:
    ranks = [held(0), rank(1, GROUP), rank(2, SLEEP), rank(3, SLEEP, awaits=(2,))]
    assert [(wait.kind, wait.rank) for wait in Snapshot(ranks).waits.values() if wait] == [
        ("rank", 2),
        ("rank", 2),
        ("sleep", None),
        ("rank", 2),
    ]


def test_a_group_that_waits_for_a_rank_without_a_process_says_that_it_never_came() -> None:
    missing = rank(1, pid=None, alive=False, never_started=True)
    facts = rank(0, GROUP)
    found = Snapshot([facts, missing]).waits[0]
    assert found is not None
    assert (found.kind, found.rank) == ("absent_rank", 1)


def test_a_connection_that_is_not_made_is_what_a_rendezvous_waits_for() -> None:
    connecting = look(
        "_create_c10d_store SP/torch/distributed/rendezvous.py:199",
        call="poll",
        descriptors=(silent_peer("10.255.255.1:29500", "SYN_SENT"),),
    )
    ranks = [rank(0, GROUP), rank(1, connecting)]
    found = Snapshot(ranks).waits[1]
    assert found is not None
    assert (found.kind, found.detail) == ("socket", "10.255.255.1:29500 SYN_SENT")


def test_the_store_is_known_by_its_port_or_by_the_launcher_at_its_other_end() -> None:
    asks = look("on_fit_start train.py:3", call="poll", descriptors=(silent_peer("h:29500"),))
    assert waits(asks).kind == "socket"
    assert waits(asks, environment={"MASTER_PORT": "29500"}).kind == "store"
    served = silent_peer("h:29500", peer_pids=(1,), peer_names=("pt_elastic",))
    agents = look("on_fit_start train.py:3", call="poll", descriptors=(served,), ppid=1)
    assert waits(agents).kind == "store"


def test_a_client_of_another_library_in_c_asks_no_store_of_its_parent() -> None:
    served = silent_peer("h:5000", peer_pids=(1,), peer_names=("python",))
    frames = "_UnaryUnaryMultiCallable._blocking SP/grpc/_channel.py:1152", "register train.py:35"
    asks = look(*frames, call="poll", descriptors=(served,), ppid=1)
    assert waits(asks).kind == "socket"


def test_of_two_looks_that_caught_it_asleep_the_one_that_tells_a_call_is_shown() -> None:
    sleeps = look("read train.py:42", call="clock_nanosleep")
    between = replace(look("read train.py:42", call=""), at=103.0)
    assert waits(sleeps, between).kind == "sleep"


def test_what_a_launcher_serves_besides_is_not_the_store() -> None:
    """A launcher may serve anything, a mirror of the hub for example: torchrun's agent has its
    store at MASTER_PORT, and says so to each rank (elastic/agent/server/local_elastic_agent.py).
    Taken for the store, a rank that reads from there and has the lock on a file was proved a
    deadlock with the rank that waits for the lock.
    """
    served = silent_peer("h:8000", peer_pids=(1,), peer_names=("python",))
    frame = "SyncStream.read SP/httpcore/_backends/sync.py:128"
    reads = look(frame, call="recvfrom", descriptors=(served,), ppid=1)
    assert waits(reads, environment={"MASTER_PORT": "29500"}).kind == "socket"


def test_a_poller_between_two_polls_is_not_taken_for_running() -> None:
    poller = look(
        "FileBaton.wait SP/torch/utils/file_baton.py:50",
        "load SP/torch/utils/cpp_extension.py:1",
        call="clock_nanosleep",
    )
    caught = replace(poller, state="R")
    assert waits(poller, poller, caught).kind == "lock"


def test_the_lock_of_a_build_is_the_builders_where_no_look_shows_who_has_it() -> None:
    polls = look("FileBaton.wait SP/torch/utils/file_baton.py:50", call="clock_nanosleep")
    builds = look("Popen.communicate STD/subprocess.py:1", call="read")
    compiler = look(pid=901, ppid=101, name="cc1plus", state="R")
    left = FileLock("/build/lock", 1, None, waiting=False)

    def waits_for(*ranks: RankFacts) -> RankId | None:
        found = Snapshot(ranks).waits[0]
        assert found is not None
        assert found.kind == "lock"
        return found.rank

    builder = rank(1, builds, children=((compiler,),))
    assert waits_for(rank(0, polls), builder) == 1
    assert waits_for(rank(0, polls), rank(1, builds)) is None
    assert waits_for(rank(0, polls), builder, replace(builder, rank=2)) is None
    assert waits_for(rank(0, replace(polls, stale_locks=(left,))), builder) == 1
    assert waits_for(rank(0, replace(polls, stale_locks=(left,))), rank(1, builds)) is None


@pytest.mark.parametrize(
    "frame",
    [
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "LockAcquisition._poll_until_acquired SP/filelock/_core/_acquire.py:177",  # since 4.3
    ],
)
def test_a_polled_lock_is_found_in_whichever_look_caught_it(frame: str) -> None:
    poller = look(frame, call="clock_nanosleep")
    caught = replace(poller, locks=(FileLock("/x.lock", 1, 77, "rsync", waiting=False),))
    found = waits(caught, poller)
    assert (found.kind, found.detail, found.pid) == ("lock", "/x.lock", 77)


def test_a_polled_lock_with_a_relative_path_is_the_only_one_that_ends_so() -> None:
    polls = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177", call="clock_nanosleep"
    )
    main = polls.threads[0]
    named = replace(main.frames[0], locals=(("lock_filename", '"cache/x.lock"'),))
    polls = replace(polls, threads=(replace(main, frames=(named,)),))
    for paths, expected in (
        (("/job/cache/x.lock", "/job/y.lock"), 1),
        (("/job/cache/x.lock", "/other/cache/x.lock"), None),
        (("/job/mycache/x.lock",), None),
    ):
        holds = tuple(FileLock(path, n, 101) for n, path in enumerate(paths))
        ranks = [rank(0, polls), rank(1, replace(RECV, holds=holds))]
        found = Snapshot(ranks).waits[0]
        assert found is not None
        assert (found.kind, found.rank) == ("lock", expected), paths


def test_a_polled_lock_of_another_rank_is_the_one_at_the_path_in_its_frames() -> None:
    polls = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177", call="clock_nanosleep"
    )
    main = polls.threads[0]
    named = replace(main.frames[0], locals=(("lock_filename", '"/hub/***.lock"'),))
    polls = replace(polls, threads=(replace(main, frames=(named,)),))

    def has(*paths: str) -> Look:
        return replace(RECV, holds=tuple(FileLock(p, n, 101) for n, p in enumerate(paths)))

    for paths, expected in (
        (("/hub/4d.lock", "/triton/x.lock"), 1),
        (("/triton/x.lock",), None),
    ):
        ranks = [rank(0, polls), rank(1, has(*paths))]
        found = Snapshot(ranks).waits[0]
        assert found is not None
        assert (found.kind, found.rank) == ("lock", expected)


def test_an_open_lock_file_that_nobody_polls_is_not_blamed() -> None:
    idle = FileLock("/x.lock", 1, 77, "rsync", waiting=False)
    assert waits(replace(RECV, locks=(idle,))).kind == "socket"


def test_a_child_that_ended_already_is_not_waited_for() -> None:
    zombie = look(pid=901, ppid=100, name="sh", state="Z")
    living = look(pid=902, ppid=100, name="git", call="read", descriptors=(silent_peer(),))
    waiting = look("Popen.wait STD/subprocess.py:1", call="wait4", args=(2**32 - 1, 0, 0, 0))
    found = waits(waiting, children=((zombie,), (living,)))
    assert (found.kind, found.pid, found.process) == ("process", 902, "git")
    assert "10.0.0.1:443" in found.detail


def test_a_pipe_to_a_child_is_a_wait_for_the_child() -> None:
    pipe = Descriptor(5, "pipe", "pipe:[3]", other_ends=(902, 100))
    child = look(pid=902, ppid=100, name="sleep", call="clock_nanosleep")
    found = waits(
        look("_communicate STD/subprocess.py:9", call="poll", descriptors=(pipe,)),
        children=((child,),),
    )
    assert (found.kind, found.pid, found.process) == ("process", 902, "sleep")


def test_a_pipe_to_a_stranger_is_a_pipe() -> None:
    pipe = Descriptor(5, "pipe", "pipe:[3]", other_ends=(77,))
    found = waits(look("step train.py:1", call="read", descriptors=(pipe,)))
    assert (found.kind, found.pid) == ("pipe", 77)


def test_of_two_loader_workers_the_one_that_works_is_waited_for() -> None:
    idle = look("get STD/multiprocessing/queues.py:9", pid=901, ppid=100, name="pt_data_worker")
    busy = look("__getitem__ data.py:9", pid=902, ppid=100, name="pt_data_worker")
    parent = look(
        "wait STD/multiprocessing/connection.py:947",
        "Queue.get STD/multiprocessing/queues.py:113",
        "_try_get_data SP/torch/utils/data/dataloader.py:1291",
        call="poll",
    )
    assert waits(parent, children=((idle,), (busy,))).pid == 902


def test_what_a_worker_is_in_is_known_though_the_last_look_at_it_has_no_stack() -> None:
    parent = look(
        "wait STD/multiprocessing/connection.py:947",
        "_try_get_data SP/torch/utils/data/dataloader.py:1291",
        call="poll",
        descriptors=(Descriptor(9, "pipe", "pipe:[7]", other_ends=(901,)),),
    )
    store = Socket(3, "tcp", peer="10.0.0.1:29500", state="ESTABLISHED", peer_pids=(77,))
    meets = look("barrier SP/torch/distributed/distributed_c10d.py:5356", pid=901, ppid=100)
    meets = replace(meets, sockets=(store,))
    found = waits(parent, children=((meets, replace(meets, at=103.0, threads=())),))
    assert found.pid == 901
    assert found.detail.startswith("collective")


def test_inherited_sockets_alone_make_no_service_of_a_worker() -> None:
    shared = Socket(3, "tcp", peer="10.0.0.1:443", state="ESTABLISHED", peer_pids=(901,))
    worker = look("__getitem__ data.py:9", pid=901, ppid=100)
    blocked = replace(look("acquire train.py:1"), sockets=(shared,))
    assert waits(blocked, children=((worker,),)).kind == "futex"


def test_a_service_is_followed_without_its_library_being_known() -> None:
    core = replace(wandb_core(0)[0], name="acme-agent")
    renamed = [
        replace(f, file=f.file.replace("/wandb/", "/acme/")) for f in WANDB.threads[0].frames
    ]
    connection = Socket(4, "unix", peer_pids=(4899,), state="ESTABLISHED")
    loop = Thread(555, "loop", False, False, (Frame("EpollSelector.select", "/s/x.py", 1),))
    threads = (replace(WANDB.threads[0], frames=tuple(renamed)), loop)
    found = waits(replace(WANDB, threads=threads, sockets=(connection,)), children=((core,),))
    assert (found.kind, found.process) == ("process", "acme-agent")


def test_a_helper_that_is_halted_is_what_a_poll_or_a_lock_waits_for() -> None:
    def asleep(seconds: float | None, *frames: str) -> Look:
        one = look(*frames, call="clock_nanosleep")
        call = one.kernel[0].syscall
        assert call is not None
        return replace(
            one, kernel=(replace(one.kernel[0], syscall=replace(call, timeout=seconds)),)
        )

    polls = "poll_for_token SP/acme/service.py:61"
    for state, frozen in (("T", ""), ("t", ""), ("S", "/sys/fs/cgroup/x")):
        helper = look(pid=901, ppid=100, name="acme-core", state=state, frozen=frozen)
        for one, kind in (
            (asleep(0.2, polls), "process"),
            (asleep(None, polls), "process"),
            (asleep(0.5, "step train.py:5"), "process"),
            (asleep(9000.0, "step train.py:5"), "sleep"),
            (asleep(None, "step train.py:5"), "sleep"),
            (look("Condition.wait STD/threading.py:3"), "process"),
            (RECV, "socket"),
        ):
            found = waits(one, children=((helper,),))
            assert found.kind == kind
            if kind == "process":
                assert (found.pid, found.detail.partition(",")[0]) == (901, "stopped")
    well = look(pid=901, ppid=100, name="acme-core")
    assert waits(asleep(0.2, polls), children=((well,),)).kind == "sleep"


def test_a_helper_that_is_halted_does_not_wait_for_its_server() -> None:
    core = replace(wandb_core(0)[0], state="T")
    assert waits(WANDB, children=((core,),)).detail.startswith("stopped")


def test_a_join_is_for_the_thread_not_for_the_service_that_another_thread_talks_to() -> None:
    connection = Socket(4, "unix", peer_pids=(4899,), state="ESTABLISHED")
    loop = Thread(555, "loop", False, False, (Frame("EpollSelector.select", "/s/x.py", 1),))
    for frame in ("_shutdown STD/threading.py:1590", "Thread.join STD/threading.py:9"):
        ends = look(frame)
        ends = replace(ends, threads=(*ends.threads, loop), sockets=(connection,))
        assert waits(ends, children=(wandb_core(0),)).kind == "thread"


def test_a_loop_that_hears_only_itself_waits_for_itself() -> None:
    def hears(pids: tuple[int, ...], timeout: float | None = None) -> Look:
        pair = Socket(7, "unix", state="ESTABLISHED", peer_pids=pids)
        ends = (
            Descriptor(4, "anon", "anon_inode:[eventpoll]"),
            Descriptor(5, "socket", "socket:[7]", socket=pair),
        )
        one = look("EpollSelector.select STD/selectors.py:468", call="epoll_wait", descriptors=ends)
        call = one.kernel[0].syscall
        assert call is not None
        return replace(
            one, kernel=(replace(one.kernel[0], syscall=replace(call, timeout=timeout)),)
        )

    assert waits(hears((100,))).kind == "itself"
    assert waits(hears((77,))).kind == "socket"
    assert waits(hears((100,), 1.0)).kind == "sleep"


@pytest.mark.parametrize(("call", "loop"), [("read", False), ("epoll_wait", True)])
def test_who_hears_what_happens_in_a_folder_waits_for_no_connection_that_it_has(
    call: str, loop: bool
) -> None:
    store = Socket(9, "tcp", peer="10.0.0.1:29500", state="ESTABLISHED", peer_pids=(77,))
    named = (Descriptor(5, "anon", "anon_inode:inotify"),)
    polled = (Descriptor(4, "anon", "anon_inode:[eventpoll]"), *named)
    one = look("watch train.py:5", call=call, descriptors=polled if loop else named)
    found = waits(replace(one, sockets=(store,)))
    assert (found.kind, found.detail) == ("file", "an event of inotify, in watch (train.py:5)")


def test_a_lock_of_pythons_is_known_by_native_frames() -> None:
    one = look("step train.py:5")
    main = one.threads[0]
    taken = Frame("PyThread_acquire_lock_timed", "/usr/lib/libpython3.11.so", 0, native=True)
    locked = replace(one, threads=(replace(main, frames=(taken, *main.frames)),))
    found = waits(locked)
    assert (found.kind, found.detail) == ("lock", "a Python lock in step (train.py:5)")


def test_a_thread_that_keeps_the_gil_is_waited_for() -> None:
    asks = look("step train.py:1", call="futex", args=(0, 137, 0, 99, 0, 0))
    other = Thread(555, "Thread-1", False, True, (Frame("spin", "/home/ada/x.py", 3),))
    greedy = replace(asks, threads=(*asks.threads, other))
    found = waits(greedy, greedy)
    assert found.kind == "gil"
    assert "Thread-1" in found.detail
    assert "spin (x.py:3)" in found.detail


def test_a_plain_lock_is_no_wait_for_the_gil() -> None:
    plain = look("step train.py:1", call="futex")
    other = Thread(555, "Thread-1", True, True, ())
    assert waits(replace(plain, threads=(*plain.threads, other))).kind == "futex"


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (("Thread.join STD/threading.py:9",), "thread"),
        (
            (
                "Condition.wait STD/threading.py:3",
                "Future.result STD/concurrent/futures/_base.py:4",
            ),
            "thread",
        ),
        (("Condition.wait STD/threading.py:3", "Queue.get STD/queue.py:4"), "lock"),
        (("_ModuleLock.acquire <frozen importlib._bootstrap>:9",), "lock"),
        (("step train.py:1",), "futex"),
    ],
)
def test_what_a_futex_is_about_is_read_from_the_innermost_frames(
    frames: tuple[str, ...], expected: str
) -> None:
    assert waits(look(*frames)).kind == expected


def test_a_futex_whose_word_names_an_owner_is_a_lock() -> None:
    """A mutex of C: what is known of it is whose it is, and no function of C need be seen."""
    for owner, whose in ((100, "its own thread"), (4711, "thread 4711")):
        wait = waits(with_futex(look("build train.py:9"), owner))
        assert wait.kind == "lock"
        assert f"a mutex of {whose}" in wait.detail
        assert "build (" in wait.detail


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (Descriptor(0, "tty", "/dev/pts/3"), "input"),
        (Descriptor(0, "device", "/dev/pts/3"), "input"),
        (Descriptor(5, "device", "/dev/nvidia0"), "device"),
        (Descriptor(5, "file", "/data/x"), "file"),
        (Descriptor(5, "fifo", "/tmp/f"), "pipe"),
    ],
)
def test_a_read_waits_for_what_its_descriptor_is(descriptor: Descriptor, expected: str) -> None:
    assert waits(look("step train.py:1", call="read", descriptors=(descriptor,))).kind == expected


@pytest.mark.parametrize(
    "function",
    [
        "cudaStreamSynchronize",
        "cuCtxSynchronize",
        "hipStreamSynchronize",
        "hsa_signal_wait_scacquire",
        "rocr::core::InterruptSignal::WaitRelaxed",
    ],
)
def test_a_wait_for_a_gpu_is_told_by_its_native_frames(function: str) -> None:
    seen = look("step train.py:1", call="", state="R")
    frames = (Frame(function, "<native>", 0, native=True), *seen.threads[0].frames)
    seen = replace(seen, threads=(replace(seen.threads[0], frames=frames),))
    assert waits(seen).kind == "device"


def test_an_interrupted_call_that_goes_on_is_known_by_where_it_sleeps() -> None:
    again = look("step train.py:1", call="restart_syscall", wchan="hrtimer_nanosleep")
    assert waits(again).kind == "sleep"


def test_where_the_kernel_hides_that_as_well_the_function_of_libc_tells() -> None:
    """Some kernels name the entry of all system calls as the place (do_syscall_64)."""
    again = look("step train.py:1", call="restart_syscall", wchan="do_syscall_64")
    (main,) = again.threads
    inside = [
        Frame("clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0, native=True),
        Frame("SocketConnectOp::tryConnect", "/lib/libtorch_cpu.so", 0, native=True),
    ]
    native = replace(again, threads=(replace(main, frames=(*inside, *main.frames)),))
    assert waits(native).kind == "sleep"
    assert waits(again).kind != "sleep"


def test_waiting_in_a_signal_handler_is_not_what_is_looked_at() -> None:
    inside = ("SocketIO.readinto STD/socket.py:706", "step train.py:1")
    before = look(*inside, call="recvfrom", descriptors=(silent_peer(),))
    handled = look(
        "broadcast SP/torch/distributed/distributed_c10d.py:3151",
        "_HandlersCompose.__call__ SP/pytorch_lightning/trainer/connectors/signal_connector.py:7",
        *inside,
        call="futex",
    )
    assert waits(before, handled).kind == "socket"
    # The call is the handler's, and nothing is known of the one before it.
    assert waits(handled).kind == "unknown"


def test_the_handler_that_we_install_in_a_rank_is_known_as_one() -> None:
    """Else an interrupted rank would seem to wait for the monitor, in a handler of ours."""
    ours = Signals._interrupted.__code__
    frame = Frame(f"Signals.{ours.co_name}", ours.co_filename, ours.co_firstlineno)
    assert is_signal_handler(frame)
    assert not is_signal_handler(replace(frame, name="Signals.connect"))


def test_who_hears_a_socket_of_its_own_does_not_wait_at_another_connection() -> None:
    """It has both ends of a socketpair, and a connection to the store that it does not use."""
    own = Socket(60, "unix", "", "", "ESTABLISHED", peer_pids=(100,), peer_inode=61)
    store = Socket(61, "tcp", "127.0.0.1:4", "127.0.0.1:29500", "ESTABLISHED", peer_pids=(7,))
    named = (Descriptor(13, "socket", "socket:[60]", socket=own),)
    one = look("step train.py:5", call="poll", descriptors=named, sockets=(own, store))
    call = replace(one.kernel[0].syscall, timeout=60.0)  # type: ignore[type-var]
    one = replace(one, kernel=(replace(one.kernel[0], syscall=call),))
    wait = Snapshot([rank(0, one)]).waits[0]
    assert wait is not None
    assert (wait.kind, wait.what) == ("sleep", "")


_SERVED = Socket(1, "tcp6", local="[::]:9230", state="LISTEN")
_TO_ITSELF = Descriptor(
    15,
    "socket",
    "socket:[2]",
    socket=Socket(*(2, "tcp", "10.0.0.1:48800", "10.0.0.1:9230", "ESTABLISHED"), peer_pids=(100,)),
)


def _asks_itself(*frames: str, served: Socket = _SERVED) -> Look:
    return look(*frames, call="poll", descriptors=(_TO_ITSELF,), sockets=(served,))


def test_who_asks_a_server_in_itself_that_serves_other_machines_waits_for_peers() -> None:
    """A store of torch's own (TCPStore.wait) of which no native frame could be read."""
    first = rank(0, _asks_itself("all_there steps.py:14", "<module> steps.py:32"))
    second = rank(1, look("update steps.py:40", "<module> steps.py:32"))
    found = Snapshot([first, second]).waits[0]
    assert found is not None
    assert (found.kind, found.rank) == ("rank", 1)


@pytest.mark.parametrize(
    "asks",
    [
        # Python's own socket: what is said over it is the job's, and its server may be at fault.
        _asks_itself("socket.recv STD/socket.py:706", "ask steps.py:14"),
        # A library that is no server of ranks; a server that only this machine reaches.
        _asks_itself("call SP/grpc/_channel.py:9", "ask steps.py:14"),
        _asks_itself("ask steps.py:14", served=replace(_SERVED, local="127.0.0.1:9230")),
        _asks_itself("ask steps.py:14", served=replace(_SERVED, local="[::]:9231")),
    ],
)
def test_who_asks_any_other_server_in_itself_is_not_known_to_wait_for_peers(asks: Look) -> None:
    second = rank(1, look("update steps.py:40", "<module> steps.py:32"))
    found = Snapshot([rank(0, asks), second]).waits[0]
    assert found is not None
    assert found.rank is None


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("Semaphore.acquire STD/threading.py:479", "a slot of a semaphore in Semaphore.acquire"),
        ("Queue.put STD/queue.py:140", "room in a queue in Queue.put"),
        ("Queue.get STD/queue.py:171", "an item of a queue in Queue.get"),
        ("Pool.put train.py:9", "a Python lock in Condition.wait"),
    ],
)
def test_what_a_condition_is_waited_for_is_told_by_who_called_it(called: str, said: str) -> None:
    one = look("Condition.wait STD/threading.py:327", called, "<module> train.py:30")
    found = find_blocking_reason((one,), ProcessContext(rank(0, one)))
    assert found.kind == "lock"
    assert found.detail.startswith(said)


def test_who_waits_for_a_word_by_signal_does_not_wait_for_its_only_child() -> None:
    """The one that is to send SIGUSR2 may be any process; of SIGCHLD the kernel tells."""
    frames = ("accept STD/socket.py:294", "run_worker train.py:19")
    child = look(*frames, pid=300, ppid=100, call="accept4")

    def wait(*signals: int) -> Wait:
        frames = ("sigwait STD/signal.py:82", "wait_for_worker train.py:33")
        one = look(*frames, call="rt_sigtimedwait")
        (task,) = one.kernel
        assert task.syscall is not None
        call = replace(task.syscall, signals=signals)
        one = replace(one, kernel=(replace(task, syscall=call),))
        facts = rank(0, one, children=((child,),))
        return find_blocking_reason((one,), ProcessContext(facts))

    assert wait(signal.SIGUSR2).kind == "sleep"
    assert wait(signal.SIGUSR2).pid is None
    assert wait(signal.SIGUSR2, signal.SIGCHLD).pid == 300
