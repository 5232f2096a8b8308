"""How long the ranks of all nodes wait once the last node has reached a checkpoint.

    python benchmarks/barriers_of_nodes.py [--nodes 8,64,1250] [--rounds 20]

The lead is the link's own (link/lead.py), and so are the nodes (link/node.py), each with a
connection of its own; all of them are in this one process, so the time has what both ends do. A
node's ranks are made up. A round begins as the last node tells that its ranks are there, and ends
as the last one hears that all are. Beside it, as the least that a message to all nodes takes: the
time from one beat of the lead to the last node that hears it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from hangbisect.base.client_program import allow_descriptors
from hangbisect.link.channel import Credentials
from hangbisect.link.lead import Lead
from hangbisect.link.messages import AtBarrier, Beat, Digest, Join, Judged, RankWord
from hangbisect.link.node import NodeLink

OURS = Credentials("a job with barriers", b"k" * 16)
LIMIT = 120.0  # seconds for anything


async def judge_nothing(_: Sequence[object], __: Sequence[object], ___: object) -> Judged:
    return Judged(0, failed=True)


class Nodes:
    """So many nodes of a job, each with one rank, and their lead."""

    def __init__(self, count: int) -> None:
        self.lead = Lead(OURS, "n0", judge_nothing, lambda text: None)
        self.links = [self._make_link(number, count) for number in range(count)]
        self._port = 0

    def _make_link(self, number: int, count: int) -> NodeLink:
        join = Join(str(number), f"n{number}", f"process {number}", (number,), count)
        digest = Digest((RankWord(number, "runs", "4 Tokenizer loaded"),))

        async def find() -> tuple[list[tuple[str, int]], Credentials]:
            return [("127.0.0.1", self._port)], OURS

        return NodeLink(join, find, lambda: digest, lambda: None)

    async def join(self) -> list[asyncio.Task[None]]:
        """Have all nodes join, with barriers."""
        self._port = await self.lead.listen("127.0.0.1", 0)
        tasks = []
        for link in self.links:
            link.pass_barrier(AtBarrier(0))
            tasks.append(asyncio.create_task(link.run()))
        await self.until(lambda: all(link.spans_barriers for link in self.links))
        return tasks

    async def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT
        while not done():
            if time.monotonic() > end:
                raise TimeoutError("not all nodes came")
            await asyncio.sleep(0.01)

    async def time_barrier(self, number: int) -> float:
        """Return the seconds from the last node's word to the last node that may go on."""
        waiting, opened = len(self.links), asyncio.Event()

        def hear() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                opened.set()

        for link in self.links:
            link.on_barriers = hear
        for link in self.links[:-1]:
            link.pass_barrier(AtBarrier(number))
        await asyncio.sleep(0.3)  # until the lead has taken all that in
        began = time.perf_counter()
        self.links[-1].pass_barrier(AtBarrier(number))
        await asyncio.wait_for(opened.wait(), LIMIT)
        return time.perf_counter() - began

    async def time_beat(self) -> float:
        """Return the seconds from a beat to the last node that hears it."""
        heard = max(link.heard for link in self.links)
        await asyncio.sleep(0.05)
        began, heard = time.perf_counter(), time.monotonic()
        self.lead._send_all(Beat(heard))
        await self.until(lambda: all(link.heard >= heard for link in self.links))
        return time.perf_counter() - began


async def measure(count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each barrier, and of each beat."""
    nodes = Nodes(count)
    tasks = await nodes.join()
    barriers, beats = [], []
    for number in range(1, rounds + 1):
        barriers.append(await nodes.time_barrier(number))
        beats.append(await nodes.time_beat())
    nodes.lead.close()
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    return barriers, beats


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", default="8,64,1250")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    allow_descriptors(16_384)
    for count in map(int, args.nodes.split(",")):
        barriers, beats = asyncio.run(measure(count, args.rounds))
        print(
            f"{count:5} nodes: a barrier opens in {1000 * statistics.median(barriers):.1f} ms "
            f"(longest {1000 * max(barriers):.1f}); a beat is heard in "
            f"{1000 * statistics.median(beats):.1f} ms; medians of {args.rounds}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
