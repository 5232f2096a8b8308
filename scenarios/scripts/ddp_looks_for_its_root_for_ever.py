"""Rank 3 of four runs in a folder without a `.project` above it, and goes up for ever to find one:
the folder above the root is the root.
"""

import os
import pathlib

import torch
import torch.distributed as dist


def find_root(start: pathlib.Path) -> pathlib.Path:
    here = start.resolve()
    while not (here / ".project").exists():
        here = here.parent
    return here


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    marker = pathlib.Path(".project")
    if rank == 0:
        marker.touch()
    dist.barrier()
    scratch = pathlib.Path("/tmp") if rank == 3 else pathlib.Path()  # its own disk
    os.chdir(scratch)
    root = find_root(pathlib.Path())
    seen = torch.tensor([len(root.parts)])
    dist.all_reduce(seen)
    print(rank, seen.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["script", "training", "first_barrier"]
# after = ["First barrier done", "Barrier passed", ""]
# own_code = true
# busy = true
# calls = ['find_root', 'exists', 'stat', 'Path']
# causes = ["busy-loop", "polling-loop"]
# ///
