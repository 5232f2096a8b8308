"""Real event loops that wait: which task awaits what, read from outside by the job's own Python."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.evidence.look import Target, take_looks

from ..conftest import Start
from ..other_pythons import interpreter

DEADLINE = 60.0
LOST = """
import asyncio

async def fetch(future):
    await future

async def main():
    future = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(fetch(future), name="load shards")
    print("now", flush=True)
    await task

asyncio.run(main())
"""
RING = """
import asyncio

async def one():
    await asyncio.sleep(0)
    await tasks[1]

async def two():
    await tasks[0]

async def main():
    global tasks
    tasks = [asyncio.create_task(one(), name="reads"), asyncio.create_task(two(), name="writes")]
    print("now", flush=True)
    await asyncio.wait(tasks)

asyncio.run(main())
"""


def look_at_loop(start: Start, folder: Path, script: str) -> Look:
    """Return a look at a script once its tasks are known."""
    python = interpreter("3.14") or pytest.skip("there is no Python 3.14 here")
    (folder / "serve.py").write_text(script)
    process = start(python, folder / "serve.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    end = time.monotonic() + DEADLINE
    while True:
        (seen,) = asyncio.run(take_looks([Target(process.pid)], limit=10.0))
        if seen.tasks or seen.task_ring or time.monotonic() > end:
            return seen
        time.sleep(0.1)


def test_the_task_that_awaits_what_was_lost_is_named(start: Start, tmp_path: Path) -> None:
    seen = look_at_loop(start, tmp_path, LOST)
    (shards,) = [task for task in seen.tasks if not task.awaits]
    assert shards.name == "load shards"
    assert [(f.name, f.file, f.line) for f in shards.frames] == [
        ("fetch", str(tmp_path / "serve.py"), 5)
    ]


def test_tasks_that_await_one_another_are_a_ring(start: Start, tmp_path: Path) -> None:
    seen = look_at_loop(start, tmp_path, RING)
    assert set(seen.task_ring) == {"reads", "writes"}
    assert seen.tasks == ()
