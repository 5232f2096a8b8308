"""Which processes are one job: real ones, found as `hangbisect attach` without arguments does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE = 60.0
Start = Callable[..., subprocess.Popen[str]]

# What all Pythons of a job have: torch, as far as one can tell from outside.
TORCH = """
import mmap, os, sys, time
with open(sys.argv[1], "rb") as file:
    torch = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""
TRAIN = {
    "alone": "pids = []",
    "forked": """
pids = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        time.sleep(3600)
    pids.append(pid)
""",
    "spawned": """
import subprocess
child = [sys.executable, "-c", "{torch}" + "time.sleep(3600)", sys.argv[1]]
pids = [subprocess.Popen(child).pid for _ in range(2)]
""",
    "grandchildren": """
pids = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        pids = [os.fork()]
        time.sleep(3600)
    pids.append(pid)
""",
}
RANKS = """
import os, subprocess, sys
run = {"TORCHELASTIC_RUN_ID": sys.argv[3], "WORLD_SIZE": "2", "MASTER_PORT": "1"}
for rank in range(2):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", **run}
    words = [sys.executable, sys.argv[2], sys.argv[1]]
    started = subprocess.Popen(words, env={**os.environ, **own})
started.wait()
"""
FIND = """
import asyncio, importlib, json, runpy, sys
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
from hangbisect.attach.job_search import find_jobs
from hangbisect.attach.processes import processes_below
found = asyncio.run(find_jobs())
roots = set(map(int, sys.argv[2:]))
family = roots | processes_below(found.processes, roots)
jobs = [job for job in found.jobs if job.pids & family]
print(json.dumps([[sorted(job.pids & roots), len(job.ranks)] for job in jobs]))
"""


def start_script(
    start: Start, tmp_path: Path, kind: str, name: str = "train.py"
) -> subprocess.Popen[str]:
    """Start a script and wait until all of it is there."""
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"torch" * 1000)
    body = TRAIN[kind].replace("{torch}", TORCH.replace("\n", "\\n").replace('"', '\\"'))
    script = tmp_path / name
    script.write_text(
        f"{TORCH}{body}\ntime.sleep(1)\nprint(os.getpid(), flush=True)\ntime.sleep(3600)\n"
    )
    process = start(sys.executable, str(script), str(library))
    assert process.stdout is not None
    process.stdout.readline()
    return process


def jobs_of(start: Start, checkout: Path, *pids: int) -> list[tuple[list[int], int]]:
    """Return the jobs that these processes are in, of all of this machine: the pids, the ranks."""
    finder = start(sys.executable, "-c", FIND, str(checkout), *map(str, pids))
    said, complaint = finder.communicate(timeout=DEADLINE)
    assert complaint == ""
    return [(whose, ranks) for whose, ranks in json.loads(said)]


@pytest.mark.parametrize("kind", TRAIN)
def test_a_script_and_what_it_has_forked_or_spawned_is_one_job(
    start: Start, checkout: Path, tmp_path: Path, kind: str
) -> None:
    script = start_script(start, tmp_path, kind)
    assert jobs_of(start, checkout, script.pid) == [([script.pid], 1)]


def test_two_scripts_are_two_jobs(start: Start, checkout: Path, tmp_path: Path) -> None:
    scripts = [start_script(start, tmp_path, "forked", f"{name}.py") for name in "ab"]
    found = jobs_of(start, checkout, *(one.pid for one in scripts))
    assert sorted(found) == sorted([([one.pid], 1) for one in scripts])


def test_a_script_is_a_job_beside_a_rank_whose_starter_has_ended(
    start: Start, checkout: Path, tmp_path: Path
) -> None:
    script = start_script(start, tmp_path, "alone")
    rank = "RANK=2 WORLD_SIZE=4 MASTER_PORT=1 MASTER_ADDR=127.0.0.1 exec"
    left = f"({rank} {sys.executable} {tmp_path / 'train.py'} {tmp_path / 'libtorch_cpu.so'})"
    shell = start("sh", "-c", f"{left} > {tmp_path / 'said'} 2>&1 & echo $!")
    orphan = int(shell.communicate(timeout=DEADLINE)[0])
    try:
        found = jobs_of(start, checkout, script.pid, orphan)
    finally:
        os.kill(orphan, signal.SIGKILL)
    assert sorted(found) == sorted([([script.pid], 1), ([orphan], 1)])


def test_two_ranks_with_workers_are_one_job(start: Start, checkout: Path, tmp_path: Path) -> None:
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"torch" * 1000)
    (tmp_path / "rank.py").write_text(
        # In one write, for both ranks have the same pipe: print() without a buffer makes two.
        f"{TORCH}{TRAIN['forked']}\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(3600)\n"
    )
    launcher = start(
        *(sys.executable, "-c", RANKS, str(library), str(tmp_path / "rank.py"), tmp_path.name)
    )
    assert launcher.stdout is not None
    ranks = [int(launcher.stdout.readline()) for _ in range(2)]
    found = jobs_of(start, checkout, launcher.pid, *ranks)
    assert [ranks for _, ranks in found] == [2]
    assert set(ranks) <= set(found[0][0])
