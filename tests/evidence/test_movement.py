"""What counts as movement: made-up looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import (
    Build,
    Descriptor,
    Frame,
    Kernel,
    Look,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.evidence.movement import (
    collect_functions,
    collect_places,
    compare_looks,
    compare_samples,
    describe_computing,
    describe_movement,
    is_busy,
)
from hypothesis import given
from hypothesis import strategies as st

PID = 100
PEER = Socket(7, "tcp", "127.0.0.1:5000", "127.0.0.1:8000", "ESTABLISHED", received=10, sent=10)
STORE = replace(PEER, inode=8, peer="127.0.0.1:29500")


def sampled(at: float, **counters: Any) -> Sample:
    values: dict[str, Any] = {"cpu": 0.0, "read": 0, "written": 0} | counters
    return Sample(at=at, pid=PID, started=1, state="S", **values)


def thread(line: int, os_id: int = PID, name: str = "wait") -> Thread:
    return Thread(os_id, None, False, False, (Frame(name, "a.py", line),))


def in_call(name: str, *waits: Descriptor, tid: int = PID, stack: int = 1) -> Kernel:
    return Kernel(tid, "python", "S", "", Syscall(0, name, (), descriptors=waits, stack=stack))


def fd_of(socket: Socket) -> Descriptor:
    return Descriptor(3, "socket", f"socket:[{socket.inode}]", socket=socket)


def seen(at: float, **about: object) -> Look:
    values: dict[str, object] = {
        "threads": (thread(1),),
        "kernel": (in_call("futex"),),
        "sample": sampled(at),
        "rung": "py-spy",
    }
    values |= about
    return Look(at, PID, 1, "python", ("python", "t.py"), 50.0 + at, "S", **values)  # type: ignore[arg-type]


def recv(at: float, received: int, sent: int, one: Socket = PEER, call: str = "recvfrom") -> Look:
    now = replace(one, received=received, sent=sent)
    return seen(at, kernel=(in_call(call, fd_of(now)),), sockets=(now,))


def test_a_new_place_is_progress_and_the_same_one_is_none() -> None:
    looks = [seen(0), seen(1), seen(2, threads=(thread(2),))]
    assert describe_movement(looks[:2]) == ""
    assert describe_movement(looks) == "runs through new code (wait, a.py:2)"


def test_places_seen_earlier_in_the_step_are_not_new() -> None:
    loop = [seen(at, threads=(thread(at % 3),)) for at in range(12)]
    assert describe_movement(loop[:3])
    assert describe_movement(loop[6:9], seen=collect_places(loop[:6])) == ""


def asking(*innermost: tuple[str, str, int], caller: int = 7) -> tuple[Thread, ...]:
    api = "SP/filelock/_api.py"
    inside = [Frame(name, file, line) for name, file, line in innermost]
    outside = [Frame("BaseFileLock.acquire", api, 1037), Frame("main", "train.py", caller)]
    return (Thread(PID, None, False, False, (*inside, *outside)),)


def test_what_a_library_does_in_each_of_its_tries_to_get_a_lock_is_no_new_place() -> None:
    poll = ("BaseFileLock._poll_until_acquired", "SP/filelock/_api.py", 1177)
    opens = ("UnixFileLock._open_lock_file", "SP/filelock/_unix.py", 134)
    looks = [seen(0, threads=asking(poll)), seen(1, threads=asking(opens, poll))]
    assert describe_movement(looks) == ""
    assert describe_movement([*looks, seen(2, threads=asking(poll, caller=8))])  # another lock
    assert describe_movement([looks[0], seen(1)])  # it has got it


def test_a_try_that_a_library_makes_within_the_one_before_is_no_new_place() -> None:
    """urllib3's urlopen calls itself for each retry: its stack grows and gets nowhere."""
    again, file = ("HTTPConnectionPool.urlopen", 886), "SP/urllib3/connectionpool.py"

    def tried(times: int, at: float, *inside: tuple[str, int]) -> Look:
        made = [*inside, *[again] * times, ("report", 43)]
        frames = tuple(Frame(name, file, line) for name, line in made)
        return replace(seen(at), threads=(Thread(PID, "MainThread", True, False, frames),))

    waits = ("HTTPConnectionPool._make_request", 540)
    assert not compare_looks(tried(1, 0.0, waits), tried(4, 10.0, waits)).progress
    assert not compare_looks(tried(2, 0.0, waits), tried(3, 10.0, waits)).progress
    sleeps = ("Retry.sleep", 367)
    assert compare_looks(tried(2, 0.0, waits), tried(3, 10.0, sleeps)).progress


