"""Healthy jobs that stand still for a while: how often that is called a hang, over how long it was.

Two light ranks under `hangbisect run --on-hang end`. Rank 1 waits in one of several ways for
something that comes after a time that is drawn from 5 to 300 s, log-uniform; rank 0 polls for it.
Right is whatever ends well: nothing said, or SILENT and taken back. HANG, and a job that was
ended, are wrong; so is where nothing was said of a wait of which silence is all that can be known,
which was longer than --stall. A table of kinds of waits over how long they lasted.

    python benchmarks/silences.py [--jobs 100] [--beside 12] [--least 5] [--most 300]
                                  [--stall 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

RANKS = """
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "train.py", *sys.argv[1:]],
                          env={**__import__("os").environ, "RANK": str(r), "LOCAL_RANK": str(r),
                               "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}) for r in (0, 1)]
sys.exit(max(abs(one.wait()) for one in ranks))
"""
TRAIN = """
import fcntl, multiprocessing, os, pathlib, queue, select, socket, subprocess, sys, threading, time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
kind, seconds = sys.argv[1], float(sys.argv[2])
sleeps = f"import time; time.sleep({seconds})"

def later(call):
    def wait():
        time.sleep(seconds)
        call()
    threading.Thread(target=wait, daemon=True).start()

def ask(limit=None):
    mine, theirs = socket.socketpair()
    mine.settimeout(limit)
    later(lambda: theirs.send(b"x"))
    return mine

def other(program):
    started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    return int(started.stdout.readline())

def server(asked=0, answer="x"):
    return other(f"import socket, time\\ns = socket.create_server(('127.0.0.1', 0))\\n"
                 f"print(s.getsockname()[1], flush=True)\\nc, _ = s.accept()\\n"
                 f"c.recv({asked})\\ntime.sleep({seconds})\\nc.send({answer.encode()!r})")

def locked(how):
    other(f"import fcntl, time\\nf = open('the.lock', 'w')\\nfcntl.{how}(f, fcntl.LOCK_EX)\\n"
          f"print(1, flush=True)\\ntime.sleep({seconds})")
    getattr(fcntl, how)(open("the.lock", "w"), fcntl.LOCK_EX)

def fetch():
    port = server(9999, "HTTP/1.0 200 OK\\r\\n\\r\\nx")
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=seconds + 60).read()

def fifo():
    os.mkfifo("fifo")
    other(f"import time\\nprint(1, flush=True)\\ntime.sleep({seconds})\\nopen('fifo', 'w')")
    open("fifo").read()

def lock_file():
    path = pathlib.Path("data.lock").resolve()
    path.touch()
    other(f"import os, time\\nprint(1, flush=True)\\ntime.sleep({seconds})\\n"
          f"os.unlink({str(path)!r})")
    while os.path.exists("data.lock"):
        time.sleep(1.0)

def shared_lock():
    lock = multiprocessing.get_context("fork").Lock()
    def keep():
        lock.acquire()
        time.sleep(seconds)
        lock.release()
    multiprocessing.get_context("fork").Process(target=keep, daemon=True).start()
    time.sleep(0.5)
    lock.acquire()

def polled(path, every):
    later(lambda: pathlib.Path(path).touch())
    while not os.path.exists(path):
        time.sleep(every)

def event():
    done = threading.Event()
    later(done.set)
    done.wait()

def piped():
    out, into = os.pipe()
    later(lambda: os.write(into, b"x"))
    os.read(out, 1)

def queued():
    box = queue.Queue()
    later(lambda: box.put(1))
    box.get()

WAITS = {
    "sleep": lambda: time.sleep(seconds),
    "recv": lambda: ask().recv(1),
    "recv with a limit": lambda: ask(seconds + 60).recv(1),
    "a server": lambda: socket.create_connection(("127.0.0.1", server())).recv(1),
    "HTTP with a limit": fetch,
    "poll": lambda: select.select([ask()], [], []),
    "flock": lambda: locked("flock"),
    "fcntl": lambda: locked("lockf"),
    "a shared lock": shared_lock,
    "child": lambda: subprocess.run([sys.executable, "-c", sleeps]),
    "event": event,
    "queue": queued,
    "future": lambda: ThreadPoolExecutor(1).submit(time.sleep, seconds).result(),
    "pipe": piped,
    "fifo": fifo,
    "a lock file": lock_file,
    "polled file": lambda: polled("polled", 0.2),
    "a file, seldom": lambda: polled("seldom", 7.0),
}
if os.environ["RANK"] == "1":
    WAITS[kind]()
    pathlib.Path("done").touch()
