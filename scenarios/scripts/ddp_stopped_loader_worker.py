"""One of three DataLoader workers of rank 2 is stopped, as by Ctrl-Z in its terminal.

Its batch is the next one that the loader hands out in order, so the rank waits for it; the others
are in their backward.
"""

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Samples(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 2 and index == 160 and get_worker_info().id == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.full((8,), float(index))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    for batch in DataLoader(Samples(rank), batch_size=4, num_workers=3):
        model(batch).pow(2).mean().backward()
        model.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_step", "first_backward", "first_batch"]
# after = ["First backward done", "First step done", "First batch done", ""]
# own_code = true
# calls = ['DataLoader', '__next__', '_try_get_data', '__getitem__']
# causes = ["stopped"]
# ///