def test_native_frames_are_no_place_for_only_some_looks_have_them() -> None:
    native = Thread(
        PID,
        None,
        False,
        False,
        (Frame("futex", "libc.so", 0, native=True), Frame("wait", "a.py", 1)),
    )
    assert describe_movement([seen(0), seen(1, threads=(native,))]) == ""


def test_a_look_in_which_py_spy_failed_is_no_movement() -> None:
    failed = seen(1, threads=(), rung="proc", kernel=(in_call("futex", stack=9),))
    assert describe_movement([seen(0), failed, seen(2)], seen=collect_places([seen(0)])) == ""


def test_without_py_spy_the_place_in_the_kernel_counts() -> None:
    looks = [
        seen(at, threads=(), rung="proc", kernel=(in_call("read", stack=at),)) for at in (1, 2)
    ]
    assert describe_movement(looks) == "runs through new code (in read)"
    assert describe_movement([looks[0], replace(looks[0], at=2.0)]) == ""


def at_file(at: float, path: str | None, name: str = "newfstatat") -> Look:
    return seen(at, kernel=(Kernel(PID, "python", "D", "", Syscall(0, name, (), path=path)),))


def test_another_file_is_progress_and_the_same_one_again_is_none() -> None:
    assert describe_movement([at_file(0, "/data/1"), at_file(1, "/data/2")]) == "has got to /data/2"
    assert describe_movement([at_file(0, "/data/1"), at_file(1, "/data/1")]) == ""
    asks = [at_file(0, "/flag"), seen(1), at_file(2, "/flag"), seen(3)]
    assert describe_movement(asks) == ""


def test_another_file_of_a_helper_is_progress_where_the_main_thread_may_wait_for_it() -> None:
    def opens(at: float, path: str, main: str) -> Look:
        helper = Kernel(200, "python", "D", "", Syscall(0, "openat", (), path=path))
        threads = (thread(1), thread(9, 200))
        return seen(at, threads=threads, kernel=(in_call(main), helper))

    waits = [opens(at, f"/data/{at}", "futex") for at in range(2)]
    assert describe_movement(waits) == "has got to /data/1"
    assert describe_movement([opens(at, f"/data/{at}", "flock") for at in range(2)]) == ""


def test_a_child_that_reads_another_file_gets_on_too() -> None:
    def reads(at: float, path: str) -> Look:
        file = Descriptor(3, "file", path, position=0)
        return seen(at, threads=(), rung="proc", kernel=(in_call("read", file),))

    looks = [reads(0, "/data/1"), reads(1, "/data/2")]
    assert (
        describe_movement([seen(0), seen(1)], [looks])
        == "its child python (100) has got to /data/2"
    )


def test_a_helper_thread_counts_only_while_the_main_thread_may_wait_for_threads() -> None:
    def both(at: float, line: int, call: str) -> Look:
        return seen(at, threads=(thread(1), thread(line, 101)), kernel=(in_call(call),))

    assert describe_movement([both(0, 1, "futex"), both(1, 2, "futex")])
    assert describe_movement([both(0, 1, "recvfrom"), both(1, 2, "recvfrom")]) == ""


def test_a_byte_on_the_awaited_socket_is_progress() -> None:
    assert (
        describe_movement([recv(0, 10, 10), recv(1, 13, 10)])
        == "receives 3 bytes/s from 127.0.0.1:8000"
    )


