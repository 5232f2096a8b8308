"""Ranks that receive from one another, as `hangbisect attach` sees them: only their frames tell."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from ..conftest import Start
from .test_attach import LIMIT, Here

# Each waits for what the other has not sent: one names it by its number in the whole job, the other
# by that in its group, which is the default one.
RING = """
import os, pathlib
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="PORT")
dist.init_process_group("gloo")
received = torch.zeros(4)
pathlib.Path(__file__).with_name(f"ready-{rank}").touch()
if rank == 0:
    dist.recv(received, src=1)
else:
    dist.recv(received, group_src=0)
"""


def test_two_ranks_that_receive_from_one_another_are_a_ring(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    here = Here(start, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = here.launch(RING.replace("PORT", str(port)))
    end = time.monotonic() + LIMIT
    ended = here.attach(launcher)
    while ended.returncode != 3 and time.monotonic() < end:  # it may be on its way there
        ended = here.attach(launcher)
    verdict = here.verdict
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert verdict["ranks"]["culprit"] == [0, 1]
    assert (verdict["cause"]["id"], verdict["cause"]["level"]) == ("deadlock", "fits")
    targets = {edge["target"] for edge in verdict["chain"]}
    assert {"recv from rank 1", "recv from rank 0"} <= targets
