"""Ranks that a program starts by multiprocessing, and that call nothing that the watch knows: the
program itself only waits for them, and is none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot
from hangbisect.monitor import missing_ranks, started_ranks
from hangbisect.monitor.judgement import drop_starter
from hangbisect.monitor.started_ranks import take_ranks_of_group, take_spawned_ranks

from ..diagnosis.made_up import STD, job, look, rank, silent_peer

OUR_OWN: dict[str, Any] = {"pipeline": "", "world": 1}
MAIN = 100
JOIN = (
    "Popen.poll STD/multiprocessing/popen_fork.py:27",
    "BaseProcess.join STD/multiprocessing/process.py:149",
    "main train.py:50",
    "<module> train.py:60",
)
STARTED = (
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "spawn_main STD/multiprocessing/spawn.py:122",
)


def spawned(pid: int, number: int | None, *frames: str, ppid: int = MAIN, **more: Any) -> Look:
    """A process that multiprocessing started; its own function has `rank` among its locals."""
    one = look(*frames, *STARTED, pid=pid, ppid=ppid, **more)
    if number is None:
        return one
    (thread,) = one.threads
    told = [
        replace(f, locals=(("rank", str(number)),)) if f.name == "train" else f
        for f in thread.frames
    ]
    return replace(one, threads=(replace(thread, frames=tuple(told)),))


def in_barrier(pid: int, number: int | None, **more: Any) -> Look:
    return spawned(pid, number, "Barrier.wait STD/threading.py:697", "train train.py:24", **more)


def asks(pid: int, number: int) -> Look:
    return spawned(
        pid,
        number,
        "Connection._recv STD/multiprocessing/connection.py:379",
        "get <string>:2",
        "train train.py:23",
        call="read",
        descriptors=(silent_peer(),),
    )


def program(*children: Look, starts: Look | None = None) -> RankFacts:
    """The only rank that has spoken, and what it has started."""
    one = starts or look(*JOIN, call="wait4")
    found = rank(0, one, replace(one, at=103.0), replace(one, at=106.0))
    return replace(
        found, children=tuple((c, replace(c, at=103.0), replace(c, at=106.0)) for c in children)
    )


def taken(facts: RankFacts) -> tuple[JobFacts, Snapshot]:
    return take_spawned_ranks(job("still", **OUR_OWN), Snapshot([facts]))


MANAGER = look(
    "Server.serve_forever STD/multiprocessing/managers.py:183",
    "BaseManager._run_server STD/multiprocessing/managers.py:598",
    *STARTED,
    pid=102,
    ppid=MAIN,
)


def test_what_the_program_waits_for_are_its_ranks() -> None:
    facts, seen = taken(
        program(MANAGER, in_barrier(107, 0), asks(108, 1), in_barrier(109, 2), in_barrier(110, 3))
    )
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 107), (1, 108), (2, 109), (3, 110)]
    assert (facts.world_size, facts.local_ranks) == (4, (0, 1, 2, 3))
    verdict, _ = judge_snapshot(facts, seen)
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0, 2, 3)
    assert verdict.world_size == 4


def test_what_the_program_said_is_no_word_of_its_ranks() -> None:
    said = replace(program(in_barrier(107, 0), asks(108, 1)), last_line="Args parsed")
    assert [(one.last_line, one.last_line_at) for one in taken(said)[1].ranks] == [("", None)] * 2


def test_what_a_rank_has_started_stays_its_child() -> None:
    helper = look("<module> helper.py:1", pid=120, ppid=108, call="read")
    below = look("<module> more.py:1", pid=121, ppid=120, call="read")
    _, seen = taken(program(in_barrier(107, 0), asks(108, 1), helper, below))
    assert [[one[-1].pid for one in facts.children] for facts in seen.ranks] == [[], [120, 121]]


def test_the_one_whose_stack_does_not_tell_has_the_number_that_is_left() -> None:
    _, seen = taken(program(in_barrier(107, 0), in_barrier(108, None), in_barrier(109, 2)))
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 107), (1, 108), (2, 109)]


@pytest.mark.parametrize(
    "children",
    [
        (),
        (in_barrier(107, 0),),  # one alone: a helper that has a number
        (in_barrier(107, 0), in_barrier(108, 0)),  # these numbers mean something else
        (in_barrier(107, 0), in_barrier(108, 5)),
        (in_barrier(107, None), in_barrier(108, None)),
        (MANAGER,),
        (in_barrier(107, 0), in_barrier(108, None), in_barrier(109, None)),  # which is which?
    ],
)
def test_others_are_no_ranks(children: tuple[Look, ...]) -> None:
    before = program(*children)
    facts, seen = taken(before)
    assert seen.ranks == (before,)
    assert facts.world_size == 1


def test_a_program_that_does_not_wait_for_its_children_is_the_rank() -> None:
    """It trains, and has helpers with numbers."""
    fetches = look("fetch data.py:7", call="recvfrom", descriptors=(silent_peer(),))
    before = program(in_barrier(107, 0), in_barrier(108, 1), starts=fetches)
    assert taken(before)[1].ranks == (before,)


def test_workers_of_a_pool_are_no_ranks() -> None:
    pool = "worker STD/multiprocessing/pool.py:114"
    workers = [spawned(107 + n, n, "get STD/q.py:1", "train train.py:2", pool) for n in (0, 1)]
    before = program(*workers)
    assert taken(before)[1].ranks == (before,)


def test_who_shows_what_its_ranks_print_on_a_terminal_of_its_own_is_none() -> None:
    terminal = Descriptor(3, "device", "/dev/ptmx")
    shows = look("main train.py:47", pid=MAIN, call="read", descriptors=(terminal,))
    ranks = (in_barrier(107, 0, ppid=105), in_barrier(108, 1, ppid=105))
    seen = Snapshot([rank(0, shows, children=tuple((one,) for one in ranks))])
    found, snapshot = take_spawned_ranks(job("still", **OUR_OWN), seen)
    assert (found.world_size, [one.pid for one in snapshot.ranks]) == (2, [107, 108])


def _forks(pid: int, number: int | None) -> Look:
    """A process that os.fork() made, without a frame of multiprocessing's."""
    one = look("recv train.py:40", "train train.py:55", "main train.py:70", pid=pid, ppid=MAIN)
    (thread,) = one.threads
    told = (("rank", str(number)),) if number is not None else ()
    frames = (replace(f, locals=told) if f.name == "train" else f for f in thread.frames)
    return replace(one, threads=(replace(thread, frames=tuple(frames)),), is_forked=True)


