"""Of ranks that stand still, and of which no log tells who waits for whom: the few that stand
elsewhere than all others are named, and never all where a part of them is enough.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.checkpoints import UserStep
from hangbisect.base.process_facts import CodeLock, Descriptor, Kernel, Look, Socket, Syscall
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.single_ranks import is_gone
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.report.verdict_rows import other_rank_rows
from hypothesis import given
from hypothesis import strategies as st

from .made_up import gone, job, look, rank, silent_peer

_TRAIN = ("train train.py:20", "<module> train.py:30")
# How ranks wait for their peers where nothing says so: what they have in common is the place.
MANY = {
    "spins until the device is done": look(*_TRAIN, call="", state="R"),
    "torch.cuda.synchronize": look(
        "synchronize SP/torch/cuda/__init__.py:1040", *_TRAIN, call="", state="R"
    ),
    "sleeps until the device is done": look(
        "synchronize SP/torch/cuda/__init__.py:1040", *_TRAIN, call="ioctl"
    ),
    "Work.wait": look(*_TRAIN),
    "a helper thread": look(
        "Condition.wait STD/threading.py:327",
        "Future.result STD/concurrent/futures/_base.py:451",
        *_TRAIN,
    ),
    "a file that another one writes": look(
        "wait_for_file files.py:8", *_TRAIN, call="clock_nanosleep"
    ),
    "a barrier of multiprocessing": look(
        "Condition.wait STD/multiprocessing/synchronize.py:261",
        "Barrier.wait STD/threading.py:668",
        *_TRAIN,
    ),
}
_FIFO = Descriptor(5, "fifo", "/data/feed")
_LINE = Descriptor(5, "fifo", "/data/line")
_PARENT = Descriptor(
    5, "socket", "socket:[6]", socket=Socket(6, "unix", state="ESTABLISHED", peer_pids=(50,))
)
_DATAGRAMS = Descriptor(5, "socket", "socket:[7]", socket=Socket(7, "udp", "127.0.0.1:29600"))
_DOOR = Descriptor(
    5, "socket", "socket:[8]", socket=Socket(8, "tcp", "127.0.0.1:29700", state="LISTEN")
)
# Who is to send is not known, and may be a peer: anybody can open a FIFO, or write to a port.
MANY |= {
    "a FIFO that nobody writes": look(
        "hear f.py:3", *_TRAIN, call="pselect6", descriptors=(_LINE,)
    ),
    "an answer of who started them all": look(
        "Connection.recv STD/multiprocessing/connection.py:250",
        *_TRAIN,
        call="read",
        descriptors=(_PARENT,),
        ppid=50,
    ),
    "a datagram": look(*_TRAIN, call="recvfrom", descriptors=(_DATAGRAMS,)),
    "a connection that is to come": look(
        "socket.accept STD/socket.py:295", *_TRAIN, call="accept4", descriptors=(_DOOR,)
    ),
}
ONE = {
    "a server": look("fetch data.py:7", *_TRAIN, call="recvfrom", descriptors=(silent_peer(),)),
    "its own sleep": look("pause tools.py:5", *_TRAIN, call="clock_nanosleep"),
    "a lock": look("Store.put store.py:12", *_TRAIN),
    "a pipe": look("feed data.py:9", *_TRAIN, call="read", descriptors=(_FIFO,)),
    "a computation": look("tokenize data.py:40", *_TRAIN, call="", state="R"),
}


def standing(number: int, one: Look) -> RankFacts:
    """A rank that three looks have seen in the same place."""
    return rank(number, one, replace(one, at=103.0), replace(one, at=106.0))


def culprits(*looks: Look) -> tuple[object, ...]:
    ranks = [standing(number, one) for number, one in enumerate(looks)]
    return judge_job(job("late", len(looks)), ranks).ranks.culprit


@pytest.mark.parametrize("one", ONE)
@pytest.mark.parametrize("many", MANY)
def test_the_one_that_stands_elsewhere_is_named(many: str, one: str) -> None:
    for world, place in ((3, 1), (4, 3), (8, 0), (8, 3)):
        looks = [ONE[one] if number == place else MANY[many] for number in range(world)]
        assert culprits(*looks) == (place,), (world, place)


def test_the_others_are_told_to_wait() -> None:
    ranks = [standing(n, (ONE if n == 2 else MANY)[w]) for n, w in _seven_and_one()]
    verdict = judge_job(job("late", 8), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3, 4, 5, 6, 7)
    assert verdict.guessed
    (row,) = other_rank_rows(verdict, ranks)
    assert "ranks 0-1,3-7" in row.text
    assert "perhaps for rank 2" in row.text


def _seven_and_one() -> list[tuple[int, str]]:
    return [(n, "a server" if n == 2 else "Work.wait") for n in range(8)]


def test_two_that_stand_elsewhere_are_both_named() -> None:
    looks = [MANY["Work.wait"]] * 6
    assert culprits(ONE["a server"], *looks, ONE["its own sleep"]) == (0, 7)
    assert culprits(*looks, ONE["a server"], ONE["a server"]) == (6, 7)


def test_the_same_function_is_reached_by_two_branches() -> None:
    other = look(
        "wait_for_file files.py:9",
        "train train.py:25",
        "<module> train.py:30",
        call="clock_nanosleep",
    )
    polls = MANY["a file that another one writes"]
    assert culprits(other, polls, ONE["a pipe"], polls) == (2,)


def test_two_lines_of_one_function_are_two_places() -> None:
    other = look("train train.py:25", "<module> train.py:30")
    assert culprits(*[MANY["Work.wait"]] * 3, other) == (3,)


def test_of_two_ranks_nobody_can_tell() -> None:
    assert culprits(MANY["Work.wait"], ONE["its own sleep"]) == (0, 1)


def test_half_of_the_ranks_are_not_few() -> None:
    looks = [MANY["Work.wait"]] * 2 + [ONE["its own sleep"]] * 2
    assert culprits(*looks) == (0, 1, 2, 3)


def test_who_waits_for_an_outsider_by_name_does_not_wait_for_peers() -> None:
    """Seven wait for a server that is silent: one that sleeps meanwhile is not why."""
    found = culprits(*[ONE["a server"]] * 7, ONE["its own sleep"])
    assert set(range(7)) <= {*found}


SHAPES = st.sampled_from([*MANY.values(), *ONE.values()])


@given(
    st.lists(st.tuples(SHAPES, st.booleans()), min_size=1, max_size=8),
    st.sampled_from(["late", "still", "busy"]),
)
def test_a_rank_that_moved_is_never_named(ranks: list[tuple[Look, bool]], ended: str) -> None:
    facts = [
        replace(standing(number, one), moved="a file grew" if moved else "")
        for number, (one, moved) in enumerate(ranks)
    ]
    verdict = judge_job(job(ended, len(ranks)), facts)  # type: ignore[arg-type]  # a literal
    assert not {r.rank for r in facts if r.moved} & {*verdict.ranks.culprit}


@given(st.lists(SHAPES, min_size=3, max_size=8), st.data())
def test_never_all_where_most_stand_in_one_place(looks: list[Look], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(looks) - 1))
    many = data.draw(st.sampled_from([*MANY.values()]))
    one = data.draw(st.sampled_from([*ONE.values()]))
    everyone = [one if number == place else many for number in range(len(looks))]
    assert culprits(*everyone) == (place,)


def test_a_server_that_most_ranks_ask_is_not_taken_for_the_one_that_stands_elsewhere() -> None:
    asks = look("fetch data.py:7", *_TRAIN, call="recvfrom", descriptors=(silent_peer(),))
    assert culprits(asks, asks, ONE["its own sleep"], asks) != (2,)


# ---- few ranks, of which one stands for a reason that has a name ---------------------------------


def polling(*frames: str) -> tuple[Look, ...]:
    """Three looks at a loop that sleeps for a tenth of a second each time."""
    return tuple(_asleep(frames, at, 0.05) for at in (100.0, 103.0, 106.0))


def _asleep(frames: tuple[str, ...], at: float, left: float) -> Look:
    one = look(*frames, call="clock_nanosleep", at=at)
    (main,) = one.kernel
    assert main.syscall is not None
    return replace(one, kernel=(replace(main, syscall=replace(main.syscall, timeout=left)),))


_FINDS = polling("connect star.py:20", "<module> star.py:60")
_HELD = Descriptor(3, "file", "/tmp/cache.lock")
NAMED = {
    "a lock of another program": look(
        "lock_cache faults.py:30",
        call="flock",
        descriptors=(_HELD,),
        args=(3, 2, 0, 0, 0, 0),
    ),
    "a server": ONE["a server"],
}


@pytest.mark.parametrize("named", NAMED)
def test_of_two_the_one_that_looks_again_and_again_waits_for_the_other(named: str) -> None:
    ranks = [standing(0, NAMED[named]), rank(1, *_FINDS)]
    verdict = judge_job(job("late"), ranks)
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1,)
    assert verdict.guessed


def test_of_those_that_look_again_the_one_is_named_for_whose_process_a_rank_waits() -> None:
    """Rank 0 reads to the end of a connection that a process has which rank 2 has forked."""
    end = silent_peer("127.0.0.1:45660", peer_pids=(500,), peer_names=("python",))
    reads = look("read_all star.py:30", "collect star.py:40", call="recvfrom", descriptors=(end,))
    copy = replace(look("augment star.py:67", call="read"), pid=500, ppid=102)
    ranks = [standing(0, reads), *(rank(n, *_FINDS) for n in (1, 2, 3))]
    ranks[2] = replace(ranks[2], children=((copy,) * 3,))
    verdict = judge_job(job("late", 4), ranks)
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)


@pytest.mark.parametrize("named", NAMED)
def test_of_two_the_one_that_hears_whether_somebody_comes_waits_for_the_other(named: str) -> None:
    ranks = [standing(0, MANY["a connection that is to come"]), standing(1, NAMED[named])]
    verdict = judge_job(job("late"), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.guessed


def test_a_pipe_with_a_name_is_opened_by_nobody_on_another_host() -> None:
    accepts, fifo = MANY["a connection that is to come"], ONE["a pipe"]
    apart = [standing(0, accepts), replace(standing(1, fifo), host="n02")]
    assert judge_job(job("late"), apart).ranks.culprit == (1,)


def test_of_a_long_sleep_the_end_is_known_and_nobody_else_ends_it() -> None:
    frames = ("pause tools.py:5", "<module> train.py:9")
    sleeps = [_asleep(frames, at, 90_100.0 - at) for at in (100.0, 103.0, 106.0)]
    ranks = [standing(0, MANY["a connection that is to come"]), rank(1, *sleeps)]
    assert judge_job(job("late"), ranks).ranks.culprit == (1,)


def test_nobody_is_told_from_the_other_where_both_look_again_or_both_have_a_name() -> None:
    both = [rank(0, *_FINDS), standing(1, MANY["a connection that is to come"])]
    assert judge_job(job("late"), both).ranks.culprit == (0, 1)
    assert culprits(*NAMED.values()) == (0, 1)


# ---- ranks that hear whether somebody comes, and one that has ended or never came ----------------

_ACCEPTS = MANY["a connection that is to come"]
SCRIPT = UserStep("script", "Script", "", 0.0, number=1)


def _hears(pid: int) -> Look:
    """A rank that reads what the process `pid` of another one is to send it."""
    return look("receive star.py:30", *_TRAIN, call="recvfrom", descriptors=(_to(pid),))


def _to(pid: int) -> Descriptor:
    return silent_peer("127.0.0.1:9200", peer_pids=(pid,))


def _who_is_gone(how: str, number: int) -> RankFacts:
    if how == "ended":
        return gone(number, 0, step=SCRIPT)
    return RankFacts(number, number, None, "n01", reached=-1, alive=False, never_started=True)


def _of_script(*ranks: RankFacts) -> Verdict:
    told = [one if is_gone(one) or not one.looks else replace(one, step=SCRIPT) for one in ranks]
    return judge_job(job("late", len(ranks), pipeline="", command=("python", "star.py")), told)


@pytest.mark.parametrize("how", ["ended", "never came"])
def test_who_hears_whether_somebody_comes_waits_for_the_one_that_does_not(how: str) -> None:
    """The first accepts one connection of each other rank; one never connects."""
    ranks = [standing(0, _ACCEPTS), standing(1, _hears(100)), standing(2, _hears(100))]
    verdict = _of_script(*ranks, _who_is_gone(how, 3))
    assert verdict.ranks.culprit == (3,)
    assert verdict.ranks.waiting == (0, 1, 2)
    assert verdict.guessed
    assert verdict.cause is not None
    assert verdict.cause.id == ("rank-left" if how == "ended" else "rank-never-started")


@pytest.mark.parametrize("how", ["ended", "never came"])
def test_in_a_ring_one_looks_for_the_one_that_is_gone_and_one_hears_whether_it_comes(
    how: str,
) -> None:
    ranks = [standing(0, _hears(101)), rank(1, *_FINDS), _who_is_gone(how, 2)]
    verdict = _of_script(*ranks, standing(3, _ACCEPTS))
    assert verdict.ranks.culprit == (2,)
    assert verdict.ranks.waiting == (0, 1, 3)


def test_who_has_a_reason_with_a_name_is_not_excused_by_one_that_ended() -> None:
    ranks = [standing(0, _ACCEPTS), standing(1, _hears(100)), standing(2, ONE["a server"])]
    assert 2 in _of_script(*ranks, _who_is_gone("ended", 3)).ranks.culprit


def test_who_looks_again_and_hears_nobody_may_look_for_anything() -> None:
    ranks = [standing(0, _hears(101)), rank(1, *_FINDS), _who_is_gone("ended", 2)]
    assert 1 in _of_script(*ranks).ranks.culprit


def test_a_server_whose_clients_have_ended_is_late() -> None:
    ended = [_who_is_gone("ended", number) for number in (1, 2)]
    assert _of_script(standing(0, _ACCEPTS), *ended).ranks.culprit == (0,)


# ---- ranks that serve in a thread, or in a process of their own ----------------------------------

_PORT = Socket(70, "tcp", local="10.0.0.1:9420", state="LISTEN")
_WAITS_FOR_RESULTS = look(
    "Condition.wait STD/threading.py:327", "Condition.wait_for STD/threading.py:362", *_TRAIN
)


def _serves(pid: int) -> Kernel:
    """A thread that takes connections."""
    listens = Descriptor(5, "socket", "socket:[70]", socket=_PORT)
    return Kernel(pid, "python", "S", "", Syscall(0, "poll", (0,), descriptors=(listens,)))


@pytest.mark.parametrize("named", NAMED)
def test_who_serves_in_a_thread_waits_for_whom_something_keeps_that_has_a_name(named: str) -> None:
    serves = standing(0, _WAITS_FOR_RESULTS)
    looks = [replace(one, kernel=(*one.kernel, _serves(900))) for one in serves.looks]
    ranks = [replace(serves, looks=tuple(looks)), standing(1, NAMED[named]), rank(2, *_FINDS)]
    assert judge_job(job("late", 3), ranks).ranks.culprit == (1,)


def test_who_serves_nobody_may_wait_for_its_own_thread() -> None:
    ranks = [standing(0, _WAITS_FOR_RESULTS), standing(1, NAMED["a server"])]
    assert 0 in judge_job(job("late"), ranks).ranks.culprit


def _asks_manager(*inside: str) -> RankFacts:
    """Rank 0, which waits for the answer of a manager's process; `inside`: where that one is."""
    asks = look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "BaseProxy._callmethod STD/multiprocessing/managers.py:822",
        *_TRAIN,
        call="read",
        descriptors=(silent_peer("127.0.0.1:9430", peer_pids=(500,)),),
    )
    manager = look(*inside, pid=500, ppid=100)
    manager = replace(manager, kernel=(*manager.kernel, _serves(900)))
    return replace(standing(0, asks), children=((manager, replace(manager, at=103.0)),))


