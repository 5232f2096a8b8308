"""In which calls a process waits for its peers, by its stack alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Descriptor, Frame, Kernel, Look, Socket, Syscall
from hangbisect.diagnosis.process.process_snapshot import merge_looks
from hangbisect.diagnosis.process.public_calls import find_group_call, find_group_wait
from hangbisect.diagnosis.single_ranks import explain_single_ranks
from hangbisect.diagnosis.verdict import judge_job

from .made_up import SLEEP, gone, job, look, rank, silent_peer

WAITS_FUNCTIONALLY = "wait_tensor SP/torch/distributed/_functional_collectives.py:140"


@pytest.mark.parametrize(
    "dispatcher",
    ["OpOverloadPacket.__call__ SP/torch/_ops.py:1279", "OpOverload.__call__ SP/torch/_ops.py:841"],
)
def test_who_calls_an_operator_tells_what_it_waits_for(dispatcher: str) -> None:
    """A functional collective waits in C++, called through torch's operators, which are the
    innermost frame: without native frames only its caller tells (torch/_ops.py).
    """
    view = merge_looks([look(dispatcher, WAITS_FUNCTIONALLY, "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"


def test_an_operator_of_the_jobs_own_waits_for_nobody() -> None:
    view = merge_looks([look("OpOverload.__call__ SP/torch/_ops.py:841", "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) is None


def test_a_functional_collective_that_computes_waits_for_nobody() -> None:
    frames = ("OpOverload.__call__ SP/torch/_ops.py:841", WAITS_FUNCTIONALLY)
    view = merge_looks([look(*frames, call="", state="R")])
    assert view is not None
    assert find_group_wait(view) is None


@pytest.mark.parametrize("folder", ["lightning_fabric", "lightning/fabric"])
@pytest.mark.parametrize("method", ["__call__", "__exit__"])
def test_lightnings_own_barrier_meets_the_others_wherever_it_is_entered(
    folder: str, method: str
) -> None:
    """`_InfiniteBarrier` calls a method of the process group in C++, so its own frame is the
    innermost one: `__exit__` after prepare_data, `__call__` in Fabric.rank_zero_first, where the
    other ranks wait for as long as rank 0 is in the block (lightning_fabric/fabric.py).
    """
    barrier = f"_InfiniteBarrier.{method} SP/{folder}/utilities/distributed.py:418"
    view = merge_looks([look(barrier, "Fabric.rank_zero_first fabric.py:728", "main train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"
    assert find_group_call(view.frames) == "barrier"


@pytest.mark.parametrize(
    "frame",
    [
        "_init_process_group SP/torch/distributed/rpc/backend_registry.py:123",
        "_tensorpipe_init_backend_handler SP/torch/distributed/rpc/backend_registry.py:381",
    ],
)
@pytest.mark.parametrize("call", ["clock_nanosleep", "poll", "futex"])
def test_init_rpc_makes_a_group_with_the_others(frame: str, call: str) -> None:
    """In C++ it asks a store for the other workers: one in a file is asked again after a sleep."""
    looked = look(frame, "init_rpc SP/torch/distributed/rpc/__init__.py:170", call=call)
    view = merge_looks([looked])
    assert view is not None
    assert find_group_wait(view) == "construction"


def test_init_rpc_that_is_not_there_yet_keeps_a_rank_from_being_blamed() -> None:
    makes = look(
        "_init_process_group SP/torch/distributed/rpc/backend_registry.py:123",
        "_tensorpipe_init_backend_handler SP/torch/distributed/rpc/backend_registry.py:349",
        "init_rpc SP/torch/distributed/rpc/__init__.py:170",
        "<module> train.py:4",
        call="clock_nanosleep",
    )
    found = judge_job(job(), [rank(0, makes), rank(1, SLEEP)])
    assert (tuple(found.ranks.culprit), tuple(found.ranks.waiting)) == ((1,), (0,))


@pytest.mark.parametrize(
    "frame",
    [
        "wrapped_fn SP/deepspeed/utils/nvtx.py:25",  # AllGatherHandle.wait of stage 3
        "_allgather_params_coalesced SP/deepspeed/runtime/zero/partition_parameters.py:2112",
        "wait SP/deepspeed/runtime/pipe/p2p.py:90",
        "_wait_batch_p2p SP/torch/distributed/pipelining/schedules.py:683",
        "wait_for_broadcasts SP/torch/distributed/optim/zero_redundancy_optimizer.py:276",
    ],
)
def test_a_library_that_waits_for_the_handle_of_an_operation_waits_for_its_peers(
    frame: str,
) -> None:
    """Work.wait() is a method in C++: the library's own function is the innermost frame."""
    view = merge_looks([look(frame, "train train.py:9")])
    assert view is not None
    assert find_group_wait(view) == "collective"
    computes = merge_looks([look(frame, "train train.py:9", call="", state="R")])
    assert computes is not None
    assert find_group_wait(computes) is None