def test_what_a_program_forks_by_itself_are_ranks_if_their_numbers_are_those_of_all() -> None:
    waits = look("main train.py:74", "<module> train.py:78", pid=MAIN, call="wait4", args=(-1, 0))

    def found(*children: Look) -> list[int | None]:
        seen = Snapshot([rank(0, waits, children=tuple((one,) for one in children))])
        return [one.pid for one in take_spawned_ranks(job("still", **OUR_OWN), seen)[1].ranks]

    assert found(_forks(107, 0), _forks(108, 1), _forks(109, 2)) == [107, 108, 109]
    assert found(_forks(107, None), _forks(108, None)) == [MAIN]
    assert found(_forks(107, 3), _forks(108, 1)) == [MAIN]


def test_several_ranks_that_have_spoken_are_the_ranks() -> None:
    first, second = program(in_barrier(107, 0), in_barrier(108, 1)), rank(1, look(*JOIN))
    known = job("still", world=2, pipeline="")
    assert take_spawned_ranks(known, Snapshot([first, second]))[1].ranks == (first, second)


def test_a_pipeline_of_ours_has_no_such_ranks() -> None:
    before = program(in_barrier(107, 0), in_barrier(108, 1))
    assert take_spawned_ranks(job("still", world=1), Snapshot([before]))[1].ranks == (before,)


def test_the_library_is_where_it_was_made_up() -> None:
    """`STARTED` is spelled as the standard library is found: else the tests above say nothing."""
    assert in_barrier(107, 0).threads[0].frames[-1].file.startswith(STD)


