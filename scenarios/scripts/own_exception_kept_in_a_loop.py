"""Rank 1 tries again and again to open a file that nobody makes, and says nothing.

The others wait for a line from the parent, which hears each rank in turn.
"""

import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection

WORLD = 5


def shard(name: str) -> bytes:
    while True:
        try:
            with open(name, "rb") as file:
                return file.read()
        except OSError:
            time.sleep(0.5)


def train(rank: int, pipe: Connection) -> None:
    if rank == 1:
        shard("shard-00001.bin")
    pipe.send(rank)
    pipe.recv()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    fork = multiprocessing.get_context("spawn")
    ranks, pipes = [], []
    for rank in range(WORLD):
        ours, theirs = fork.Pipe()
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
        ranks.append(fork.Process(target=train, args=(rank, theirs)))
        ranks[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    for one in ranks:
        one.join()
    sys.exit(0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2, 3, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['shard', 'sleep']
# causes = ["polling-loop", "retry-loop"]
# ///
