"""Ranks spin on counters in shared memory until all have come; rank 2 reads a pipe.

So a kernel of a GPU waits for its peers: nothing sleeps, and nothing is called. The other end of
the pipe is rank 2's own, forgotten.
"""

import argparse
import os
import subprocess
import sys
from multiprocessing import shared_memory

import numpy as np


class Flags:
    def __init__(self, name: str, rank: int, world: int) -> None:
        self.memory = shared_memory.SharedMemory(name=name)
        self.counts = np.ndarray((world,), dtype=np.int64, buffer=self.memory.buf)
        self.rank = rank

    def meet(self) -> None:
        self.counts[self.rank] += 1
        mine = self.counts[self.rank]
        while (self.counts < mine).any():
            pass


def feed(rank: int) -> bytes:
    reads, writes = os.pipe()
    if rank != 2:
        os.write(writes, b"rows")
    return os.read(reads, 100)


def train(rank: int, world: int, name: str) -> None:
    flags = Flags(name, rank, world)
    flags.meet()
    feed(rank)
    flags.meet()
    print(f"rank {rank} trained", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--name", default="")
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world, os.environ["FLAGS"])
        return
    memory = shared_memory.SharedMemory(create=True, size=8 * args.world)
    ranks = []
    for rank in range(args.world):
        own = {"RANK": str(rank), "WORLD_SIZE": str(args.world), "LOCAL_RANK": str(rank)}
        own["FLAGS"] = memory.name
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
    status = max(one.wait() for one in ranks)
    memory.unlink()
    sys.exit(status)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# busy = true
# calls = ['read', 'feed']
# causes = ["nobody-sends", "pipe-no-writer", "unknown"]
# limit = 420
# ///