def test_who_asks_a_queue_of_its_own_waits_for_whom_something_keeps_that_has_a_name() -> None:
    ranks = [_asks_manager("Condition.wait STD/threading.py:331", "get STD/queue.py:171")]
    verdict = judge_job(job("late"), [*ranks, standing(1, NAMED["a server"])])
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)


def _asks(call: str, *frames: str) -> Look:
    """A rank that waits for the answer of the manager of the rank in `_asks_manager`."""
    return look(
        "Connection._recv STD/multiprocessing/connection.py:395",
        "BaseProxy._callmethod STD/multiprocessing/managers.py:822",
        f"{call} STD/multiprocessing/managers.py:1103",
        *frames,
        call="read",
        descriptors=(silent_peer("127.0.0.1:9430", peer_pids=(500,)),),
    )


def test_who_is_at_a_barrier_of_a_manager_waits_for_those_that_take_its_locks() -> None:
    """Ranks 1 and 2 take two locks of the manager in two orders; their parent started it."""
    at_barrier = _asks("BarrierProxy.wait", *_TRAIN)
    manager = look(
        "Condition.wait STD/threading.py:331",
        "Event.wait STD/threading.py:629",
        "Server.serve_forever STD/multiprocessing/managers.py:177",
        pid=500,
        ppid=50,
        args=(0, 137, 0, 9, 0, 0),
    )
    seen = (manager, replace(manager, at=103.0))
    first = replace(standing(0, at_barrier), children=(seen,), beside=(500,))
    takes = [_asks("AcquirerProxy.__enter__", f"{name} train.py:6") for name in ("update", "flush")]
    ranks = [first, standing(1, takes[0]), standing(2, takes[1]), standing(3, at_barrier)]
    verdict = _of_script(*ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((1, 2), (0, 3))
    assert verdict.cause is None or verdict.cause.id == "manager-waits"


def _with_lock(one: Look, line: int, **locks: object) -> Look:
    """The same look; the line of ledger.py takes this lock, or stands inside of these."""
    (thread,) = one.threads
    frames = (
        replace(f, **locks) if f.file.endswith("ledger.py") and f.line == line else f  # type: ignore[arg-type]
        for f in thread.frames
    )
    return replace(one, threads=(replace(thread, frames=tuple(frames)),))


def test_a_lock_of_a_manager_is_that_of_the_only_rank_whose_source_stands_inside_of_it() -> None:
    """Rank 2 keeps it in a collective, and the others take it before they come to that."""
    lock = CodeLock("self.lock", "0x7f.lock")
    asks = _asks("AcquirerProxy.__enter__", "note ledger.py:22", *_TRAIN)
    asks = _with_lock(asks, 22, takes=lock)
    sums = look(
        "all_reduce SP/torch/distributed/distributed_c10d.py:3252", "note_all ledger.py:28", *_TRAIN
    )
    has = _with_lock(sums, 28, inside=(lock,))
    verdict = _of_script(standing(0, asks), standing(1, asks), standing(2, has))
    assert verdict.ranks.culprit == (0, 1, 2)
    assert verdict.cause is not None
    assert verdict.cause.id == "deadlock"
    assert "a lock of a Manager" in verdict.cause.why
    # Where the source of two stands inside of it, either may have it.
    verdict = _of_script(standing(0, asks), standing(1, has), standing(2, has))
    assert verdict.cause is None or verdict.cause.id != "deadlock"
    # Of one that shows no stack in the last look the one before tells.
    facts = standing(2, has)
    blind = replace(facts.looks[-1], at=105.0, threads=(), rung="proc")
    facts = replace(facts, looks=(*facts.looks, blind))
    verdict = _of_script(standing(0, asks), standing(1, asks), facts)
    assert verdict.ranks.culprit == (0, 1, 2)


# ---- a ring over connections ---------------------------------------------------------------------


def _hub(pid: int, line: int = 71) -> Look:
    """A rank that waits in the barrier of a hub, for what process `pid` sends."""
    frames = ("read ring.py:41", f"Hub.barrier ring.py:{line}", "main ring.py:84")
    one = look(*frames, call="recvfrom", descriptors=(_to(pid),))
    (thread,) = one.threads
    read, barrier, main = thread.frames  # what differs within the barrier is its own
    frames_of_it = (read, replace(barrier, condition="if RANK == 0"), main)
    return replace(one, threads=(replace(thread, frames=frames_of_it),))


def _receives(pid: int, condition: str = "") -> Look:
    """One that waits for a frame of its neighbour, in the line before that."""
    frames = ("read ring.py:41", "receive ring.py:50", "main ring.py:83")
    one = look(*frames, call="recvfrom", descriptors=(_to(pid),))
    (thread,) = one.threads
    conditional = replace(thread.frames[-1], condition=condition)
    return replace(one, threads=(replace(thread, frames=(*thread.frames[:-1], conditional)),))


def test_in_a_ring_over_connections_the_one_that_stands_elsewhere_is_named() -> None:
    """Rank 2 waits for rank 1, which waits for the hub, rank 0, as most do; that waits for rank 2:
    each for the next, and most of them for the same thing.
    """
    looks = (_hub(102, line=66), _hub(100), _receives(101), _hub(100))
    verdict = _of_script(*(standing(n, one) for n, one in enumerate(looks)))
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3))
    assert verdict.guessed