def test_a_byte_long_after_the_last_is_said_as_such() -> None:
    text = describe_movement([recv(0, 10, 10), recv(5, 11, 10)])
    assert text == "receives 1 byte in 5 s from 127.0.0.1:8000"


def test_a_store_asked_again_is_no_progress() -> None:
    looks = [recv(at, 10 + 3816 * at, 10 + 3816 * at, STORE, "poll") for at in range(4)]
    assert describe_movement(looks) == ""


def test_a_master_that_answers_64_ranks_and_waits_itself_makes_no_progress() -> None:
    def master(at: int) -> Look:
        traffic = 3816 * 64 * at
        clients = tuple(
            replace(STORE, inode=n, received=3816 * at, sent=3000 * at) for n in range(64)
        )
        return seen(at, sockets=clients, sample=sampled(at, read=traffic, written=traffic))

    assert describe_movement([master(at) for at in range(4)]) == ""


def test_a_trickle_beside_the_awaited_socket_is_no_progress() -> None:
    waits = in_call("recvfrom", fd_of(STORE))
    looks = [
        seen(at, kernel=(waits,), sockets=(replace(PEER, received=at), STORE)) for at in range(3)
    ]
    assert describe_movement(looks) == ""


def test_a_download_in_a_native_thread_is_progress() -> None:
    looks = [seen(at, sockets=(replace(PEER, received=at * 2_000_000),)) for at in range(2)]
    assert describe_movement(looks) == "receives 1.91 MiB/s from 127.0.0.1:8000"


def test_a_small_question_on_a_new_connection_is_polling() -> None:
    asked_again = replace(PEER, inode=9, received=500, sent=10)
    again = seen(1, kernel=(in_call("recvfrom", fd_of(asked_again)),), sockets=(asked_again,))
    assert describe_movement([recv(0, 500, 300), again]) == ""


def test_sending_counts_in_a_call_that_sends() -> None:
    assert describe_movement(
        [recv(0, 0, 0, call="sendto"), recv(1, 0, 900, call="sendto")]
    ).startswith("sends")
    assert describe_movement([recv(0, 0, 0), recv(1, 0, 900)]) == ""


def test_reading_a_slow_file_is_seen_by_its_offset() -> None:
    def reading(at: float, position: int) -> Look:
        return seen(at, kernel=(in_call("read", Descriptor(4, "file", "/m", position=position)),))

    assert describe_movement([reading(0, 0), reading(2, 600)]) == "reads 300 bytes/s (/m)"
    assert describe_movement([reading(0, 600), reading(2, 600)]) == ""


def test_a_slow_download_by_a_helper_is_progress_and_what_it_reports_as_slowly_is_none() -> None:
    def beside(at: float, received: int, sent: int) -> Look:
        return seen(at, sockets=(replace(PEER, received=received, sent=sent),))

    assert describe_movement([beside(0, 0, 0), beside(1, 3000, 0)]).startswith("receives")
    assert describe_movement([beside(0, 0, 0), beside(1, 0, 3000)]) == ""
    opened = replace(seen(0), sockets=())
    assert describe_movement([opened, beside(1, 3000, 0)]) == ""


def test_a_byte_through_the_awaited_pipe_is_progress() -> None:
    pipe = Descriptor(4, "pipe", "pipe:[1]")
    waits, beside = in_call("poll", pipe), in_call("futex")

    def read(at: float, main: int, call: Kernel) -> Look:
        return seen(at, kernel=(call,), sample=sampled(at, read=main, main_read=main))

    assert (
        describe_movement([read(0, 0, waits), read(1, 2, waits)]) == "reads 2 bytes/s from pipe:[1]"
    )
    assert describe_movement([read(0, 0, beside), read(1, 2, beside)]) == ""


def test_bytes_from_storage_and_pages_of_mapped_files_are_progress() -> None:
    assert (
        describe_movement([seen(0), seen(1, sample=sampled(1, disk_read=40_000_000))])
        == "reads 38 MiB/s"
    )
    assert "mapped" in describe_movement([seen(0), seen(1, sample=sampled(1, faults=9))])


