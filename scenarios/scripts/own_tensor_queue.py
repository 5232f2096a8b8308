"""Rank 2 waits for a tensor that nobody puts into its queue; the others are in a Barrier.

The ranks are started by torch.multiprocessing, and make no process group.
"""

import argparse
from typing import Any

import torch
import torch.multiprocessing as mp


def shard(rank: int, queue: Any) -> torch.Tensor:
    found: torch.Tensor = queue.get()
    return found * rank


def train(rank: int, queues: list[Any], barrier: Any) -> None:
    torch.set_num_threads(1)
    shard(rank, queues[rank])
    barrier.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=4)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    queues = [context.Queue() for _ in range(args.world)]
    barrier = context.Barrier(args.world)
    ranks = [
        context.Process(target=train, args=(rank, queues, barrier)) for rank in range(args.world)
    ]
    for one in ranks:
        one.start()
    for rank in (0, 1, 3):
        queues[rank].put(torch.ones(4))
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['Queue', 'get', 'shard']
# causes = ["unknown", "nobody-sends"]
# ///
