"""mp.spawn: the ranks share a lock of a Manager; rank 2 of four keeps it while it sums up with all,
and the others want it before they come to the sum.
"""

import multiprocessing
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


class Ledger:
    """A file that one rank at a time writes in."""

    def __init__(self, lock, path: str) -> None:
        self.lock, self.path = lock, path

    def note(self, rank: int, loss: torch.Tensor) -> None:
        with self.lock, open(self.path, "a") as file:
            print(rank, loss.item(), file=file)

    def note_all(self, rank: int, loss: torch.Tensor) -> None:
        with self.lock, open(self.path, "a") as file:
            dist.all_reduce(loss)
            print(rank, loss.item(), file=file)


def train(rank: int, lock, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    ledger = Ledger(lock, "ledger.txt")
    for step in range(10):
        loss = torch.tensor([float(step)])
        if rank == 2 and step == 6:
            ledger.note_all(rank, loss)
            continue
        if step == 6:
            time.sleep(1)  # a longer batch
        ledger.note(rank, loss)
        dist.all_reduce(loss)
    dist.destroy_process_group()


def main() -> None:
    import os

    with multiprocessing.Manager() as manager:
        mp.spawn(train, (manager.Lock(), os.path.abspath("store")), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2], [0, 1, 2, 3]]
# culprits_by_stacks = [[0, 1, 2, 3], [0, 1, 3]]
# steps = ["training", "collectives", "first_all_reduce", "script"]
# after = ["First all_reduce done", ""]
# own_code = true
# calls = ['all_reduce', 'note', 'acquire', '__enter__']
# ///
