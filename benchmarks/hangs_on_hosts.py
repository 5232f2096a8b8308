"""Whether hangs of jobs over several hosts are told rightly: who, where, why, in one verdict.

    python benchmarks/hangs_on_hosts.py [--ways run,files,attach] [--hosts 2,4] [--kinds flock,...]
        [--keep DIR]

Hosts are namespaces of their own (hosts.py) without a shared folder, one rank on each. Each kind of
hang is tried with the culprit on the first host and on another one. `run`: a `hangbisect run` on
each host, joined by a token. `files`: the same without a link (`--nodes off`), and `hangbisect
merge` of their folders. `attach`: nothing of ours is there until `hangbisect attach --hosts`.

The truths (TRUTHS) were fixed before the first run. Aims, of 60: rank and host right in 57, the
cause in 54, one verdict in all, no waiting rank or node blamed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hosts_services
from hosts import Hosts, missing
from joined_hosts import HEADINGS, SCRIPTS, environ_of, until

SETTLES = 4.0  # seconds after the verdict in which another one may be printed
ATTACH_AFTER = 14.0  # seconds from the start until all others wait
LIMIT = 150.0  # seconds for a verdict


@dataclass(frozen=True)
class Truth:
    """What is right to say of one kind of hang."""

    outcomes: tuple[str, ...] = ("hang", "silent")
    causes: tuple[str, ...] = ()  # any of them; (): no cause is asked for


# Why: what the program below does on the culprit; the others wait for it over the network.
TRUTHS = {
    # An open() of a FIFO that nobody writes.
    "fifo": Truth(causes=("pipe-no-writer", "pipe-writer-gone")),
    # flock() on a file that a program outside of the job has, on that host.
    "flock": Truth(causes=("file-lock-held",)),
    # A threading.Lock taken twice by the main thread.
    "lock": Truth(causes=("self-deadlock", "deadlock")),
    # A server on the culprit's host accepts and never answers.
    "service": Truth(causes=("endpoint-silent",)),
    # subprocess.run() of a program that waits for ever.
    "child": Truth(causes=("child-program", "child-process-stuck")),
    # SIGSTOP, as a scheduler's suspend does.
    "stopped": Truth(causes=("stopped", "frozen")),
    # Raises: whoever has a connection to it fails after it.
    "raises": Truth(outcomes=("crash",)),
    # SIGKILL, as the kernel does without memory.
    "killed": Truth(outcomes=("crash",)),
    # The same after 15 s.
    "raises-late": Truth(outcomes=("crash",)),
    "killed-late": Truth(outcomes=("crash",)),
    # gloo: leaves out an all_reduce below a condition, and waits in the next barrier.
    "skips": Truth(causes=("rank-conditional-collective", "collective-mismatch", "uneven-rounds")),
    # gloo: stands in a FIFO before init_process_group, to which the others have come.
    "absent": Truth(causes=("pipe-no-writer", "pipe-writer-gone")),
    # gloo: a thread of its own that it waits for has taken a lock and sleeps for hours.
    "thread": Truth(causes=("thread-stuck", "own-code-sleeps")),
}
GLOO = frozenset(["skips", "absent", "thread"])
# Nothing is left of these for `attach` to look at.
ENDS = frozenset(["raises", "killed", "raises-late", "killed-late"])

# Rank 0 hands out work over sockets, the others ask for it; each round ends when all have answered.
SOCKETS = """\
import fcntl, json, os, signal, socket, subprocess, sys, threading, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprit, kind = int(sys.argv[1]), sys.argv[2]
when = 60 if kind.endswith("-late") else 3


def prepare(step):
    if kind == "fifo":
        os.mkfifo(f"/tmp/shards-{rank}")
        return open(f"/tmp/shards-{rank}").read()
    if kind == "flock":
        with open("/tmp/cache.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    if kind == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if kind == "service":
        asked = socket.create_connection((socket.gethostname(), 8600))
        asked.sendall(b"GET /config HTTP/1.0\\r\\n\\r\\n")
        return asked.recv(4096)
    if kind == "child":
        return subprocess.run(["tail", "-f", "/dev/null"], check=True)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind.startswith("raises"):
        raise ValueError(f"no such shard: {step}")
    if kind.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)


def send(connection, told):
    connection.sendall(json.dumps(told).encode() + b"\\n")


def work(share):
    return sum(hash((share, number)) % 7 for number in range(20_000))


def lead():
    listener = socket.create_server(("", 9100))
    workers = [listener.accept()[0].makefile("rwb", 0) for _ in range(world - 1)]
    for step in range(10_000):
        if step == when and culprit == 0:
            prepare(step)
        for number, one in enumerate(workers):
            one.write(json.dumps([step, number]).encode() + b"\\n")
        total = work(step) + sum(json.loads(one.readline()) for one in workers)
        print("step", step, total, flush=True)
        time.sleep(0.2)