else:
    while not os.path.exists("done"):
        time.sleep(0.1)
print("trained", flush=True)
"""
KINDS = (
    *("sleep", "recv", "recv with a limit", "a server", "poll", "flock", "child", "event"),
    *("queue", "future", "pipe", "polled file", "a file, seldom", "HTTP with a limit", "fcntl"),
    *("a shared lock", "fifo", "a lock file"),
)
# Waits of which no look tells that they will end: nobody is to be seen who has what is waited for,
# and no time limit that is known.
ONLY_SILENT = ("recv", "a server", "poll", "event", "queue", "pipe", "fifo")
TOLD_AFTER = 10.0  # seconds after --stall by which what stands still has been told
BINS = (5.0, 20.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True)
class Silence:
    """How one job went."""

    kind: str
    seconds: float
    told: tuple[str, ...]  # outcomes, one after another
    status: int
    stall: float = 20.0

    @property
    def is_to_be_told(self) -> bool:
        """Silence is all that can be known of it, and it was silent for long enough."""
        return self.kind in ONLY_SILENT and self.seconds > self.stall + TOLD_AFTER

    @property
    def well(self) -> bool:
        """It ended as it does without us, and was not called a hang, but silent where that is all
        that can be known.
        """
        untold = self.is_to_be_told and "silent" not in self.told
        return self.status == 0 and "hang" not in self.told and not untold


def main() -> int:
    """Print each job that was told wrong, and the table; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=108)
    parser.add_argument("--beside", type=int, default=12)
    parser.add_argument("--least", type=float, default=5.0)
    parser.add_argument("--most", type=float, default=300.0)
    parser.add_argument("--stall", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    least, most = math.log(options.least), math.log(options.most)
    drawn = [
        (KINDS[n % len(KINDS)], math.exp(chance.uniform(least, most))) for n in range(options.jobs)
    ]
    found: list[Silence] = []
    with ThreadPoolExecutor(options.beside) as pool:
        for one in pool.map(lambda job: run(job[0], job[1], options.stall), drawn):
            found.append(one)
            if not one.well:
                print(f"WRONG {one.kind}, {one.seconds:.0f} s: {one.told}, status {one.status}")
    print_table(found)
    return int(not all(one.well for one in found))


def run(kind: str, seconds: float, stall: float) -> Silence:
    """Run one job under the watch."""
    with tempfile.TemporaryDirectory(prefix="silence-") as made:
        folder = Path(made)
        (folder / "torchrun").write_text(RANKS)
        (folder / "train.py").write_text(TRAIN)
        watch = [sys.executable, "-m", "hangbisect", "run", "--on-hang", "end", "--run-dir", "run"]
        watch += ["--stall", str(stall), "--plain", "--"]
        job = [sys.executable, "torchrun", kind, str(seconds)]
        environ = {**os.environ, "HANGBISECT_REPORTS": "later"}
        began = time.monotonic()
        done = subprocess.run(
            [*watch, *job],
            cwd=folder,
            env=environ,
            capture_output=True,
            timeout=seconds + 300,
        )
        assert time.monotonic() - began > seconds * 0.5 or done.returncode, done.stderr.decode()
        return Silence(kind, seconds, read_outcomes(folder / "run"), done.returncode, stall)


def read_outcomes(run_dir: Path) -> tuple[str, ...]:
    """Return the verdicts that were given, one after another."""
    try:
        lines = (run_dir / "events.jsonl").read_text().splitlines()
    except OSError:
        return ()
    events = [json.loads(line) for line in lines]
    return tuple(event["outcome"] for event in events if event["t"] == "verdict")


def print_table(found: list[Silence]) -> None:
    """Print for each kind of wait and each length how many were called a hang, and silent."""
    ranges = list(itertools.pairwise(BINS))
    heads = " ".join(f"{f'{low:.0f} to {high:.0f} s':>16}" for low, high in ranges)
    print(f"{'called a hang, silent, of':26} {heads}")
    for kind in (*KINDS, "all"):
        cells = []
        for low, high in ranges:
            jobs = [j for j in found if kind in (j.kind, "all") and low <= j.seconds < high]
            hangs = sum(not one.well for one in jobs)
            silent = sum("silent" in one.told for one in jobs)
            cells.append(f"{hangs}, {silent} of {len(jobs)}" if jobs else "-")
        print(f"{kind:26} " + " ".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
