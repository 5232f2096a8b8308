"""A rank waits for a lock that a process of somebody else has: while that one works, the lock is
about to be freed; where it does nothing either, the rank is silent.
"""

from __future__ import annotations

import shlex
import sys
import time

from .test_monitor_never_harms import enough, events, launch, watched
from .verdicts import shown
from .whole_jobs import Job, Jobs

HOLDS = """
import fcntl, hashlib, os, pathlib, sys, time
lock = open("the.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
pathlib.Path("held").touch()
end = time.monotonic() + 200
while not os.path.exists("enough") and time.monotonic() < end:
    if sys.argv[1] == "works":
        with open("built", "ab") as file:
            file.write(hashlib.sha256(bytes(1 << 20)).digest() * 1024)
        time.sleep(0.02)
    else:
        time.sleep(0.1)
"""
LOCKS = """
import fcntl, os, time
while not os.path.exists("held"):
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    fcntl.flock(open("the.lock", "w"), fcntl.LOCK_EX)
print("done", flush=True)
"""


def start(jobs_here: Jobs, how: str) -> Job:
    folder = jobs_here.folder()
    (folder / "holds.py").write_text(HOLDS, encoding="utf-8")
    before = f"setsid {shlex.join([sys.executable, 'holds.py', how])} > /dev/null 2>&1 &"
    command = launch(folder, LOCKS, 2, 0)
    return watched(jobs_here, folder, command, "--stall", "4", before=before)


def test_a_lock_whose_holder_works_is_waited_for_and_one_whose_holder_sleeps_is_told(
    jobs_here: Jobs,
) -> None:
    """The first is held for longer than it takes to tell of the second, and without a word."""
    works, sleeps = start(jobs_here, "works"), start(jobs_here, "sleeps")
    sleeps.until("SILENT  ")
    time.sleep(5.0)
    told, quiet = enough(sleeps), enough(works)
    assert quiet.status == 0, shown(quiet)
    assert "SILENT" not in quiet.err, shown(quiet)
    assert "HANG" not in quiet.err
    assert told.status == 0, shown(told)
    found = events(sleeps.folder, "verdict")
    assert next(e["outcome"] for e in found) == "silent", shown(told)
    assert "culprit   rank 1" in told.err
    assert "python" in told.err.partition("rank 1 -> ")[2].partition("\n")[0], shown(told)
