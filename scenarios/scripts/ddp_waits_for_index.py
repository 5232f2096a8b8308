"""Rank 1 waits for a file that rank 0 wrote on another node's disk, and never joins the group.

Every node is to build its index itself; a rank that believes it is not the first of its node only
waits until the file is there (allenai/OLMo PR 235).
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wait_for_index(folder: Path) -> None:
    while not (folder / "index.ready").exists():
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--index", type=Path, required=True)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    folder = args.index / f"node{rank}"
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.ready").touch()
    else:
        wait_for_index(folder)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --index index"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "data_module", "logs_directory", "process_group"]
# after = ["Args parsed"]
# own_code = true
# calls = ["time.sleep"]
# ///