def test_who_has_another_part_in_the_program_is_not() -> None:
    """Its line is below `if rank == 2`: it stands elsewhere by design."""
    looks = (_hub(102, line=66), _hub(100), _receives(101, "if rank == 2"), _hub(100))
    verdict = _of_script(*(standing(n, one) for n, one in enumerate(looks)))
    assert verdict.ranks.culprit == (0, 1, 2)


def test_in_a_ring_of_two_places_nobody_is_told_from_the_others() -> None:
    looks = (_hub(102, line=66), _hub(103), _receives(101), _receives(100))
    verdict = _of_script(*(standing(n, one) for n, one in enumerate(looks)))
    assert verdict.ranks.culprit == (0, 1, 2, 3)


def test_whom_all_others_of_a_ring_ask_by_its_own_socket_is_to_serve_them() -> None:
    """Ranks 1, 3 and 4 send records to rank 2, which takes those of rank 0 alone; the main thread
    of rank 2, and rank 0, are in an all_reduce.
    """
    sends = look("send handlers.py:626", "main train.py:68", call="sendto", descriptors=(_to(102),))
    meets = look("all_reduce torch/distributed/distributed_c10d.py:3252", "main train.py:66")
    looks = (meets, sends, meets, sends, sends)
    verdict = _of_script(*(standing(n, one) for n, one in enumerate(looks)))
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((2,), (0, 1, 3, 4))
    assert verdict.guessed


