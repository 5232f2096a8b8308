"""Processes share a condition: rank 1 comes after the notice, and waits for the next one.

Rank 0 tells all that the weights are there, once. Rank 1 still looked for its files, so it is in
Condition.wait() for good; the others are at a barrier of multiprocessing.
"""

import multiprocessing as mp
import os
import time

import numpy as np

WORLD = 4


class Announced:
    """A version of the weights that one rank makes and all others wait for."""

    def __init__(self, context) -> None:
        self.changed = context.Condition()
        self.barrier = context.Barrier(WORLD)
        self.values = context.Array("d", 64, lock=False)

    def publish(self, values: np.ndarray) -> None:
        self.values[:] = list(values)
        with self.changed:
            self.changed.notify_all()

    def fetch(self) -> np.ndarray:
        with self.changed:
            self.changed.wait()
        return np.array(self.values[:])


def scan(folder: str) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def train(rank: int, shared: Announced) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    import torch

    torch.set_num_threads(1)
    if rank == 1:
        scan("/proc/self")
        time.sleep(4)
    if rank == 0:
        time.sleep(2)
        shared.publish(np.linspace(0, 1, 64))
        weights = np.linspace(0, 1, 64)
    else:
        weights = shared.fetch()
    for epoch in range(3):
        loss = torch.tensor(weights).pow(2).sum() * epoch
        shared.barrier.wait()
        print(f"rank {rank} epoch {epoch}: {loss:.3f}", flush=True)


def main() -> None:
    context = mp.get_context("fork")
    shared = Announced(context)
    ranks = [context.Process(target=train, args=(rank, shared)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["script", "import_torch", "training", "ranks"]
# after = ["torch imported", "Ranks started", ""]
# own_code = true
# calls = ['Condition\.wait', 'fetch', 'acquire', 'wait']
# causes = ["unknown", "deadlock", "nobody-sends"]
# ///
