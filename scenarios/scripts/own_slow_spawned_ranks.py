"""Healthy and silent: rank 1 sleeps for long, and the others are in a Barrier.

The ranks are started by torch.multiprocessing, and make no process group.
"""

import argparse
import time
from typing import Any

import torch
import torch.multiprocessing as mp


def train(rank: int, seconds: float, barrier: Any) -> None:
    torch.set_num_threads(1)
    if rank == 1:
        time.sleep(seconds)
    barrier.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    barrier = context.Barrier(args.world)
    ranks = [
        context.Process(target=train, args=(rank, args.seconds, barrier))
        for rank in range(args.world)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