def test_of_two_that_wait_for_each_other_so_both_are_named() -> None:
    sends = look("send handlers.py:626", "main train.py:68", call="sendto", descriptors=(_to(102),))
    meets = look("all_reduce torch/distributed/distributed_c10d.py:3252", "main train.py:66")
    verdict = _of_script(*(standing(n, one) for n, one in enumerate((meets, sends, meets))))
    assert verdict.ranks.culprit == (1, 2)


_ASKS_STORE = ("meet train.py:17", "write_cache train.py:26", "main train.py:35")
_TAKES_LOCK = ("take train.py:22", "append train.py:30", "main train.py:35")
_STORE = {"MASTER_PORT": "29500"}
_SUMS = look("all_reduce SP/torch/distributed/distributed_c10d.py:3252", "main train.py:36")


def at_the_store(number: int, *frames: str) -> RankFacts:
    """A rank that hears its connection to the store."""
    to_store = silent_peer("127.0.0.1:29500")
    assert to_store.socket is not None
    hears = look(*frames, call="poll", descriptors=(to_store,), sockets=(to_store.socket,))
    return rank(number, hears, hears, environment=_STORE)


def looks_into_the_store(number: int, *, sends: bool = True) -> RankFacts:
    """A rank that sleeps, and has sent something to the store between two looks."""
    looks = [
        look(
            *_TAKES_LOCK,
            call="clock_nanosleep",
            sockets=(Socket(6, "tcp", "127.0.0.1:5", "127.0.0.1:29500", "ESTABLISHED", 9, sent),),
        )
        for sent in (100, 250 if sends else 100)
    ]
    return rank(number, *looks, environment=_STORE)


