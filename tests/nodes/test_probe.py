"""The probe on nodes that are processes of this machine: what is right, and what it says is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hangbisect.nodes.node_task import TRY_AGAIN, TaskOrders, make_environment, read_last_line
from hangbisect.nodes.probe import find_port

DEADLINE = 90.0
NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def start(package: Path, rank: int, port: int, limit: float = 45.0) -> subprocess.Popen[str]:
    orders = TaskOrders((NODES,), (0,), 0, limit)
    told = make_environment(orders, NODES[rank], NODES) | {"MASTER_PORT": str(port)}
    options = json.dumps({"torch": False, "limit": limit})
    return subprocess.Popen(
        [sys.executable, str(package), "node_probe", options],
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ends(started: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Return status and output of each, which all end by themselves."""
    said = [one.communicate(timeout=DEADLINE)[0] for one in started]
    return [(one.returncode, text.strip()) for one, text in zip(started, said, strict=True)]


def test_nodes_that_are_well_pass(package: Path) -> None:
    port = find_port()
    assert ends([start(package, rank, port) for rank in range(3)]) == [(0, "")] * 3


def test_who_does_not_come_is_named(package: Path) -> None:
    port = find_port()
    (first, second) = ends([start(package, rank, port, 18.0) for rank in (0, 1)])
    assert first == (1, "127.0.0.1: nothing came from 127.0.0.3")
    assert second[0] == 1


def test_without_the_first_node_each_says_that_it_cannot_be_reached(package: Path) -> None:
    ((status, said),) = ends([start(package, 2, find_port(), 9.0)])
    assert status == 1
    assert said.startswith("127.0.0.3: no connection to 127.0.0.1 (127.0.0.1 port ")


def test_a_port_that_is_taken_is_no_fault_of_the_node(package: Path) -> None:
    with socket.create_server(("", 0)) as server:
        ((status, said),) = ends([start(package, 0, server.getsockname()[1], 9.0)])
    assert status == TRY_AGAIN
    assert "Address already in use" in said


@pytest.mark.parametrize(
    ("text", "last"), [(b"", ""), (b"a\nb\n\n", "b"), (b"x" * 9000, "x" * 300), (b"\xff\n", "�")]
)
def test_the_last_line_of_what_was_printed_is_kept(text: bytes, last: str, tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(text)
    with file.open("rb") as output:
        assert read_last_line(output) == last
