"""Started by hand on each machine: a file lists the ranks of this machine, one process each."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def start():
    with open("/tmp/ranks.txt") as file:
        ranks = file.read().split()
    started = []
    for local, rank in enumerate(ranks):
        environ = {**os.environ, "RANK": rank, "LOCAL_RANK": str(local)}
        started.append(subprocess.Popen([sys.executable, __file__], env=environ))
    return max(one.wait() for one in started)


def train():
    dist.init_process_group("gloo", init_method="env://")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if "RANK" in os.environ:
    train()
else:
    sys.exit(start())