# ---- who starts ranks that a monitor of their own watches ----------------------------------------

STARTER = {"WORLD_SIZE": "4", "MASTER_ADDR": "n01", "GROUP_RANK": "1"}
OF_A_NODE = {**STARTER, "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("started", "is_so"),
    [
        ({**OF_A_NODE, "RANK": "2", "LOCAL_RANK": "0"}, True),
        ({**STARTER, "RANK": "2"}, True),
        (STARTER, False),  # a helper
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "2"}, False),  # joins its monitor
    ],
)
def test_who_has_started_ranks_of_one_of_several_nodes_is_none_itself(
    monkeypatch: pytest.MonkeyPatch, started: dict[str, str], is_so: bool
) -> None:
    variables = {100: STARTER, 101: started}
    monkeypatch.setattr(missing_ranks, "family", lambda pids: {101: 100})
    monkeypatch.setattr(missing_ranks, "variables_of", variables.get)
    program = SimpleNamespace(pid=100, looks=())
    alone = SimpleNamespace(place={"launcher": None}, members=[program])
    assert missing_ranks.only_starts_ranks(alone) == is_so  # type: ignore[arg-type]
    launched = SimpleNamespace(**{**vars(alone), "place": {"launcher": "torchrun"}})
    assert not missing_ranks.only_starts_ranks(launched)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("waits_for", "words", "is_so"),
    [
        (101, "python /usr/bin/torchrun --standalone train.py", True),
        (101, "python sweep.py", False),  # ranks that it starts itself join its monitor
        (109, "python /usr/bin/torchrun --standalone train.py", False),  # kept by something else
    ],
)
def test_who_waits_for_a_launcher_that_has_started_ranks_is_none_itself(
    monkeypatch: pytest.MonkeyPatch, waits_for: int, words: str, is_so: bool
) -> None:
    """A sweep that has loaded torch, and starts torchrun once for each trial."""
    started = {"WORLD_SIZE": "3", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"}
    monkeypatch.setattr(missing_ranks, "family", lambda pids: {101: 100, 102: 100})
    monkeypatch.setattr(missing_ranks, "variables_of", {100: {}, 101: {}, 102: started}.get)
    monkeypatch.setattr(missing_ranks, "words_of", lambda pid: words.split())
    monkeypatch.setattr(missing_ranks, "walk_up", lambda pid, most: iter([101, 100, 1]))
    waits = look("Popen.wait STD/subprocess.py:1264", call="wait4", args=(waits_for, 0, 0, 0))
    program = SimpleNamespace(pid=100, looks=(waits,))
    alone = SimpleNamespace(place={"launcher": None}, members=[program])
    assert missing_ranks.only_starts_ranks(alone) == is_so  # type: ignore[arg-type]


# ---- ranks of one group that are of several programs ---------------------------------------------

STORE = "SP/torch/distributed/rendezvous.py"
C10D = "SP/torch/distributed/distributed_c10d.py"


def makes_group(number: int, pid: int, size: int = 3, peer: int = 100, **more: Any) -> Look:
    """A process in init_process_group, with a connection to the store of `peer`."""
    socket = Socket(7, "tcp", "127.0.0.1:5", "127.0.0.1:2900", "ESTABLISHED", peer_pids=(peer,))
    one = look(
        f"_create_c10d_store {STORE}:199",
        f"init_process_group {C10D}:1892",
        "work engine.py:14",
        pid=pid,
        call="poll",
        sockets=(socket,),
        **more,
    )
    told = (("rank", str(number)), ("world_size", str(size)))
    (thread,) = one.threads
    frames = tuple(
        replace(frame, locals=told) if "torch" in frame.file else frame for frame in thread.frames
    )
    return replace(one, threads=(replace(thread, frames=frames),))


def titled(one: Look, title: str) -> Look:
    return replace(one, command=(title,))


def trainer(*children: Look, size: int = 3) -> RankFacts:
    return replace(rank(0, makes_group(0, 100, size)), children=tuple((one,) for one in children))


HEARS = look("Socket.recv_string SP/zmq/sugar/socket.py:968", "work engine.py:36", call="poll")


def grouped(facts: RankFacts) -> tuple[JobFacts, Snapshot]:
    return take_ranks_of_group(job("still", **OUR_OWN), Snapshot([facts]))


def test_ranks_of_another_program_that_came_to_the_same_group_are_ranks() -> None:
    """None of them has never been started, and it is the one that has not come who is to blame."""
    came = titled(makes_group(1, 110, ppid=105), "Engine::Worker_TP0")
    stays = titled(replace(HEARS, pid=111, ppid=105), "Engine::Worker_TP1")
    facts, seen = grouped(trainer(look("<module> engine.py:47", pid=105, ppid=100), came, stays))
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 100), (1, 110), (2, 111)]
    assert (facts.world_size, facts.local_ranks) == (3, (0, 1, 2))
    verdict, _ = judge_snapshot(facts, seen)
    assert verdict.ranks.never_started == ()
    assert verdict.ranks.culprit == (2,)