def test_a_helper_that_reads_proc_is_no_progress() -> None:
    assert describe_movement([seen(0), seen(1, sample=sampled(1, read=900_000))]) == ""


def test_what_a_thread_of_the_step_writes_is_progress_however_seldom_it_is_met_in_a_write() -> None:
    # A thread that writes a checkpoint and waits for its storage in between: 1 MB/s in one place.
    def saving(at: float, main: str = "futex", python: bool = True, rate: int = 1_000_000) -> Look:
        helper = replace(in_call("futex", tid=200), written=int(at * rate))
        threads = (thread(10), *((thread(52, os_id=200, name="save"),) if python else ()))
        return seen(at, threads=threads, kernel=(in_call(main), helper))

    assert describe_movement([saving(0.0), saving(2.0)]) == "writes 977 KiB/s in a helper thread"
    # The main thread waits for something else; a thread without Python; lines of a log.
    assert not describe_movement([saving(0.0, "recvfrom"), saving(2.0, "recvfrom")])
    assert not describe_movement([saving(0.0, python=False), saving(2.0, python=False)])
    assert not describe_movement([saving(0.0, rate=1000), saving(2.0, rate=1000)])
    # Seen for the first time, or its counter could not be read: nothing is known of a rate.
    unread = replace(saving(0.0), kernel=(in_call("futex"), in_call("futex", tid=200)))
    assert not describe_movement([unread, saving(2.0)])
    assert not describe_movement([replace(saving(0.0), kernel=(in_call("futex"),)), saving(2.0)])


def test_the_work_of_a_child_counts() -> None:
    def child(at: float, read: int) -> Look:
        one = seen(at, threads=(), rung="proc", sample=sampled(at, disk_read=read))
        return replace(one, pid=200, name="git", command=("git", "clone"))

    text = describe_movement([seen(0), seen(1)], [[child(0, 0), child(1, 5_000_000)]])
    assert text == "its child git (200) reads 4.77 MiB/s"


def test_what_a_child_writes_for_a_helper_thread_that_reads_from_it_counts() -> None:
    def child(at: float) -> Look:
        one = seen(at, threads=(), rung="proc", sample=sampled(at, main_written=2 * at))
        return replace(one, pid=200, name="sh", command=("sh", "build.sh"))

    def reads(at: float, *ends: int) -> Look:
        pipe = Descriptor(4, "pipe", "pipe:[1]", other_ends=ends)
        helper = replace(in_call("read", pipe), tid=101)
        threads = (thread(1), thread(5, 101))
        return seen(at, threads=threads, kernel=(in_call("futex"), helper))

    written = [child(0), child(1)]
    assert (
        describe_movement([reads(0, 200), reads(1, 200)], [written])
        == "its child sh (200) writes 2 bytes/s to pipe:[1]"
    )
    assert describe_movement([reads(0, 7), reads(1, 7)], [written]) == ""

    def waits(at: float, line: int, state: str = "S") -> Look:
        one = seen(at, threads=(thread(line),), sample=sampled(at, main_written=120 * at))
        return replace(one, pid=200, name="engine", command=("engine",), state=state)

    both = [reads(0, 200), reads(1, 200)]
    assert describe_movement(both, [[waits(0, 7), waits(1, 7)]]) == ""  # it says that it waits
    assert "writes 120 bytes/s" in describe_movement(both, [[waits(0, 7), waits(1, 7, "R")]])


def test_a_child_that_was_started_counts_once_for_a_command_line() -> None:
    born = replace(
        seen(2, threads=(), rung="proc"),
        pid=300,
        name="cc1plus",
        command=("cc1plus", "a.cpp"),
        age=1.0,
    )
    assert describe_movement([seen(0), seen(2)], [[born]]) == "its child cc1plus (300) was started"
    again = replace(born, pid=301)
    assert describe_movement([seen(0), seen(2)], [[again]], seen=collect_places([born])) == ""


