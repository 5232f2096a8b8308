"""Whether the clocks of nodes are as far apart as the lead of the link says, within its own bound.

    python benchmarks/clock_offsets.py [--seconds 30] [--jobs 2]

Four hosts with monotonic clocks of their own (time namespaces, hosts.py): the lead's, one 1,000 s
ahead of it, one 1,000 s behind, one beside it. For each the lead keeps an offset and a bound, half
of the shortest way there and back. The truth is what the namespaces were made with.

First the lead and the nodes' ends of the link alone (link/lead.py, link/node.py), of which each
offset is looked at ten times a second, while a process on each host keeps a core busy for half of
the time. Then whole jobs that hang: `clock_ahead_ms` of each node in verdict.json, whose truth is
0, for all hosts have one wall clock, against `clock_error_ms`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from hosts import Host, Hosts, missing
from joined_hosts import Job

PORT = 29450
AHEAD = (1_500.0, 2_500.0, 500.0, 1_500.0)  # of each host's clock; the lead's is the first
LIMIT = 120.0  # seconds for a verdict
BUSY = "import time\nwhile True:\n    time.sleep(0.01)\n    end = time.time() + 0.01\n" + (
    "    while time.time() < end: pass\n"
)


def main() -> int:
    """Measure, and return 1 where an offset is outside of its bound."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for the link alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--be", choices=("lead", "node"), help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.be:
        asyncio.run(be_lead() if args.be == "lead" else be_node(args.number))
        return 0
    if why_not := missing():
        print(why_not)
        return 2
    is_right = look_at_link(args.seconds)
    for _ in range(args.jobs):
        is_right &= look_at_job()
    return 0 if is_right else 1


# ---- the link alone ------------------------------------------------------------------------------


async def be_lead() -> None:
    """Lead, and print what is known of each node's clock."""
    from hangbisect.link.channel import Credentials
    from hangbisect.link.lead import Lead
    from hangbisect.link.messages import Judged

    async def judge(*_: Any) -> Judged:
        return Judged(0)

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    lead = Lead(Credentials("clocks", b"k" * 16), "n1", judge, lambda _: None)
    await lead.listen("0.0.0.0", PORT)
    while True:
        known = {p.join.node: (p.offset, p.error) for p in lead._peers.values()}
        print(json.dumps({n: both for n, both in known.items() if both[1] < 1e9}), flush=True)
        await asyncio.sleep(0.1)


async def be_node(number: int) -> None:
    """Be one node of the lead's."""
    from hangbisect.link.channel import Credentials
    from hangbisect.link.messages import Digest, Join, RankWord
    from hangbisect.link.node import NodeLink

    async def find() -> tuple[list[tuple[str, int]], Credentials]:
        return [("n1", PORT)], Credentials("clocks", b"k" * 16)

    join = Join(str(number), f"n{number + 1}", "p", (number,), len(AHEAD))
    word = RankWord(number, "runs", "1")
    await NodeLink(join, find, lambda: Digest((word,)), lambda: None).run()


def look_at_link(seconds: float) -> bool:
    """Look at the offsets for so long. Return whether each was within its bound."""
    with Hosts(len(AHEAD), shared=True, clocks=AHEAD) as made, contextlib.ExitStack() as running:
        apart = [_read_offset(host) - _read_offset(made[0]) for host in made]
        for host in made:
            running.enter_context(_ending(host.start([sys.executable, "-c", BUSY], folder="/")))
        lead = made[0].start([sys.executable, __file__, "--be", "lead"])
        running.enter_context(_ending(lead))
        for number, host in enumerate(made):
            words = [sys.executable, __file__, "--be", "node", f"--number={number}"]
            running.enter_context(_ending(host.start(words)))
        found: dict[str, list[tuple[float, float]]] = {}
        end = time.monotonic() + seconds
        assert lead.stdout is not None
        while time.monotonic() < end:
            for node, (offset, error) in json.loads(lead.stdout.readline()).items():
                found.setdefault(node, []).append((abs(offset + apart[int(node)]), error))
    is_right = len(found) == len(AHEAD)
    for node, samples in sorted(found.items()):
        outside = sum(off > error for off, error in samples)
        off, error = samples[-1]
        worst = max(each / bound for each, bound in samples)
        print(
            f"n{int(node) + 1}: clock {apart[int(node)]:+8.1f} s from the lead's; {len(samples)} "
            f"looks, {outside} outside of the bound; off by {worst:.0%} of it at the most; at the "
            f"end by {off * 1e6:.0f} us of {error * 1e6:.0f}"
        )
        is_right &= not outside
    return is_right


def _read_offset(host: Host) -> float:
    """Return by how much a host's monotonic clock is ahead of this machine's, as the kernel says
    (time_namespaces(7)).
    """
    said = host.run(["cat", "/proc/self/timens_offsets"], folder="/").stdout
    words = next(line.split() for line in said.splitlines() if line.startswith("monotonic"))
    return float(words[1]) + float(words[2]) / 1e9


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


# ---- whole jobs ----------------------------------------------------------------------------------


def look_at_job() -> bool:
    """Have a job hang. Return whether the wall clocks in its verdict differ by no more than the
    bound.
    """
    with Hosts(len(AHEAD), shared=False, clocks=AHEAD) as made:
        job = Job(made, 1, "fifo")
        try:
            made.until(lambda: bool(job.verdict(0)), "there is no verdict", LIMIT)
            nodes = job.verdict(0)["nodes"]
        finally:
            job.end()
    known = [one for one in nodes if one["clock_ahead_ms"] is not None]
    inside = [abs(one["clock_ahead_ms"]) <= one["clock_error_ms"] for one in known]
    bounds = [one["clock_error_ms"] for one in known]
    print(
        f"a job of {len(nodes)} nodes: {sum(inside)} of {len(nodes)} wall clocks within the bound "
        f"of the verdict (median {statistics.median(bounds or [0.0]):.3f} ms), the farthest "
        f"{max((abs(one['clock_ahead_ms']) for one in known), default=0.0):.3f} ms"
    )
    return len(inside) == len(nodes) == len(AHEAD) and all(inside)


if __name__ == "__main__":
    sys.exit(main())
