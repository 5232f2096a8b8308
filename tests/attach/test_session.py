"""A job of two real processes is looked at, judged and ended: a launcher that starts what it
calls ranks as torchrun does, and no library.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hangbisect.attach.job_search import FoundJobs, find_jobs
from hangbisect.attach.jobs import Job
from hangbisect.attach.node_messages import (
    MessageReader,
    put_together,
    read_summary,
)
from hangbisect.attach.nodes import PACKAGE
from hangbisect.attach.session import AttachRequest, attach_to_job
from hangbisect.base.proc import read_stat
from hangbisect.link.look_summary import read_stacks

Start = Callable[..., subprocess.Popen[str]]
DEADLINE = 60.0  # seconds
# Sets what torchrun sets (tests/real/light), each rank in a session of its own.
LAUNCHER = Path(__file__).parents[1] / "real" / "light" / "torchrun"
TRAIN = """
import fcntl, os, socket, sys, time

def gather(connection):
    return connection.recv(100)

def load(path):
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)

def save():
    while True:
        os.write(null, bytes(1 << 16))
        time.sleep(0.01)

null = os.open("/dev/null", os.O_WRONLY)

address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(address)
    connection = server.accept()[0]
    print("ready", flush=True)
    if sys.argv[1] == "works":
        save()
    gather(connection)
else:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            connection = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.02)
    if sys.argv[1] == "works":
        save()
    load(sys.argv[2])
"""


def begin(start: Start, folder: Path, *words: object) -> tuple[FoundJobs, Job]:
    """Start the job, and find it by its launcher once both ranks have met."""
    script = folder / "train.py"
    script.write_text(TRAIN)
    # Its parent goes: what a process has started itself it takes for a part of its own work.
    command = (sys.executable, LAUNCHER, 2, sys.executable, script, *words)
    shell = start("sh", "-c", '"$@" & echo $!', "sh", *command)
    assert shell.stdout is not None
    said = [shell.stdout.readline() for _ in range(2)]
    said.remove("ready\n")
    shell.wait(DEADLINE)
    found = asyncio.run(find_jobs([int(said[0])]))
    (job,) = found.jobs
    return found, job


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A file whose lock this process has."""
    path = tmp_path / "cache.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def test_a_rank_that_waits_for_a_lock_of_another_process_is_named_and_the_job_is_ended(
    start: Start, tmp_path: Path, held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, job = begin(start, tmp_path, "hangs", held)
    assert [rank.number for rank in job.ranks] == [0, 1]
    assert (job.world, job.whole, job.watched) == (2, True, None)

    run_dir = tmp_path / "run"
    request = AttachRequest(0.5, run_dir, ends=True, answers=True)
    asyncio.run(attach_to_job(found, job, request))
    out, told = capsys.readouterr()
    verdict = json.loads(out)
    assert verdict["outcome"] in ("hang", "silent")
    assert verdict["ranks"]["culprit"] == [1]
    assert verdict["ranks"]["waiting"] == [0]
    # The kernel says who has the lock: this process.
    waits = verdict["waits_for"]
    assert str(held) in json.dumps(waits)
    assert str(os.getpid()) in json.dumps(waits)
    (place,) = verdict["where"]
    assert (place["rank"], place["pid"]) == (1, job.ranks[1].pid)
    assert json.loads((run_dir / "verdict.json").read_text())["ranks"] == verdict["ranks"]
    texts = [one.read_text() for one in run_dir.rglob("*.txt")]
    assert any("gather (train.py:" in text for text in texts)

    assert f"Looking at {job.pid} (2 ranks)" in told
    ended = next(line for line in told.splitlines() if line.startswith("Ended: "))
    pids = {job.pid, *(rank.pid for rank in job.ranks)}
    assert {int(pid) for pid in ended.removeprefix("Ended: ").split(", ")} == pids
    end = time.monotonic() + DEADLINE
    while any((about := read_stat(pid)) and about.state not in "ZX" for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)


LATE = """
import os, runpy, sys, time

while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
del sys.argv[1]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_ranks_that_start_while_their_launcher_is_looked_at_are_looked_at_instead(
    start: Start, tmp_path: Path, held: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A launcher imports torch first. Once there are ranks it is to blame for nothing."""
    script, launcher, begins = tmp_path / "train.py", tmp_path / "torchrun", tmp_path / "begins"
    script.write_text(TRAIN)
    launcher.write_text(LATE)
    command = (sys.executable, launcher, begins, LAUNCHER, 2, sys.executable, script, "hangs", held)
    shell = start("sh", "-c", '"$@" & echo $!', "sh", *command)
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    shell.wait(DEADLINE)
    found = asyncio.run(find_jobs([pid]))
    (job,) = found.jobs
    assert job.ranks == ()

    begins.touch()
    request = AttachRequest(2.1, tmp_path / "run", ends=True, answers=True)
    asyncio.run(attach_to_job(found, job, request))
    out, told = capsys.readouterr()
    verdict = json.loads(out)
    assert "has started ranks by now" in told
    assert verdict["ranks"]["culprit"] == [1], verdict
    assert verdict["component"] != "launcher"


def test_a_job_that_writes_is_said_to_move_and_is_not_ended(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, job = begin(start, tmp_path, "works")
    asyncio.run(attach_to_job(found, job, AttachRequest(span=0.5, ends=True)))
    out, told = capsys.readouterr()
    assert "culprit" not in out
    assert "hang" not in out.partition("\n")[0].lower()
    assert "It moves, so it was not ended" in told
    for rank in job.ranks:
        about = read_stat(rank.pid)
        assert about is not None
        assert about.state not in "ZX"


def test_this_machine_answers_who_asks_in_two_steps_and_ends_the_job_when_told(
    start: Start, tmp_path: Path, held: Path
) -> None:
    """It looks when it is told to, tells its stacks by a hash and then in full, and ends itself
    with its input.
    """
    _, job = begin(start, tmp_path, "hangs", held)
    command = (sys.executable, PACKAGE, "attach", "--answer", "--for=0.5", str(job.pid))
    node = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert node.stdin is not None
    assert node.stdout is not None
    orders, answers = node.stdin, node.stdout

    def tell(**order: object) -> None:
        orders.write(json.dumps(order) + "\n")
        orders.flush()

    reader = MessageReader()

    def hear() -> dict[str, Any]:
        for line in answers:
            if (said := reader.take(line.encode())) is not None:
                return said[1]
        raise AssertionError("it told nothing more")

    assert hear() == {"is": "ready", "ranks": 2, "clock": True}
    tell(**{"is": "clock"})
    shown = hear()
    assert shown["at"] <= time.monotonic()
    tell(**{"is": "look", "at": {"": shown["at"] + 1.0}})
    heard = read_summary(hear())
    tell(**{"is": "details", "of": {"": {"stacks": sorted(heard.looks.stacks), "pids": []}}})
    facts = put_together(heard, read_stacks(hear()["stacks"]), {})
    assert [one.rank for one in facts.ranks] == [0, 1]
    assert (facts.world, facts.launcher) == (2, None)  # it has ranks, and is none of them
    looks = facts.ranks[1].looks
    assert len(looks) >= 2
    assert looks[0].at >= shown["at"] + 1.0
    names = [one.name for one in looks[-1].threads[0].frames if not one.native]
    assert names == ["load", "<module>"]
    assert facts.ranks[1].environment["RANK"] == "1"
    tell(**{"is": "end"})
    ended = hear()
    assert {rank.pid for rank in job.ranks} <= {*ended["ended"]}
    assert ended["left"] == []
    node.communicate(timeout=DEADLINE)  # closes its input
    assert node.returncode == 0