def test_where_most_wait_in_one_place_for_the_store_the_few_in_a_collective_are_named() -> None:
    sums = rank(4, _SUMS, _SUMS, environment=_STORE)
    asking = [at_the_store(n, *_ASKS_STORE) for n in (0, 1, 2, 3, 5)]
    found = judge_job(job("still", 6, still=30.0), [*asking[:4], sums, asking[4]])
    assert found.ranks.culprit == (4,)
    assert found.ranks.waiting == (0, 1, 2, 3, 5)
    assert found.cause is not None
    assert found.cause.id == "store-key-missing"
    assert "ranks 0-3,5 ask" in found.cause.why


def test_where_most_look_into_the_store_again_the_few_in_a_collective_are_named() -> None:
    """A lock in the store: nobody but who has it knows that."""
    sums = rank(2, _SUMS, _SUMS, environment=_STORE)
    found = judge_job(
        job("still", 4, still=30.0),
        [*map(looks_into_the_store, (0, 1)), sums, looks_into_the_store(3)],
    )
    assert found.ranks.culprit == (2,)


def test_who_alone_asks_the_store_is_named_and_so_are_those_that_ask_in_several_places() -> None:
    for asking in (
        [at_the_store(1, *_ASKS_STORE)],
        [
            at_the_store(1, *_ASKS_STORE),
            at_the_store(2, "get_address train.py:9", "main train.py:3"),
        ],
    ):
        sums = rank(0, _SUMS, _SUMS, environment=_STORE)
        found = judge_job(job("still", 1 + len(asking), still=30.0), [sums, *asking])
        assert 0 not in found.ranks.culprit


def test_who_sleeps_and_asks_nobody_is_named_itself() -> None:
    sums = rank(2, _SUMS, _SUMS, environment=_STORE)
    sleeping = [looks_into_the_store(n, sends=False) for n in (0, 1, 3)]
    found = judge_job(job("still", 4, still=30.0), [*sleeping[:2], sums, sleeping[2]])
    assert found.ranks.culprit == (0, 1, 3)
