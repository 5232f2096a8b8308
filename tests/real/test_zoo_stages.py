"""More of the world around a case: pipes, terminals, tracers, control groups, semaphores."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.zoo import case_files
from hangbisect.zoo.parts import processes, system

from ..conftest import Start

LIMIT = 20.0  # seconds, on a busy machine
NOWAIT = 0o4000  # IPC_NOWAIT


def needing(*names: str) -> pytest.MarkDecorator:
    why = case_files.find_missing(names)
    return pytest.mark.skipif(bool(why), reason=why or "-")


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_pipe_that_nobody_reads_fills_up(tmp_path: Path) -> None:
    with processes.unread_fifo(tmp_path / "pipe") as path:
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            assert os.write(writer, b"." * 9999) == 4096
            with pytest.raises(BlockingIOError):
                os.write(writer, b".")
        finally:
            os.close(writer)


def test_an_unopened_pipe_has_no_other_end(tmp_path: Path) -> None:
    path = processes.unopened_fifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):  # ENXIO: fifo(7)
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)


def test_at_the_terminal_nobody_types_and_what_is_printed_is_read() -> None:
    with processes.unattended_terminal() as path:
        terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
        try:
            assert os.isatty(terminal)
            for _ in range(100):
                os.write(terminal, b"." * 1000)
            os.set_blocking(terminal, False)
            with pytest.raises(BlockingIOError):
                os.read(terminal, 1)
        finally:
            os.close(terminal)


def test_a_local_service_accepts_and_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "service"
    with processes.silent_unix_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"hello")
        assert select.select([client], [], [], 0.2)[0] == []


def test_a_record_lock_is_held_by_the_helper(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with processes.hold_record_lock(path) as pid, open(path, "r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert f" {pid} " in Path("/proc/locks").read_text()


def test_a_taken_semaphore_is_taken_and_removed_afterwards() -> None:
    take_one = (ctypes.c_short * 3)(0, -1, NOWAIT)
    libc = ctypes.CDLL(None, use_errno=True)
    with processes.taken_semaphore() as number:
        assert libc.semop(number, take_one, 1) == -1
        assert os.strerror(ctypes.get_errno()) == "Resource temporarily unavailable"
    assert libc.semop(number, take_one, 1) == -1
    assert os.strerror(ctypes.get_errno()) == "Invalid argument"


@needing("root")
def test_a_tracer_stops_who_asks_and_lets_it_go_in_the_end(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "tracer"
    ask = f"""
import os, socket, time
with socket.socket(socket.AF_UNIX) as client:
    client.connect({str(path)!r})
    client.sendall(str(os.getpid()).encode())
    while True:
        time.sleep(0.01)
"""
    with processes.waiting_tracer(path):
        traced = start(sys.executable, "-I", "-S", "-c", ask)
        until(lambda: state(traced.pid) == "t")
    until(lambda: state(traced.pid) in "SR")


@needing("root", "freezer")
def test_what_is_in_a_frozen_group_thaws_when_its_block_is_left(start: Start) -> None:
    sleeper = start("sleep", "1000")
    with system.freezing_cgroup() as group:
        (group / "cgroup.procs").write_text(str(sleeper.pid))
        until(lambda: "frozen 1" in (group / "cgroup.events").read_text())
    assert not group.exists()
    sleeper.send_signal(signal.SIGTERM)
    assert sleeper.wait(LIMIT) == -signal.SIGTERM


@needing("loop mount", "slow disk")
def test_a_slow_reader_is_limited_and_its_group_removed(tmp_path: Path) -> None:
    with system.mount_ext4(tmp_path / "disk") as disk:
        with system.slow_reading_cgroup(disk, 1 << 20) as group:
            told = (group / "blkio.throttle.read_bps_device").read_text()
            assert told.endswith(" 1048576\n")
        assert not group.exists()


@needing("gcc")
def test_a_library_is_compiled(tmp_path: Path) -> None:
    made = processes.compile_library(tmp_path, "answer", "int answer(void) { return 42; }\n")
    assert ctypes.CDLL(str(made)).answer() == 42
