"""Rank 1's two persistent workers share a queue of shard names, and its end is told only once.

The first worker takes the end, the second waits in get(): the loader of rank 1 has no end.
"""

import multiprocessing
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset[torch.Tensor]):
    def __init__(self, names: list[str]) -> None:
        self.names = multiprocessing.Queue()
        for name in [*names, None]:
            self.names.put(name)

    def __iter__(self) -> Iterator[torch.Tensor]:
        while (name := self.names.get()) is not None:
            for row in range(8):
                yield torch.full((16,), float(len(name) + row))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    workers = 2 if rank == 1 else 1
    data = Shards([f"shard-{rank}-{number}" for number in range(4)])
    loader = DataLoader(data, batch_size=4, num_workers=workers, persistent_workers=True)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for batch in loader:
        model(batch).pow(2).mean().backward()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["first_batch", "training", "steady", "first_backward", "data_workers"]
# after = ["First backward done", "First batch there", ""]
# calls = ['DataLoader', '__iter__', 'Queue\.get', '__next__']
# causes = ["worker-stuck"]
# limit = 300
# ///
