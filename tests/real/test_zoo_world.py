"""The world around a case: what is started for it ends, whatever becomes of its starter."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.zoo import case_files, keeper
from hangbisect.zoo.parts import processes, servers, system
from hangbisect.zoo.parts.processes import helper

from ..conftest import Start

LIMIT = 20.0  # seconds, on a busy machine


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_helper_ends_with_its_block() -> None:
    with helper("ready('here'); threading.Event().wait()") as running:
        assert running.said == "here"
        assert alive(running.pid)
    assert not alive(running.pid)


def test_a_helper_that_fails_says_so() -> None:
    with pytest.raises(RuntimeError, match="ended at once"), helper("raise SystemExit(3)"):
        pass


def test_a_helper_undoes_what_it_did_when_its_starter_is_killed(
    tmp_path: Path, start: Start
) -> None:
    undone = tmp_path / "undone"
    program = f"""
import sys, time
from hangbisect.zoo.parts.processes import helper
text = '''
def at_end():
    open({str(undone)!r}, "w").close()
ready()
threading.Event().wait()
'''
with helper(text) as running:
    print(running.pid, flush=True)
    time.sleep(1000)
"""
    starter = start(sys.executable, "-c", program, env=os.environ | {"PYTHONPATH": _path()})
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    until(lambda: not alive(pid))
    assert undone.exists()


def _path() -> str:
    """Return where `hangbisect` is found, which may be a checkout that a test has registered."""
    return os.pathsep.join(entry for entry in sys.path if entry)


def test_the_keeper_ends_the_job_and_removes_its_folder_when_its_starter_is_gone(
    tmp_path: Path, start: Start
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    mark = f"A_MARK={os.getpid()}"
    job = start("sleep", "1000", env={**os.environ, "A_MARK": str(os.getpid())})
    stranger = start("sleep", "1000")
    command = [sys.executable, "-I", "-S", keeper.__file__, mark, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as keeping:
        assert keeping.stdin is not None
        assert keeping.stdout is not None
        print("left 0", file=keeping.stdin, flush=True)
        assert keeping.stdout.readline() == '["sleep 1000 "]\n'
        keeping.stdin.close()  # as when the other side is killed
        assert job.wait(LIMIT) == -signal.SIGKILL
        keeping.wait(LIMIT)
    assert not folder.exists()
    assert stranger.poll() is None


def test_a_silent_server_accepts_and_says_nothing() -> None:
    with (
        servers.silent_server() as port,
        socket.create_connection(("127.0.0.1", port), LIMIT) as client,
    ):
        client.sendall(b"hello")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_a_deaf_port_never_answers_and_a_refusing_one_at_once() -> None:
    with servers.deaf_server() as port, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", port), 0.5)
    with servers.refusing_port() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), LIMIT)


def test_a_trickling_server_sends_what_it_was_given() -> None:
    with (
        servers.trickling_server("abc", every=0.01) as port,
        socket.create_connection(("127.0.0.1", port), LIMIT) as client,
    ):
        client.sendall(b"?")
        assert b"".join(iter(lambda: client.recv(10), b"")) == b"abc"


def test_a_lock_is_held_for_as_long_as_was_asked(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "a.lock"
    with processes.hold_flock(path), open(path, "a") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with processes.hold_flock(path, seconds=0.2), open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def test_the_hub_serves_its_files_and_no_others(tmp_path: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    with servers.serve_hub(tmp_path) as served:
        where = f"http://127.0.0.1:{served.port}/{servers.HUB_REPOSITORY}/resolve/main"
        with urlopen(f"{where}/config.json", timeout=LIMIT) as answer:
            assert answer.headers["ETag"].strip('"') == served.etags["config.json"]
            assert b"gpt2" in answer.read()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{where}/chat_template.jinja", timeout=LIMIT).close()


@pytest.mark.skipif(
    bool(case_files.find_missing(["loop mount"])), reason=case_files.find_missing(["loop mount"])
)
def test_a_frozen_file_system_is_thawed_and_gone_after_its_block(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with system.mount_ext4(place), system.freeze_file_system(place):
        assert os.path.ismount(place)
        write = [sys.executable, "-c", f"open({str(place / 'a')!r}, 'w')"]
        writer = subprocess.Popen(write)
        until(lambda: "D" in Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2])
    assert writer.wait(LIMIT) == 0
    assert not os.path.ismount(place)
