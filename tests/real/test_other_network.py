"""Services of a job in another network namespace, as in a container: asked there, and never the one
that happens to listen at the same port here.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.looks import ask_ras
from hangbisect.evidence.other_network import OtherNetwork, connect_beside

from ..diagnosis.made_up import look, rank
from ..evidence.test_nccl_ras import one_behind

# NCCL's RAS service in a line or two, and who waits until its port is open.
SERVICE = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:  # ip link set lo up
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
server = socket.create_server(("127.0.0.1", 0))
status = open(sys.argv[1]).read().encode()
open(sys.argv[2], "w").write(str(server.getsockname()[1]))
while True:
    client, _ = server.accept()
    with client, client.makefile("rb") as lines:
        for line in lines:
            word = line.strip().lower()
            if word == b"verbose status":
                client.sendall(status)
                break
            client.sendall(b"SERVER PROTOCOL 2\\n" if word.startswith(b"client") else b"OK\\n")
"""
LIMIT = 30.0


def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not _may_unshare(), reason="needs a network namespace of its own")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The pid of a service in a network of its own, and its port there."""
    (tmp_path / "status").write_text(json.dumps(one_behind()))
    port = tmp_path / "port"
    command = ["unshare", "-n", sys.executable, "-c", SERVICE, str(tmp_path / "status"), str(port)]
    with subprocess.Popen(command) as process:
        end = time.monotonic() + LIMIT
        while not (port.exists() and port.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        yield process.pid, int(port.read_text())
        process.kill()


def ranks_of(pid: int, port: int) -> list[RankFacts]:
    ears = Socket(1, "tcp", f"127.0.0.1:{port}", "", "LISTEN")
    here = {"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
    one = rank(0, look("train train.py:9", sockets=(ears,)), environment=here)
    others = [rank(n, look("train train.py:9"), environment=here) for n in range(1, 8)]
    # The service answers of processes 100 to 107; the one that has its port is another one.
    looks = tuple(one.looks)
    return [RankFacts(0, pid=pid, looks=looks, environment=here), *others]


def test_a_service_in_another_network_is_asked_there(elsewhere: tuple[int, int]) -> None:
    pid, port = elsewhere
    found = asyncio.run(ask_ras(ranks_of(pid, port), limit=LIMIT, pause=0.0))
    assert found.notes == (
        "NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
    )


def test_the_one_at_the_same_port_here_is_not_asked(elsewhere: tuple[int, int]) -> None:
    pid, port = elsewhere
    with socket.create_server(("127.0.0.1", port)) as mine:
        mine.settimeout(0.1)
        asyncio.run(ask_ras(ranks_of(pid, port), limit=LIMIT, pause=0.0))
        with pytest.raises(TimeoutError):
            mine.accept()


def test_a_connection_beside_a_process_is_one_in_its_network(elsewhere: tuple[int, int]) -> None:
    pid, port = elsewhere
    with connect_beside(pid, "127.0.0.1", port, LIMIT) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        assert connection.recv(100) == b"SERVER PROTOCOL 2\n"
    with pytest.raises(ConnectionRefusedError):  # here is nobody
        socket.create_connection(("127.0.0.1", port), 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mine:  # we ourselves have stayed where we were
        name = mine.getsockname()
        connect_beside(os.getpid(), name[0], name[1], LIMIT).close()


def test_of_who_is_gone_there_is_no_network() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(OtherNetwork):
        connect_beside(gone.pid, "127.0.0.1", 1, LIMIT)
