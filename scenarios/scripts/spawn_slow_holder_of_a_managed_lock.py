"""Healthy and silent: mp.spawn; rank 2 of four unpacks a shard for long while it has a lock of a
Manager, which the others want.
"""

import argparse
import multiprocessing
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)


class Cache:
    def __init__(self, lock, seconds: float) -> None:
        self.lock, self.seconds = lock, seconds

    def unpack(self, rank: int) -> None:
        with self.lock:
            time.sleep(self.seconds if rank == 2 else 0.1)


def train(rank: int, lock, store: str, seconds: float) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    cache = Cache(lock, seconds)
    if rank != 2:
        time.sleep(1)
    cache.unpack(rank)
    loss = torch.tensor([float(rank)])
    dist.all_reduce(loss)
    print(rank, loss.item(), flush=True)
    dist.destroy_process_group()


def main() -> None:
    args = parser.parse_args()
    with multiprocessing.Manager() as manager:
        given = (manager.Lock(), os.path.abspath("store"), args.seconds)
        mp.spawn(train, given, nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
