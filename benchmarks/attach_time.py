"""How long `hangbisect attach` takes until a verdict is complete: at most 5 s on 8 ranks.

    python benchmarks/attach_time.py [--ranks 8] [--rounds 5] [--settle 20] [--against PYTHON]

It starts so many ranks under torchrun, of which one sleeps where the others meet (gloo, on the
CPU), waits until they all hang, and then for `--settle` seconds: what hangs now has hung for a
while. Then it attaches, again and again, each time in a process of its own: from the start of the
command to its end, with the run folder written. Each verdict must name that rank. With `--against`
the installation of PYTHON attaches in turn with this one, to the same job.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jobs
from pairs import describe_ratio, read_cpu

LIMIT = 5.0  # seconds
_HANGS = """
import pathlib, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
pathlib.Path(__file__).with_name(f"ready-{rank}").touch()
if rank == dist.get_world_size() - 1:
    time.sleep(1e6)
dist.barrier()
"""


def main() -> int:
    """Measure, and return 1 where a verdict was wrong or the median is over the limit."""
    parser = argparse.ArgumentParser(epilog=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=20.0)
    parser.add_argument("--against", metavar="PYTHON", help="has the other installation")
    args = parser.parse_args()
    took: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}  # CPU seconds
    wrong = 0
    with jobs.folder() as here:
        script = here / "train.py"
        script.write_text(_HANGS)
        torchrun = Path(sys.executable).with_name("torchrun")
        words = [str(torchrun), "--standalone", f"--nproc_per_node={args.ranks}", str(script)]
        job = jobs.Running(words, here, jobs.clean_environ())
        try:
            ready = [here / f"ready-{rank}" for rank in range(args.ranks)]
            if jobs.until(lambda: all(p.exists() for p in ready), 300.0, job.process) is None:
                print(job.said()[-2000:])
                return 1
            time.sleep(args.settle)
            for python, number in _turns(args.against, args.rounds):
                before = read_cpu()
                seconds, culprit = _attach(python, job.process.pid)
                used.setdefault(python, []).append(read_cpu() - before)
                took.setdefault(python, []).append(seconds)
                wrong += culprit != [args.ranks - 1]
                who = "" if args.against is None else "old  " if python == args.against else "new  "
                load = os.getloadavg()[0]
                print(f"{who}{number + 1:>3}  {seconds:5.2f} s  culprit {culprit}  load {load:.1f}")
        finally:
            job.process.kill()
            job.end(10.0)
    ours = took[sys.executable]
    if args.against:
        print(f"new against old: {describe_ratio(took[args.against], ours)}")
        print(f"their CPU: {describe_ratio(used[args.against], used[sys.executable])}")
    print(
        f"{args.ranks} ranks, {os.cpu_count()} cores: median {statistics.median(ours):.2f} s, "
        f"worst {max(ours):.2f} s of {len(ours)}; {wrong} wrong; the limit is {LIMIT:.0f} s"
    )
    return int(bool(wrong) or statistics.median(ours) > LIMIT)


def _turns(other: str | None, rounds: int) -> Iterator[tuple[str, int]]:
    """Yield who attaches, and in which round: this one alone, or both in alternating order."""
    for number in range(rounds):
        both = [sys.executable] if other is None else [other, sys.executable]
        for python in reversed(both) if number % 2 else both:
            yield python, number


def _attach(python: str, pid: int) -> tuple[float, list[int]]:
    """Return how long it took, and whom it blames."""
    with tempfile.TemporaryDirectory() as folder:
        words = [python, *jobs.INSTALLED, "attach", str(pid), "--run-dir", folder]
        began = time.monotonic()
        subprocess.run(words, capture_output=True, timeout=120, check=False)
        seconds = time.monotonic() - began
        verdict = json.loads((Path(folder) / "verdict.json").read_text(encoding="utf-8"))
    culprit: list[int] = verdict["ranks"]["culprit"]
    return seconds, culprit


if __name__ == "__main__":
    sys.exit(main())