def test_cpu_alone_is_busy_and_no_progress() -> None:
    looks = [seen(at, sample=sampled(at, cpu=at * 0.97)) for at in range(3)]
    assert describe_movement(looks) == ""
    assert is_busy(looks)
    assert describe_computing(looks) == "computes (97 % of a core)"
    assert not is_busy([seen(0), seen(1)])


def polling(at: float, cpu: float, polled: float, main: str = "S") -> Look:
    """A look at a process with a thread of TensorPipe, which is always on a core."""
    reactor = Kernel(101, "TP_SHM_reactor", "R", "", None)
    own = replace(in_call("futex"), state=main)
    return seen(at, kernel=(own, reactor), sample=sampled(at, cpu=cpu, polling=((101, polled),)))


def test_a_thread_of_a_library_that_only_polls_does_not_make_it_busy() -> None:
    looks = [polling(at, cpu=at * 0.98, polled=at * 0.97) for at in range(3)]
    assert describe_computing(looks) == ""
    assert not is_busy(looks)


def test_what_else_computes_beside_it_does() -> None:
    looks = [polling(at, cpu=at * 1.8, polled=at * 0.9) for at in range(3)]
    assert describe_computing(looks) == "computes (90 % of a core)"
    ready = [polling(at, cpu=at * 0.5, polled=at * 0.4, main="R") for at in range(3)]
    assert is_busy(ready)  # a core is had by others


def test_a_polling_thread_that_was_not_known_before_takes_nothing_away() -> None:
    before, after = sampled(0.0, cpu=5.0), sampled(2.0, cpu=7.0, polling=((101, 6.0),))
    assert compare_samples(before, after) == "uses 100 % of a core"


def test_it_is_no_stir_either() -> None:
    before = sampled(0.0, cpu=5.0, polling=((101, 4.0),))
    assert compare_samples(before, sampled(1.0, cpu=5.4, polling=((101, 4.4),))) == ""
    after = sampled(1.0, cpu=5.8, polling=((101, 4.4),))
    assert compare_samples(before, after) == "uses 40 % of a core"


def test_a_child_that_computes_makes_it_busy() -> None:
    child = [
        replace(seen(at, sample=sampled(at, cpu=at)), pid=200, name="cc1plus") for at in range(2)
    ]
    assert (
        describe_computing([seen(0), seen(1)], [child])
        == "its child cc1plus (200) computes (100 % of a core)"
    )
    assert is_busy([seen(0), seen(1)], [child])


def test_a_pid_used_again_is_not_compared() -> None:
    other = replace(sampled(1, cpu=50, disk_read=10**9), started=2)
    assert compare_looks(seen(0), seen(1, sample=other)).share == 0
    assert describe_movement([seen(0), seen(1, sample=other)]) == ""


def test_cheap_readings_say_when_a_look_is_due() -> None:
    assert compare_samples(sampled(0), sampled(1)) == ""
    assert compare_samples(sampled(0), sampled(1, read=3816)) == ""
    assert compare_samples(sampled(0), sampled(1, cpu=0.5)) == "uses 50 % of a core"
    assert compare_samples(sampled(0), sampled(1, read=41_000_000)) == "reads 39 MiB/s"


counters = st.integers(0, 10**12)


@given(
    st.lists(
        st.tuples(counters, counters, counters, st.floats(0, 1e6), st.integers(0, 3)), max_size=6
    )
)
def test_moved_says_something_about_any_looks(
    rows: list[tuple[int, int, int, float, int]],
) -> None:
    looks = [
        replace(
            recv(float(at), received, sent),
            threads=(thread(line),),
            sample=sampled(at, cpu=cpu, read=read, main_read=read),
        )
        for at, (received, sent, read, cpu, line) in enumerate(rows)
    ]
    text = describe_movement(looks, [looks])
    assert isinstance(text, str)
    moved = describe_movement(looks)
    assert not (moved and is_busy(looks, moved=moved))
    assert (
        describe_movement([*looks, *looks[-1:]], seen=collect_places(looks)).count("new code") == 0
    )


