"""How long a full look takes: ranks side by side, each with two workers and another child.

The processes are plain ones that wait, not ranks of a job. Each imports torch, if it is there: what
is mapped is what py-spy has to search. The look is the one that the watch takes when a clock ran
out: stacks with locals, all threads as the kernel sees them, sockets, locks, files. Prints median
and longest of the rounds; a second for each rank is the limit.

    python benchmarks/looks.py [--ranks 2] [--rounds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from hangbisect.evidence.look import Target, take_looks
from hangbisect.evidence.process import family
from jobs import wide

LIMIT = 1.0
WIDTHS = (34, 10, 10, 10)

RANK = """
import multiprocessing, subprocess, threading, time
try:
    import torch
except ImportError:
    pass
for _ in range(8):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
for _ in range(2):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()
subprocess.Popen(["sleep", "1000"])
print("now", flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def ranks(count: int) -> Iterator[list[int]]:
    """Start processes that wait, each with three children; they end with the block."""
    command = [sys.executable, "-W", "ignore", "-c", RANK]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    pids = [process.pid for process in started]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"now\n"
        yield pids
    finally:
        children = list(family(pids))
        for process in started:
            process.kill()
        subprocess.run(["kill", "-KILL", *map(str, children)], check=False)
        for process in started:
            process.wait()


def timed(targets: list[Target], rounds: int) -> tuple[float, float]:
    """Return median and longest of the seconds of a look at these processes."""
    seconds = []
    for _ in range(rounds):
        begun = time.monotonic()
        looks = asyncio.run(take_looks(targets))
        seconds.append(time.monotonic() - begun)
        assert all(one.state for one in looks)
    return statistics.median(seconds), max(seconds)


def main() -> int:
    """Print the table; return 1 if a look takes longer than a second for each rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with ranks(options.ranks) as pids:
        children = [Target(pid, "child") for pid in family(pids)]
        alone = [Target(pids[0])]
        all_ranks = [Target(pid) for pid in pids]
        print(wide(("look at", "processes", "median s", "longest s"), WIDTHS))
        worst = 0.0
        for what, targets in (
            ("one rank alone", alone),
            (f"{len(pids)} ranks", all_ranks),
            (f"{len(pids)} ranks with their children", [*all_ranks, *children]),
        ):
            median, longest = timed(targets, options.rounds)
            worst = max(worst, median)
            print(wide((what, len(targets), median, longest), WIDTHS), flush=True)
    print(f"the limit is {LIMIT:.0f} s a rank")
    return int(worst > LIMIT * options.ranks)


if __name__ == "__main__":
    raise SystemExit(main())
