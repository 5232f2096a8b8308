"""How long `hangbisect attach` without arguments takes where several jobs run, and which it takes.

    python benchmarks/attach_choice.py [--rounds 5] [--workers 8] [--settle 10]
    unshare --pid --fork --mount-proc python ...     where others run jobs on this machine

A server of so many workers (the stand-in of vLLM in scenarios/scripts/packages), a training that
computes, and one whose last rank sleeps where the others meet. From the start of the command to its
end: within 5 s it is to look at the job that stands still, or to list the three. An idle server
stands still as well, or moves, as its workers wait.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jobs

LIMIT = 5.0  # seconds
RIGHT = ("stands", "list of 3")
PACKAGES = Path(__file__).parents[1] / "scenarios" / "scripts" / "packages"
_TRAINS = """
import pathlib, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
pathlib.Path(__file__).with_name(f"{pathlib.Path(__file__).stem}-{rank}").touch()
if "stands" in __file__ and rank == dist.get_world_size() - 1:
    time.sleep(1e6)
while True:
    weights = torch.randn(256, 256)
    for _ in range(20):
        weights = (weights @ weights).clamp(-1, 1)
    dist.all_reduce(weights)
"""


def main() -> int:
    """Measure, and return 1 where another job was taken or the median is over the limit."""
    parser = argparse.ArgumentParser(epilog=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--settle", type=float, default=10.0)
    args = parser.parse_args()
    took: list[float] = []
    answers: list[str] = []
    with jobs.folder() as here, _jobs(here, args.workers) as (started, server):
        time.sleep(args.settle)
        for number in range(args.rounds):
            began = time.monotonic()
            words = [sys.executable, *jobs.INSTALLED, "attach", "--json"]
            ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            took.append(time.monotonic() - began)
            answers.append(_read_answer(ran.stderr, started, server))
            load = os.getloadavg()[0]
            if number == 0 or answers[-1] not in RIGHT:
                print(ran.stderr)
            print(f"{number + 1:>3}  {took[-1]:5.2f} s  {answers[-1]}  load {load:.1f}", flush=True)
    wrong = sum(one not in RIGHT for one in answers)
    print(
        f"{args.workers} workers and two trainings, {os.cpu_count()} cores: median "
        f"{statistics.median(took):.2f} s, worst {max(took):.2f} s of {len(took)}; "
        f"{answers.count('stands')} took the one that stands still, {answers.count('list of 3')} "
        f"listed the three, {wrong} wrong; the limit is {LIMIT:.0f} s"
    )
    return int(bool(wrong) or statistics.median(took) > LIMIT)


def _read_answer(said: str, started: dict[str, int], server: int) -> str:
    """Return which job it looked at, or how many it listed."""
    found = re.search(r"^Looking at (\d+)", said, re.M)
    if found is None:
        return "list of " + "".join(re.findall(r"^(\d+) jobs run here", said, re.M))
    names = {pid: name for name, pid in {**started, "server": server}.items()}
    return names.get(int(found[1]), f"another: {found[1]}")


@contextmanager
def _jobs(here: Path, workers: int) -> Iterator[tuple[dict[str, int], int]]:
    """Start the three, wait until all have begun, and end them."""
    (here / "model.py").write_text("")
    environ = {**jobs.clean_environ(), "PYTHONPATH": str(PACKAGES)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    module = "vllm.entrypoints.openai.api_server"
    words = [sys.executable, "-m", module, "--model", "model.py", "--port", str(port)]
    server = jobs.Running([*words, "-tp", str(workers)], here, environ)
    running = [server]
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    started: dict[str, int] = {}
    try:
        for name in ("trains", "stands"):
            (here / f"{name}.py").write_text(_TRAINS)
            alone = [torchrun, "--standalone", "--nproc_per_node=2", f"{name}.py"]
            job = jobs.Running(alone, here, jobs.clean_environ())
            running.append(job)
            started[name] = job.process.pid
        ready = [here / f"{name}-{rank}" for name in started for rank in (0, 1)]
        begun = jobs.until(lambda: all(p.exists() for p in ready), 300.0, server.process)
        is_up = jobs.until(lambda: "startup complete" in server.said(), 300.0, server.process)
        if begun is None or is_up is None:
            raise SystemExit(server.said()[-2000:])
        yield started, server.process.pid
    finally:
        for job in running:
            job.process.kill()
            job.end(10.0)


if __name__ == "__main__":
    sys.exit(main())
