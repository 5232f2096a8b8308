"""Rank 2 of five reads a manifest by fsspec over HTTP; the server accepts and never answers.

fsspec asks by aiohttp in a loop that a thread of its own runs; the rank waits for its event.
"""

import os

import aiohttp
import fsspec
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Manifest:
    """Names of samples, by part."""

    def __init__(self) -> None:
        without_limit = {"timeout": aiohttp.ClientTimeout(total=None)}
        self.files = fsspec.filesystem("http", client_kwargs=without_limit)

    def part(self, number: int) -> list[str]:
        if number % 7:
            return [f"sample-{number}"]
        return self.files.cat_file(f"{os.environ['SERVICE']}/parts/{number}.txt").decode().split()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    manifest = Manifest()
    for step in range(1, 40):
        names = manifest.part(step if rank == 2 else 1)
        model(torch.randn(4 * len(names), 8)).pow(2).mean().backward()
        model.zero_grad()
        if rank == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# world = "silent_service"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["training", "steady", "first_step", "first_backward"]
# after = ["First backward done", "First step done", "DDP ready", ""]
# own_code = true
# calls = ['cat_file', 'fsspec', 'sync', 'part', 'HTTPFileSystem']
# causes = ["endpoint-silent"]
# ///
