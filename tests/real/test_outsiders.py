"""A rank waits for a lock that a process of somebody else has: while that one works, the lock is
about to be freed; where it does nothing either, the rank is silent.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from .test_monitor_never_harms import events, launch, watched
from .verdicts import shown
from .whole_jobs import Jobs

HOLDS = """
import fcntl, hashlib, pathlib, sys, time
lock = open("the.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
pathlib.Path("held").touch()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    if sys.argv[1] == "works":
        with open("built", "ab") as file:
            file.write(hashlib.sha256(bytes(1 << 20)).digest() * 1024)
    else:
        time.sleep(0.5)
"""
LOCKS = """
import fcntl, os, time
while not os.path.exists("held"):
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    fcntl.flock(open("the.lock", "w"), fcntl.LOCK_EX)
print("done", flush=True)
"""


def start(jobs_here: Jobs, how: str, seconds: float) -> tuple[Path, str]:
    folder = jobs_here.folder()
    (folder / "holds.py").write_text(HOLDS, encoding="utf-8")
    words = shlex.join([sys.executable, "holds.py", how, str(seconds)])
    return folder, f"setsid {words} > /dev/null 2>&1 &"


def test_a_lock_whose_holder_works_is_waited_for_without_a_word(jobs_here: Jobs) -> None:
    folder, before = start(jobs_here, "works", 20.0)
    command = launch(folder, LOCKS, 2, 0)
    ended = watched(jobs_here, folder, command, "--stall", "4", before=before).end()
    assert ended.status == 0, shown(ended)
    assert "SILENT" not in ended.err, shown(ended)
    assert "HANG" not in ended.err


def test_one_whose_holder_only_sleeps_is_told_and_taken_back(jobs_here: Jobs) -> None:
    folder, before = start(jobs_here, "sleeps", 20.0)
    command = launch(folder, LOCKS, 2, 0)
    ended = watched(jobs_here, folder, command, "--stall", "4", before=before).end()
    assert ended.status == 0, shown(ended)
    assert next(e["outcome"] for e in events(folder, "verdict")) == "silent", shown(ended)
    assert "culprit   rank 1" in ended.err
    assert "python" in ended.err.partition("rank 1 -> ")[2].partition("\n")[0], shown(ended)
