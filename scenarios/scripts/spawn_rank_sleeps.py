"""mp.spawn: rank 0 waits until midnight for its data after the group is made, rank 1 trains."""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def until_data_is_there() -> None:
    time.sleep(36000)


def train(rank: int, world: int, port: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if rank == 0:
        until_data_is_there()
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2, sys.argv[1]), nprocs=2)

# /// case
# command = "python train.py $PORT"
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "wrap", "first_batch", "steady", "data_module", "ddp"]
# after = ["DDP ready"]
# own_code = true
# calls = ["time.sleep"]
# ///
