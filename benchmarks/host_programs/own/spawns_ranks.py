"""Each machine starts its ranks by torch.multiprocessing. Each rank has a process that reads shards
from the disk of the machine, one at a time, under a lock that both have.
"""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def read_shards(rank, lock):
    with open(f"/tmp/reader-{rank}.pid", "w") as file:
        file.write(str(os.getpid()))
    while True:
        with lock:
            time.sleep(0.5)  # it reads ahead
        time.sleep(0.001)


def read_shard(lock):
    with lock:
        return torch.randn(8, 32)


def train(local_rank):
    torch.set_num_threads(1)
    rank = int(os.environ["NODE"]) * RANKS + local_rank
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["NODES"]) * RANKS)
    lock = mp.Lock()
    reader = mp.get_context("fork").Process(target=read_shards, args=(rank, lock), daemon=True)
    reader.start()
    model = torch.nn.Linear(32, 32)
    for _ in range(200):
        model.zero_grad()
        model(read_shard(lock)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, nprocs=RANKS)
