"""Rank 1 spins until a flag is set, and the thread that would set it has ended."""

import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Prefetcher:
    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.filled = 0
        threading.Thread(target=self.fill, name="prefetch").start()

    def fill(self) -> None:
        self.filled = min(self.samples, 8)

    def wait(self) -> None:
        while self.filled < self.samples:
            pass


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    Prefetcher(8 + dist.get_rank()).wait()
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "steady", "wrap", "first_batch", "data_module", "ddp"]
# busy = true
# after = ["DDP ready"]
# own_code = true
# calls = ['\.wait', "Prefetcher"]
# ///
