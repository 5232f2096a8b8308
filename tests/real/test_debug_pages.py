"""The server of torch.distributed.debug itself, on two gloo ranks of which one has not come."""

from __future__ import annotations

import importlib.util
import socket
import sys
import time
from pathlib import Path

import pytest
from hangbisect.evidence.gpus.recorder_queries import ask_debug_pages
from jobs import Running, clean_environ

from .whole_jobs import ONE_THREAD, Jobs

# It needs packages that torch does not bring, and torch 2.10 or later.
_NEEDS = ("torch.distributed.debug", "tabulate", "requests")
_LIMIT = 120.0
JOB = """
import sys, time
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server

dist.init_process_group("gloo")
start_debug_server(port=int(sys.argv[1]), start_method="fork")
tensor = torch.ones(4)
for number in range(5):
    dist.all_reduce(tensor)
open(f"there-{dist.get_rank()}", "w").close()
if dist.get_rank() == 1:
    time.sleep(1000)
dist.all_reduce(tensor)
"""


def _are_there() -> bool:
    try:
        return all(importlib.util.find_spec(name) for name in _NEEDS)
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(not _are_there(), reason=f"needs {', '.join(_NEEDS)}")
def test_torchs_own_pages_are_understood(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    (folder / "job.py").write_text(JOB)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--standalone", "--nproc_per_node=2", "job.py", str(port)]
    environ = {**clean_environ(), "TORCH_FR_BUFFER_SIZE": "2000", **ONE_THREAD}
    jobs_here.add(Running(command, folder, environ), folder)
    end = time.monotonic() + _LIMIT
    while len(list(folder.glob("there-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1.0)
    logs, silent = ask_debug_pages("localhost", port, 30.0)
    assert silent == {}
    entered = {rank: log.operations[-1].number for rank, log in logs.items()}
    assert entered == {0: 6, 1: 5}
    assert logs[0].operations[-1].done is not True
    assert logs[1].operations[-1].done is True
