"""`hangbisect matrix --ray`: tasks of a real Ray, where that is installed (`pip install ray`)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import jobs
import jsonschema
import pytest
from script_jobs import free_port

from .test_matrix import record, results, start
from .test_matrix_slurm import THREE_CELLS, WAITS, wait_for
from .verdicts import schema, shown
from .whole_jobs import DEADLINE, Job, Jobs

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="no Ray is installed here")
Start = Callable[..., Job]


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray of one node, with two cores to give."""
    port = free_port()
    start = (str(Path(sys.executable).with_name("ray")), "start", "--head", "--block")
    options = (f"--port={port}", "--num-cpus=2", "--include-dashboard=false")
    running = subprocess.Popen(
        (*start, *options, "--node-ip-address=127.0.0.1"),
        env={**jobs.clean_environ(), "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + DEADLINE
        while not is_listening(port):
            assert time.monotonic() < end, "no Ray begins to listen"
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()  # and not `ray stop`, which ends all of this machine's
        running.wait(DEADLINE)


@pytest.fixture
def queue(cluster: str, jobs_here: Jobs) -> Start:
    """Queue a matrix of a scenario."""

    def queued(scenario: str, *words: str, folder: Path | None = None) -> Job:
        return start(jobs_here, scenario, *words, "--ray", folder=folder, RAY_ADDRESS=cluster)

    return queued


def test_tasks_run_the_cells_and_one_table_has_all_results(queue: Start) -> None:
    job = queue(THREE_CELLS, "mine.yaml", "--run-dir", "run")
    ended = job.end()
    assert results(job.folder) == {
        "before": "ok",
        "hangs": "hang",
        "no launcher": "not started",
    }, shown(ended)
    assert ended.status == 3
    jsonschema.validate(record(job.folder), schema("matrix"))
    where = {cell["name"]: cell["where"] for cell in record(job.folder)["cells"]}
    assert "in time.sleep, rank 1" in where["hangs"]
    assert ended.clean, shown(ended)


def test_an_interruption_ends_the_tasks_and_resume_goes_on(queue: Start) -> None:
    job = queue(WAITS, "mine.yaml", "--run-dir", "run", "--jobs", "1")
    wait_for(job.folder / "began-one")
    os.kill(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.status == 130, shown(ended)
    assert set(results(job.folder).values()) == {"interrupted"}
    assert not (job.folder / "began-two").exists()
    assert ended.clean, shown(ended)
    (job.folder / "enough").touch()
    again = queue(WAITS, "--resume", "run", folder=job.folder).end()
    assert results(job.folder) == {"one": "ok", "two": "ok"}, shown(again)


def test_where_no_ray_answers_that_is_said(jobs_here: Jobs) -> None:
    words = ("mine.yaml", "--run-dir", "run", "--ray")
    job = start(jobs_here, WAITS, *words, RAY_ADDRESS=f"127.0.0.1:{free_port()}")
    ended = job.end()
    assert ended.status == 1, shown(ended)
    assert "no Ray cluster answers" in ended.err
    assert record(job.folder)["complete"] is False
