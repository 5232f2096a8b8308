"""A real library, preloaded into ranks, in whose function one of them hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Start

LIMIT = 120.0  # seconds
HOOK = """
#include <pthread.h>
#include <sys/socket.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int connect(int one, const struct sockaddr *to, socklen_t size) {
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
    return 0;
}
"""
HARMLESS = "int hangbisect_test_is_here(void) { return 1; }\n"
LAUNCHER = """
import os, subprocess, sys
own = [{"RANK": str(n), "LOCAL_RANK": str(n)} for n in range(2)]
own[1]["LD_PRELOAD"] = sys.argv[2]
run = {"TORCHELASTIC_RUN_ID": sys.argv[3], "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
command = [sys.executable, sys.argv[1]]
ranks = [subprocess.Popen(command, env={**os.environ, **run, **one}) for one in own]
ranks[0].wait()
"""
SCRIPT = """
import fcntl, os, pathlib, socket, time
here, rank = pathlib.Path(__file__).parent, os.environ["RANK"]
lock = open(here / "lock", "w")
while rank == "0" and not (here / "ready-1").exists():
    time.sleep(0.05)
if rank == "0":
    (here / "ready-0").touch()
fcntl.flock(lock, fcntl.LOCK_EX)
with socket.create_server(("127.0.0.1", 0)) as server:
    (here / "ready-1").touch()
    one = socket.create_connection(server.getsockname())
    one.recv(1)
"""


def attach(start: Start, folder: Path, source: str) -> dict[str, Any]:
    """Return the verdict on two ranks, one of them with a library of this source."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (folder / "hook.c").write_text(source)
    library = folder / "libhook.so"
    build = ["gcc", "-shared", "-fPIC", "-o", str(library), str(folder / "hook.c")]
    subprocess.run(build, check=True, timeout=LIMIT)
    (folder / "torchrun").write_text(LAUNCHER)
    (folder / "train.py").write_text(SCRIPT)
    words = (sys.executable, folder / "torchrun", folder / "train.py", library, os.urandom(4).hex())
    process = start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT
    while not all((folder / f"ready-{rank}").exists() for rank in range(2)):
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(1.0)  # from the file to the call
    command = [sys.executable, "-m", "bisect", "attach", str(process.pid), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
    assert ended.returncode in (3, 4), ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_rank_that_hangs_in_a_preloaded_function_is_told_which(
    start: Start, tmp_path: Path
) -> None:
    verdict = attach(start, tmp_path, HOOK)
    assert verdict["ranks"]["culprit"] == [1]
    assert verdict["cause"]["id"] == "preloaded-library", verdict
    assert "connect (libhook.so)" in verdict["cause"]["why"]
    assert verdict["cause"]["level"] == "fits"


def test_a_preloaded_library_that_does_nothing_is_not_blamed(start: Start, tmp_path: Path) -> None:
    verdict = attach(start, tmp_path, HARMLESS)
    assert "libhook" not in json.dumps(verdict["cause"])
