"""A server that fails while it starts: the process that failed first is named, with its error; not
a worker that ended because its engine did, nor what only reports that another has failed.

vLLM is a stand-in, written from its source: a worker notes its error and ends with status 0, the
engine then ends the others, and the API server says that its engine has failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Start = Callable[..., "subprocess.Popen[str]"]

PACKAGES = Path(__file__).parents[2] / "scenarios" / "scripts" / "packages"
LIMIT = 180.0  # seconds for a job, on a busy machine

WORKER = """
def init_device(rank):
    if rank == 1:
        raise ValueError("shard 2 of the weights has 17 tensors, expected 19")
"""
ENGINE = """
def kv_caches():
    raise ValueError("No available memory for the cache blocks")
"""
ENGINE_KILLED = """
import os, signal, time

def kv_caches():
    time.sleep(12)  # the watch begins to look some seconds after the first rank
    os.kill(os.getpid(), signal.SIGKILL)
"""
API_SERVER = """
def chat_template():
    raise RuntimeError("the chat template has no end")
"""


class Failed(NamedTuple):
    """What the watch says of a server that has failed."""

    status: int
    verdict: dict[str, Any]
    said: str

    @property
    def ended(self) -> list[tuple[str, str]]:
        """The roles of those that are to blame, and how they ended."""
        return [(one["role"], one["ended"]) for one in self.verdict["where"]]


@pytest.fixture
def serve(tmp_path: Path, package: Path, start: Start) -> Callable[..., Failed]:
    for name in ("torch", "zmq", "setproctitle"):
        pytest.importorskip(name)

    def run_server(model: str, *options: str) -> Failed:
        (tmp_path / "model.py").write_text(model)
        words = ("-m", "vllm.entrypoints.openai.api_server", "--model", "model.py", "-tp", "2")
        plain = {name: value for name, value in os.environ.items() if "HANGBISECT_" not in name}
        environ = {**plain, "PYTHONPATH": str(PACKAGES), "OMP_NUM_THREADS": "1"}
        ours = [sys.executable, str(package), "run", "--run-dir", "run", "--"]
        command = [*ours, sys.executable, *words, "--port", "0", *options]
        process = start(*command, cwd=tmp_path, env=environ)
        _, err = process.communicate(timeout=LIMIT)
        file = tmp_path / "run" / "verdict.json"
        return Failed(process.returncode, json.loads(file.read_text()), err)

    return run_server


def test_a_worker_that_notes_its_error_and_ends_well_has_failed(
    serve: Callable[..., Failed],
) -> None:
    found = serve(WORKER)
    assert found.status == 1
    assert found.verdict["outcome"] == "crash", found.said
    assert found.verdict["ranks"]["culprit"] == [1]
    ((role, ended),) = found.ended
    assert role.startswith("Worker_TP1")
    assert ended.startswith("ended by ValueError: shard 2 of the weights")


def test_an_engine_that_fails_is_named_and_not_the_workers_that_it_ends(
    serve: Callable[..., Failed],
) -> None:
    found = serve(ENGINE)
    assert found.status == 1
    assert found.verdict["outcome"] == "crash", found.said
    ((role, ended),) = found.ended
    assert role.startswith("EngineCore")
    assert ended.startswith("ended by ValueError: No available memory")
    assert "\nOK  " not in found.said


def test_an_engine_that_is_killed_is_named(serve: Callable[..., Failed]) -> None:
    found = serve(ENGINE_KILLED)
    assert found.status == 1
    assert found.verdict["outcome"] == "crash", found.said
    ((role, ended),) = found.ended
    assert role.startswith("EngineCore")
    assert ended == "ended by signal 9"
    assert found.verdict["cause"]["id"] == "killed-from-outside"


def test_an_api_server_that_fails_once_its_engine_is_ready_is_named(
    serve: Callable[..., Failed],
) -> None:
    found = serve(API_SERVER)
    assert found.status == 1
    assert found.verdict["outcome"] == "crash", found.said
    ((role, ended),) = found.ended
    assert role == "API server"
    assert ended.startswith("ended by RuntimeError: the chat template has no end")


def test_a_server_that_is_told_to_stop_has_not_failed(serve: Callable[..., Failed]) -> None:
    found = serve("", "--stop-after", "6")
    assert found.status == 0, found.said
    assert found.verdict["outcome"] == "ok", found.said