GLOO = Kernel(7, "pt_gloo_runloop", "S", "", None)
FINISHES = ("Overlapped.finish train.py:28", "main train.py:63", "<module> train.py:72")


def at_a_handle(*frames: str, calls: tuple[str, ...] = ("work.wait",), gloo: bool = True) -> Look:
    """A rank in a line that calls these, of which the innermost frame is the job's own."""
    one = look(*frames)
    (thread,) = one.threads
    inner = replace(thread.frames[0], calls=calls)
    one = replace(one, threads=(replace(thread, frames=(inner, *thread.frames[1:])),))
    return replace(one, kernel=(*one.kernel, GLOO)) if gloo else one


def test_a_line_of_the_jobs_own_that_waits_for_a_handle_waits_for_its_peers() -> None:
    """Work.wait() has no frame of Python's, as nothing else of that name in a process of a group
    has that is asleep; native frames are read of two ranks at most.
    """
    view = merge_looks([at_a_handle(*FINISHES)])
    assert view is not None
    assert find_group_wait(view) == "collective"


@pytest.mark.parametrize(
    "one",
    [
        at_a_handle(*FINISHES, gloo=False),
        at_a_handle(*FINISHES, calls=("library.compute",)),
        at_a_handle("Event.wait STD/threading.py:629", *FINISHES),
        at_a_handle("finish SP/otherlib/handles.py:3", "main train.py:63"),
    ],
)
def test_a_line_that_may_wait_for_something_else_waits_for_nobody(one: Look) -> None:
    view = merge_looks([one])
    assert view is not None
    assert find_group_wait(view) is None


IN_BARRIER = look(
    "barrier SP/torch/distributed/distributed_c10d.py:5356",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "main train.py:66",
    "<module> train.py:72",
)


def test_who_left_the_handles_of_all_others_is_to_blame() -> None:
    """Three wait for reductions that were handed out, one is in the barrier behind them already."""
    waits = at_a_handle(*FINISHES)
    looks = (waits, waits, IN_BARRIER, waits)
    ranks = [rank(n, one, replace(one, at=103.0)) for n, one in enumerate(looks)]
    found = judge_job(job("late", 4), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1, 3))


def native(one: Look, *names: str) -> Look:
    (thread,) = one.threads
    first = thread.frames[0]
    frames = tuple(replace(first, name=n, file="/lib/libtorch_cpu.so", native=True) for n in names)
    return replace(one, threads=(replace(thread, frames=(*frames, *thread.frames)),))


def test_what_native_frames_show_of_one_is_so_of_all_that_stand_in_its_line() -> None:
    """Two ranks are looked at with native frames, and they are not the ones to blame for that."""
    waits = look("Fused.sync fused.py:12", "main train.py:63", "<module> train.py:72")
    shown = native(waits, "pthread_cond_wait", "c10d::Work::wait")
    looks = (shown, waits, IN_BARRIER, waits)
    ranks = [rank(n, one, replace(one, at=103.0)) for n, one in enumerate(looks)]
    found = judge_job(job("late", 4), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1, 3))


def test_who_asks_the_store_in_the_line_of_another_asks_it_too() -> None:
    """Store.wait() has no frame of Python's either, and rank 0 serves the store: it is no culprit,
    and neither is who waits there as it does.
    """
    peer = silent_peer("127.0.0.1:4711", peer_pids=(100,), peer_names=("python",))
    line = ("take_turns turns.py:34", "main turns.py:60")
    waits = look(*line, call="poll", descriptors=(peer,))
    shown = native(waits, "poll", "c10d::TCPStore::doWait", "c10d::TCPStore::wait")
    ranks = [rank(n, one) for n, one in enumerate((shown, waits, waits))]
    views = explain_single_ranks(ranks).ranks
    assert [(one.group, one.wait.kind if one.wait else "") for one in views] == [
        ("store", "store")
    ] * 3


