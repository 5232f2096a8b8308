"""Rank 1 calls a C library that keeps the GIL and does not come back, while it makes its model."""

import ctypes
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def fused_layer(rank: int) -> torch.nn.Module:
    library = ctypes.PyDLL(None)
    if rank == 1:
        library.sleep(7200)  # stands for a driver that probes a device
    return torch.nn.Linear(16, 1)


def main() -> None:
    rank = int(os.environ["RANK"])
    module = fused_layer(rank)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(module)
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "model", "process_group", "training"]
# after = ["torch imported"]
# own_code = true
# calls = ["fused_layer", "sleep"]
# ///
