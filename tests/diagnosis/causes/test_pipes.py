"""Pipes and sockets whose other end does not do its part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Kernel,
    Look,
    PipeEnd,
    Socket,
    Thread,
)
from hangbisect.diagnosis.proof_of_hang import find_proof_of_hang
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of, on, scene_of, tcp
from .seen import LOADER, beside, first, pipe, worker

WAITS = look(
    "Popen._wait STD/subprocess.py:2053",
    "Popen.wait STD/subprocess.py:1264",
    "devices train.py:5",
    call="wait4",
    args=(300, 0, 0, 0),
)


def writes(one: Descriptor, wchan: str = "anon_pipe_write", **more: Any) -> Look:
    return look(
        "StreamHandler.emit STD/logging/__init__.py:1109",
        "info train.py:5",
        call="write",
        wchan=wchan,
        descriptors=(one,),
        args=(one.fd, 0, 0, 0),
    )


def pipe_unread() -> Facts:
    return job(), [rank(0, writes(pipe(1, 4711))), held(1)]


def pipe_no_writer() -> Facts:
    opens = look(
        "open_log train.py:5",
        call="openat",
        wchan="wait_for_partner",
        path="/tmp/progress",
    )
    return job(), [rank(0, opens), held(1)]


def socket_unread() -> Facts:
    full = tcp("10.0.0.9:9000", peer_pids=(4711,), peer_names=("collector",))
    sends = look("send train.py:5", call="sendto", wchan="wait_woken", descriptors=on(full))
    return job(), [rank(0, sends), held(1)]


def nobody_sends() -> Facts:
    listens = Socket(9, "tcp", "0.0.0.0:5000", "", "LISTEN")
    one = look(
        "socket.accept STD/socket.py:294",
        "serve train.py:5",
        call="accept4",
        descriptors=on(listens),
        sockets=(listens,),
    )
    return job(), [rank(0, one), held(1)]


def reads_results(*ends: PipeEnd, **more: Any) -> Look:
    """A rank that reads what a helper was to write, with who has the writing end."""
    others = tuple(dict.fromkeys(end.pid for end in ends))
    one = Descriptor(7, "pipe", "pipe:[88]", other_ends=others, ends=ends)
    made = look(
        "Connection._recv STD/multiprocessing/connection.py:378",
        "results train.py:9",
        call="read",
        wchan="anon_pipe_read",
        descriptors=(one,),
        args=(7, 0, 0, 0),
    )
    return replace(made, **more)


def dead(pid: int = 901, status: int | None = -9, name: str = "python", ppid: int = 100) -> Look:
    return look(pid=pid, ppid=ppid, call="", state="Z", name=name, status=status, rung="proc")


def waits_for_work(pid: int = 902, **more: Any) -> Look:
    """A forked child of the rank that reads its next task from the rank."""
    tasks = Descriptor(5, "pipe", "pipe:[99]", other_ends=(100,))
    made = look(
        "Connection._recv STD/multiprocessing/connection.py:378",
        "work train.py:30",
        pid=pid,
        ppid=100,
        call="read",
        descriptors=(tasks,),
        args=(5, 0, 0, 0),
    )
    return replace(made, **more)


OWN = PipeEnd(100, 8, "python", 1)
ORPHAN = PipeEnd(950, 8, "python", 1)
SIBLING = PipeEnd(902, 8, "python", 100)


def pipe_writer_gone() -> Facts:
    return job(), [rank(0, reads_results(OWN, ORPHAN), children=((dead(),),)), held(1)]


def stream_kept_open(other_end: int = 500, copy_reads: Socket | None = None) -> Facts:
    """Rank 0 reads a connection to its end; rank 1 has closed its own, and looks for a word of rank
    0; a process that it has forked waits for work.
    """
    end = tcp("10.0.0.1:5", peer_pids=(other_end,), peer_names=("python",))
    reads = look("read_all star.py:30", call="recvfrom", descriptors=on(end), sockets=(end,))
    looks_again = look("send star.py:58", call="clock_nanosleep")
    work = Socket(9, "unix", state="ESTABLISHED", peer_pids=(101,), peer_names=("python",))
    copy = look("augment star.py:67", call="read", descriptors=on(copy_reads or work))
    tasks = tuple(replace(task, tid=500) for task in copy.kernel)
    copy = replace(copy, pid=500, ppid=101, kernel=tasks, is_forked=True)
    sender = rank(1, looks_again, looks_again, children=((copy, copy),))
    return job(), [rank(0, reads, reads), sender]


SHOWS: Shows = {
    "stream-kept-open": stream_kept_open,
    "nobody-sends": nobody_sends,
    "pipe-unread": pipe_unread,
    "pipe-no-writer": pipe_no_writer,
    "pipe-writer-gone": pipe_writer_gone,
    "socket-unread": socket_unread,
}


def test_a_connection_that_its_rank_has_too_or_that_the_copy_serves_is_not_kept_open() -> None:
    assert "stream-kept-open" not in causes_of(stream_kept_open(other_end=101))
    served = tcp("10.0.0.2:6", peer_pids=(100,), peer_names=("python",))
    assert "stream-kept-open" not in causes_of(stream_kept_open(copy_reads=served))
    elsewhere = tcp("10.0.0.9:80", peer_pids=(77,), peer_names=("nginx",))
    found = causes_of(stream_kept_open(copy_reads=elsewhere))
    sure = causes_of(stream_kept_open())["stream-kept-open"].agreement
    assert found["stream-kept-open"].agreement < sure


def test_who_has_taken_the_connection_itself_is_no_copy_that_keeps_it_open() -> None:
    """A helper that rank 1 has forked serves others, and waits for what rank 1 is to give it."""
    facts, (reader, sender) = stream_kept_open()
    listens = Socket(70, "tcp", "0.0.0.0:5", "", "LISTEN")
    ((copy, _),) = sender.children
    serves = replace(copy, sockets=(listens,))
    helper = replace(sender, children=((serves, serves),))
    assert "stream-kept-open" not in causes_of((facts, [reader, helper]))
    both = replace(helper, looks=tuple(replace(o, sockets=(listens,)) for o in sender.looks))
    assert "stream-kept-open" in causes_of((facts, [reader, both])), "its own listens there too"


def test_who_reads_from_its_starter_waits_for_a_message_and_for_no_server() -> None:
    pair = Socket(9, "unix", peer_pids=(77,), peer_names=("python",))
    frames = ("Connection._recv STD/multiprocessing/connection.py:395", "work train.py:5")

    def found(socket: Socket, ppid: int = 77, *frames: str) -> set[str]:
        one = look(*frames, call="read", descriptors=on(socket), sockets=(socket,), ppid=ppid)
        return {*causes_of((job(), [rank(0, one), held(1)]))} & {"nobody-sends", "endpoint-silent"}

    assert found(pair, 77, *frames) == {"nobody-sends"}
    assert found(pair, 78, *frames) == set()  # another process has the other end
    assert found(pair, 77, frames[0]) == set()  # a worker of a library, which waits for a task
    accepted = replace(pair, local="/tmp/a.sock")
    assert found(accepted, 77, *frames) == set()
    served = replace(pair, peer="/tmp/a.sock")
    assert found(served, 77, *frames) == {"endpoint-silent"}


def test_the_stream_and_its_reader_are_named() -> None:
    why = causes_of(pipe_unread())["pipe-unread"].why
    assert "its standard output" in why.lower()
    assert "(4711)" in why


def test_who_writes_to_a_terminal_that_nobody_reads_asks_nothing() -> None:
    """A starter has given its ranks a terminal (pty), and waits for their end."""
    terminal = Descriptor(1, "tty", "/dev/pts/4")
    full = look("train train.py:17", call="write", wchan="wait_woken", descriptors=(terminal,))
    found = causes_of((job(), [rank(0, full), held(1)]))
    assert "prompt" not in found
    assert "A terminal, its standard output (/dev/pts/4), has no room" in found["pipe-unread"].why
    asks = look("ask train.py:17", call="read", descriptors=(replace(terminal, fd=0),))
    found = causes_of((job(), [rank(0, asks), held(1)]))
    assert "prompt" in found
    assert "pipe-unread" not in found


def test_a_pipe_that_only_the_writer_has_is_read_by_nobody() -> None:
    why = causes_of((job(), [rank(0, writes(pipe(5, 100))), held(1)]))["pipe-unread"].why
    assert "nobody but itself" in why


def test_a_child_that_prints_to_its_waiting_parent_is_found_behind_it() -> None:
    child = look(
        pid=300,
        ppid=100,
        name="lspci",
        call="write",
        wchan="anon_pipe_write",
        descriptors=(pipe(1, 100),),
        rung="proc",
    )
    found = causes_of((job(), [first(WAITS, child), held(1)]))["pipe-unread"]
    assert "which is rank 0" in found.why


def test_a_write_that_goes_on_is_not_blocked() -> None:
    running = replace(writes(pipe(1, 4711)), state="R")
    running = replace(running, kernel=(replace(running.kernel[0], state="R"),))
    assert "pipe-unread" not in causes_of((job("busy"), [rank(0, running), held(1)]))


def test_a_reader_of_a_pipe_with_a_writer_waits_for_that_writer() -> None:
    reads = look("read train.py:5", call="read", descriptors=(pipe(3, 4711),))
    assert "pipe-no-writer" not in causes_of((job(), [rank(0, reads), held(1)]))


def test_a_reader_that_has_the_writing_end_itself_reads_for_ever() -> None:
    reads = look("read train.py:5", call="read", descriptors=(pipe(3, 100),))
    assert "pipe-no-writer" in causes_of((job(), [rank(0, reads), held(1)]))


def test_a_worker_that_opens_a_fifo_says_so_in_place_of_its_rank() -> None:
    stuck = worker(
        "Fed.__getitem__ data.py:9", call="openat", wchan="wait_for_partner", path="/tmp/feed"
    )
    found = causes_of((job(), [first(LOADER, stuck), held(1)]))
    assert found["pipe-no-writer"].agreement > found["worker-stuck"].agreement
    assert "/tmp/feed" in found["pipe-no-writer"].why


def test_a_connection_that_is_not_made_yet_is_not_full() -> None:
    opening = tcp("10.0.0.9:9000", "SYN_SENT")
    sends = look("send train.py:5", call="sendto", descriptors=on(opening))
    assert "socket-unread" not in causes_of((job(), [rank(0, sends), held(1)]))


def test_a_thread_of_the_reader_that_waits_for_room_in_a_queue_is_said() -> None:
    sends = look(
        pid=300,
        ppid=100,
        name="rollouts",
        call="sendto",
        wchan="sock_alloc_send_pskb",
        descriptors=on(tcp("10.0.0.9:9000", peer_pids=(100,), peer_names=("python",))),
    )
    receives = (
        "Condition.wait STD/threading.py:327",
        "Queue.put STD/queue.py:140",
        "Client.receive_samples train.py:32",
    )
    asks = beside(WAITS, ("samples", receives))
    found = causes_of((job(), [first(asks, sends), held(1)]))["socket-unread"]
    assert "thread samples waits for room in a queue" in found.why
    assert "receive_samples" in found.why
    without = causes_of((job(), [first(WAITS, sends), held(1)]))["socket-unread"]
    assert "queue" not in without.why


def test_who_has_the_other_end_may_be_known_from_an_earlier_look() -> None:
    early, late = writes(pipe(1, 4711)), writes(pipe(1))
    why = causes_of((job(), [rank(0, early, late), held(1)]))["pipe-unread"].why
    assert "(4711)" in why


# ---- the writer has ended, and its end is still open elsewhere -------------------------------


def writer_gone(one: Look, *children: Look) -> str:
    """Return the level at which that is said, "" if it is not."""
    ranks = [rank(0, one, children=tuple((child,) for child in children)), held(1)]
    cause = causes_of((job(), ranks)).get("pipe-writer-gone")
    return cause.level if cause is not None else ""


def test_a_pipe_whose_writer_is_dead_names_it_and_all_who_keep_its_end_open() -> None:
    cause = causes_of(pipe_writer_gone())["pipe-writer-gone"]
    told = " ".join((cause.why, *cause.matched, *cause.avoid))
    for word in ("descriptor 7", "descriptor 8", "950", "python (901)", "SIGKILL"):
        assert word in told, told
    assert cause.level == "fits"  # that the orphan never writes, nobody knows


def test_where_only_the_reader_itself_has_the_end_the_kernel_proves_it() -> None:
    assert writer_gone(reads_results(OWN), dead()) == "seen"
    # Of two dead children nobody knows which was to write.
    assert writer_gone(reads_results(OWN), dead(), dead(903, 0, "true")) == "fits"


def test_where_another_thread_of_the_reader_works_it_may_write() -> None:
    works = Thread(102, "feeder", True, False, look("feed train.py:3").threads[0].frames)
    one = reads_results(OWN)
    one = replace(
        one,
        threads=(*one.threads, works),
        kernel=(*one.kernel, Kernel(102, "python", "R", "", None)),
    )
    assert writer_gone(one, dead()) in ("", "guess")


def test_a_forked_child_that_waits_for_work_from_the_reader_does_not_write() -> None:
    assert writer_gone(reads_results(OWN, SIBLING), dead(), waits_for_work()) == "fits"


def test_a_child_that_still_works_may_write() -> None:
    # The dead one is another helper, whose end nobody waits for.
    for child in (
        waits_for_work(state="R", kernel=(Kernel(902, "python", "R", "", None),)),
        look("sleep train.py:30", pid=902, ppid=100, call="clock_nanosleep"),
        look("recv train.py:30", pid=902, ppid=100, call="recvfrom"),
    ):
        assert writer_gone(reads_results(OWN, SIBLING), dead(), child) == ""


def test_a_child_that_nobody_has_looked_at_may_write() -> None:
    assert writer_gone(reads_results(OWN, SIBLING), dead()) == ""


def test_an_orphan_that_was_looked_at_is_one_as_well() -> None:
    asleep = look("nap <string>:4", pid=950, ppid=1, call="clock_nanosleep")
    assert writer_gone(reads_results(OWN, ORPHAN), dead(), asleep) == "fits"
    works = replace(asleep, state="R", kernel=(Kernel(950, "python", "R", "", None),))
    assert writer_gone(reads_results(OWN, ORPHAN), dead(), works) == ""


def test_an_orphan_that_runs_another_program_or_writes_its_output_there_may_write() -> None:
    assert writer_gone(reads_results(OWN, PipeEnd(950, 8, "sort", 1)), dead()) == ""
    assert writer_gone(reads_results(OWN, PipeEnd(950, 1, "python", 1)), dead()) == ""


def test_without_a_dead_child_nobody_is_known_to_be_gone() -> None:
    assert writer_gone(reads_results(OWN, ORPHAN)) == ""
    assert writer_gone(reads_results(OWN), dead(ppid=44)) == ""  # another one's child


def in_poll(one: Look, timeout: float | None = None, *more: Descriptor) -> Look:
    """The same look, of a rank that waits in poll() for what it will read."""
    main = one.kernel[0]
    assert main.syscall is not None
    polled = (*main.syscall.descriptors, *more)
    call = replace(main.syscall, name="poll", timeout=timeout, descriptors=polled)
    return replace(one, kernel=(replace(main, syscall=call),))


def test_a_read_that_is_waited_for_in_poll_is_a_read() -> None:
    assert writer_gone(in_poll(reads_results(OWN, ORPHAN)), dead()) == "fits"
    # Which end of the pipe is polled no call says: nothing is proved.
    assert writer_gone(in_poll(reads_results(OWN)), dead()) == "fits"


def test_a_poll_with_a_time_limit_or_for_several_things_may_be_for_something_else() -> None:
    assert writer_gone(in_poll(reads_results(OWN, ORPHAN), 5.0), dead()) == ""
    assert writer_gone(in_poll(reads_results(OWN, ORPHAN), None, pipe(9, 4711)), dead()) == ""


def test_an_orphan_that_keeps_an_end_open_is_no_stuck_child() -> None:
    """It is not waited for because it has that end: the reader has it too, and a dead child had."""
    asleep = look("nap <string>:4", pid=950, ppid=1, call="clock_nanosleep")
    for one in (reads_results(OWN, ORPHAN), in_poll(reads_results(OWN, ORPHAN), 5.0)):
        ranks = [rank(0, one, children=((dead(),), (asleep,))), held(1)]
        cause = causes_of((job(), ranks)).get("child-process-stuck")
        assert cause is None or cause.level == "guess"


def reads_output(*held: PipeEnd, of: str = "Popen._communicate STD/subprocess.py:2108") -> Look:
    """A rank in subprocess.run(): it reads both outputs of a program to their ends."""
    pipes = tuple(
        Descriptor(fd, "pipe", f"pipe:[{fd}]", other_ends=(end.pid,), ends=(replace(end, fd=n),))
        for n, fd in enumerate((14, 16), 1)
        for end in held
    )
    return look(of, "run STD/subprocess.py:550", "start train.py:9", call="poll", descriptors=pipes)


DAEMON = PipeEnd(950, 1, "exporter", 1)


def test_an_output_that_a_daemon_of_an_ended_program_keeps_open_has_no_end() -> None:
    """subprocess.run(capture_output=True) of what starts something in the background."""
    ranks = [rank(0, reads_output(DAEMON), children=((dead(901, 0, "sh"),),)), held(1)]
    assert judge_job(job(), ranks).ranks.culprit == (0,)
    cause = causes_of((job(), ranks))["pipe-writer-gone"]
    told = " ".join((cause.why, *cause.matched, *cause.avoid))
    for word in ("sh (901)", "exporter (950)", "background"):
        assert word in told, told


def test_what_a_program_left_in_the_background_may_end_and_so_nothing_is_proved() -> None:
    facts = job(), [rank(0, reads_output(DAEMON), children=((dead(901, 0, "sh"),),)), held(1)]
    cause, scene = causes_of(facts)["pipe-writer-gone"], scene_of(facts)
    assert cause.level == "guess"
    assert scene.graph is not None
    verdict = replace(scene.verdict, cause=cause)
    assert find_proof_of_hang(verdict, Snapshot(scene.ranks), scene.graph) == ""


def test_an_output_is_written_as_long_as_its_program_is_there() -> None:
    child = PipeEnd(901, 1, "sh", 100)
    assert writer_gone(reads_output(child), look(pid=901, ppid=100, call="clock_nanosleep")) == ""
    assert writer_gone(reads_output(child), dead(902, 0, "true")) == ""  # another one has ended
    reads = reads_output(DAEMON, of="poll STD/multiprocessing/connection.py:257")
    assert writer_gone(reads, dead(901, 0, "sh")) == ""  # it may be told something there


def test_that_the_writer_is_gone_proves_a_hang() -> None:
    scene = scene_of(pipe_writer_gone())
    assert scene.graph is not None
    cause = causes_of(pipe_writer_gone())["pipe-writer-gone"]
    verdict = replace(scene.verdict, cause=cause)
    assert find_proof_of_hang(verdict, Snapshot(scene.ranks), scene.graph) != ""


def in_a_loop(*sockets: Socket) -> Facts:
    one = look(
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "main train.py:60",
        call="epoll_wait",
        descriptors=tuple(d for socket in sockets for d in on(socket)),
        sockets=sockets,
    )
    return job(), [rank(0, one), held(1)]


def test_a_loop_that_listens_and_has_a_connection_may_wait_for_that() -> None:
    """Each rank of a ring of streams serves a port: nobody was to call, a peer was to send."""
    listens = Socket(9, "tcp", "127.0.0.1:5000", "", "LISTEN")
    peer = tcp("10.0.0.3:5001", inode=72, peer_pids=(300,))
    assert "nobody-sends" in causes_of(in_a_loop(listens))
    assert "nobody-sends" not in causes_of(in_a_loop(listens, peer))


def test_a_loop_of_which_a_thread_of_its_own_waits_for_an_answer_has_been_called() -> None:
    """It reads a stream of the server that its own process is: nobody else was to come."""
    listens = Socket(9, "tcp", "127.0.0.1:5000", "", "LISTEN")
    facts, (server, other) = in_a_loop(listens)
    client = tcp("127.0.0.1:5000", inode=72, peer_pids=(server.pid,))
    reads = look("readinto STD/socket.py:706", call="recvfrom", descriptors=on(client)).kernel[0]
    looks = tuple(
        replace(one, kernel=(*one.kernel, replace(reads, tid=907))) for one in server.looks
    )
    assert "nobody-sends" not in causes_of((facts, [replace(server, looks=looks), other]))


def test_who_was_to_read_a_full_pipe_and_has_ended_is_named() -> None:
    """Its siblings have the reading end too, for they were forked later: they read others."""
    full = writes(pipe(8, 902))
    ended = dead(status=0)
    facts = job(), [rank(0, full, children=((ended,), (waits_for_work(),))), held(1)]
    found = causes_of(facts)["pipe-unread"]
    assert "python (901) has ended with status 0" in found.why
    facts = job(), [rank(0, full, children=((ended,), (dead(902, None),))), held(1)]
    assert "ended" not in causes_of(facts)["pipe-unread"].why


def test_a_pair_of_sockets_is_kept_open_as_a_pipe_is() -> None:
    """multiprocessing.Pipe() makes one; the workers that were forked have both ends of each."""
    names = ("python", "python")
    pair = Socket(88, "unix", "", "", "ESTABLISHED", peer_pids=(100, 902), peer_names=names)
    reads = reads_results(OWN)
    (main,) = reads.kernel
    assert main.syscall is not None
    call = replace(main.syscall, descriptors=on(pair, 7))
    waits = replace(reads, kernel=(replace(main, syscall=call),), sockets=(pair,))
    facts = job(), [rank(0, waits, children=((dead(),), (waits_for_work(),))), held(1)]
    found = causes_of(facts)["pipe-writer-gone"]
    assert "it still is in the reader itself, python (902)" in found.why
    named = replace(call, descriptors=on(replace(pair, peer="/tmp/a.sock"), 7))
    waits = replace(waits, kernel=(replace(main, syscall=named),))
    facts = job(), [rank(0, waits, children=((dead(),), (waits_for_work(),))), held(1)]
    assert "pipe-writer-gone" not in causes_of(facts)


def test_why_a_reader_does_not_read_is_asked_of_the_last_in_the_chain() -> None:
    """A rank fills the pipe of its first stage, that one a connection of the next one, which is
    stopped.
    """
    pair = Socket(88, "unix", "", "", "ESTABLISHED", peer_pids=(302,), peer_names=("stage 2",))
    sends = look(
        "send serve.py:9", pid=301, ppid=100, call="write", descriptors=on(pair), sockets=(pair,)
    )
    stopped = look("work s.py:3", pid=302, ppid=100, call="", state="T", name="stage 2")
    verdict = judge_job(
        job(world=1), [rank(0, writes(pipe(8, 301)), children=((sends,), (stopped, stopped)))]
    )
    assert verdict.cause is not None
    assert verdict.cause.id == "stopped"
    assert "stage 2 (302)" in verdict.cause.why


def test_a_reader_that_waits_for_a_lock_of_others_is_why_a_pipe_is_full() -> None:
    lock = FileLock("/tmp/cache.lock", 5, 4711, "indexer")
    waits = look(
        "build plugin.py:8",
        pid=301,
        ppid=100,
        call="flock",
        wchan="locks_lock_inode_wait",
        locks=(lock,),
    )
    verdict = judge_job(job(world=1), [rank(0, writes(pipe(8, 301)), children=((waits,),))])
    assert verdict.cause is not None
    assert verdict.cause.id == "file-lock-held"
