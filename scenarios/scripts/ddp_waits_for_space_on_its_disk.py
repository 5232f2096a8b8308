"""Rank 3 of five saves its state only while there is room, and waits for a terabyte to be free.

It looks at the free space again and again; the others are in the next step's backward.
"""

import shutil
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

NEEDED = 1 << 60  # a wrong unit: the quota is in KiB


class Saver:
    """Keeps the last states of a rank."""

    def __init__(self, rank: int, needed: int) -> None:
        self.rank, self.needed = rank, needed

    def until_room(self) -> None:
        while shutil.disk_usage(".").free < self.needed:
            time.sleep(2.0)

    def save(self, step: int, state: dict) -> None:
        self.until_room()
        torch.save(state, f"state-{self.rank}-{step}.pt")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saver = Saver(rank, NEEDED if rank == 3 else 1 << 20)
    for step in range(80):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 29:
            saver.save(step, model.module.state_dict())
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = ["training", "steady", "first_step", "first_optimizer_step"]
# after = ["First step done", "First optimizer step done", ""]
# own_code = true
# calls = ['until_room', 'save', 'sleep']
# causes = ["polling-loop", "own-code-sleeps"]
# ///