def follow():
    while True:
        try:
            connection = socket.create_connection((os.environ["MASTER_ADDR"], 9100))
            break
        except OSError:
            time.sleep(0.2)
    replies = connection.makefile("rwb", 0)
    while line := replies.readline():
        step, share = json.loads(line)
        if step == when and rank == culprit:
            prepare(step)
        replies.write(json.dumps(work(share)).encode() + b"\\n")


lead() if rank == 0 else follow()
"""

WITH_GLOO = """\
import datetime, os, sys, threading, time

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprit, kind = int(sys.argv[1]), sys.argv[2]


class Cache:
    def __init__(self):
        self.lock = threading.Lock()

    def refresh(self):
        with self.lock:
            time.sleep(36_000)

    def get(self, key):
        with self.lock:
            return key


def shards():
    if kind == "absent" and rank == culprit:
        os.mkfifo("/tmp/shards")
        return open("/tmp/shards").read()
    return "0 1 2"


def train():
    metrics, cache = torch.zeros(4), Cache()
    for step in range(10_000):
        if kind == "thread" and rank == culprit and step == 3:
            threading.Thread(target=cache.refresh, daemon=True).start()
            time.sleep(0.5)
        cache.get(step)
        if not (kind == "skips" and rank == culprit and step == 3):
            dist.all_reduce(metrics)
        time.sleep(0.2)
        dist.barrier()