def test_other_lines_of_the_functions_of_a_spin_are_no_news() -> None:
    spin = [seen(at, threads=(thread(1),)) for at in range(3)]
    other = seen(3, threads=(thread(2),))
    assert describe_movement([*spin, other])
    assert describe_movement([*spin, other], seen=collect_functions(spin)) == ""
    assert describe_movement(
        [*spin, seen(3, threads=(thread(2, name="next"),))], seen=collect_functions(spin)
    )


# ---- what compiles -------------------------------------------------------------------------------


def compiler(at: float, name: str = "cicc", cpu: float = 0.0, **build: object) -> Look:
    about = {"what": "flash.cu"} | build
    made = Build(name, **about)  # type: ignore[arg-type]  # as the test names them
    one = seen(at, threads=(), rung="proc", sample=sampled(at, cpu=cpu), build=made)
    return replace(one, pid=200, name=name, command=(name, "flash.cu"))


def test_a_compiler_that_uses_a_core_moves_however_long_one_file_takes() -> None:
    works = [compiler(at, cpu=0.9 * at) for at in range(3)]
    assert describe_movement([seen(0), seen(2)], [works]) == (
        "its child cicc (200) compiles flash.cu"
    )
    assert not is_busy([seen(0), seen(2)], [works], describe_movement([seen(0)], [works]))


def test_a_compiler_that_is_stopped_or_waits_does_not_move() -> None:
    assert describe_movement([seen(0), seen(2)], [[compiler(at) for at in range(3)]]) == ""


def test_a_build_moves_with_each_file_that_is_done_or_grows() -> None:
    builds: dict[str, Any] = {"what": "fused", "folder": "/b", "steps": 7}
    done = [compiler(at, "ninja", done=at, **builds) for at in (2, 3)]
    assert "ninja (200) has built 3 of 7 files" in describe_movement([seen(0), seen(1)], [done])
    grows = [compiler(at, "ninja", done=2, files=4, size=at * 100, **builds) for at in (2, 3)]
    assert "compiles (/b grows)" in describe_movement([seen(0), seen(1)], [grows])
    same = [compiler(at, "ninja", done=2, files=4, size=100, **builds) for at in (2, 3)]
    assert describe_movement([seen(0), seen(1)], [same]) == ""


def test_what_compiles_inside_of_python_moves_while_it_uses_a_core() -> None:
    inside = Build("Triton", "compiler.py:412", "/home/ada/.triton/cache", files=3, size=9)
    looks = [seen(at, sample=sampled(at, cpu=at * 0.9), build=inside) for at in range(3)]
    assert describe_movement(looks) == "compiles compiler.py:412"
    assert describe_movement([replace(one, sample=sampled(one.at)) for one in looks]) == ""
    assert describe_movement([replace(one, build=None) for one in looks]) == ""


def test_a_process_that_is_stopped_again_and_again_ran_in_between() -> None:
    """What cpulimit does to give a process its share of a core, by SIGSTOP and SIGCONT."""
    counted = ((1.0, 3.0), (2.0, 3.0), (3.0, 3.1))
    looks = [replace(seen(at, sample=sampled(at, cpu=cpu)), state="T") for at, cpu in counted]
    assert describe_movement(looks[:2]) == ""
    assert describe_movement(looks) == "is stopped, and let go on again"


def test_a_thread_that_starts_workers_of_a_pool_again_moves_nothing() -> None:
    starts = "/usr/lib/python3.11/multiprocessing/pool.py"

    def pool(at: float, line: int) -> Look:
        frames = (Frame("fork", "a.py", line), Frame("Pool._handle_workers", starts, 516))
        other = Thread(101, "Thread-1", False, False, frames)
        read = sampled(at, read=int(at * (64 << 20)))  # what its children have read that ended
        tasks = (in_call("futex"), in_call("read", tid=101))
        return seen(at, threads=(thread(1), other), kernel=tasks, sample=read)

    assert describe_movement([pool(0, 1), pool(1, 2)]) == ""


