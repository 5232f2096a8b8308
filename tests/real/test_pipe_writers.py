"""A process that reads what nobody will write: a real one and its real worker, each of which waits
for the other; and the same pair while a thread of the worker is still to write.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Start
from .test_attach import LIMIT

# The task never went to the worker. Both have both ends of both pipes, as after every fork.
LOST_TASK = """
import multiprocessing, sys, threading, time
fork = multiprocessing.get_context("fork")
tasks, results = fork.Pipe(duplex=False), fork.Pipe(duplex=False)

def answer_later():
    time.sleep(1000)
    results[1].send("done")

def work():
    if sys.argv[1] == "later":
        threading.Thread(target=answer_later, daemon=True).start()
    print("now", flush=True)
    tasks[0].recv()

fork.Process(target=work, daemon=True).start()
results[0].recv()
"""


@pytest.mark.parametrize(("kind", "status"), [("never", 3), ("later", 4)])
def test_a_worker_without_a_task_and_who_waits_for_its_result(
    start: Start, tmp_path: Path, kind: str, status: int
) -> None:
    """It is a hang (3) only where nobody is left to write; else it may be silent (4)."""
    script = tmp_path / "train.py"
    script.write_text(LOST_TASK)
    process = start(sys.executable, script, kind)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    command = [sys.executable, "-m", "bisect", "attach", str(process.pid)]
    ended = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    verdict: dict[str, Any] = json.loads((tmp_path / "run" / "verdict.json").read_text())
    is_ring = verdict["cause"] is not None and verdict["cause"]["id"] == "deadlock"
    assert is_ring == (kind == "never")
