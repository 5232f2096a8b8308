"""A job whose ranks look alike, and whose watchdogs wrote to files which of them is behind: real
processes, judged by `hangbisect attach` and below `hangbisect run`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jobs
import pytest

from ..dumps.watchdog_texts import signalled, timed_out
from .verdicts import check, shown
from .whole_jobs import LIGHT, Jobs

LIMIT = 120.0
# Each rank waits for a lock of its own, as all do: nothing of where they stand tells them apart.
PROGRAM = """
import os, pathlib, sys, threading, time
folder, rank = pathlib.Path(__file__).parent, os.environ["RANK"]
log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 2)
time.sleep(1.1)  # the watchdog speaks in whole seconds, after the start
now = time.strftime("%m%d %H:%M:%S.", time.localtime()).removeprefix("0")
for line in (folder / f"{rank}.said").read_text().splitlines():
    start, _, rest = line.partition("321 02:07:")
    print(start + now + rest.partition(".")[2] if rest else line, file=sys.stderr, flush=True)
(folder / f"{rank}.ready").touch()
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def write_program(jobs_here: Jobs, program: str) -> Path:
    """Return a folder with a program of four ranks, and what each is to say: rank 2 is behind."""
    folder = jobs_here.folder()
    (folder / "train.py").write_text(program)
    for rank in range(4):
        said = signalled(rank, 40, 40) if rank == 2 else timed_out(rank, 41, 43)
        (folder / f"{rank}.said").write_text("\n".join(said))
    return folder


def test_who_is_behind_by_the_watchdogs_is_named_by_run(jobs_here: Jobs) -> None:
    """The watch takes for ranks what makes a group, so they make one, of gloo."""
    pytest.importorskip("torch")
    group = "import torch.distributed\ntorch.distributed.init_process_group('gloo')\n"
    folder = write_program(jobs_here, PROGRAM.replace("lock = thr", f"{group}lock = thr"))
    watch = ("--run-dir", str(folder / "run"), "--stall", "8", "--on-hang", "end")
    launcher = (sys.executable, str(LIGHT), "4", sys.executable, str(folder / "train.py"))
    command = (sys.executable, "-m", "bisect", "run", *watch, "--", *launcher)
    running = jobs.Running(command, folder, jobs.clean_environ())
    ended = jobs_here.add(running, folder).end()
    check(ended, "hang", culprit=[2])
    assert ended.verdict["ranks"]["waiting"] == [0, 1, 3], shown(ended)


def test_who_is_behind_by_the_watchdogs_is_named_by_attach(jobs_here: Jobs) -> None:
    folder = write_program(jobs_here, PROGRAM)
    launcher = subprocess.Popen(
        [sys.executable, str(LIGHT), "4", sys.executable, str(folder / "train.py")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + LIMIT
        while not all((folder / f"{rank}.ready").exists() for rank in range(4)):
            assert time.monotonic() < end
            time.sleep(0.05)
        words = ("-m", "bisect", "attach", str(launcher.pid), "--run-dir", str(folder / "run"))
        told = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env=dict(os.environ),
        )
    finally:
        launcher.terminate()
        launcher.wait(LIMIT)
    assert "culprit   rank 2 " in told.stdout, told.stdout + told.stderr
    assert "waiting   ranks 0-1,3, rank 0 in all_reduce for rank 2" in told.stdout, told.stdout
