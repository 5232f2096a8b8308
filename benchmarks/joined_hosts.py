"""Whether jobs on several hosts that share no folder get one verdict, with the right rank and host.

    python benchmarks/joined_hosts.py [--kinds fifo,lock,sleep] [--hosts 2,3] [--rounds 1]

Each row of the table is one job: a rank on one of the hosts hangs in one way, the others wait for
it over sockets. `silence` has no culprit: the host loses its power. Counted are right answers (rank
and host; for a lost host that it is named and nobody blamed), and how many verdicts were printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hosts import Hosts, missing

KINDS = ("fifo", "lock", "sleep", "silence")
LIMIT = 120.0  # seconds for a verdict
JOINED = "one verdict on all"
HEADINGS = ("HANG  ", "SILENT  ", "CRASH  ")
SCRIPTS = Path(sys.executable).parent
TOKEN = "0123456789abcdef0123456789abcdef"
# Rank 0 serves, each other rank asks it. What comes before has set `rank` and `world`.
MEETING = """\
def all_meet():
    if rank == 0:
        for one in connections:
            one.recv(1)
        for one in connections:
            one.sendall(b"x")
    else:
        connection.sendall(b"x")
        connection.recv(1)

if rank == 0:
    listener = socket.create_server(("", 9100), backlog=256)
    connections = [listener.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            connection = socket.create_connection((os.environ["MASTER_ADDR"], 9100))
            break
        except OSError:
            time.sleep(0.1)
"""
# Rank 0 serves; each other rank asks it for every step. One of them does something else for ever.
# A step mostly sleeps, so each look may find its rank in the same sleep, and on a busy machine it
# uses less of a core than counts: what it writes tells it from a poll.
MEETS = (
    """\
import hashlib, os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprit, kind = int(sys.argv[1]), sys.argv[2]

def hang():
    if kind == "fifo":
        path = f"/tmp/fifo-{rank}"
        os.mkfifo(path)
        open(path).read()
    elif kind == "sleep":
        time.sleep(100_000)
    elif kind == "spin":
        while True:
            pass
    elif kind == "leave":
        time.sleep(8)  # the nodes are joined by then
        if os.fork():  # what it started keeps the connection open
            os._exit(0)
        time.sleep(100_000)
    elif kind == "crash":
        time.sleep(8)
        raise RuntimeError("no more")
    elif kind == "lock":
        import threading
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

def compute(name):
    for _ in range(20):
        getattr(hashlib, name)(block).hexdigest()
    os.pwrite(scratch, block, 0)
    time.sleep(0.04)
    log.write("done ")
    log.flush()

"""
    + MEETING
    + """\
log, block = open(f"steps-{rank}.log", "w"), bytes(50_000)
scratch = os.open(f"scratch-{rank}", os.O_CREAT | os.O_WRONLY)
for step in range(int(sys.argv[3])):
    if step == 3 and rank == culprit:
        hang()
    all_meet()
    for name in ("sha256", "sha1", "md5", "sha512"):  # a loop that only sleeps is called a poll
        compute(name)
print("rank", rank, "is done", flush=True)
"""
)


def environ_of(number: int, nodes: int, **more: str) -> dict[str, str]:
    """Return what a launcher sets that starts one rank on each host."""
    return {
        **{"RANK": str(number), "WORLD_SIZE": str(nodes), "LOCAL_RANK": "0"},
        **{"LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(number), "GROUP_WORLD_SIZE": str(nodes)},
        **{"MASTER_ADDR": "n1", "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "here"},
        **{"HANGBISECT_TOKEN": TOKEN, **more},
    }


class Job:
    """One rank on each of so many hosts, watched."""

    def __init__(
        self, made: Hosts, culprit: int, kind: str, *options: str, **variables: str
    ) -> None:
        """Start it, with these options of `run`. A culprit of -1: all go on."""
        self._made = made
        self.started: list[subprocess.Popen[str]] = []
        ours = (str(SCRIPTS / "hangbisect"), "run", "--run-dir", "run", "--stall", "4")
        run = [*ours, *options, "--"]
        words = ["meets.py", str(culprit), kind, "100000"]
        for number, host in enumerate(made.all):
            (host.inside_folder / "meets.py").write_text(MEETS)
            with self._log(number).open("w") as log:
                environ = environ_of(number, len(made.all), **variables)
                how: dict[str, Any] = {"stdout": log, "stderr": log}
                self.started.append(host.start([*run, sys.executable, *words], environ, **how))

    def said(self) -> str:
        """Return what was printed on all hosts."""
        return "\n".join(self.said_on(number) for number in range(len(self.started)))

    def said_on(self, number: int) -> str:
        """Return what was printed on a host."""
        return self._log(number).read_text(errors="replace")

    def verdict(self, number: int) -> dict[str, Any]:
        """Return the verdict in the folder of a host, {} while there is none."""
        for path in (self._made[number].inside_folder / "run").glob("**/verdict.json"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(path.read_text()))
        return {}

    def end(self) -> None:
        """End it."""
        for one in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGTERM)
        for one in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(30)

    def _log(self, number: int) -> Path:
        return self._made.root / f"said-{number}"


def until(done: Any) -> bool:
    """Wait until something is so; return whether it came to be."""
    end = time.monotonic() + LIMIT
    while not (found := done()) and time.monotonic() < end:
        time.sleep(0.1)
    return bool(found)


def measure(count: int, culprit: int, kind: str) -> tuple[bool, int, float]:
    """Return whether the answer was right, how many verdicts were printed, and the seconds from
    the start (from the end of a host) to the verdict.
    """
    with Hosts(count, shared=False) as made:
        job, began = Job(made, -1 if kind == "silence" else culprit, kind), time.monotonic()
        if kind == "silence":
            until(lambda: JOINED in job.said())
            time.sleep(5.0)
            made[culprit].die()
            began = time.monotonic()
        until(lambda: job.verdict(0))
        seconds, found = time.monotonic() - began, job.verdict(0)
        time.sleep(3.0)
        printed = sum(line.startswith(HEADINGS) for line in job.said().splitlines())
        job.end()
        return is_right(found, made[culprit].name, culprit, kind), printed, seconds


def is_right(found: dict[str, Any], host: str, culprit: int, kind: str) -> bool:
    """Return whether a verdict names whom it should."""
    if not found:
        return False
    culprits = found["ranks"]["culprit"]
    if kind == "silence":
        unseen = [one["name"] for one in found["nodes"] if not one["seen"]]
        return culprits == [] and unseen == [host]
    named = [one["host"] for one in found["where"]]
    return culprits == [culprit] and named == [host]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--hosts", default="2,3")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    if why_not := missing():
        print(why_not)
        return 2
    right: list[bool] = []
    times: list[float] = []
    print(f"{'hosts':>5} {'kind':8} {'on':4} {'right':6} {'verdicts':>8} {'seconds':>8}")
    for count in map(int, args.hosts.split(",")):
        for kind in args.kinds.split(","):
            for culprit in range(1 if kind == "silence" else 0, count):
                for _ in range(args.rounds):
                    is_it, printed, seconds = measure(count, culprit, kind)
                    right.append(is_it and printed == 1)
                    times.append(seconds)
                    told = "yes" if is_it else "NO"
                    print(
                        f"{count:5} {kind:8} n{culprit + 1:<3} {told:6} {printed:8} {seconds:8.1f}",
                        flush=True,
                    )
    print(f"{sum(right)} of {len(right)} right, with one verdict; median {median(times):.1f} s")
    return 0 if all(right) else 1


def median(times: list[float]) -> float:
    return statistics.median(times) if times else 0.0


if __name__ == "__main__":
    sys.exit(main())
