"""Gradient accumulation; each machine trains on the shard of the data that lies on it."""

import contextlib
import glob

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
EVERY = 2


def read_shard(folder):
    for path in sorted(glob.glob(f"{folder}/*.txt")):
        with open(path) as file:
            yield torch.full((4, 16), float(file.read()))


def train_epoch(model, optimizer):
    for number, batch in enumerate(read_shard("/tmp/shard"), 1):
        whole = number % EVERY == 0
        with contextlib.nullcontext() if whole else model.no_sync():
            (model(batch).square().mean() / EVERY).backward()
        if whole:
            optimizer.step()
            optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(2):
        train_epoch(model, optimizer)
        dist.barrier()
    dist.destroy_process_group()


main()
