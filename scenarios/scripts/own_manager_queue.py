"""Rank 1 asks a Manager's queue, in which nobody puts; the others wait at a Barrier.

The ranks are processes that spawn; the queue is filled by rank 0 for the ranks from 2 on.
"""

import argparse
import multiprocessing
import os
from typing import Any


def train(rank: int, world: int, queue: Any, barrier: Any) -> None:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world)})
    if rank == 0:
        for _ in range(2, world):
            queue.put({"rows": 10})
    if rank:
        if rank == 1:
            barrier_of_late(rank)
        queue.get()
    barrier.wait()
    print(f"rank {rank} trains", flush=True)


def barrier_of_late(rank: int) -> None:
    import time

    time.sleep(4)  # the others are served first


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=4)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        queue, barrier = manager.Queue(), context.Barrier(args.world)
        ranks = [
            context.Process(
                target=train, args=(rank, args.world, queue, barrier), name=f"rank{rank}"
            )
            for rank in range(args.world)
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['get', 'train', '_callmethod', 'recv']
# causes = ["unknown", "manager-waits", "nobody-sends"]
# ///
