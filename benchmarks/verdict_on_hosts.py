"""How soon a job on several hosts has its one verdict, and how long a healthy start takes there,
against one host.

    python benchmarks/verdict_on_hosts.py [--ranks 8] [--hosts 2,8] [--rounds 5]
                                          [--parts verdict,healthy]

The ranks are light: no library, a meeting at rank 0 over sockets for each step. Hosts are
namespaces without a shared folder (hosts.py), all on this machine: so each number of ranks is
measured on one host as well, where the same processors do the same work. The ways take turns. A
clock counts from when movement was seen last: a step writes enough for each sample to see it, and
the hang comes once the watch has taken some. Without that the clock of a single host counted from
the begin of its watch, a second before the hang, and steps that only sleep pass for a poll.

`verdict`: once all hosts are joined, one rank opens a pipe that nobody writes to. Counted are the
seconds from that to verdict.json of rank 0's host, less those of `--stall`, and those from the
first look to the verdict (`to_verdict`): when a clock runs out depends on when movement was seen
last, which is off by a second or two. Asked: one second more than a single host on 2 hosts, two
seconds more on 8 hosts of 8 ranks.

`healthy`: seconds from the start of the first command to the end of the last one, of so many
meetings. Asked: 1.02 times a single host, watched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hosts import Host, Hosts, missing
from joined_hosts import MEETING, TOKEN, environ_of

JOINED = "one verdict on all"
STALL = 8.0  # seconds; ranks that come after one another have shorter silences
LIMIT = 180.0  # seconds for anything
# Seconds from all that are joined, or from the first step, to the hang: the watch has begun on one
# host too by then, and the hang comes at any time between two of its samples.
SETTLES = (5.0, 7.0)
SCRIPTS = Path(sys.executable).parent
# Starts the ranks of a host, as torchrun does.
STARTS = """\
import os, subprocess, sys
a_node, node = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_RANK"])
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[1:]],
        env={**os.environ, "RANK": str(node * a_node + n), "LOCAL_RANK": str(n)},
    )
    for n in range(a_node)
]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
RANK = (
    """\
import os, socket, sys, time
os.chdir(os.getcwd())  # nsenter has opened it before it came to this host
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprit, steps, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

def hang():
    os.mkfifo("/tmp/fifo")
    with open("hung.new", "w") as file:
        file.write(str(time.time()))
    os.rename("hung.new", "hung")
    open("/tmp/fifo").read()

"""
    + MEETING
    + """\
log, block = open(f"steps-{rank}.log", "w"), bytes(50_000)
scratch = os.open(f"scratch-{rank}", os.O_CREAT | os.O_WRONLY)
for step in range(steps):
    if rank == culprit and os.path.exists("go"):
        hang()
    all_meet()
    os.pwrite(scratch, block, 0)
    log.write("done ")
    log.flush()
    print("step", step, flush=True)
    time.sleep(pause)
"""
)


@dataclass(frozen=True)
class Way:
    """So many hosts, with so many ranks each."""

    hosts: int
    ranks: int

    def __str__(self) -> str:
        return f"{self.hosts} host{'s' * (self.hosts > 1)} of {self.ranks} ranks"


class Job:
    """A job of light ranks, watched on each host."""

    def __init__(self, made: Hosts, way: Way, culprit: int, steps: int, pause: float) -> None:
        """Start it. A culprit of -1: all go on to the end."""
        self._made = made
        self.started: list[subprocess.Popen[str]] = []
        run = [str(SCRIPTS / "hangbisect"), "run", "--run-dir", "run", "--stall", f"{STALL:g}"]
        words = ["rank.py", str(culprit), str(steps), str(pause)]
        for number, host in enumerate(made.all):
            inside = host.inside_folder
            (inside / "starts.py").write_text(STARTS)
            (inside / "rank.py").write_text(RANK)
            own = environ_of(number, way.hosts, LOCAL_WORLD_SIZE=str(way.ranks))
            own |= {"WORLD_SIZE": str(way.hosts * way.ranks), "HANGBISECT_TOKEN": TOKEN}
            own = {name: value for name, value in own.items() if name not in ("RANK", "LOCAL_RANK")}
            with (inside / "log").open("w") as log:
                command = [*run, "--", sys.executable, "starts.py", *words]
                self.started.append(host.start(command, own, stdout=log, stderr=log))

    def said_on(self, host: Host) -> str:
        """Return what was printed on a host."""
        return (host.inside_folder / "log").read_text(errors="replace")

    def end(self) -> None:
        """End it."""
        for one in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGTERM)
        for one in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(30)


