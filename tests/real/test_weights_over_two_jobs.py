"""A trainer and its inference server, two jobs that nobody has started together: the trainer asks
the server by HTTP to take the weights, and sends them once that has answered; the server answers
once its workers have them. vLLM and TRL are stand-ins, with their processes, titles and groups.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hangbisect.evidence.process import descendants

Start = Callable[..., "subprocess.Popen[str]"]

PACKAGES = Path(__file__).parents[2] / "scenarios" / "scripts" / "packages"
LIMIT = 240.0  # seconds, on a busy machine
SYNCHRONIZES = "synchronizes"
TRAIN = f"""
import sys
import requests
import torch
import torch.distributed as dist
from trl.generation.vllm_client import VLLMClient


def sync_weights(client, weights):
    requests.post(f"{{client.base_url}}/update_weights", json={{"update_info": {{"names": ["w"]}}}})
    client.communicator.broadcast(weights, src=0)


dist.init_process_group("gloo")
client = None
if dist.get_rank() == 0:
    client = VLLMClient(f"http://127.0.0.1:{{sys.argv[1]}}", int(sys.argv[2]), 120.0)
    client.init_communicator()
dist.barrier()
weights = [torch.zeros(4) for _ in range(2)]
if client is not None:
    print("{SYNCHRONIZES}", flush=True)
    sync_weights(client, weights[0])
dist.all_gather(weights, torch.ones(4))
"""


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Server:
    """A server of the stand-in of vLLM, and the environment of its trainer."""

    def __init__(self, folder: Path, start: Start) -> None:
        (folder / "train.py").write_text(TRAIN)
        (folder / "model.py").write_text("")
        self.folder = folder
        self.environ = {
            **{name: value for name, value in os.environ.items() if "HANGBISECT_" not in name},
            "PYTHONPATH": str(PACKAGES),
            "OMP_NUM_THREADS": "1",
        }
        self.port, self._start = find_free_port(), start
        words = ["-m", "vllm.entrypoints.cli.main", "serve", "model.py", "-tp", "2"]
        self.process = start(
            *(sys.executable, *words, "--port", str(self.port)),
            cwd=folder,
            env=self.environ,
            start_new_session=True,
        )

    def train(self, *before: str) -> subprocess.Popen[str]:
        """Start the trainer, in a session of its own, and return once it stands in the ring."""
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py"]
        words = [*before, sys.executable, *launch, str(self.port), str(find_free_port())]
        trainer = self._start(*words, cwd=self.folder, env=self.environ, start_new_session=True)
        assert trainer.stdout is not None
        assert any(SYNCHRONIZES in line for line in trainer.stdout)
        return trainer

    def end(self) -> None:
        """SIGKILL all of it: titles stand where the marks of its processes were."""
        for one in descendants([self.process.pid]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path, start: Start) -> Iterator[Server]:
    for name in ("torch", "zmq", "setproctitle", "requests"):
        pytest.importorskip(name)
    running = Server(tmp_path, start)
    yield running
    running.end()


def ask(package: Path, folder: Path, *pids: int) -> dict[str, Any]:
    """Return the verdict of `attach` on these processes."""
    words = [sys.executable, str(package), "attach", "--json", *map(str, pids)]
    asked = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    verdict: dict[str, Any] = json.loads(asked.stdout)
    return verdict


def check_ring(verdict: dict[str, Any], server: Server) -> None:
    """Check that the trainer and the server are seen to wait for one another."""
    assert verdict["outcome"] == "hang"
    assert verdict["cause"]["id"] == "answer-after-weights"
    assert 0 in verdict["ranks"]["culprit"]
    assert 1 in verdict["ranks"]["waiting"]
    assert verdict["where"][0]["call"] == "requests.post"
    assert verdict["chain"][-1]["target"] == "rank 0"
    assert f"process {server.process.pid}" in [edge["target"] for edge in verdict["chain"]]


def test_attach_to_both_sees_the_ring(package: Path, server: Server) -> None:
    trainer = server.train()
    check_ring(ask(package, server.folder, trainer.pid, server.process.pid), server)


def test_attach_to_the_trainer_finds_the_server_that_waits_for_it(
    package: Path, server: Server
) -> None:
    trainer = server.train()
    check_ring(ask(package, server.folder, trainer.pid), server)


def test_run_of_the_trainer_alone_sees_the_ring(package: Path, server: Server) -> None:
    ours = [sys.executable, str(package), "run", "--stall", "5", "--run-dir", "run"]
    trainer = server.train(*ours, "--")
    assert trainer.stderr is not None
    assert any(line.startswith("job  ") for line in trainer.stderr)
    check_ring(json.loads((server.folder / "run" / "verdict.json").read_text()), server)
