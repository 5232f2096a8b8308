"""A driver that `ray job submit` has given to a cluster of one machine: it is a child of Ray's job
supervisor, below the head, and no child of who submitted it. Real Ray, where it has its dashboard.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hangbisect.base.proc import list_pids
from hangbisect.evidence.process import descendants, words_of

Start = Callable[..., "subprocess.Popen[str]"]

LIMIT = 120.0  # seconds, on a busy machine
DRIVER = """
import sys
import ray

ray.init()


@ray.remote(num_cpus=0)
class Reader:
    def read(self, path):
        with open(path) as file:
            return file.read()


ray.get(Reader.remote().read.remote(sys.argv[1]))
"""


def find_free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


@pytest.fixture
def address(start: Start) -> Iterator[str]:
    """The address at which a head takes jobs; all of its session ends with the test."""
    pytest.importorskip("ray")
    pytest.importorskip("ray.dashboard.modules.job.sdk")
    pytest.importorskip("aiohttp_cors", reason="ray[default] is not installed")
    gcs, board, agent, client = find_free_ports(4)
    folder = Path("/tmp") / f"hb{os.getpid()}"  # sockets below it: a path has 107 bytes at most
    words = ["start", "--head", "--block", "--num-cpus=2", f"--temp-dir={folder}", f"--port={gcs}"]
    words += ["--dashboard-host=127.0.0.1", f"--dashboard-port={board}", "--disable-usage-stats"]
    words += [f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}"]
    ray = Path(sys.executable).with_name("ray")
    # No mark of ours: the driver is to be found without.
    environ = {name: value for name, value in os.environ.items() if "HANGBISECT_" not in name}
    head = start(sys.executable, ray, *words, env=environ, start_new_session=True)
    try:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            asked = [sys.executable, "-m", "ray.scripts.scripts", "job", "list"]
            asked += ["--address", f"http://127.0.0.1:{board}"]
            if subprocess.run(asked, env=environ, capture_output=True, check=False).returncode == 0:
                break
        else:
            pytest.fail("the head takes no jobs")
        yield f"http://127.0.0.1:{board}"
    finally:
        for pid in (*descendants([head.pid]), *_list_session(head.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _list_session(leader: int) -> list[int]:
    """Return the processes of a session but for who leads it: Ray's own lose their parent."""
    found = []
    for pid in list_pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader and pid != leader:
                found.append(pid)
    return found


def find_driver(feed: Path) -> int:
    """Return the pid of the driver, which has the path of the pipe as its argument."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        for pid in list_pids():
            words = words_of(pid)
            if words[1:] == ("driver.py", str(feed)):
                return pid
        time.sleep(0.2)
    raise AssertionError("the driver was not started")


def has_actor() -> bool:
    return any(words_of(pid)[:1] == ("ray::Reader.read",) for pid in list_pids())


def test_run_says_where_the_driver_is_and_attach_finds_it(
    tmp_path: Path, package: Path, start: Start, address: str
) -> None:
    feed, work = tmp_path / "feed", tmp_path / "work"
    os.mkfifo(feed)
    work.mkdir()
    (work / "driver.py").write_text(DRIVER)
    ray = Path(sys.executable).with_name("ray")
    submit = ["job", "submit", "--address", address, "--working-dir", str(work), "--"]
    ours = [sys.executable, str(package), "run", "--run-dir", "run", "--"]
    ran = start(*ours, ray, *submit, "python", "driver.py", feed, cwd=tmp_path)
    driver = find_driver(feed)
    end = time.monotonic() + LIMIT
    while not has_actor() and time.monotonic() < end:
        time.sleep(0.2)
    asked = subprocess.run(
        [sys.executable, str(package), "attach", str(driver)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert "culprit   ray::Reader.read" in asked.stdout
    assert f"{feed}" in asked.stdout
    assert f"Looking at {driver} (1 rank): python driver.py" in asked.stderr
    ran.send_signal(signal.SIGTERM)
    _, said = ran.communicate(timeout=LIMIT)
    assert "ray job submit ... -- hangbisect run -- COMMAND" in said