def time_verdict(way: Way) -> tuple[float, ...]:
    """Return the seconds from the hang to the verdict on all, without those of --stall, and from
    the first look to it.
    """
    with Hosts(way.hosts, shared=False) as made:
        first, last = made[0], made[way.hosts - 1]
        job = Job(made, way, way.hosts * way.ranks - 1, 1_000_000, 0.2)
        try:
            steps = first.inside_folder / "steps-0.log"
            made.until(lambda: steps.exists() and steps.stat().st_size > 0, "no step", LIMIT)
            if way.hosts > 1:
                made.until(lambda: JOINED in job.said_on(first), "not joined", LIMIT)
            time.sleep(random.uniform(*SETTLES))
            (last.inside_folder / "go").touch()
            hung = last.inside_folder / "hung"
            made.until(hung.exists, "it does not hang", LIMIT)
            began = float(hung.read_text())

            def find() -> list[Path]:
                return [*(first.inside_folder / "run").glob("**/verdict.json")]

            made.until(lambda: bool(find()), f"no verdict\n{job.said_on(first)}", LIMIT)
            told = json.loads(find()[0].read_text())
            return find()[0].stat().st_mtime - began - STALL, told["seconds"]["to_verdict"] or 0.0
        finally:
            job.end()


def time_start(way: Way) -> tuple[float, ...]:
    """Return the seconds that a healthy job takes from its first command to the end of the last."""
    with Hosts(way.hosts, shared=False) as made:
        began = time.monotonic()
        job = Job(made, way, -1, 40, 0.2)
        try:
            statuses = [one.wait(LIMIT) for one in job.started]
        finally:
            job.end()
        if any(statuses):
            said = "\n".join(map(job.said_on, made))
            raise RuntimeError(f"statuses {statuses}\n{said}")
        return (time.monotonic() - began,)


def main() -> int:
    """Measure, and return 1 where it takes longer than what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=8, help="of each host")
    parser.add_argument("--hosts", default="2,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="verdict,healthy")
    args = parser.parse_args()
    if why_not := missing():
        print(why_not)
        return 2
    counts = [*map(int, args.hosts.split(","))]
    ways = [Way(1, args.ranks)]
    for count in counts:
        ways += [Way(1, count * args.ranks), Way(count, args.ranks)]
    is_well = True
    if "verdict" in args.parts:
        found = measure(time_verdict, ways, args.rounds, "verdict")
        for count in counts:
            single, all_on_one = found[ways[0]], found[Way(1, count * args.ranks)]
            taken, asked = found[Way(count, args.ranks)], 1.0 if count <= 2 else 2.0
            print(
                f"{count} hosts: {taken - single:+.2f} s against one host of {args.ranks} ranks, "
                f"{taken - all_on_one:+.2f} s against one of {count * args.ranks} "
                f"(asked: {asked:+.0f} s)"
            )
            is_well &= taken - all_on_one <= asked
    if "healthy" in args.parts:
        found = measure(time_start, ways[1:], args.rounds, "healthy start")
        for count in counts:
            times = found[Way(count, args.ranks)] / found[Way(1, count * args.ranks)]
            print(
                f"{count} hosts: {times:.3f} times one host of {count * args.ranks} (asked: 1.02)"
            )
            is_well &= times <= 1.02
    return 0 if is_well else 1


def measure(
    time_one: Callable[[Way], tuple[float, ...]], ways: list[Way], rounds: int, what: str
) -> dict[Way, float]:
    """Return the median of each way; they take turns."""
    found: dict[Way, list[tuple[float, ...]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            found[way].append(time_one(way))
    for way, each in found.items():
        first, *more = ([*column] for column in zip(*each, strict=True))
        looks = f", {statistics.median(more[0]):.2f} s of it from the first look" if more else ""
        print(
            f"{what}, {way}: median {statistics.median(first):.2f} s "
            f"({min(first):.2f} to {max(first):.2f}, {len(first)} times){looks}",
            flush=True,
        )
    return {way: statistics.median(one[0] for one in each) for way, each in found.items()}


if __name__ == "__main__":
    sys.exit(main())
