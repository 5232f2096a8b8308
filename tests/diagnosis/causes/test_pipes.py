"""Pipes and sockets whose other end does not do its part."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.facts import Descriptor, Look, Socket

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of, on, tcp
from .seen import LOADER, first, pipe, worker

WAITS = look(
    "Popen._wait STD/subprocess.py:2053",
    "Popen.wait STD/subprocess.py:1264",
    "devices train.py:5",
    call="wait4",
    args=(300, 0, 0, 0),
)


def writes(one: Descriptor, wchan: str = "anon_pipe_write", **more: object) -> Look:
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


SHOWS: Shows = {
    "nobody-sends": nobody_sends,
    "pipe-unread": pipe_unread,
    "pipe-no-writer": pipe_no_writer,
    "socket-unread": socket_unread,
}


def test_the_stream_and_its_reader_are_named() -> None:
    why = causes_of(pipe_unread())["pipe-unread"].why
    assert "its standard output" in why.lower()
    assert "(4711)" in why


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


def test_who_has_the_other_end_may_be_known_from_an_earlier_look() -> None:
    early, late = writes(pipe(1, 4711)), writes(pipe(1))
    why = causes_of((job(), [rank(0, early, late), held(1)]))["pipe-unread"].why
    assert "(4711)" in why
