"""One of two ranks builds an extension by ninja, and the other waits: slow while the compiler
works, and judged as anything that stands still once it does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from .test_monitor_never_harms import watched
from .verdicts import shown
from .whole_jobs import DEADLINE, Job, Jobs

pytest.importorskip("torch")
if shutil.which("ninja") is None:
    pytest.skip("needs ninja", allow_module_level=True)

TORCHRUN = (str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc_per_node=2")
# Stands in for a compiler that takes its time: it uses a core until the test has seen enough, and
# then makes what it is to.
NVCC = """#!/bin/sh
while [ ! -e ../enough ]; do i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; done
: > "$4"
"""
TRAIN = """
import datetime, os, subprocess
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
if dist.get_rank() == 0:
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(here, "fused_kernels")
    os.mkdir(folder)
    with open(os.path.join(folder, "build.ninja"), "w") as file:
        file.write("rule cuda\\n  command = %s/nvcc -c $in -o $out\\n" % here)
        for name in ("attention", "norm", "rope"):
            open(os.path.join(folder, name + ".cu"), "w").close()
            file.write("build %s.o: cuda %s.cu\\n" % (name, name))
    subprocess.run(["ninja", "-j1"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
dist.barrier()
dist.destroy_process_group()
print("through", flush=True)
"""


def start(jobs_here: Jobs, *watch: str) -> Job:
    folder = jobs_here.folder()
    (folder / "nvcc").write_text(NVCC)
    (folder / "nvcc").chmod(0o755)
    (folder / "train.py").write_text(TRAIN)
    return watched(jobs_here, folder, (*TORCHRUN, str(folder / "train.py")), "--stall", "4", *watch)


def compiler(job: Job) -> psutil.Process:
    """Return the stand-in for nvcc that is at work below a job."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        for one in psutil.Process(job.running.process.pid).children(recursive=True):
            try:
                if one.name() == "nvcc" and one.cpu_times().user > 0.5:
                    return one
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.2)
    raise AssertionError(job.said())


def test_a_rank_that_compiles_is_slow_and_told_with_all_that_is_known(jobs_here: Jobs) -> None:
    job = start(jobs_here, "--on-hang", "end")
    job.until("compiles fused_kernels by ninja", "of 3 files", "by nvcc", "irst to give up: rank 1")
    pid = psutil.Process(compiler(job).pid).parents()[1].pid  # ninja's parent: rank 0
    words = (sys.executable, "-m", "bisect", "attach", str(pid), "--run-dir", job.folder / "seen")
    seen = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    (job.folder / "enough").touch()
    ended = job.end()
    assert "HANG  " not in ended.err, shown(ended)
    assert "SILENT  " not in ended.err, shown(ended)
    assert (ended.verdict["outcome"], ended.status) == ("ok", 0)
    assert seen.stdout.startswith("SLOW  "), seen.stdout + seen.stderr
    assert seen.returncode == 0
    for told in ("compiles  rank 0 compiles fused_kernels by ninja", "its operation of gloo"):
        assert told in seen.stdout


def test_a_compiler_that_is_stopped_is_no_slow_one(jobs_here: Jobs) -> None:
    job = start(jobs_here)
    stopped = compiler(job)
    os.kill(stopped.pid, signal.SIGSTOP)
    said = job.until("still running, still watched")
    os.kill(stopped.pid, signal.SIGCONT)
    assert "HANG  " in said or "SILENT  " in said
    assert "stopped" in said
    assert "culprit   rank 0" in said
    (job.folder / "enough").touch()
    assert job.end().status == 0