def test_nobody_is_taken_for_one_that_has_not_come_where_more_or_fewer_could_be() -> None:
    came = titled(makes_group(1, 110, ppid=105), "Engine::Worker_TP0")
    like = [titled(replace(HEARS, pid=111 + n, ppid=105), f"Engine::Worker_TP{n}") for n in (1, 2)]
    other = titled(replace(HEARS, pid=120, ppid=105), "Engine::Detokenizer")
    for more in (like, [other], []):
        facts, seen = grouped(trainer(came, *more))
        assert [one.rank for one in seen.ranks] == [0, 1]
        assert facts.world_size == 3


def test_who_makes_another_group_is_no_rank_of_this_one() -> None:
    for one in (
        makes_group(1, 110, size=2),
        makes_group(1, 110, peer=700),
        makes_group(0, 110),
        makes_group(7, 110),
    ):
        before = trainer(one)
        facts, seen = grouped(before)
        assert seen.ranks == (before,)
        assert facts.world_size == 1
    alone = replace(program(makes_group(1, 110)), rank=0)
    assert grouped(alone)[1].ranks == (alone,)


def test_rank_0_is_found_at_the_store_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {100: ["python", "train.py"], 101: ["torchrun", "train.py"]}
    monkeypatch.setattr(missing_ranks, "words_of", words.get)
    shown = makes_group(0, 100)

    async def take_looks(targets: list[Any]) -> list[Look]:
        return [shown]

    monkeypatch.setattr("hangbisect.evidence.look.take_looks", take_looks)

    def found(look: Look) -> Any:
        members = [SimpleNamespace(pid=110, looks=[look])]
        asked = missing_ranks._find_at_store(SimpleNamespace(members=members))  # type: ignore[arg-type]
        return asyncio.run(asked)

    assert found(makes_group(1, 110)) == {0: [100]}
    assert found(makes_group(1, 110, peer=101)) == {}
    assert found(replace(HEARS, pid=110)) == {}
    shown = replace(HEARS, pid=100)
    assert found(makes_group(1, 110)) == {}


def test_what_the_program_has_started_besides_and_failed_is_beside_its_ranks() -> None:
    dead = look(pid=205, ppid=MAIN, state="Z", call="", rung="proc", status=-11)
    well = replace(dead, pid=206, status=0)
    below = replace(dead, pid=207, ppid=201)
    facts = program(in_barrier(201, 0), in_barrier(202, 1), dead, well, below)
    first, second = taken(facts)[1].ranks
    assert (first.beside, second.beside) == ((205,), ())
    assert 205 in [looks[-1].pid for looks in first.children]


def test_one_of_the_ranks_that_has_ended_is_gone_with_its_status() -> None:
    """It had a number as its fellows have one: that which is left."""
    ended = replace(
        look(pid=108, ppid=MAIN, state="Z", call="", rung="proc", status=0), is_forked=True
    )
    ranks = taken(program(in_barrier(107, 0), ended, in_barrier(109, 2)))[1].ranks
    assert [(one.alive, one.left, one.status) for one in ranks] == [
        *[(True, False, None), (False, True, 0), (True, False, None)]
    ]


