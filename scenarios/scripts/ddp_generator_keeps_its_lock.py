"""A shard is read by a generator that has the lock of its file between two rows; rank 1 of four
asks for the number of rows in the middle of it, under the same lock.

The generator stands at its `yield`, on no stack, and has the lock.
"""

import collections
import threading
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Shard:
    """Rows of a shard. The file has one position, so whoever moves it takes the lock."""

    def __init__(self, rank: int) -> None:
        self.guard = threading.Lock()
        generator = torch.Generator().manual_seed(rank)
        self.rows = torch.randn(96, 16, generator=generator)
        if rank == 1:
            self.rows[37] = float("nan")
        self.position = 0

    def batches(self, size: int) -> Iterator[torch.Tensor]:
        with self.guard:
            self.position = 0
            while self.position < len(self.rows):
                yield self.rows[self.position : self.position + size]
                self.position += size

    def describe(self) -> str:
        with self.guard:
            return f"{len(self.rows)} rows, at {self.position}"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shard = Shard(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen: collections.Counter[str] = collections.Counter()
    for step, batch in enumerate(shard.batches(8)):
        if batch.isnan().any():
            seen["bad"] += 1
            print(f"rank {rank}: bad rows in {shard.describe()}", flush=True)
            batch = batch.nan_to_num()
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["training", "steady", "first_step", "ddp", "process_group", "first_backward"]
# after = ["First step done", "DDP ready", "First backward done", ""]
# own_code = true
# calls = ['describe', '__enter__', 'acquire', 'main']
# causes = ["self-deadlock", "deadlock"]
# says = ['[Ll]ock']
# ///
