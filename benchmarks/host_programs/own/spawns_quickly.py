"""Each machine starts its ranks by torch.multiprocessing; a few steps, and it is done."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def train(local_rank):
    torch.set_num_threads(1)
    rank = int(os.environ["NODE"]) * RANKS + local_rank
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["NODES"]) * RANKS)
    for _ in range(20):
        loss = torch.ones(1)
        dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, nprocs=RANKS)
