"""The shard of rank 2 is in no cache, and its DataLoader worker builds it: with a barrier of all.

What builds the cache was written for the ranks. In a worker, a fork of one, the threads of the
process group are not there.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CACHE = Path("cache")


def ensure_cached(shard: int) -> Path:
    """Build what is not there on the first rank, and wait for it on all."""
    file = CACHE / f"{shard}.pt"
    if not file.exists():
        if dist.get_rank() == 0:
            torch.save(torch.randn(64, 16), file)
        dist.barrier()
    return file


class Shards(Dataset):
    """Ten rows of each of several shards."""

    def __init__(self, shards: list[int]) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return 10 * len(self.shards)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.load(ensure_cached(self.shards[index // 10]))[index % 10]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    if rank == 0:
        CACHE.mkdir()
        for shard in range(7):  # that of an eighth was left out when the list was made
            torch.save(torch.randn(64, 16), CACHE / f"{shard}.pt")
    dist.barrier()
    mine = {0: [0, 4], 1: [1, 5], 2: [2, 7], 3: [3, 6]}[rank]
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(DataLoader(Shards(mine), batch_size=2, num_workers=1)):
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_batch", "first_step", "first_backward"]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['DataLoader', 'barrier', 'ensure_cached', '__getitem__', 'train\.main']
# says = ['barrier|ensure_cached']
# ///