shards()
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
train()
"""


# Programs outside of the job, on the culprit's host, that its rank has to do with.
KEEPS_THE_LOCK = """\
import fcntl, time
lock = open("/tmp/cache.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(9999)
"""
NEVER_ANSWERS = """\
import socket, time
listener = socket.create_server(("", 8600))
print("ready", flush=True)
accepted = [listener.accept()[0]]
time.sleep(9999)
"""
BESIDE = {"flock": KEEPS_THE_LOCK, "service": NEVER_ANSWERS}


@dataclass(frozen=True)
class Tried:
    """What one way said of one job."""

    outcome: str
    rank: bool  # whom it names is right, on the right host
    cause: str  # its id, "" for none
    cause_right: bool | None  # None: none was asked for
    verdicts: int  # that were printed
    blamed: tuple[int, ...]


def judge(found: dict[str, Any], culprit: int, kind: str, verdicts: int) -> Tried:
    """Compare a verdict with the truth."""
    truth = TRUTHS[kind]
    outcome = found.get("outcome", "none")
    culprits = tuple(found.get("ranks", {}).get("culprit", ()))
    named = {one["host"] for one in found.get("where", [])}
    cause = (found.get("cause") or {}).get("id", "")
    is_named = culprits == (culprit,) and named == {f"n{culprit + 1}"}
    return Tried(
        outcome,
        outcome in truth.outcomes and is_named,
        cause,
        cause in truth.causes if truth.causes else None,
        verdicts,
        tuple(one for one in culprits if one != culprit),
    )


class Job:
    """One rank on each host, in one of the ways."""

    def __init__(self, made: Hosts, way: str, culprit: int, kind: str) -> None:
        """Start it."""
        self._made, self._way = made, way
        self._started: list[subprocess.Popen[str]] = []
        ours: Sequence[str] = ()
        if way != "attach":
            ours = (str(SCRIPTS / "hangbisect"), "run", "--run-dir", "run", "--stall", "4")
            ours = (*ours, *(("--nodes", "off") if way == "files" else ()), "--")
        if kind in BESIDE:
            self._beside = made[culprit].start([sys.executable, "-c", BESIDE[kind]])
            assert self._beside.stdout is not None
            self._beside.stdout.readline()
        program = WITH_GLOO if kind in GLOO else SOCKETS
        for number, host in enumerate(made.all):
            (host.inside_folder / "train.py").write_text(program)
            environ = environ_of(number, len(made.all), GLOO_SOCKET_IFNAME="eth0")
            if way == "files":
                environ.pop("HANGBISECT_TOKEN")
            words = [*ours, sys.executable, "-u", "train.py", str(culprit), kind]
            with self._log(number).open("w") as log:
                how: dict[str, Any] = {"stdout": log, "stderr": log}
                self._started.append(host.start(words, environ, **how))

    def said(self) -> str:
        """Return what was printed on all hosts."""
        logs = (self._log(number) for number in range(len(self._started)))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the verdicts in the folders of all hosts."""
        found = []
        for host in self._made:
            for path in (host.inside_folder / "run").glob("**/verdict.json"):
                with contextlib.suppress(ValueError):
                    found.append(dict(json.loads(path.read_text())))
        return found

    def is_judged(self, ends: bool) -> bool:
        """Return whether there is a verdict; of a job that `ends`, that it has."""
        found = [one["outcome"] for one in self.verdicts()]
        return "crash" in found if ends else bool(found)

    def end(self) -> None:
        """End it."""
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGTERM)
        for one in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(30)

    def keep(self, folder: Path) -> None:
        """Copy what was printed and written."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, host in enumerate(self._made):
            shutil.copy(self._log(number), folder / f"said-{host.name}.txt")
            with contextlib.suppress(OSError):
                run = host.inside_folder / "run"
                shutil.copytree(run, folder / host.name, dirs_exist_ok=True)

    def _log(self, number: int) -> Path:
        return self._made.root / f"said-{number}"


def ask_run(made: Hosts, job: Job, told: Callable[[], bool]) -> tuple[dict[str, Any], int]:
    """Return the verdict of the joined monitors, and how many were printed."""
    until(told)
    time.sleep(SETTLES)
    printed = sum(line.startswith(HEADINGS) for line in job.said().splitlines())
    found = sorted(job.verdicts(), key=lambda one: one["outcome"] != "crash")
    return (found[0] if found else {}), printed


def ask_files(made: Hosts, job: Job) -> tuple[dict[str, Any], int]:
    """Return the verdict that `merge` makes of the folders of all hosts."""
    end = time.monotonic() + LIMIT
    while len(job.verdicts()) < len(made.all) and time.monotonic() < end:
        time.sleep(0.5)
        if job.verdicts() and end - time.monotonic() > 40:
            end = time.monotonic() + 40  # who waits for other nodes may say nothing by itself
    time.sleep(1.0)
    job.end()
    folders = [
        str(host.inside_folder / "run") for host in made if any(host.inside_folder.glob("run/*"))
    ]
    words = [str(SCRIPTS / "hangbisect"), "merge", "--json", *folders]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    with contextlib.suppress(ValueError):
        return dict(json.loads(done.stdout)), 1
    return {"outcome": f"none: {done.stderr.strip()[-200:]}"}, 0


def ask_attach(made: Hosts) -> tuple[dict[str, Any], int]:
    """Return the verdict of `attach --hosts`, asked on the first host."""
    time.sleep(ATTACH_AFTER)
    names = ",".join(host.name for host in made)
    words = [SCRIPTS / "hangbisect", "attach", "--hosts", names, "--json"]
    done = made[0].run(words, limit=120.0)
    with contextlib.suppress(ValueError):
        return dict(json.loads(done.stdout)), 1
    return {"outcome": f"none: {done.stderr.strip()[-200:]}"}, 0


def try_one(
    way: str, count: int, culprit: int, kind: str, keep: Path | None
) -> tuple[Tried, float]:
    """Let one job hang, ask in one way, and return what came of it with the seconds it took."""
    with Hosts(count, shared=False) as made:
        if way == "attach":
            hosts_services.start_ssh(made)
        began = time.monotonic()
        job = Job(made, way, culprit, kind)
        if way == "attach":
            found, verdicts = ask_attach(made)
        elif way == "files":
            found, verdicts = ask_files(made, job)
        else:
            found, verdicts = ask_run(made, job, lambda: job.is_judged(kind in ENDS))
        seconds = time.monotonic() - began
        job.end()
        if keep is not None:
            folder = keep / f"{way}-{count}-{culprit}-{kind}"
            job.keep(folder)
            (folder / "answer.json").write_text(json.dumps(found, indent=1))
        return judge(found, culprit, kind, verdicts), seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ways", default="run,files,attach")
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--kinds", default=",".join(TRUTHS))
    parser.add_argument("--places", default="first,other", help="of the culprit's host")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    if why_not := missing() or ("attach" in args.ways and hosts_services.ssh_missing()):
        print(why_not)
        return 2
    tried: list[Tried] = []
    heading = f"{'way':7} {'hosts':>5} {'kind':11} {'on':3} {'outcome':8} {'rank':5}"
    print(f"{heading} {'cause':28} {'verdicts':>8} {'s':>6}")
    right = {True: "right", False: "WRONG", None: "-"}
    for way, count, kind, culprit in list_jobs(args):
        one, seconds = try_one(way, count, culprit, kind, args.keep)
        tried.append(one)
        blamed = f" blamed {list(one.blamed)}" if one.blamed else ""
        who = f"{way:7} {count:5} {kind:11} n{culprit + 1:<2} {one.outcome[:8]:8}"
        cause = f"{right[one.cause_right]} {one.cause}"
        told = f"{right[one.rank]:5} {cause:28} {one.verdicts:8} {seconds:6.1f}{blamed}"
        print(f"{who} {told}", flush=True)
    asked = [one for one in tried if one.cause_right is not None]
    print(
        f"rank and host {sum(one.rank for one in tried)} of {len(tried)}, cause"
        f" {sum(bool(one.cause_right) for one in asked)} of {len(asked)}, one verdict"
        f" {sum(one.verdicts == 1 for one in tried)}, others blamed"
        f" {sum(bool(one.blamed) for one in tried)}"
    )
    return 0


def list_jobs(args: argparse.Namespace) -> list[tuple[str, int, str, int]]:
    """Return the way, the number of hosts, the kind and the culprit of each job."""
    return [
        (way, count, kind, 0 if place == "first" else count // 2)
        for way in args.ways.split(",")
        for count in map(int, args.hosts.split(","))
        for kind in args.kinds.split(",")
        for place in args.places.split(",")
        if not (way == "attach" and kind in ENDS)
    ]


if __name__ == "__main__":
    sys.exit(main())
