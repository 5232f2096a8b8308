"""Rank 1 is stopped and nobody lets it go on."""

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # stands for a cluster's suspend
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "steady", "wrap", "first_batch", "ddp"]
# after = ["DDP ready"]
# own_code = true
# calls = ["kill", 'train\.main', "main"]
# ///
