"""Ranks that are started by hand, one machine after another, and meet at a store of the first."""

import datetime
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main():
    store = dist.TCPStore(
        *(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, RANK == 0),
        timeout=datetime.timedelta(minutes=30),
    )
    store.set(f"here/{RANK}", "yes")
    store.wait([f"here/{rank}" for rank in range(WORLD)])
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
    weights = torch.zeros(16)
    for _ in range(10):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
    dist.destroy_process_group()


main()
