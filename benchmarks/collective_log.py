"""What the log of collectives costs: under 10 µs an operation.

The log alone is measured around a function that does nothing, called as a job does: from its own
code, with a group, and from far inside a library (where the most frames are walked); the function
without the log is taken off. Then 2 ranks sum a small tensor over gloo, with the log and without,
in turns: what it costs beside what it is a log of. And what the pulse costs that each training
step leaves after the start, and what both are of a step of 20 ms (aim: below 0.5 %).

    python benchmarks/collective_log.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import os
import runpy
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
LIMIT = 10_000.0  # nanoseconds
CALLS = 20_000
STEP, STEP_OPERATIONS = 0.020, 5  # a training step: seconds, and operations in it
SUMS = 300
FRAMES = 12  # of a library, around the call
TURNS = 10

Function = Callable[..., Any]


def main() -> int:
    """Print the figures; return 1 if an operation costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rank", type=int)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return be_a_rank(arguments.rank, arguments.repeats)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "--repeats", str(arguments.repeats), "--rank"]
    ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in (0, 1)]
    try:
        return max(rank.wait(600) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()


def be_a_rank(rank: int, repeats: int) -> int:
    """Measure on rank 0, and take part on rank 1."""
    runpy.run_path(str(CHECKOUT / "bisect" / "__main__.py"), run_name="checkout")
    from hangbisect.rank.collective_log import CollectiveLog

    log = CollectiveLog()
    log.install()
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=2)
    tensor, group = torch.ones(64), dist.new_group([0, 1])
    worst = 0.0
    if rank == 0:
        for what, nanoseconds in log_alone(log, tensor, group, repeats):
            worst = max(worst, nanoseconds)
            print(f"the log alone, {what:<46} {nanoseconds:6.0f} ns an operation")
        pulse = pulse_alone(log, repeats)
        share = (STEP_OPERATIONS * worst + pulse) / (STEP * 1e9)
        print(f"the pulse of a training step {pulse:39.0f} ns a step")
        print(f"with {STEP_OPERATIONS} operations, of a step of {STEP * 1000:.0f} ms {share:23.2%}")
    dist.barrier()
    without, with_log = sums(log, tensor, dist, repeats)
    if rank == 0:
        print(f"all_reduce of 64 numbers, 2 ranks, gloo, without it {without / 1000:9.1f} µs")
        print(f"all_reduce of 64 numbers, 2 ranks, gloo, with it    {with_log / 1000:9.1f} µs")
        print("ok" if worst < LIMIT else f"NOT ok: over {LIMIT:.0f} ns")
    dist.destroy_process_group()
    return int(worst >= LIMIT)


def log_alone(log: Any, tensor: Any, group: Any, repeats: int) -> list[tuple[str, float]]:
    """Return nanoseconds a call by how it is called."""

    def bare(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
        return None

    logged = log._maker("all_reduce", log._groups.collective)(bare, 1)
    ways: list[tuple[str, Callable[[Function], float]]] = [
        ("from the job's own code", lambda f: timed(f, tensor)),
        ("with a group", lambda f: timed(f, tensor, group=group)),
        (f"from {FRAMES} frames inside a library", lambda f: inside_a_library(f, tensor)),
    ]
    found = []
    for what, time_of in ways:
        costs = [time_of(logged) - time_of(bare) for _ in range(repeats)]
        found.append((what, statistics.median(costs)))
    return found


def pulse_alone(log: Any, repeats: int) -> float:
    """Return the nanoseconds of the hook that is called after each step of an optimizer."""
    from hangbisect.rank.function_patching import exclude_from_compile

    pulse = log.count_steps()

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        pulse()

    hook = exclude_from_compile(stepped)
    return statistics.median(timed(hook, None, (), {}) for _ in range(repeats))


def timed(function: Function, *args: Any, **kwargs: Any) -> float:
    """Return the nanoseconds that a call takes."""
    began = time.perf_counter_ns()
    for _ in range(CALLS):
        function(*args, **kwargs)
    return (time.perf_counter_ns() - began) / CALLS


def inside_a_library(function: Function, tensor: Any) -> float:
    """Return the same where a library calls."""
    source = (
        "import time\n"
        "def deep(function, tensor, calls, frames):\n"
        "    if frames: return deep(function, tensor, calls, frames - 1)\n"
        "    began = time.perf_counter_ns()\n"
        "    for _ in range(calls): function(tensor)\n"
        "    return (time.perf_counter_ns() - began) / calls\n"
    )
    values: dict[str, Any] = {}
    exec(compile(source, "/site-packages/a_library.py", "exec"), values)
    found: float = values["deep"](function, tensor, CALLS, FRAMES)
    return found


def sums(log: Any, tensor: Any, dist: Any, repeats: int) -> tuple[float, float]:
    """Return the nanoseconds of an all_reduce without the log and with it, medians."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(repeats * TURNS):
        log.is_on = turn % 2 == 1
        dist.barrier()
        began = time.perf_counter_ns()
        for _ in range(SUMS):
            dist.all_reduce(tensor)
        taken[log.is_on].append((time.perf_counter_ns() - began) / SUMS)
    return statistics.median(taken[False]), statistics.median(taken[True])


if __name__ == "__main__":
    sys.exit(main())