def test_what_stands_between_the_program_and_its_ranks_is_beside_them() -> None:
    engine = spawned(105, None, "write train.py:33", call="clock_nanosleep")
    workers = [in_barrier(106 + n, n, ppid=105) for n in (0, 1)]
    first, second = taken(program(engine, *workers))[1].ranks
    assert (first.beside, second.beside) == ((105,), ())
    assert 105 in [looks[-1].pid for looks in first.children]


def test_so_is_the_program_itself_where_a_rank_waits_for_it_over_a_connection() -> None:
    """One that waits for the ends of its ranks has an end of each of their pipes as well."""
    end = Descriptor(3, "pipe", "pipe:[7]", other_ends=(MAIN,))
    connected = Socket(7, "unix", peer="/tmp/q", state="ESTABLISHED", peer_pids=(MAIN,))
    over = Descriptor(5, "socket", "socket:[7]", socket=connected)
    hears = look("serve train.py:40", call="clock_nanosleep")
    for starts, one, expected in (
        (hears, over, (MAIN,)),
        (hears, end, ()),
        (None, over, ()),
    ):
        sockets = (one.socket,) if one.socket is not None else ()
        asks_it = spawned(
            108, 1, "train train.py:23", call="read", descriptors=(one,), sockets=sockets
        )
        first, _ = taken(program(in_barrier(107, 0), asks_it, starts=starts))[1].ranks
        assert first.beside == expected


def numbered(pid: int, words: str, *frames: str, **more: Any) -> Look:
    """A program that the script has started, with its number among its arguments."""
    found = look(*(frames or ("meet worker.py:9",)), pid=pid, ppid=MAIN, **more)
    return replace(found, command=("python", *words.split()))


def test_programs_with_a_number_each_are_the_ranks_of_the_script_that_waits_for_them() -> None:
    workers = (numbered(107 + n, f"worker.py --seed {n} --of 3") for n in (0, 2, 1))
    tracker = numbered(120, "helper.py 0")
    _, seen = taken(program(*workers, tracker))
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 107), (1, 108), (2, 109)]


def test_of_programs_one_of_which_has_died_the_others_keep_their_numbers() -> None:
    dead = replace(numbered(108, ""), state="Z", status=1, command=(), threads=())
    _, seen = taken(program(numbered(107, "w.py 0"), dead, numbered(109, "w.py 2")))
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 107), (2, 109)]
    assert [looks[-1].pid for looks in seen.ranks[0].children] == [108]


@pytest.mark.parametrize("second", ["other.py 1", "worker.py 7", "worker.py 1 --verbose"])
def test_programs_that_differ_in_more_than_their_number_are_no_ranks(second: str) -> None:
    before = program(numbered(107, "worker.py 0"), numbered(108, second))
    assert taken(before)[1].ranks == (before,)


def test_shells_with_numbers_are_no_ranks() -> None:
    shells = (replace(numbered(107 + n, ""), command=("bash", "part.sh", str(n))) for n in (0, 1))
    before = program(*shells)
    assert taken(before)[1].ranks == (before,)


def test_workers_that_read_what_their_script_writes_to_them_are_no_ranks() -> None:
    """Each waits for its next request, at the pipe that it was given as its standard input."""

    def reads(pid: int, number: int, fd: int, *ends: int) -> Look:
        pipe = (Descriptor(fd, "pipe", f"pipe:[{pid}]", other_ends=ends),)
        return numbered(pid, f"worker.py {number}", call="read", descriptors=pipe)

    before = program(reads(107, 0, 0, MAIN), reads(108, 1, 0, MAIN))
    assert taken(before)[1].ranks == (before,)
    for ranks in (
        (reads(107, 0, 5, MAIN), reads(108, 1, 5, MAIN)),
        (reads(107, 0, 0), reads(108, 1, 0)),
    ):
        assert [one.pid for one in taken(program(*ranks))[1].ranks] == [107, 108]


