"""What a rank waits for inside of itself: a circle of its threads, a pipe whose writer is gone, a
file that is a lock. Each beside a job that only looks like it and ends well.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from .test_monitor_never_harms import events, launch, watched
from .verdicts import shown
from .whole_jobs import Jobs

# Rank 1 has the lock of Python's and that on the file, by two threads, which want both.
CIRCLE = """
import contextlib, fcntl, os, sys, threading, time

@contextlib.contextmanager
def device(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

class Stage:
    def __init__(self):
        self._lock = threading.Lock()
        self.both = threading.Barrier(2)

    def load(self):
        with self._lock:
            self.both.wait()
            with device("gpu0.lock"):
                pass

    def start(self):
        with device("gpu0.lock"):
            self.both.wait()
            time.sleep(float(sys.argv[1]))
            if sys.argv[1] == "0":
                with self._lock:
                    pass

if os.environ["RANK"] == "1":
    stage = Stage()
    threads = [threading.Thread(target=one, name=one.__name__) for one in (stage.load, stage.start)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done", flush=True)
"""
# The same over two processes: rank 1 has another file, and no thread.
OVER_TWO = """
import contextlib, fcntl, os, threading, time

@contextlib.contextmanager
def locked(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

STATE = threading.Lock()
both = threading.Barrier(2)

def until(name):
    while not os.path.exists(name):
        time.sleep(0.05)

def load():
    with STATE:
        both.wait()
        until("index-taken")
        with locked("index.lock"):
            pass

def start():
    with locked("gpu0.lock"):
        open("gpu-taken", "w").close()
        both.wait()
        with STATE:
            pass

if os.environ["RANK"] == "0":
    threads = [threading.Thread(target=one, name=one.__name__) for one in (load, start)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    with locked("index.lock"):
        open("index-taken", "w").close()
        until("gpu-taken")
        with locked("gpu0.lock"):
            pass
"""
# Rank 1 reads what a helper is to write; a process that the helper has forked, and the rank itself,
# have the writing end too.
SIDECAR = """
import os, subprocess, sys, threading, time
HELPER = '''
import os, signal, sys, time
end, seconds = int(sys.argv[1]), float(sys.argv[2])
if seconds == 0:
    if os.fork() == 0:
        time.sleep(300)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(seconds)
os.write(end, b"result")
'''
results = []

def read(end):
    results.append(os.read(end, 100))

if os.environ["RANK"] == "1":
    reader, writer = os.pipe()
    words = [sys.executable, "-c", HELPER, str(writer), sys.argv[1]]
    helper = subprocess.Popen(words, pass_fds=[writer])
    # Another one that is done, and that nobody has asked for its status.
    done = subprocess.Popen(["true"])
    thread = threading.Thread(target=read, args=(reader,))
    thread.start()
    thread.join()
print("done", flush=True)
"""
POLLS = """
import os, time

class Baton:
    def __init__(self, path):
        self.path = path

    def take(self):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False

    def wait(self):
        while os.path.exists(self.path):
            time.sleep(0.1)

def build(folder):
    baton = Baton(os.path.join(folder, "lock"))
    if not baton.take():
        baton.wait()

if os.environ["RANK"] == "1":
    build(os.path.abspath("build"))
print("done", flush=True)
"""
# Makes the lock file, works below it for a while, and removes it.
OWNS = """
import os, pathlib, sys, time
pathlib.Path("build").mkdir(exist_ok=True)
lock = pathlib.Path("build/lock")
lock.write_text(str(os.getpid()))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pathlib.Path("build/out").write_bytes(os.urandom(1 << 20))
    time.sleep(0.1)
lock.unlink()
"""


def verdict_of(jobs_here: Jobs, script: str, *, seconds: float = 0) -> Any:
    """Return the verdict on a script that hangs, which the watch has ended."""
    folder = jobs_here.folder()
    command = launch(folder, script, 2, seconds)
    ended = watched(jobs_here, folder, command, "--stall", "5", "--on-hang", "end").end()
    assert ended.verdict["outcome"] == "hang", shown(ended)
    return ended.verdict


def goes_well(jobs_here: Jobs, folder: Path, script: str, before: str = "") -> None:
    command = launch(folder, script, 2, 15)
    ended = watched(jobs_here, folder, command, "--stall", "4", before=before).end()
    assert ended.status == 0, shown(ended)
    assert ended.out.count("done") == 2
    assert "HANG" not in ended.err, shown(ended)


def test_a_circle_of_a_lock_of_pythons_and_one_on_a_file_is_a_deadlock(jobs_here: Jobs) -> None:
    verdict = verdict_of(jobs_here, CIRCLE)
    assert verdict["ranks"]["culprit"] == [1]
    assert (verdict["cause"]["id"], verdict["cause"]["level"]) == ("deadlock", "fits")
    told = " ".join([verdict["cause"]["why"], *verdict["cause"]["matched"]])
    for words in ("self._lock", "gpu0.lock", "thread load", "thread start", "train.py:"):
        assert words in told, told
    assert verdict["chain"][-1]["target"] in [edge["source"] for edge in verdict["chain"]]


def test_a_circle_over_two_processes_is_one_too(jobs_here: Jobs) -> None:
    verdict = verdict_of(jobs_here, OVER_TWO)
    assert verdict["cause"]["id"] == "deadlock"
    assert verdict["ranks"]["culprit"] == [0, 1]
    for words in ("STATE", "gpu0.lock", "index.lock", "rank 1"):
        assert words in verdict["cause"]["why"], verdict["cause"]


def test_a_thread_that_has_both_locks_and_works_is_none(jobs_here: Jobs) -> None:
    goes_well(jobs_here, jobs_here.folder(), CIRCLE)


def test_a_pipe_whose_writer_is_dead_names_who_keeps_it_open(jobs_here: Jobs) -> None:
    verdict = verdict_of(jobs_here, SIDECAR)
    assert verdict["ranks"]["culprit"] == [1]
    assert verdict["cause"]["id"] == "pipe-writer-gone"
    told = " ".join([verdict["cause"]["why"], *verdict["cause"]["matched"]])
    for words in ("the reader itself as descriptor", "SIGKILL"):
        assert words in told, told


def test_a_pipe_whose_child_still_works_is_waited_for(jobs_here: Jobs) -> None:
    goes_well(jobs_here, jobs_here.folder(), SIDECAR)


def test_a_lock_file_of_nobody_is_told_with_its_path(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    lock = folder / "build" / "lock"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (time.time() - 172800,) * 2)
    job = watched(jobs_here, folder, launch(folder, POLLS, 2, 0), "--stall", "5")
    job.until("SILENT  ")
    job.until("try  ")
    lock.unlink()
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert f"rm {lock}" in ended.err, shown(ended)
    assert "lock-file-without-owner" in ended.err
    assert events(folder, "verdict")[0]["outcome"] == "silent"


def test_a_lock_file_whose_owner_writes_is_waited_for(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    (folder / "owns.py").write_text(OWNS, encoding="utf-8")
    before = (
        f"setsid {sys.executable} owns.py 15 > /dev/null 2>&1 & "
        "while [ ! -s build/lock ]; do sleep 0.1; done;"
    )
    goes_well(jobs_here, folder, POLLS, before)
