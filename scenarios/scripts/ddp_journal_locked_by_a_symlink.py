"""Rank 1 of five appends to a journal of trials whose lock a killed job left behind: a symlink.

The lock is taken by making a link of a known name, as works on NFS; while it exists it waits.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    pause = 0.001
    while True:
        try:
            os.symlink(path, f"{path}.lock")
            break
        except FileExistsError:
            time.sleep(pause)
            pause = min(1.0, pause * 2)
    try:
        yield
    finally:
        os.unlink(f"{path}.lock")


class Journal:
    """What the trials of a study came to, a line each."""

    def __init__(self, path: str) -> None:
        self.path = path

    def append(self, entry: dict[str, float]) -> None:
        with locked(self.path), open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    journal = Journal("study.log")
    for step in range(60):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 1 and step == 25:
            journal.append({"step": step, "loss": loss.item()})
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3, 4]
# steps = ["training", "steady", "first_step", "first_optimizer_step"]
# after = ["First step done", "First optimizer step done", "First backward done", ""]
# own_code = true
# calls = ['locked', 'append', 'sleep', 'symlink', 'train\.main']
# causes = ["lock-file-left", "lock-file-without-owner", "polling-loop"]
#
# [files]
# "study.log" = ""
# "study.log.lock" = ""
# ///