def test_programs_that_wait_in_a_connection_of_multiprocessing_were_not_started_by_it() -> None:
    receives = "Connection._recv STD/multiprocessing/connection.py:379"
    first = numbered(107, "worker.py 0", receives, "meet worker.py:9")
    _, seen = taken(program(first, numbered(108, "worker.py 1")))
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 107), (1, 108)]


def test_processes_whose_variables_give_them_numbers_are_the_ranks_of_who_waits_for_them() -> None:
    """They may speak for themselves, to a monitor of their own: the answer is the same."""
    before = program(*(numbered(107 + n, "train.py") for n in range(3)))
    known = job("still", **OUR_OWN), Snapshot([before])
    _, seen = take_spawned_ranks(*known, given={108: 0, 107: 1, 109: 2})
    assert [(one.rank, one.pid) for one in seen.ranks] == [(0, 108), (1, 107), (2, 109)]
    for given in ({107: 0}, {107: 0, 108: 0}, {}):
        assert take_spawned_ranks(*known, given=given)[1].ranks == (before,)


def test_the_variables_of_what_a_process_has_started_are_read() -> None:
    variables = {one: value for one, value in os.environ.items() if "RANK" not in one}
    started = [
        subprocess.Popen(["sleep", "60"], env={**variables, "RANK": str(n)}) for n in range(2)
    ]
    try:
        looks = [look("<module> x.py:1", pid=one.pid, ppid=os.getpid()) for one in started]
        facts = replace(program(*looks), pid=os.getpid())
        expected = {one.pid: n for n, one in enumerate(started)}
        is_rank = any(os.environ.get(name) for name in ("RANK", "PMI_RANK", "SLURM_PROCID"))
        assert started_ranks.read_numbers_of_started([facts]) == ({} if is_rank else expected)
        assert started_ranks.read_numbers_of_started([facts, facts]) == {}
    finally:
        for one in started:
            one.kill()
            one.wait(10)


def test_who_has_started_ranks_and_only_waits_for_them_is_none_where_they_have_spoken() -> None:
    child = look("barrier train.py:3", pid=200, ppid=MAIN)
    main = rank(
        0, replace(look(*JOIN, call="wait4", args=(200, 0, 0, 0)), pid=MAIN), children=((child,),)
    )
    there = [main, replace(rank(4, child), pid=200)]
    told, seen = drop_starter(job(local_ranks=(0, 4)), Snapshot(there), {0})
    assert [facts.rank for facts in seen.ranks] == [4]
    assert told.local_ranks == (4,)
    for plain, ranks in ((set(), there), ({0}, [main])):
        told, seen = drop_starter(job(), Snapshot(ranks), plain)
        assert [facts.rank for facts in seen.ranks] == [facts.rank for facts in ranks]


def test_so_is_a_starter_that_hears_of_the_end_of_its_ranks_by_pipes_of_multiprocessing() -> None:
    """mp.spawn polls the sentinels of its processes, which are no children of a rank any more."""
    ends = (Descriptor(7, "pipe", "pipe:[9]", other_ends=(200, 201)),)
    main = rank(0, replace(look(*JOIN, call="poll", descriptors=ends), pid=MAIN))
    started = [
        replace(rank(4 + n, spawned(200 + n, None, "train train.py:9", call="futex")), pid=200 + n)
        for n in range(2)
    ]
    _, seen = drop_starter(job(local_ranks=(0, 4, 5)), Snapshot([main, *started]), {0})
    assert [facts.rank for facts in seen.ranks] == [4, 5]
    # Who waits for what another process is to send is at work.
    asks = rank(0, replace(look("ask train.py:5", call="poll", descriptors=(SILENT,)), pid=MAIN))
    _, seen = drop_starter(job(local_ranks=(0, 4, 5)), Snapshot([asks, *started]), {0})
    assert [facts.rank for facts in seen.ranks] == [0, 4, 5]


SILENT = silent_peer("10.0.0.9:7000")