def test_who_stands_in_another_line_is_not_told_by_that() -> None:
    waits = look("Fused.sync fused.py:12", "main train.py:63", "<module> train.py:72")
    shown = native(waits, "pthread_cond_wait", "c10d::Work::wait")
    other = look("Fused.sync fused.py:40", "main train.py:63", "<module> train.py:72")
    ranks = [rank(n, one, replace(one, at=103.0)) for n, one in enumerate((shown, other))]
    found = judge_job(job("late", 2), ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((1,), (0,))


# ---- the store, and whoever serves it -----------------------------------------------------------


@pytest.mark.parametrize("who", [0, 1, 3])
def test_who_waits_for_a_key_does_not_wait_for_the_rank_that_serves_the_store(who: int) -> None:
    """All are in synchronize(), one of them for the next key; all are connected to rank 0, in which
    a thread of C++ serves the store.
    """
    peer = silent_peer("127.0.0.1:4711", peer_pids=(100,), peer_names=("python",))
    assert peer.socket is not None
    ranks = []
    for number in range(4):
        at = "index train.py:46" if number == who else "vocabulary train.py:40"
        one = look(
            "get_all SP/torch/distributed/elastic/utils/store.py:65",
            "synchronize SP/torch/distributed/elastic/utils/store.py:100",
            "agree train.py:29",
            at,
            "<module> train.py:60",
            call="poll",
            descriptors=(peer,),
            sockets=(peer.socket,),
        )
        ranks.append(rank(number, one, replace(one, at=103.0)))
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (who,)
    assert verdict.ranks.waiting == tuple(n for n in range(4) if n != who)


def test_who_alone_waits_for_a_key_of_one_rank_is_not_named_for_standing_elsewhere() -> None:
    """Store.wait() has no frame: one waits for the key of its neighbour, four for its own."""
    ranks = []
    for number in range(5):
        line = 30 if number == 4 else 35
        peer = silent_peer("127.0.0.1:4711", peer_pids=(100,), peer_names=("python",))
        assert peer.socket is not None
        made = look(f"take_turns train.py:{line}", "<module> train.py:60", call="poll")
        native = replace(made.threads[0].frames[0], name="c10d::TCPStore::wait", native=True)
        threads = (replace(made.threads[0], frames=(native, *made.threads[0].frames)),)
        one = replace(made, threads=threads, sockets=(peer.socket,))
        ranks.append(rank(number, one, replace(one, at=103.0)))
    assert judge_job(job("late", 5), ranks).ranks.culprit != (4,)


@pytest.mark.parametrize("reads", ["", "SocketIO.readinto STD/socket.py:718"])
def test_who_hears_a_store_of_another_rank_is_told_by_the_thread_that_serves_it(reads: str) -> None:
    """Of rank 1 no native frame is read, and no rank stands in its line. What Python itself reads
    at that port is no answer of a store.
    """
    peer = silent_peer("127.0.0.1:4711", peer_pids=(100,), peer_names=("python",))
    listens = Socket(8, "tcp6", local="[::]:4711", state="LISTEN")
    call = Syscall(0, "epoll_wait", (), descriptors=(Descriptor(9, "socket", "s", socket=listens),))
    serves = look("work train.py:9", call="clock_nanosleep")
    server = Kernel(107, "pt_tcpstore_uv", "S", "do_epoll_wait", call)
    lines = (*filter(None, [reads]), "take_turns turns.py:28", "main turns.py:60")
    waits = look(*lines, pid=101, call="poll", descriptors=(peer,))
    ranks = [
        rank(0, replace(serves, kernel=(*serves.kernel, server))),
        rank(1, waits, pid=101),
    ]
    found = explain_single_ranks(ranks).ranks[1]
    assert found.wait is not None
    expected = ("", "socket", 0) if reads else ("store", "store", None)
    assert (found.group, found.wait.kind, found.wait.rank) == expected
    assert reads or not found.wait.others


def test_who_destroys_a_group_with_the_gil_waits_for_its_own_thread() -> None:
    """~ProcessGroupGloo joins its threads, one of which frees an object of Python's: for that it
    wants the GIL (torch 2.13). The ranks that have ended well are not at fault.
    """
    ends = look("<module> train.py:64", call="futex", args=(1, 137, 0, 0))
    names = ("std::thread::join", "c10d::ProcessGroupGloo::~ProcessGroupGloo", "c10d::~Reducer")
    native = tuple(Frame(name, "/lib/libtorch_cpu.so", 0, native=True) for name in names)
    main = ends.threads[0]
    main = replace(main, frames=(*native, *main.frames), owns_gil=True)
    wants = Kernel(901, "pt_gloo", "S", "futex_do_wait", Syscall(0, "futex", (1, 137, 0, 9)))
    ends = replace(ends, threads=(main,), kernel=(*ends.kernel, wants))
    view = merge_looks([ends, ends])
    assert view is not None
    assert find_group_wait(view) is None
    ranks = [rank(0, ends, ends), gone(1, 0), gone(2, 0), rank(3, ends, ends)]
    verdict = judge_job(job(world=4, pipeline=""), ranks)
    assert verdict.ranks.culprit == (0, 3)
    assert verdict.cause is not None
    assert verdict.cause.id == "gil-held"


def test_who_hears_a_connection_in_a_line_that_waits_is_at_no_handle() -> None:
    """store.wait() has no frame either: it polls its connection to the store (TCPStore.cpp), where
    Work.wait() sleeps until a thread of the group wakes it.
    """
    store = silent_peer("127.0.0.1:29500")
    asks = at_a_handle(*FINISHES, calls=("store.wait",))
    call = Syscall(0, "poll", (), descriptors=(store,))
    asks = replace(asks, kernel=(replace(asks.kernel[0], syscall=call), GLOO))
    view = merge_looks([asks])
    assert view is not None
    assert find_group_wait(view) is None
