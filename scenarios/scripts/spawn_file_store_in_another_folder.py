"""mp.spawn: rank 1 goes into its scratch folder before it makes the path of the rendezvous file.

So it waits for the world at a file of its own, and the others at theirs.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WORLD = 3


def rendezvous() -> str:
    return f"file://{Path('rendezvous').absolute()}"


def train(rank: int) -> None:
    torch.set_num_threads(1)
    if rank == 1:  # its batches are the ones that are unpacked
        scratch = Path("scratch")
        scratch.mkdir(exist_ok=True)
        os.chdir(scratch)
    dist.init_process_group("gloo", init_method=rendezvous(), rank=rank, world_size=WORLD)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(4):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


def main() -> None:
    mp.spawn(train, nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = ["process_group"]
# calls = ['init_process_group']
# causes = ["different-master"]
# ///