def test_what_spawn_starts_again_is_no_other_program() -> None:
    def spawned(pid: int, at: float, age: float) -> Look:
        code = f"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe={pid})"
        words = ("python", "-c", code, "--multiprocessing-fork")
        return replace(seen(at), pid=pid, age=age, command=words)

    looks = [seen(0), seen(1)]
    there, later = [spawned(300, 0, 9.0)], [spawned(301, 1, 0.1)]
    assert "was started" in describe_movement(looks, [later])
    assert describe_movement(looks, [there, later]) == ""


def test_what_ray_says_of_its_workers_is_no_answer() -> None:
    told = replace(PEER, peer_pids=(9,), peer_names=("gcs_server",))
    looks = [recv(0, 0, 0, told, call="futex"), recv(1, 9000, 10, told, call="futex")]
    assert describe_movement(looks) == ""
    others = replace(told, peer_names=("python",))
    looks = [recv(0, 0, 0, others, call="futex"), recv(1, 9000, 10, others, call="futex")]
    assert describe_movement(looks)


def test_what_a_worker_of_dask_tells_its_scheduler_twice_a_second_is_no_progress() -> None:
    run = "LoopRunner._start_unlocked.<locals>.run_loop"
    loop = Thread(PID + 1, "IO loop", False, False, (Frame(run, "/x/distributed/utils.py", 574),))

    def told(at: float, received: int, *threads: Thread) -> Look:
        return replace(recv(at, received, 10), threads=(thread(7), *threads))

    assert describe_movement([told(1, 1000), told(2, 1823)]) != ""
    assert describe_movement([told(1, 1000, loop), told(2, 1823, loop)]) == ""
    assert describe_movement([told(1, 1000, loop), told(2, 4200, loop)]) == ""  # a late heartbeat
    assert describe_movement([told(1, 1000, loop), told(2, 9000, loop)]) != ""


def test_the_loop_of_dask_goes_through_code_of_its_own_all_the_time() -> None:
    def told(at: float, line: int, name: str, file: str) -> Look:
        inner = Frame("_run_callback", "/x/tornado/ioloop.py", line)
        loop = Thread(PID, "MainThread", False, False, (inner, Frame(name, file, 9)))
        return replace(seen(at), threads=(loop,))

    worker = ("WorkerProcess._run", "/x/distributed/nanny.py")
    assert describe_movement([told(1, 705, *worker), told(2, 758, *worker)]) == ""
    own = ("serve", "/home/me/serve.py")
    assert describe_movement([told(1, 705, *own), told(2, 758, *own)]) != ""


CHANNEL = Frame(
    "Channel.read", "/v/site-packages/ray/experimental/channel/shared_memory_channel.py", 492
)


def test_who_asks_a_channel_in_shared_memory_without_a_pause_does_not_compute() -> None:
    """Each actor of a compiled graph of Ray's spins until the one before it has written: a core is
    busy as long as the graph stands.
    """
    spins = Thread(PID, "MainThread", True, False, (Frame("get_objects", "w.py", 1), CHANNEL))
    on_core = Kernel(PID, "python", "R", "", None)

    def describe(*threads: Thread, also: tuple[Kernel, ...] = ()) -> str:
        looks = [
            seen(at, threads=threads, kernel=(on_core, *also), sample=sampled(at, cpu=at * 0.9))
            for at in (1.0, 2.0, 3.0)
        ]
        return describe_computing(looks)

    assert describe(spins) == ""
    assert "computes" in describe(thread(1))
    other, its_task = thread(3, os_id=PID + 1), Kernel(PID + 1, "python", "R", "", None)
    assert "computes" in describe(spins, other, also=(its_task,))
    moved = compare_looks(
        seen(1.0, threads=(spins,)),
        seen(2.0, threads=(replace(spins, frames=(Frame("_reset", "w.py", 9), CHANNEL)),)),
    )
    assert not moved.progress
